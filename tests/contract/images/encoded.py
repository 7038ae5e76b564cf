"""Small encoded images that the tests of this folder share."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_images

CHINA, FLOWER = (Image.fromarray(array) for array in load_sample_images().images)
PHOTO = CHINA.resize((64, 48))
FLIPPED = ImageOps.flip(PHOTO)
WIDE_GRAY = (np.arange(64 * 48, dtype=np.uint32).reshape(48, 64) * 21).astype(np.uint16)

ARITHMETIC = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb004300140e0f120f0d14121012171514181e32211e1c1c1e3d2c"
    "2e243249404c4b47404645505a736250556d5645466488656d777b8182814e608d978c7d96737e817cffc9000b080010"
    "001001011100ffcc000600101005ffda0008010100003f00fe5fdc0c5da75dceffd9"
)
"""16x16 gray, SOF9; made by ``jpegtran -arithmetic``."""
LOSSLESS = (
    b"\xff\xd8\xff\xc3\0\x0b\x08\0\x08\0\x08\1\1\x11\0"
    b"\xff\xc4\0\x15\0" + bytes([1, 1] + [0] * 14) + b"\0\1"
    b"\xff\xda\0\x08\1\1\0\1\0\0"
    b"\xa0" + bytes(8) + b"\xff\xd9"
)
"""8x8 gray, SOF3: one pixel up from 128 by one, then 63 that are like their neighbours."""


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def png_header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def png_of(samples: np.ndarray, depth: int, colour: int, *extra: bytes) -> bytes:
    """Encode rows of bytes, unfiltered; `samples` holds what stands in the file, ``[H, bytes a row]``."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    width = samples.shape[1] * 8 // (depth * channels)
    rows = b"".join(b"\0" + row.tobytes() for row in samples)
    header = png_header(width, samples.shape[0], depth, colour)
    return png(header, *extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))


def tiff(tags: dict[int, tuple[int, ...]], data: bytes, order: str = "<", next_page: int = 0) -> bytes:
    """Write one uncompressed strip with the given tags (all LONG, which readers take everywhere)."""
    tags = {259: (1,), 273: (0,), 278: tags[257], 279: (len(data),)} | tags
    directory = 8 + 2 + 12 * len(tags) + 4
    outside = b"".join(
        struct.pack(f"{order}{len(values)}I", *values)
        for _, values in sorted(tags.items())
        if len(values) > 1
    )
    out = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(tags))
    at = directory
    for tag, values in sorted(tags.items()):
        value = values[0] if len(values) == 1 else at
        at += 4 * len(values) if len(values) > 1 else 0
        if tag == 273:
            value = directory + len(outside)
        out += struct.pack(order + "HHII", tag, 4, len(values), value)
    return out + struct.pack(order + "I", next_page) + outside + data


def gray_tiff(depth: int, data: bytes, width: int, photometric: int = 1, sample_format: int = 1) -> bytes:
    return tiff(
        {256: (width,), 257: (1,), 258: (depth,), 262: (photometric,), 277: (1,), 339: (sample_format,)}, data
    )


SEEDS: dict[str, bytes] = {
    "jpeg": encode(PHOTO, "JPEG", quality=85),
    "jpeg-progressive": encode(PHOTO, "JPEG", quality=85, progressive=True),
    "jpeg-restarts": encode(PHOTO, "JPEG", restart_marker_blocks=2),
    "jpeg-444": encode(PHOTO, "JPEG", subsampling=0),
    "jpeg-gray": encode(PHOTO.convert("L"), "JPEG"),
    "jpeg-cmyk": encode(PHOTO.convert("CMYK"), "JPEG"),
    "png": encode(PHOTO, "PNG"),
    "png-palette": encode(PHOTO.quantize(64), "PNG"),
    "png-bilevel": encode(PHOTO.convert("1"), "PNG"),
    "png-16": encode(Image.fromarray(WIDE_GRAY), "PNG"),
    "apng": encode(PHOTO, "PNG", save_all=True, append_images=[FLIPPED]),
    "gif": encode(PHOTO.quantize(64), "GIF"),
    "gif-animated": encode(PHOTO, "GIF", save_all=True, append_images=[FLIPPED]),
    "webp": encode(PHOTO, "WEBP"),
    "webp-lossless": encode(PHOTO, "WEBP", lossless=True),
    "webp-animated": encode(PHOTO, "WEBP", save_all=True, append_images=[FLIPPED]),
    "bmp": encode(PHOTO, "BMP"),
    "bmp-palette": encode(PHOTO.quantize(64), "BMP"),
    "tiff": encode(PHOTO, "TIFF"),
    "tiff-lzw": encode(PHOTO, "TIFF", compression="tiff_lzw"),
    "tiff-deflate": encode(PHOTO, "TIFF", compression="tiff_adobe_deflate"),
    "tiff-jpeg": encode(PHOTO, "TIFF", compression="jpeg"),
    "tiff-group4": encode(PHOTO.convert("1"), "TIFF", compression="group4"),
    "tiff-16": encode(Image.fromarray(WIDE_GRAY), "TIFF"),
    "ppm": encode(PHOTO, "PPM"),
    "pgm": encode(PHOTO.convert("L"), "PPM"),
    "pbm": encode(PHOTO.convert("1"), "PPM"),
    "pgm-16": b"P5\n64 48\n65535\n" + WIDE_GRAY.astype(">u2").tobytes(),
    "avif": encode(PHOTO, "AVIF"),
    "jp2": encode(PHOTO, "JPEG2000"),
    "j2k": encode(PHOTO, "JPEG2000", no_jp2=True),
}
