"""The orientation that EXIF or XMP metadata gives an image. Nothing else of the metadata is read.

Sources: EXIF 2.32 (CIPA DC-008), tag 0x0112; TIFF 6.0, section 2; XMP Specification part 2
(tiff:Orientation).
"""

import re
import struct

_ORIENTATION = 0x0112
_SHORT, _LONG = 3, 4
_MOST_ENTRIES = 1000
_XMP = re.compile(rb"tiff:Orientation\s*(?:=\s*[\"']|>)\s*([0-9])")


class BadMetadata(Exception):
    """EXIF that cannot be read, or an orientation outside [1, 8]."""


def exif_orientation(block: bytes) -> int | None:
    r"""Return the orientation in an EXIF block, or None where it gives none.

    Args:
        block: A TIFF structure, with or without the ``Exif\0\0`` that JPEG puts before it.

    Raises:
        BadMetadata: The block is broken, or the value is outside [1, 8].
    """
    block = block.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        raise BadMetadata("EXIF does not begin with a byte order")
    try:
        value = _find(block, order)
    except struct.error:
        raise BadMetadata("EXIF is cut short") from None
    if value is not None and not 1 <= value <= 8:
        raise BadMetadata(f"orientation {value} is outside 1 to 8")
    return value


def xmp_orientation(packet: bytes) -> int | None:
    """Return the orientation in an XMP packet, or None where it gives none or one outside [1, 8]."""
    found = _XMP.search(packet)
    if found is None:
        return None
    value = int(found[1])
    return value if 1 <= value <= 8 else None


def orientation(exif: bytes | None, xmp: bytes | None) -> tuple[int, bool]:
    """Return the orientation that holds, and whether the EXIF could not be read. EXIF comes before XMP."""
    is_bad = False
    if exif:
        try:
            value = exif_orientation(exif)
        except BadMetadata:
            value, is_bad = None, True
        if value is not None:
            return value, False
    return (xmp_orientation(xmp) if xmp else None) or 1, is_bad


def _find(block: bytes, order: str) -> int | None:
    (start,) = struct.unpack_from(order + "I", block, 4)
    (count,) = struct.unpack_from(order + "H", block, start)
    for entry in range(min(count, _MOST_ENTRIES)):
        at = start + 2 + 12 * entry
        tag, kind = struct.unpack_from(order + "HH", block, at)
        if tag == _ORIENTATION and kind in (_SHORT, _LONG):
            (value,) = struct.unpack_from(order + ("H" if kind == _SHORT else "I"), block, at + 8)
            return int(value)
    return None
