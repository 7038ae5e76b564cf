"""Which format some bytes are, by their content alone; a file name is only ever compared with the answer.

Signatures are those of the formats' own specifications, as collected in the WHATWG MIME Sniffing standard
(https://mimesniff.spec.whatwg.org) and in the file(1) magic database.
"""

import os
import re

from shardkit.contract.field import Violation
from shardkit.contract.images.facts import bad_header, truncated
from shardkit.contract.reasons import Reason

FORMATS = ("jpeg", "png", "webp", "gif", "bmp", "tiff", "ppm", "avif", "jpeg2000")

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
)
_OTHER_IMAGES: tuple[tuple[bytes, str], ...] = (
    (b"\0\0\1\0", "ICO"),
    (b"\0\0\2\0", "CUR"),
    (b"icns", "ICNS"),
    (b"qoif", "QOI"),
    (b"8BPS", "PSD"),
    (b"8BIM", "PSD"),
    (b"DDS ", "DDS"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x0e\x03\x13\x01", "HDF4"),
    (b"v/1\x01", "OpenEXR"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\xff\xd8\xff\xf7", "JPEG-LS"),
    (b"\x01\xda", "SGI"),
    (b"\x59\xa6\x6a\x95", "Sun raster"),
    (b"SIMPLE  =", "FITS"),
    (b"gimp xcf", "XCF"),
    (b"farbfeld", "farbfeld"),
    (b"FLIF", "FLIF"),
    (b"BPG\xfb", "BPG"),
    (b"II\xbc", "JPEG XR"),
    (b"IIRO", "raw camera"),
    (b"IIU\0", "raw camera"),
    (b"FUJIFILM", "raw camera"),
    (b"FOVb", "raw camera"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"P7", "PAM"),
    (b"PyP\n", "PPM extension of Pillow"),
    (b"PyRGBA\n", "PPM extension of Pillow"),
    (b"PyCMYK\n", "PPM extension of Pillow"),
    (b"P0CMYK", "PPM extension of Pillow"),
    (b"/* XPM */", "XPM"),
    (b"DanM", "MSP"),
    (b"LinS", "MSP"),
    (b"BLP1", "BLP"),
    (b"BLP2", "BLP"),
    (b"FTEX", "FTEX"),
    (b"FTC\0", "FTEX"),
    (b"\xb1\x68\xde\x3a", "DCX"),
    (b"GRIB", "GRIB"),
    (b"BUFR", "BUFR"),
    (b"AT&TFORM", "DjVu"),
    (b"\xd7\xcd\xc6\x9a", "WMF"),
    (b"%!PS-Adobe", "PostScript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript"),
    (b"Image type:", "IM"),
    (b"\0\0\0\0\0\0\0\x04", "McIDAS"),
    (b"\x80\xe8\0\0", "PIXAR"),
)
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIF_BRANDS = frozenset(
    {
        b"heic",
        b"heix",
        b"heim",
        b"heis",
        b"hevc",
        b"hevx",
        b"hevm",
        b"hevs",
        b"mif1",
        b"msf1",
        b"mif2",
        b"miaf",
    }
)
_TGA_TYPES = frozenset({1, 2, 3, 9, 10, 11})
_PCX = re.compile(rb"\x0a[\0\2\3\4\5]\x01[\1\2\4\x08]", re.DOTALL)
_XBM = re.compile(rb"\s*#define[ \t]+\S+_width[ \t]+\d+")
_PNM_HEADER = re.compile(rb"P[1-6](?:[\s#]|$)")
_PNM_DIGITS = re.compile(rb"P[1-6][0-9]+\s[0-9]")
"""A PNM whose kind runs into its width: told from text by digits alone, and refused for its header."""
_PFM_HEADER = re.compile(rb"P[Ff][\s]")

_EXTENSIONS = {
    ".jpg": "jpeg", ".jpeg": "jpeg", ".jpe": "jpeg", ".jfif": "jpeg", ".mpo": "jpeg",
    ".png": "png", ".apng": "png", ".webp": "webp", ".gif": "gif", ".bmp": "bmp", ".dib": "bmp",
    ".tif": "tiff", ".tiff": "tiff", ".ppm": "ppm", ".pgm": "ppm", ".pbm": "ppm", ".pnm": "ppm",
    ".avif": "avif", ".avifs": "avif", ".jp2": "jpeg2000", ".j2k": "jpeg2000", ".j2c": "jpeg2000",
    ".jpc": "jpeg2000", ".jpf": "jpeg2000", ".jpx": "jpeg2000", ".heic": "HEIF", ".heif": "HEIF",
    ".ico": "ICO", ".tga": "TGA", ".qoi": "QOI", ".psd": "PSD", ".svg": "SVG",
}  # fmt: skip


def sniff(data: bytes) -> str:
    """Return which of :data:`FORMATS` `data` is.

    Raises:
        Violation: It is none of them: ``empty``, ``not-an-image``, ``truncated`` (too short to tell),
            ``bad-header`` (a damaged signature), ``unsupported`` (a known image kind that nothing here
            decodes), or ``format-not-allowed`` (an image of a format that shardkit does not open).
    """
    if not data:
        raise Violation(Reason.EMPTY, "there are no bytes")
    found = _readable(data)
    if found is not None:
        return found
    raise _verdict(data)


def promised_format(name: str) -> str | None:
    """Return the image format that the extension of `name` stands for, or None."""
    return _EXTENSIONS.get(os.path.splitext(name)[1].lower())


def _readable(data: bytes) -> str | None:
    for signature, name in _SIGNATURES:
        if data.startswith(signature):
            return None if data.startswith(b"\xff\xd8\xff\xf7") else name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp" and _AVIF_BRANDS & _brands(data):
        return "avif"
    if data[:2] == b"BM" and _is_bmp(data):
        return "bmp"
    return "ppm" if _PNM_HEADER.match(data) or _PNM_DIGITS.match(data) else None


def _brands(data: bytes) -> set[bytes]:
    """Return major and compatible brands of an ISO base media file (ISO/IEC 14496-12, 4.3)."""
    end = min(int.from_bytes(data[:4], "big"), len(data), 1024)
    return {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}


def _is_bmp(data: bytes) -> bool:
    """Tell a BMP from text that begins with BM, by the size of its information header."""
    return len(data) < 18 or int.from_bytes(data[14:18], "little") in (12, 16, 40, 52, 56, 64, 108, 124)


def _verdict(data: bytes) -> Violation:
    if data[4:8] == b"ftyp" and _HEIF_BRANDS & _brands(data):
        return Violation(Reason.UNSUPPORTED, "a HEIF image: no decoder here reads it")
    if _PFM_HEADER.match(data):
        return Violation(
            Reason.UNSUPPORTED, "a PFM image of floating-point samples: no policy turns them into 8 bits"
        )
    if data.startswith(b"\xff\xd8\xff\xf7"):
        return Violation(Reason.UNSUPPORTED, "a JPEG-LS image: no decoder here reads it")
    damaged = _damaged_signature(data)
    if damaged is not None:
        return damaged
    other = _other_image(data)
    if other is not None:
        return Violation(Reason.FORMAT_NOT_ALLOWED, f"an image of format {other}, which is never opened")
    return Violation(Reason.NOT_AN_IMAGE, "the bytes begin like no image format")


def _damaged_signature(data: bytes) -> Violation | None:
    if data.find(b"IHDR", 8, 24) >= 0 and b"PN" in data[:8]:
        return bad_header("the PNG signature is damaged, as by a transfer in text mode")
    if len(data) > 1 and _begins_an_image(data):
        return truncated(f"{len(data)} bytes are too few for an image")
    return None


def _begins_an_image(data: bytes) -> bool:
    """Whether all of `data` is the beginning of a signature."""
    if len(data) < 12 and (b"RIFF".startswith(data[:4]) or (data[:3] == b"\0\0\0" and data[4:8] == b"ftyp")):
        return True
    return any(len(data) < len(signature) and signature.startswith(data) for signature, _ in _SIGNATURES)


def _other_image(data: bytes) -> str | None:
    for signature, name in _OTHER_IMAGES:
        if data.startswith(signature):
            return name
    if data[128:132] == b"DICM":
        return "DICOM"
    if data[40:44] == b" EMF" and data[:4] == b"\1\0\0\0":
        return "EMF"
    for pattern, name in ((_PCX, "PCX"), (_XBM, "XBM")):
        if pattern.match(data[:4096]):
            return name
    return "TGA" if _is_tga(data) else None


def _is_tga(data: bytes) -> bool:
    """Tell a TGA, which has no signature in front, by its footer or by a header plausible in every byte."""
    if data[-18:-2] == b"TRUEVISION-XFILE":
        return True
    if len(data) < 18 or data[2] not in _TGA_TYPES or data[1] > 1:
        return False
    has_map = data[1] == 1
    map_is_plausible = data[7] in (15, 16, 24, 32) if has_map else data[3:8] == b"\0\0\0\0\0"
    has_area = any(data[12:14]) and any(data[14:16])
    return map_is_plausible and has_area and data[16] in (8, 15, 16, 24, 32) and data[17] & 0xC0 == 0
