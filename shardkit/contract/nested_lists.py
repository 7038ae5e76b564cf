"""Reads nested lists of plain numbers without numpy's habit of mixing types in silence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract.dtypes import whole_range
from shardkit.contract.field import Violation
from shardkit.contract.reasons import Reason

_TAKEN = {"b": "b", "i": "i", "u": "i", "f": "if"}
"""Kind of dtype -> kinds of numbers that it takes."""


def read_lists(value: Sequence[Any], dtype: str) -> npt.NDArray[Any]:
    """Return nested lists as an array of `dtype`; decimals are rounded to the nearest float.

    Raises:
        Violation: ``wrong-shape`` (ragged), ``wrong-type`` or ``out-of-range``.
    """
    try:
        elements = np.array(value, dtype=object)
    except ValueError as error:
        raise Violation(Reason.WRONG_SHAPE, "the nested lists are ragged") from error
    flat = elements.ravel().tolist()
    types = set(map(type, flat))
    if types & {list, tuple}:
        raise Violation(Reason.WRONG_SHAPE, "the nested lists are ragged")
    kind = np.dtype(dtype).kind
    if strange := [item for item in types if _kind_of(item) not in _TAKEN[kind]]:
        found = ", ".join(sorted(item.__name__ for item in strange))
        raise Violation(
            Reason.WRONG_TYPE, f"the lists hold elements of type {found}, which {dtype} does not take"
        )
    if kind == "f":
        return _round(elements, dtype)
    if kind != "b" and flat:
        least, greatest = whole_range(dtype)
        if min(flat) < least or max(flat) > greatest:
            raise _out_of_range(dtype)
    return elements.astype(dtype)


def _kind_of(item: type) -> str:
    """Return ``b``, ``i`` or ``f`` for a type of truth values, whole numbers or floats, of Python or numpy."""
    if issubclass(item, bool | np.bool_):
        return "b"
    if issubclass(item, np.timedelta64):  # a whole number to numpy
        return "-"
    if issubclass(item, int | np.integer):
        return "i"
    return "f" if issubclass(item, float | np.floating) else "-"


def _round(elements: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    try:
        exact = elements.astype("float64")
    except OverflowError as error:
        raise _out_of_range(dtype) from error
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    if not np.array_equal(np.isfinite(exact), np.isfinite(rounded)):
        raise _out_of_range(dtype)
    return rounded


def _out_of_range(dtype: str) -> Violation:
    return Violation(Reason.OUT_OF_RANGE, f"the lists hold a number that no {dtype} can hold")
