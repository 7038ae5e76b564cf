"""The element types that scalar and array fields may have, and the checks of their bounds."""

import math
from typing import Any

import numpy as np

from shardkit.contract.keys import check_choice, check_flag, check_number, check_whole, show_value, wrong_key

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)

Bound = int | float | None


def stored_dtype(name: str) -> np.dtype[Any]:
    """Return the little-endian dtype of a name in `DTYPES`."""
    return np.dtype(name).newbyteorder("<")


def check_dtype(name: object) -> None:
    """Check the key ``dtype``.

    Raises:
        ContractError: It names no element type.
    """
    check_choice("dtype", name, DTYPES)


def check_bounds(dtype: str, low: Bound, high: Bound) -> None:
    """Check the keys ``min`` and ``max`` against the dtype and each other.

    Raises:
        ContractError: A bound is no number that the dtype holds, or ``min`` is over ``max``.
    """
    for key, bound in (("min", low), ("max", high)):
        if bound is None:
            continue
        if dtype == "bool":
            raise wrong_key(key, bound, 'not allowed with dtype = "bool"')
        check_element(key, bound, dtype)
    if low is not None and high is not None and low > high:
        raise wrong_key("min", low, f"must not be over max = {show_value(high)}")


def check_element(key: str, value: object, dtype: str) -> None:
    """Check that `value` is an element of `dtype`: true or false, a whole number, or a finite one.

    Raises:
        ContractError: It is not.
    """
    kind = np.dtype(dtype).kind
    if kind == "b":
        check_flag(key, value)
    elif kind == "f":
        check_number(key, value)
        if not math.isfinite(round_to(value, dtype)):  # type: ignore[arg-type]  # a number, as was checked
            raise wrong_key(key, value, f"no {dtype} is that large")
    else:
        check_whole(key, value, *whole_range(dtype))


def round_to(number: int | float, dtype: str) -> float:
    """Return the number nearest to `number` that a float dtype holds; infinite where it holds none that large."""
    try:
        with np.errstate(over="ignore"):
            return float(np.dtype(dtype).type(float(number)))
    except OverflowError:  # an int beyond float64
        return math.inf if number > 0 else -math.inf


def whole_range(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest value of a whole-number dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
