"""Decoding by Pillow: one plugin per format, opened directly, and what its picture is in plain samples.

Opening the plugin itself, not ``Image.open``, keeps every other decoder away from untrusted bytes and leaves
the pixel limit to the contract, with no global of Pillow touched. Truncated files always fail:
LOAD_TRUNCATED_IMAGES is never set.
"""

import functools
import io
from collections.abc import Callable
from importlib import import_module

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from shardkit.contract.field import Violation
from shardkit.contract.images.facts import Facts, Picture, bad_header
from shardkit.contract.reasons import Reason

_PLUGINS = {
    "jpeg": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "png": ("PIL.PngImagePlugin", "PngImageFile"),
    "webp": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "gif": ("PIL.GifImagePlugin", "GifImageFile"),
    "bmp": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "tiff": ("PIL.TiffImagePlugin", "TiffImageFile"),
    "ppm": ("PIL.PpmImagePlugin", "PpmImageFile"),
    "avif": ("PIL.AvifImagePlugin", "AvifImageFile"),
    "jpeg2000": ("PIL.Jpeg2KImagePlugin", "Jpeg2KImageFile"),
}
"""Module and class that open a format. Imported when the first such image comes: all of them together would
be a good part of the time that ``shardkit --help`` takes."""
_ORIENTED_BY_PILLOW = frozenset({"tiff", "avif"})
"""Formats whose orientation is taken as Pillow reads it: it turns TIFFs itself, and AVIF keeps it in four
places."""
_DECODED_MODES = {
    "1": "L", "L": "L", "LA": "LA", "La": "LA", "P": "RGB", "PA": "RGBA",
    "RGB": "RGB", "RGBA": "RGBA", "RGBa": "RGBA", "RGBX": "RGB", "YCbCr": "RGB",
}  # fmt: skip
_WITH_ALPHA = {"L": "LA", "RGB": "RGBA", "LA": "LA", "RGBA": "RGBA"}
_TRUNCATED_WORDS = ("truncated", "not enough image data", "unexpected end", "reached eof", "premature")
_UNSUPPORTED_WORDS = (
    "unsupported",
    "unknown pixel mode",
    "unknown raw mode",
    "not supported",
    "unrecognized",
)


def decode(data: bytes, facts: Facts) -> Picture:
    """Decode an image whole.

    Raises:
        Violation: ``bad-header``, ``truncated``, ``unsupported``, ``colour-space`` or ``decode-error``.
        MemoryError: There is too little memory, which says nothing about the image.
        Warning: Only where the caller's warning filters turn Pillow's warnings into errors.
    """
    try:
        image = _opener(facts.format)(io.BytesIO(data if facts.pixel_data is None else facts.pixel_data))
    except (Warning, MemoryError):
        raise
    except Exception as error:
        raise _verdict(error, facts, Reason.BAD_HEADER) from error
    _require_same_area(image, facts)
    try:
        orientation = facts.orientation
        if facts.format in _ORIENTED_BY_PILLOW:
            orientation = orientation_of(image)
        image.load()
        frames = max(facts.frames, getattr(image, "n_frames", 1)) if facts.format == "avif" else facts.frames
        picture = picture_of(image, facts)
    except (Warning, MemoryError, Violation):
        raise
    except Exception as error:
        raise _verdict(error, facts, Reason.DECODE_ERROR) from error
    picture.frames, picture.orientation, picture.is_oriented = frames, orientation, facts.is_oriented
    return picture


def _require_same_area(image: Image.Image, facts: Facts) -> None:
    """Refuse a picture that Pillow would take more memory for than its size, which the limit has passed, tells.

    A JPEG 2000 states it in its box and in its codestream. Orientation may have exchanged the sides.
    """
    if image.width * image.height > facts.width * facts.height:
        raise bad_header(
            f"the {facts.format} says in one place that it has {image.width}x{image.height} pixels, and in another "
            f"{facts.width}x{facts.height}"
        )


@functools.cache
def _opener(name: str) -> Callable[[io.BytesIO], Image.Image]:
    module, opener = _PLUGINS[name]
    opens: Callable[[io.BytesIO], Image.Image] = getattr(import_module(module), opener)
    return opens


def picture_of(image: Image.Image, facts: Facts | None = None) -> Picture:
    """Return the samples of a loaded Pillow image.

    Args:
        image: Of any mode.
        facts: Where it came from a file: how its 16-bit samples become 8, and what the report calls it.

    Raises:
        Violation: ``unsupported`` (float or 32-bit samples) or ``colour-space``.
    """
    label = (facts.mode if facts is not None else "") or image.mode
    if image.mode == "CMYK":
        return Picture(np.asarray(image), label, is_cmyk=True)
    if image.mode.startswith("I;16") or (image.mode == "I" and facts is not None and facts.depth > 8):
        return Picture(_narrow(image, facts), label)
    if image.mode in ("F", "I"):
        kind = "floating-point" if image.mode == "F" else "32-bit integer"
        raise Violation(Reason.UNSUPPORTED, f"{kind} samples, which no policy turns into 8 bits")
    target = _DECODED_MODES.get(image.mode)
    if target is None:
        raise Violation(Reason.COLOUR_SPACE, f"colour space {image.mode}, which no policy converts")
    if image.has_transparency_data:
        target = _WITH_ALPHA[target]
    samples = np.asarray(image if image.mode == target else image.convert(target))
    samples = samples.reshape(*samples.shape[:2], -1)
    if facts is not None and facts.is_gray:
        samples, label = _gray_of(samples)
    return Picture(samples, label, is_palette=image.mode in ("P", "PA"))


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation that Pillow knows of, in [1, 8]; 1 where there is none that is valid."""
    value = image.getexif().get(ExifTags.Base.Orientation, 1)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _narrow(image: Image.Image, facts: Facts | None) -> npt.NDArray[np.uint8]:
    """Cut gray samples to their most significant 8 bits; a transparent value makes an alpha channel."""
    wide = np.asarray(image).astype(np.uint16)
    gray = (wide >> (facts.shift if facts is not None else 8)).astype(np.uint8)
    if facts is not None and facts.is_inverted:
        gray = 255 - gray
    transparent = image.info.get("transparency")
    if not isinstance(transparent, int):
        return gray[..., np.newaxis]
    opacity = np.where(wide == transparent, 0, 255).astype(np.uint8)
    return np.stack([gray, opacity], axis=-1)


def _gray_of(samples: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], str]:
    """Undo a decoder's repetition of one luminance channel."""
    channels = samples.shape[2]
    if channels in (2, 4):
        return samples[..., [0, channels - 1]], "LA"
    return samples[..., :1], "L"


def _verdict(error: Exception, facts: Facts, otherwise: Reason) -> Violation:
    """Turn whatever Pillow raised (it raises nearly anything on damaged input) into a verdict."""
    text = " ".join(str(error).split())[:200]
    words = text.lower()
    if facts.is_cut or any(word in words for word in _TRUNCATED_WORDS):
        reason = Reason.TRUNCATED
    elif any(word in words for word in _UNSUPPORTED_WORDS):
        reason = Reason.UNSUPPORTED
    elif isinstance(error, Image.DecompressionBombError):
        reason = Reason.TOO_MANY_PIXELS
    else:
        reason = otherwise
    detail = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Violation(reason, f"the {facts.format} image cannot be decoded ({detail})")
