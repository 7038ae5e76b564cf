"""The forms in which a picture is stored other than its original bytes: PNG, re-encoded JPEG, raw samples."""

import io

from PIL import Image

from shardkit.contract.images.resizing import Samples, image_of

SUBSAMPLINGS = ("444", "422", "420")
_PNG_LEVEL = 3
"""zlib level: about three times as fast as 6 and a few per cent larger; lossless either way."""


def png_bytes(samples: Samples) -> bytes:
    """Return ``uint8[H, W, C]``, C in 1 to 4, as a PNG: the same samples, losslessly."""
    return png_of(image_of(samples))


def png_of(image: Image.Image, exif: bytes = b"") -> bytes:
    """Return a Pillow image of a mode that PNG holds as a PNG, with its transparency and the given EXIF."""
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=_PNG_LEVEL, exif=exif, icc_profile=None)
    return out.getvalue()


def jpeg_bytes(samples: Samples, quality: int, subsampling: str) -> bytes:
    """Return ``uint8[H, W, 1 or 3]`` as a baseline JPEG.

    By Pillow: simplejpeg would take three quarters of the time, but uses libjpeg's inexact forward DCT for every
    quality below 96, which costs up to 1.7 dB, and what is stored once is seen in every epoch.
    """
    out = io.BytesIO()
    image_of(samples).save(out, "JPEG", quality=quality, subsampling=":".join(subsampling))
    return out.getvalue()
