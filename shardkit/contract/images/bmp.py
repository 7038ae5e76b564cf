"""BMP: the file and information headers. Decodes nothing.

Source: Microsoft, "Bitmap Storage" and [MS-WMF] 2.2.2 (BITMAPCOREHEADER, BITMAPINFOHEADER, V4, V5).
"""

import struct

from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated

_CORE_HEADER = 12
_RGB, _RLE8, _RLE4, _BITFIELDS, _JPEG, _PNG, _ALPHA_BITFIELDS = range(7)
_BIT_COUNTS = frozenset({1, 2, 4, 8, 16, 24, 32})
_PIXELS_PER_RLE_BYTE = 128
"""A run of two bytes stands for 255 pixels at most. (Skips could cover more, but nothing honest skips most of
itself.)"""


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of a BMP.

    Args:
        data: The file.
        complete: Unused: the header is all there is to look at.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    if len(data) < 26:
        raise truncated(f"the BMP ends after {len(data)} bytes, within its header")
    offset, header_bytes = struct.unpack_from("<II", data, 10)
    if len(data) < 14 + header_bytes:
        raise truncated(f"the BMP ends after {len(data)} bytes, within its header")
    if header_bytes == _CORE_HEADER:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        compression = _RGB
    elif header_bytes == 16:
        width, height, _, bits = struct.unpack_from("<iiHH", data, 18)
        compression = _RGB
    else:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    require_size("BMP", width, abs(height))
    if bits not in _BIT_COUNTS and compression not in (_JPEG, _PNG):
        raise bad_header(f"the BMP header declares {bits} bits a pixel, which do not exist")
    facts = Facts("bmp", width, abs(height))
    facts.unsupported = _why_unsupported(header_bytes, compression, bits)
    if compression in (_RLE8, _RLE4):
        facts.least_bytes = width * abs(height) // _PIXELS_PER_RLE_BYTE
    else:
        facts.least_bytes = (
            offset + (width * bits + 31) // 32 * 4 * (abs(height) - 1) + (width * bits + 7) // 8
        )
    return facts


def _why_unsupported(header_bytes: int, compression: int, bits: int) -> str:
    if compression in (_JPEG, _PNG):
        return "a BMP that wraps a JPEG or PNG for a printer, which no decoder here reads"
    if compression > _ALPHA_BITFIELDS:
        return f"a BMP of compression {compression}, which no decoder here reads"
    if compression == _BITFIELDS and header_bytes == 64:
        return "a Huffman-coded OS/2 BMP, which no decoder here reads"
    return "a BMP of 2 bits a pixel, which no decoder here reads" if bits == 2 else ""
