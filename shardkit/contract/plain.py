"""Copies values that a contract may hold: what TOML and JSON have in common, which is neither null nor NaN."""

import math
from typing import Any

_MAX_DEPTH = 64  # numpy's own limit of axes


def copy_plain(value: Any, depth: int = 0) -> Any:  # Any: whatever a contract was given
    """Return text, numbers and nested lists of them as such; arrays and tuples as lists.

    NaN and infinity become their text (``"nan"``, ``"inf"``, ``"-inf"``), which JSON can hold.

    Raises:
        ValueError: `value` is or holds something else, or nests too deeply; says so in one plain sentence.
    """
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, list | tuple):
        return [copy_plain(item, depth + 1) for item in value]
    if getattr(value, "shape", None) is not None and hasattr(value, "tolist"):  # of numpy or torch
        return copy_plain(value.tolist(), depth + 1)
    raise ValueError(
        f"a value of type {type(value).__name__} is neither text, nor a number, nor a list of them"
    )
