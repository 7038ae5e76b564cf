"""WebP: a walk over the RIFF chunks. Decodes nothing.

Source: RFC 9649 (WebP Image Format), sections 2.3 to 2.7 and 3.4.
"""

from shardkit.contract.images.exif import orientation
from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Warned

_RIFF_BYTES = 12


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of a WebP.

    Args:
        data: The file.
        complete: Unused: the walk over all chunks costs next to nothing.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise truncated(f"the WebP should be {end} bytes long, the file has {len(data)}")
    chunks = _chunks(data, end)
    facts = _header(data, chunks)
    facts.frames = max(1, sum(kind == b"ANMF" for kind, _, _ in chunks))
    bodies = {kind: data[start:stop] for kind, start, stop in reversed(chunks) if kind in (b"EXIF", b"XMP ")}
    facts.orientation, exif_is_bad = orientation(bodies.get(b"EXIF"), bodies.get(b"XMP "))
    warnings = [Warned.BAD_METADATA] if exif_is_bad else []
    if data[end:].strip(b"\0"):
        warnings.append(Warned.TRAILING_BYTES)
    facts.warnings = tuple(warnings)
    return facts


def _chunks(data: bytes, end: int) -> list[tuple[bytes, int, int]]:
    """Return kind and range of the body of each chunk."""
    chunks = []
    at = _RIFF_BYTES
    while at + 8 <= end:
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 8 + length > end:
            raise truncated(
                f"a WebP chunk at byte {at} should end at byte {at + 8 + length}, the image ends at {end}"
            )
        chunks.append((data[at : at + 4], at + 8, at + 8 + length))
        at += 8 + length + (length & 1)
    return chunks


def _header(data: bytes, chunks: list[tuple[bytes, int, int]]) -> Facts:
    for kind, start, stop in chunks:
        body = data[start : min(stop, start + 10)]
        if kind == b"VP8X" and len(body) == 10:
            width, height = (int.from_bytes(body[n : n + 3], "little") + 1 for n in (4, 7))
        elif kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a" and len(body) == 10:
            width, height = (int.from_bytes(body[n : n + 2], "little") & 0x3FFF for n in (6, 8))
        elif kind == b"VP8L" and body[:1] == b"\x2f" and len(body) >= 5:
            bits = int.from_bytes(body[1:5], "little")
            width, height = (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
        else:
            break
        require_size("WebP", width, height)
        return Facts("webp", width, height)
    raise bad_header("the WebP does not begin with a valid VP8, VP8L or VP8X chunk")
