"""Integers as arguments: any type that is one, and no number that merely equals one."""

import operator
from contextlib import suppress
from typing import SupportsIndex


def require_integer(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int.

    Args:
        name: What a message calls it.
        value: An int, a numpy integer or an integer tensor of one element; a bool is none.

    Raises:
        TypeError: It is no integer.
    """
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
