"""Arrays whose first axis counts rows, as columns: which columns a dtype makes, and what value a row has in each.

Shared by formats that hold such arrays (.npy, .npz, HDF5).
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardkit.contract import ArrayField, Field, ScalarField
from shardkit.errors import SourceError
from shardkit.sources.files import MAX_FILE_BYTES

Array = npt.NDArray[Any]
BATCH_BYTES = 2**23
"""Bytes of rows that are read at once."""
_BATCH_ROWS = 1024
_PLAIN_KINDS = "biufSUV"  # numpy's codes: truth, whole numbers, floats, bytes, text, raw bytes
_WIDENED = {"float16": "float32"}  # to the narrowest dtype that a contract knows
_FLOAT_BYTES = 8  # of the widest float that a contract knows


class ArrayColumn(NamedTuple):
    """One column of an array.

    Attributes:
        name: The array's, or ``array/member`` for a member of its structured dtype; the member alone if the array has
            no name.
        members: Which member of the dtype it is, and of that member's, ….
        is_text: Whether its values are text.
    """

    name: str
    members: tuple[str, ...]
    is_text: bool


def split_columns(name: str, dtype: np.dtype[Any], where: str) -> Iterator[ArrayColumn]:
    """Yield the columns that an array with this dtype makes.

    Raises:
        SourceError: Its elements are of a type that no field takes; names `where`.
    """
    return _split(name, (), dtype, where)


def _split(name: str, members: tuple[str, ...], dtype: np.dtype[Any], where: str) -> Iterator[ArrayColumn]:
    if dtype.names is not None:
        for member in dtype.names:
            inner = dtype[member]
            yield from _split(f"{name}/{member}" if name else member, (*members, member), inner, where)
        return
    base = dtype.base
    is_wide = base.kind == "f" and base.itemsize > _FLOAT_BYTES
    if base.kind not in _PLAIN_KINDS or is_wide:
        raise SourceError(
            f"{where}: {name!r} is of dtype {base}, which no field takes; convert it and save it again"
        )
    yield ArrayColumn(name, members, base.kind == "U")


def known_fields(
    columns: Iterable[tuple[ArrayColumn, np.dtype[Any], tuple[int, ...]]],
) -> dict[str, Field]:
    """Return column -> field for the columns of numbers.

    Args:
        columns: Each with the dtype of its array's elements, and the shape of one row of the array.
    """
    known: dict[str, Field] = {}
    for column, dtype, shape in columns:
        for member in column.members:
            dtype = dtype[member]
        name = _WIDENED.get(dtype.base.name, dtype.base.name)
        axes = (*shape, *dtype.shape)
        if dtype.base.kind in "biuf" and all(axes):
            known[column.name] = ArrayField(name, axes) if axes else ScalarField(name)
    return known


def check_rows(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> int:
    """Return the bytes of one row.

    Raises:
        SourceError: The array has no axis of rows, or its rows have no bytes, or too many.
    """
    if not shape:
        raise SourceError(
            f"{where}: {name!r} is a single value; expected is an array whose first axis counts the rows"
        )
    size = dtype.itemsize * math.prod(shape[1:])
    if shape[0] and not 1 <= size <= MAX_FILE_BYTES:
        raise SourceError(f"{where}: a row of {name!r} has {size} bytes; expected are 1 to {MAX_FILE_BYTES}")
    return size


def batch_rows(row_bytes: int) -> int:
    """Return how many rows of this size are read at once: as many as `BATCH_BYTES` hold, and at least one."""
    return max(1, min(_BATCH_ROWS, BATCH_BYTES // max(1, row_bytes)))


def value_of(rows: Array, number: int, members: tuple[str, ...] = ()) -> Any:
    """Return one row of a batch: int, float, bool, str or bytes, or a copy that is an array, or a list of texts."""
    row = rows[number]
    for member in members:
        row = row[member]
    if isinstance(row, np.ndarray):
        if row.ndim == 0:
            return row.item()
        return row.tolist() if row.dtype.kind in "SUVO" else row.astype(row.dtype.newbyteorder("="))
    return row.tobytes() if isinstance(row, np.void) else row.item() if isinstance(row, np.generic) else row
