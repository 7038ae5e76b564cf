"""AVIF: sizes, depth and the extents of its items. Decodes nothing.

Sources: AV1 Image File Format 1.1 (AOMedia), ISO/IEC 23008-12 (ispe, pixi), ISO/IEC 14496-12 (iloc),
AV1-ISOBMFF 2.3.3 (av1C). Frames and orientation come from the decoder, which has read the same boxes.
"""

from shardkit.contract.field import Violation
from shardkit.contract.images.boxes import Box, boxes
from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Reason, Warned

_CONTAINERS = (b"iprp", b"ipco")
_MOST_ITEMS = 65_536


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of an AVIF; its size is the largest that any item declares.

    Args:
        data: The file.
        complete: Unused: the boxes are few.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    facts = Facts("avif", 0, 0)
    depths: list[int] = []
    are_gray: list[bool] = []
    top: list[Box] = []
    behind = _top_boxes(data, top)
    meta = next((box for box in top if box.kind == b"meta"), None)
    if all(box.kind == b"ftyp" for box in top):
        raise truncated(f"the AVIF ends after {len(data)} bytes, before its meta box")
    if meta is None:
        raise bad_header("the AVIF has no meta box")
    for box in _properties(data, meta.start + 4, meta.end):
        body = data[box.start : box.end]
        if box.kind == b"ispe" and len(body) >= 12:
            width, height = int.from_bytes(body[4:8], "big"), int.from_bytes(body[8:12], "big")
            if width * height > facts.width * facts.height:
                facts.width, facts.height = width, height
        elif box.kind == b"av1C" and len(body) >= 4:
            flags = body[2]
            depths.append(12 if flags & 0x60 == 0x60 else 10 if flags & 0x40 else 8)
            are_gray.append(bool(flags & 0x10))
        elif box.kind == b"iloc":
            _require_extents(data, body)
    require_size("AVIF", facts.width, facts.height)
    # An alpha plane is coded as a gray image of its own: the picture is gray if nothing in the file is in
    # colour.
    facts.depth, facts.is_gray = max(depths, default=8), bool(are_gray) and all(are_gray)
    facts.warnings = (Warned.TRAILING_BYTES,) if behind else ()
    return facts


def _top_boxes(data: bytes, top: list[Box]) -> bool:
    """List the boxes of the file; return whether bytes that are none stand behind them."""
    found = boxes(data, 0, len(data), "AVIF")
    try:
        top.extend(found)
    except Violation as violation:
        # Behind the picture, what is no box is no damage; before its data it is.
        if violation.reason is Reason.BAD_HEADER and any(box.kind == b"mdat" for box in top):
            return True
        raise
    return bool(data[top[-1].end :].strip(b"\0")) if top else False


def _properties(data: bytes, start: int, end: int) -> list[Box]:
    """Return the boxes in a meta box, those of its property containers included."""
    out = list(boxes(data, start, end, "AVIF"))
    for container in _CONTAINERS:  # one level each, however deep a hostile file nests them
        out += [
            inner for box in out if box.kind == container for inner in boxes(data, box.start, box.end, "AVIF")
        ]
    return out


def _require_extents(data: bytes, body: bytes) -> None:
    """Check that every extent of the file that an item location box names is there."""
    version = body[0] if body else 0
    if len(body) < 8 or version > 2:
        return
    offset_bytes, length_bytes, base_bytes = body[4] >> 4, body[4] & 15, body[5] >> 4
    index_bytes = body[5] & 15 if version else 0
    wide = 4 if version == 2 else 2
    at = 6

    def take(count: int) -> int:
        nonlocal at
        at += count
        return int.from_bytes(body[at - count : at], "big")

    for _ in range(min(take(wide), _MOST_ITEMS)):
        take(wide)
        method = take(2) & 15 if version else 0
        take(2)
        base = take(base_bytes)
        extents = take(2)
        for _ in range(extents if index_bytes + offset_bytes + length_bytes else 0):
            take(index_bytes)
            end = base + take(offset_bytes) + take(length_bytes)
            if method == 0 and end > len(data):
                raise truncated(f"the AVIF should hold data up to byte {end}, the file ends at {len(data)}")
            if at > len(body):
                raise bad_header("the AVIF's table of item locations is cut short")
