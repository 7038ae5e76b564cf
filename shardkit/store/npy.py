"""The one form of .npy header that the format allows (docs/format.md, "Fixed-size arrays").

It is a valid header of NumPy's version 1.0, padded so that its length does not depend on the number of rows
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Dtype and shape are known from the
manifest, so a reader compares bytes and never parses Python literals out of an untrusted file.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.errors import CorruptShardError
from shardkit.store.folder import DataFolder

OFFSET: np.dtype[Any] = np.dtype("<u8")
"""The dtype of offsets, checksums, hashes and rows."""

_MAGIC = b"\x93NUMPY\x01\x00"
_ROWS_WIDTH = 20  # digits of 2**64 - 1
_ALIGNMENT = 64


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a C-order array; its length is the same for any ``shape[0]``.

    Args:
        dtype: Little-endian or byte-wide.
        shape: At least one axis; the first is rows.
    """
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    longest = len(text) - len(str(shape[0])) + _ROWS_WIDTH
    total = -(-(len(_MAGIC) + 2 + longest + 1) // _ALIGNMENT) * _ALIGNMENT
    body = total - len(_MAGIC) - 2
    return _MAGIC + body.to_bytes(2, "little") + text.ljust(body - 1).encode() + b"\n"


def check_npy(
    folder: DataFolder, relative: str, size: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    """Check size and header of a .npy file without mapping it.

    Raises:
        CorruptShardError: The file is not of `size` bytes, or is not this array.
    """
    expected, expected_size = _array_file(dtype, shape)
    (header,) = folder.read(relative, size, (0, len(expected)))
    if header != expected or size != expected_size:
        raise _not_array(folder, relative, dtype, shape)


def check_offsets(folder: DataFolder, relative: str, size: int, rows: int, end: int) -> None:
    """Check an offsets file: its header, the first offset, 0, and the last one, `end`.

    Raises:
        CorruptShardError: One of them is off.
    """
    shape = (rows + 1,)
    expected, expected_size = _array_file(OFFSET, shape)
    start = len(expected)
    head, last = folder.read(relative, size, (0, start + 8), (max(0, size - 8), size))
    if head[:start] != expected or size != expected_size:
        raise _not_array(folder, relative, OFFSET, shape)
    if head[start:] != bytes(8) or last != end.to_bytes(8, "little"):
        raise CorruptShardError(
            f"{folder.path / relative}: its offsets do not run from 0 to {end}; it was altered: "
            "restore it, or ingest again"
        )


@lru_cache(maxsize=256)  # the shards of a data set are mostly of one size
def _array_file(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, int]:
    """Return the header of an array's file, and the size of the whole file."""
    header = npy_header(dtype, shape)
    return header, len(header) + dtype.itemsize * math.prod(shape)


def _not_array(
    folder: DataFolder, relative: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> CorruptShardError:
    _, size = _array_file(dtype, shape)
    return CorruptShardError(
        f"{folder.path / relative}: is not a .npy file of {size} bytes that holds "
        f"{dtype.str}{list(shape)}, as the manifest says; restore it, or ingest again"
    )


def map_npy(
    folder: DataFolder, relative: str, size: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Memory-map a checked .npy file as a read-only array.

    Raises:
        CorruptShardError: The size is off.
    """
    view = folder.map(relative, size)
    return np.ndarray(shape, dtype, buffer=view, offset=len(npy_header(dtype, shape)))


def map_integers(folder: DataFolder, relative: str, size: int, count: int) -> memoryview:
    """Memory-map the `count` uint64 at the end of a checked file, as a memoryview of Python integers.

    Indexing one takes a third of the time of indexing a numpy array.

    Raises:
        CorruptShardError: The size is off.
    """
    return folder.map(relative, size)[size - 8 * count :].cast("Q")
