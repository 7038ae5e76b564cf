"""The forms in which a picture is stored other than its original bytes: PNG, re-encoded JPEG, raw samples."""

import io

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

Samples = npt.NDArray[np.uint8]
SUBSAMPLINGS = ("444", "422", "420")
_PNG_LEVEL = 3
"""zlib level: about three times as fast as 6 and a few per cent larger; lossless either way."""
_PIL_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def png_bytes(samples: Samples) -> bytes:
    """Return ``uint8[H, W, C]``, C in 1 to 4, as a PNG: the same samples, losslessly."""
    return png_of(image_of(samples))


def png_of(image: Image.Image, exif: bytes = b"") -> bytes:
    """Return a Pillow image of a mode that PNG holds as a PNG, with its transparency and the given EXIF."""
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=_PNG_LEVEL, exif=exif, icc_profile=None)
    return out.getvalue()


def jpeg_bytes(samples: Samples, quality: int, subsampling: str) -> bytes:
    """Return ``uint8[H, W, 1 or 3]`` as a baseline JPEG."""
    is_gray = samples.shape[2] == 1
    encoded: bytes = simplejpeg.encode_jpeg(
        samples,
        quality=quality,
        colorspace="GRAY" if is_gray else "RGB",
        colorsubsampling="Gray" if is_gray else subsampling,
    )
    return encoded


def shrink(samples: Samples, max_side: int) -> Samples:
    """Return `samples` with the longer side at `max_side` pixels at most, shape kept; filtered by Lanczos."""
    height, width = samples.shape[:2]
    longer = max(height, width)
    if longer <= max_side:
        return samples
    size = (max(1, round(width * max_side / longer)), max(1, round(height * max_side / longer)))
    small = np.asarray(image_of(samples).resize(size, Image.Resampling.LANCZOS))
    return np.ascontiguousarray(small.reshape(size[1], size[0], samples.shape[2]))


def image_of(samples: Samples) -> Image.Image:
    """Return ``uint8[H, W, C]`` as a Pillow image of mode L, LA, RGB or RGBA."""
    channels = samples.shape[2]
    return Image.fromarray(samples[..., 0] if channels == 1 else samples, _PIL_MODES[channels])
