"""Integers as arguments and as indexes: any type that is one, and no number that merely equals one."""

import operator
from contextlib import suppress
from pathlib import Path
from typing import SupportsIndex

import numpy as np
import torch


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


def row_at(index: SupportsIndex, count: int, path: Path) -> int:
    """Return the row in ``[0, count)`` that an index means.

    Args:
        index: Of a data set.
        count: Its records.
        path: Its folder, for messages.

    Raises:
        TypeError: It is no integer; a bool is none.
        IndexError: There is no such row.
    """
    if isinstance(index, bool | np.bool_) or (torch.is_tensor(index) and index.dtype == torch.bool):
        raise TypeError("the index of a data set is an integer, not a bool")
    try:
        row = operator.index(index)
    except TypeError:
        hint = (
            "; for many rows at once call __getitems__, or give a DataLoader batch_sampler="
            if isinstance(index, list | tuple)
            else ""
        )
        raise TypeError(f"the index of a data set is an integer, not {type(index).__name__}{hint}") from None
    if not -count <= row < count:
        raise IndexError(f"{path}: index {row} is out of range: there are {count} records")
    return row % count
