"""The encodings of MDS columns: what value a run of bytes stands for. Pickle is not among them.

Encodings: https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html#mds. All
numbers are little-endian. Images stay the files they are; an image of encoding ``pil``, whose bytes are bare
samples, becomes a PNG (or a TIFF, where PNG has no such mode), losslessly.
"""

import io
import math
import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from shardkit.contract import Field, ImageField, JsonField, ScalarField
from shardkit.contract.strict_json import parse_json

Decoder = Callable[[bytes], Any]
"""Makes a value of bytes; raises ValueError, whose text is one plain sentence, where they stand for none."""

_ARRAY = re.compile(r"ndarray(?::([a-z0-9]+)(?::([0-9]+(?:,[0-9]+)*))?)?")
_DTYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}  # code of a dtype inside an array
_MAX_DIGITS = 4300  # Python's own limit
_BITS = {"1": 1, "L": 8, "LA": 16, "I;16": 16, "RGB": 24, "YCbCr": 24, "LAB": 24}
_BITS |= {
    "RGBA": 32,
    "CMYK": 32,
    "I": 32,
    "F": 32,
}  # mode of Pillow -> bits of a pixel, rows filled up to bytes
_PNG_MODES = ("1", "L", "LA", "I;16", "RGB", "RGBA")


def find_decoder(encoding: object) -> Decoder | None:
    """Return what decodes an encoding, or None if MDS has none of this name, or it is pickle."""
    if not isinstance(encoding, str):
        return None
    match = _ARRAY.fullmatch(encoding)
    if match is None:
        return _DECODERS.get(encoding)
    dtype, sizes = match.groups()
    if dtype is not None and dtype not in _DTYPES.values():
        return None
    return partial(_decode_array, dtype, None if sizes is None else tuple(map(int, sizes.split(","))))


def find_field(encoding: str) -> Field | None:
    """Return the field that an encoding alone stands for, or None if the values decide."""
    if encoding in ("jpeg", "png", "pil"):
        return ImageField()
    if encoding == "int" or encoding in _DTYPES.values():
        return ScalarField({"int": "int64", "float16": "float32"}.get(encoding, encoding))
    return JsonField() if encoding == "json" else None


def _decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the text is not UTF-8 at byte {error.start}") from error


def _decode_number(dtype: str, data: bytes) -> int | float:
    width = np.dtype(dtype).itemsize
    if len(data) != width:
        raise ValueError(f"{len(data)} bytes hold no {dtype}")
    number: int | float = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))[0].item()
    return number


def _decode_digits(make: Callable[[str], Any], data: bytes) -> Any:
    text = _decode_text(data)
    try:
        if len(text) > _MAX_DIGITS:
            raise ValueError
        return make(text)
    except ValueError as error:
        raise ValueError("the text is no number") from error


def _decode_json(data: bytes) -> Any:
    return parse_json(_decode_text(data))


def _decode_array(dtype: str | None, shape: tuple[int, ...] | None, data: bytes) -> np.ndarray[Any, Any]:
    """Return an array; what the encoding leaves open stands before the elements.

    One byte names the dtype; one byte holds the number of axes and, in its two lowest bits, the width of each size.
    """
    view = memoryview(data)
    if dtype is None:
        dtype = _DTYPES.get(view[0]) if view else None
        if dtype is None:
            raise ValueError("the array names no dtype that there is")
        view = view[1:]
    if shape is None:
        shape, view = _split_shape(view)
    element = np.dtype(dtype).newbyteorder("<")
    if math.prod(shape) * element.itemsize != len(view):
        raise ValueError(f"{len(view)} bytes hold no {dtype} array of shape {list(shape)}")
    return np.frombuffer(view, element).reshape(shape).astype(dtype)  # a copy: the bytes of the sample may go


def _split_shape(view: memoryview) -> tuple[tuple[int, ...], memoryview]:
    if not view:
        raise ValueError("the array ends before its shape")
    axes, width = view[0] >> 2, 1 << (view[0] & 3)
    end = 1 + axes * width
    if len(view) < end:
        raise ValueError("the array ends within its shape")
    sizes = np.frombuffer(view[1:end], f"<u{width}")
    return tuple(sizes.tolist()), view[end:]


def _decode_pixels(data: bytes) -> bytes:
    """Return a file of an image whose bytes are width, height, length of the mode's name, the name and the samples."""
    if len(data) < 12:
        raise ValueError("the image ends within its header")
    width, height, length = struct.unpack_from("<3I", data)
    mode = data[12 : 12 + length].decode("ascii", "replace") if length <= 8 else "?"
    if mode == "P":
        raise ValueError("the image is of mode P, whose colours the encoding 'pil' loses; write it as 'png'")
    if mode not in _BITS:
        raise ValueError("the image is of a mode that is not read")
    samples = memoryview(data)[12 + length :]
    expected = -(-width * _BITS[mode] // 8) * height
    if not expected or len(samples) != expected:
        raise ValueError(f"{len(samples)} bytes hold no image of {width}x{height} in mode {mode}")
    file = io.BytesIO()
    image = Image.frombytes(mode, (width, height), bytes(samples))
    if mode in _PNG_MODES:
        image.save(file, "PNG", compress_level=1)
    else:
        image.save(file, "TIFF")
    return file.getvalue()


def _decode_list(start: int, decode: Decoder, data: bytes) -> list[Any]:
    """Return the values of a list: `start` bytes without meaning, their number, the size of each, then their bytes."""
    first = start + 4
    if len(data) < first:
        raise ValueError("the list ends before its length")
    count = int.from_bytes(data[start:first], "little")
    position = first + 4 * count
    if len(data) < position:
        raise ValueError(f"the list says it has {count} values, and ends within their sizes")
    sizes = np.frombuffer(data, "<u4", count, first).tolist()
    if position + sum(sizes) != len(data):
        raise ValueError(
            f"the list's {count} values take {sum(sizes)} bytes; there are {len(data) - position}"
        )
    values = []
    for size in sizes:
        values.append(decode(data[position : position + size]))
        position += size
    return values


_DECODERS: dict[str, Decoder] = {
    "bytes": bytes,
    "str": _decode_text,
    "int": partial(_decode_number, "int64"),
    **{dtype: partial(_decode_number, dtype) for dtype in _DTYPES.values()},
    "str_int": partial(_decode_digits, int),
    "str_float": partial(_decode_digits, float),
    "str_decimal": _decode_text,  # a scalar field reads decimal text; a float would round it
    "json": _decode_json,
    "jpeg": bytes,
    "png": bytes,
    "pil": _decode_pixels,
    "jpeg_array": partial(_decode_list, 0, bytes),
    "jpegarray": partial(_decode_list, 0, bytes),
    "list[jpeg]": partial(_decode_list, 4, bytes),
    "list[png]": partial(_decode_list, 4, bytes),
    "list[pil]": partial(_decode_list, 4, _decode_pixels),
}
