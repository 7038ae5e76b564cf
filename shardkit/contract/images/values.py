"""Raw values that are pixels already: arrays, tensors and Pillow images, made ready for judging."""

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from shardkit.contract.field import Violation
from shardkit.contract.images.facts import Picture
from shardkit.contract.images.pillow import orientation_of, picture_of
from shardkit.contract.images.storage import png_of
from shardkit.contract.reasons import Reason

_CHANNEL_COUNTS = (1, 3, 4)
_LABELS = {1: "L", 3: "RGB", 4: "RGBA"}
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})


def picture_of_array(
    value: Any,
) -> Picture:  # Any: a numpy array, or anything with __array__ such as a torch tensor
    """Return the picture in ``uint8 [H, W]``, ``[H, W, C]`` or ``[C, H, W]``, C being 1, 3 or 4.

    Raises:
        Violation: ``wrong-type`` (not uint8), ``wrong-shape`` (also where both ends could be channels), or
            ``empty``.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise Violation(Reason.WRONG_TYPE, f"{type(value).__name__} gives no array: {error}") from error
    if array.dtype != np.uint8:
        raise Violation(Reason.WRONG_TYPE, f"an array of {array.dtype}; pixels must be uint8")
    samples = _height_width_channels(array)
    if not samples.size:
        raise Violation(Reason.EMPTY, f"an array of shape {list(array.shape)} has no pixels")
    return Picture(np.ascontiguousarray(samples), _LABELS[samples.shape[2]])


def encoded_or_picture(image: Image.Image) -> bytes | Picture:
    """Return a Pillow image as a lossless PNG, or as a picture where PNG has no such mode (CMYK, say).

    Raises:
        Violation: ``truncated`` or ``decode-error`` (it is still to be loaded and cannot be),
            ``unsupported``, ``colour-space``, or ``empty``.
        MemoryError: There is too little memory, which says nothing about the image.
    """
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # an image opened lazily raises whatever its decoder does
        reason = Reason.TRUNCATED if "truncated" in str(error).lower() else Reason.DECODE_ERROR
        raise Violation(
            reason, f"the Pillow image cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    if not image.width or not image.height:
        raise Violation(Reason.EMPTY, f"a Pillow image of {image.width}x{image.height} has no pixels")
    if image.mode not in _PNG_MODES:
        picture = picture_of(image)
        picture.orientation = orientation_of(image)
        return picture
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation_of(image)
    return png_of(image, exif.tobytes())


def _height_width_channels(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    shape = list(array.shape)
    if array.ndim == 2:
        return array[..., np.newaxis]
    if array.ndim != 3:
        raise Violation(
            Reason.WRONG_SHAPE, f"an array of shape {shape}; pixels are [H, W], [H, W, C] or [C, H, W]"
        )
    is_last, is_first = shape[2] in _CHANNEL_COUNTS, shape[0] in _CHANNEL_COUNTS
    if is_last and is_first:
        raise Violation(
            Reason.WRONG_SHAPE, f"an array of shape {shape}: channels may be the first axis or the last"
        )
    if not is_last and not is_first:
        raise Violation(
            Reason.WRONG_SHAPE, f"an array of shape {shape} has no channel axis of length 1, 3 or 4"
        )
    return array if is_last else array.transpose(1, 2, 0)
