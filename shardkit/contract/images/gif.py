"""GIF: a walk over the blocks. Decodes nothing.

Source: GIF89a specification, https://www.w3.org/Graphics/GIF/spec-gif89a.txt.
"""

from shardkit.contract.field import Violation
from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Reason, Warned

_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_HEADER_BYTES = 13


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of a GIF.

    The size is that of the canvas, grown by the first frame where it sticks out.

    Args:
        data: The file.
        complete: Count all frames; otherwise stop after the first.

    Raises:
        Violation: ``bad-header``, ``truncated`` or ``decode-error``.
    """
    if len(data) < _HEADER_BYTES:
        raise truncated(f"the GIF ends after {len(data)} bytes, within its header")
    width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    facts = Facts("gif", width, height, frames=0)
    at = _HEADER_BYTES + _table_bytes(data[10])
    warnings: list[Warned] = []
    while True:
        block = data[at] if at < len(data) else None
        if block == _TRAILER:
            if complete and data[at + 1 :].strip(b"\0"):
                warnings.append(Warned.TRAILING_BYTES)
            break
        if block == _IMAGE:
            at = _image(data, at, facts)
        elif block == _EXTENSION:
            at = _sub_blocks(data, at + 2)
        else:
            warnings.append(_no_trailer(facts, block, len(data)))
            break
        if facts.frames and not complete:
            break
    if not facts.frames:
        raise bad_header("the GIF holds no picture")
    require_size("GIF", facts.width, facts.height)
    facts.warnings = tuple(warnings)
    return facts


def _table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _image(data: bytes, at: int, facts: Facts) -> int:
    """Read an image block; return where it ends."""
    if at + 10 > len(data):
        raise truncated(f"the GIF ends after {len(data)} bytes, within a frame header")
    left, top, width, height = (int.from_bytes(data[at + n : at + n + 2], "little") for n in (1, 3, 5, 7))
    if not facts.frames:
        facts.width, facts.height = max(facts.width, left + width), max(facts.height, top + height)
    end = _sub_blocks(data, at + 10 + _table_bytes(data[at + 9]) + 1)
    facts.frames += 1
    return end


def _sub_blocks(data: bytes, at: int) -> int:
    while at < len(data):
        length = data[at]
        at += 1 + length
        if not length:
            return at
    raise truncated(f"the GIF ends after {len(data)} bytes, within a block")


def _no_trailer(facts: Facts, block: int | None, size: int) -> Warned:
    if not facts.frames and block is None:
        raise truncated(f"the GIF ends after {size} bytes, before its first picture")
    if not facts.frames:
        raise Violation(
            Reason.DECODE_ERROR, f"the GIF holds a block of unknown kind {block} before its first picture"
        )
    return Warned.RECOVERED
