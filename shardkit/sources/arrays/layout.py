"""Where the elements of a .npy array lie in a file, and of what kind they are; the header is held against the file.

The format is numpy's own (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). The contract's
reader of .npy files (`shardkit.contract.npy`) takes one plain array in memory; this one takes text and structured types
too, and leaves the elements where they are.
"""

import io
import math
from dataclasses import dataclass
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy

from shardkit.errors import SourceError
from shardkit.sources.arrays.columns import Array
from shardkit.sources.streams import Stream, StreamFault

_MAX_HEADER = 10_000  # bytes, numpy's own limit for untrusted headers
_UNPARSED = (
    ValueError,
    TypeError,
    SyntaxError,
    TokenError,
    MemoryError,
    RecursionError,
)  # all that parsing may raise
_READERS = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}
"""Version -> bytes of the header's length, and what reads it; version 3 is for names outside of Latin-1 only."""


@dataclass(frozen=True)
class NpyLayout:
    """An array in a file.

    Attributes:
        dtype: Of its elements.
        shape: Size of each axis.
        is_fortran: Whether the first axis varies fastest.
        start: Byte at which the elements start.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.dtype.itemsize * math.prod(self.shape)

    def map(self, path: str, offset: int = 0) -> Array:
        """Return the array mapped from a plain file, in which its header starts at a byte.

        Raises:
            SourceError: The system refuses.
        """
        if not self.nbytes:
            return np.empty(self.shape, self.dtype)
        try:
            mapped = np.memmap(
                path, self.dtype, "r", offset + self.start, self.shape, "F" if self.is_fortran else "C"
            )
        except (OSError, ValueError) as error:  # ValueError: it became shorter than it was
            raise SourceError(f"{path}: cannot map the file: {error}") from error
        return np.asarray(mapped)


def read_layout(stream: Stream, size: int, where: str) -> NpyLayout:
    """Return the layout of the array whose header a stream begins with.

    Args:
        stream: Stands at its beginning.
        size: Bytes of header and elements together.
        where: What messages call the array.

    Raises:
        SourceError: It is no .npy array, or holds more or less than its header says, or Python objects.
    """
    try:
        layout = _read_header(stream, where)
    except StreamFault as fault:
        raise SourceError(f"{where}: no .npy array, or cut short: {fault}") from fault
    if layout.nbytes != size - layout.start:
        raise SourceError(
            f"{where}: the array's header asks for {layout.nbytes} bytes; {size - layout.start} follow it"
        )
    return layout


def _read_header(stream: Stream, where: str) -> NpyLayout:
    head = stream.read(8)
    if not head.startswith(b"\x93NUMPY"):
        raise SourceError(f"{where}: no .npy array: it does not start with the bytes of one")
    version = (head[6], head[7])
    if version not in _READERS:
        raise SourceError(f"{where}: the array is of .npy version {head[6]}; versions 1 and 2 are read")
    width, read = _READERS[version]
    prefix = stream.read(width)
    length = int.from_bytes(prefix, "little")
    if length > _MAX_HEADER:
        raise SourceError(f"{where}: the array's header has {length} bytes; at most {_MAX_HEADER} are read")
    try:
        shape, is_fortran, dtype = read(io.BytesIO(prefix + stream.read(length)), _MAX_HEADER)
    except _UNPARSED as error:
        raise SourceError(f"{where}: the array's header cannot be read") from error
    if dtype.hasobject:
        raise SourceError(f"{where}: holds pickled Python objects, which are never read; save plain arrays")
    if any(axis < 0 for axis in shape):
        raise SourceError(f"{where}: the array's header holds no valid shape")
    return NpyLayout(dtype, shape, bool(is_fortran), stream.position)
