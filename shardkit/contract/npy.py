"""Reads a .npy file that nobody vouches for: no pickle, no structured types, no size beyond the bytes.

The format is numpy's own (NEP 1, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
`numpy.load` is not used, since it allocates what the header asks for before it looks at how much there is.
"""

import ast
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract.field import Violation
from shardkit.contract.reasons import Reason

MAGIC = b"\x93NUMPY"
"""What every .npy file starts with."""
_LENGTH_BYTES = {1: 2, 2: 4}
"""Major version -> bytes of the header's length. Version 3 is for structured types only."""
_MAX_HEADER = 10_000  # bytes, numpy's own limit for untrusted headers
_PLAIN = re.compile(r"[<>|=]?[biuf][1248]")
_MAX_AXES = 64  # numpy's own limit
_LITERAL_FAULTS = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
"""All that ast.literal_eval may raise."""


def read_npy(data: bytes) -> npt.NDArray[Any]:
    """Return the array of a .npy file: a read-only view of `data`, of a bool, whole-number or float dtype.

    Raises:
        Violation: ``empty``, ``wrong-type``, ``bad-header`` or ``truncated``.
    """
    if not data:
        raise Violation(Reason.EMPTY, "the file is empty")
    if not data.startswith(MAGIC):
        raise Violation(
            Reason.WRONG_TYPE, "the file is no .npy array: it does not start with the bytes of one"
        )
    start, header = _split_header(data)
    dtype, shape, is_fortran = _read_header(header)
    count = math.prod(shape)
    expected, found = count * dtype.itemsize, len(data) - start
    if found < expected:
        raise Violation(
            Reason.TRUNCATED, f"the array's header asks for {expected} bytes, the file holds {found}"
        )
    if found > expected:
        raise Violation(
            Reason.BAD_HEADER, f"the array's header asks for {expected} bytes, the file holds {found}"
        )
    flat = np.frombuffer(data, dtype, count, start) if count else np.empty(0, dtype)
    try:
        return flat.reshape(shape, order="F" if is_fortran else "C")
    except ValueError as error:  # no elements, and beside the 0 a size that numpy cannot hold
        raise Violation(
            Reason.BAD_HEADER, "the array's header says a shape that no array can have"
        ) from error


def _split_header(data: bytes) -> tuple[int, bytes]:
    """Return where the elements start, and the header's text."""
    version = data[6] if len(data) > 6 else 1
    width = _LENGTH_BYTES.get(version)
    if width is None:
        raise Violation(
            Reason.WRONG_TYPE, f"the array is of .npy version {version}; versions 1 and 2 are read"
        )
    length = int.from_bytes(data[8 : 8 + width], "little")
    start = 8 + width + length
    if len(data) < 8 + width or len(data) < start:
        raise Violation(Reason.TRUNCATED, f"the file of {len(data)} bytes ends within the array's header")
    if length > _MAX_HEADER:
        raise Violation(
            Reason.BAD_HEADER, f"the array's header has {length} bytes; at most {_MAX_HEADER} are read"
        )
    return start, data[8 + width : start]


def _read_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        table = ast.literal_eval(header.decode("ascii").strip())
    except _LITERAL_FAULTS:
        table = None
    if not isinstance(table, dict) or set(table) != {"descr", "fortran_order", "shape"}:
        raise Violation(Reason.BAD_HEADER, "the array's header cannot be read")
    descr, shape, is_fortran = table["descr"], table["shape"], table["fortran_order"]
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or len(shape) > _MAX_AXES or not isinstance(is_fortran, bool):
        raise Violation(Reason.BAD_HEADER, "the array's header holds no valid shape or order")
    if not isinstance(descr, str) or not _PLAIN.fullmatch(descr):
        raise Violation(Reason.WRONG_TYPE, "the array holds no plain numbers; objects are never unpickled")
    try:
        return np.dtype(descr), shape, is_fortran
    except TypeError as error:
        raise Violation(Reason.BAD_HEADER, "the array's header names no dtype that exists") from error
