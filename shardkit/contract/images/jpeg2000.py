"""JPEG 2000 (codestream or JP2): size, depth and whether all tile-parts are there. Decodes nothing.

Source: ITU-T T.800, A.4.2 (SOT), A.5.1 (SIZ) and Annex I (JP2 boxes).
"""

import struct

from shardkit.contract.images.boxes import boxes
from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Warned

_SIZ, _SOT, _EOC = b"\xff\x51", b"\xff\x90", b"\xff\xd9"
_SIGNATURE = b"\0\0\0\x0cjP  "
_MOST_COMPONENTS = 16_384


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of a JPEG 2000 image.

    Args:
        data: The file.
        complete: Check that all tile-parts are there as well.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    start, end = _codestream(data)
    facts = _size(data, start)
    if complete:
        _require_tiles(data, start, end, facts)
    return facts


def _codestream(data: bytes) -> tuple[int, int]:
    """Return where the codestream begins and where the space for it ends."""
    if not data.startswith(_SIGNATURE):
        return 0, len(data)
    for box in boxes(data, 0, len(data), "JPEG 2000"):
        if box.kind == b"jp2c":
            return box.start, box.end
    if b"\xff\x4f\xff\x51" in data:
        raise bad_header("the JPEG 2000 has no codestream box")
    raise truncated(f"the JPEG 2000 ends after {len(data)} bytes, before its codestream")


def _size(data: bytes, start: int) -> Facts:
    if data[start : start + 4] != b"\xff\x4f" + _SIZ:
        raise bad_header("the JPEG 2000 codestream does not begin with a SIZ segment")
    try:
        right, bottom, left, top = struct.unpack_from(">IIII", data, start + 8)
        (count,) = struct.unpack_from(">H", data, start + 40)
        if not 0 < count <= _MOST_COMPONENTS:
            raise bad_header(f"the JPEG 2000 header declares {count} components")
        components = struct.unpack_from(f">{3 * count}B", data, start + 42)
    except struct.error:
        raise truncated(f"the JPEG 2000 ends after {len(data)} bytes, within its header") from None
    require_size("JPEG 2000", right - left, bottom - top)
    depths = components[::3]
    facts = Facts("jpeg2000", right - left, bottom - top, depth=max((depth & 0x7F) + 1 for depth in depths))
    if any(depth & 0x80 for depth in depths):
        facts.unsupported = "a JPEG 2000 of signed samples, which no policy turns into 8 bits"
    elif facts.depth > 16:
        facts.unsupported = (
            f"a JPEG 2000 of {facts.depth} bits a sample; 16 are the most that a policy converts"
        )
    elif count > 4:
        facts.unsupported = f"a JPEG 2000 of {count} components; the decoder here reads 1 to 4"
    elif facts.depth > 8:
        facts.mode = {1: "I;16", 2: "LA;16", 3: "RGB;16", 4: "RGBA;16"}[count]
    return facts


def _require_tiles(data: bytes, start: int, end: int, facts: Facts) -> None:
    """Walk the main header, then from tile-part to tile-part, to the end of the codestream."""
    at = start + 2
    while data[at : at + 2] != _SOT:
        if at + 4 > end:
            raise truncated(f"the JPEG 2000 ends after {len(data)} bytes, before its first tile")
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    while data[at : at + 2] == _SOT:
        length = int.from_bytes(data[at + 6 : at + 10], "big")
        if length == 0:  # the last tile-part reaches to the end of the codestream
            at = data.rfind(_EOC, at, end)
            if at < 0:
                at = end
        else:
            at += max(length, 12)
        if at > end:
            raise truncated(f"a JPEG 2000 tile should end at byte {at}, its codestream ends at {end}")
    if data[at : at + 2] == _EOC:
        if start == 0 and data[at + 2 :].strip(b"\0"):
            facts.warnings = (Warned.TRAILING_BYTES,)
    else:
        facts.warnings, facts.is_cut = (Warned.RECOVERED,), True
