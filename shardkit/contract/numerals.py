"""Reads numbers from raw values strictly: nothing is guessed, rounded or trimmed.

Python's own ``int()`` and ``float()`` take ``" 1"``, ``"1_0"``, ``"+1"`` and digits of any script; in a table
these are slips of whatever wrote it, so here they are no numbers.
"""

import math
import operator
import re
from typing import Any

import numpy as np

_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = {
    sign + word: float(sign + word) for sign in ("", "-") for word in ("nan", "NaN", "inf", "Infinity")
}
_DIGITS_KEPT = 40  # more digits than any 64-bit number has; int() refuses more than 4,300


def is_bool(value: object) -> bool:
    """Whether `value` is a bool of Python, or a single one of numpy or torch."""
    if isinstance(value, bool):
        return True
    return str(getattr(value, "dtype", "")) in ("bool", "torch.bool") and getattr(value, "shape", None) == ()


def read_whole(value: Any) -> int | None:
    """Return a whole number from an int (of Python, numpy or torch, no bool) or its canonical digits.

    None if it is no whole number. Text of more than 40 digits gives a number that is outside of 64 bits,
    though not the same one.
    """
    if isinstance(value, str):
        return int(value[:_DIGITS_KEPT]) if _WHOLE.fullmatch(value) else None
    if is_bool(value) or getattr(value, "shape", ()) != ():  # an array of one element is no number
        return None
    try:  # torch makes no index of a uint64 beyond int64
        return operator.index(value.item() if str(getattr(value, "dtype", "")) == "torch.uint64" else value)
    except (TypeError, RuntimeError):  # RuntimeError: a tensor that holds no value, on torch's "meta" device
        return None


def read_real(value: Any) -> float | None:
    """Return a float from a number (of Python, numpy or torch, not a bool) or its plain decimal text.

    None if it is no number. May be infinite or not a number: ``"nan"``, ``"NaN"``, ``"inf"`` and
    ``"Infinity"`` are read as such, and what is too large for a float64 becomes infinite.
    """
    if isinstance(value, str):
        return float(value) if _DECIMAL.fullmatch(value) else _NOT_FINITE.get(value)
    if isinstance(value, float):
        return float(value)
    whole = read_whole(value)
    if whole is not None:
        return _whole_to_real(whole)
    dtype = getattr(value, "dtype", None)
    if (
        dtype is None
        or getattr(value, "shape", None) != ()
        or not str(getattr(dtype, "name", dtype)).removeprefix("torch.").startswith("float")
    ):
        return None
    return float(value)


def _whole_to_real(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def show_number(value: object) -> str:
    """Return a short form of a raw value for a sentence: a number as such, text in quotes and cut."""
    if isinstance(value, str):
        shown = ascii(value[:40])
        return shown if len(value) <= 40 else f"{shown}…"
    if isinstance(value, int) and abs(value) >= 10**_DIGITS_KEPT:
        return f"a number of over {_DIGITS_KEPT} digits"
    if isinstance(value, bool | int | float | np.bool_ | np.number):
        return str(value)
    return f"a value of type {type(value).__name__}"
