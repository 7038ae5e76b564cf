"""What a batch of any loader says of its samples: ids, marks of padding, and values of label and scalar fields.

Batches come from whoever wrote the loader, so nothing about them is taken for granted.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shardkit.errors import ShardkitError

Batch = Any
"""Whatever a loader yields."""
Number = int | float
"""Of Python, so that comparing is exact: a bool, an int or a float."""


@dataclass(frozen=True)
class DeliveredBatch:
    """What a batch says of its samples.

    Attributes:
        ids: One a sample. In a batch of a foreign loader they may be anything.
        is_pad: Whether each sample is marked as padding.
        values: Field -> its number of each sample.
        not_comparable: Field -> why its values are not one number a sample.
    """

    ids: Sequence[Any]
    is_pad: Sequence[bool]
    values: Mapping[str, Sequence[Number]]
    not_comparable: Mapping[str, str]


def read_batch(
    batch: Batch, number: int, fields: Iterable[str], get_ids: Callable[[Batch], Any] | None = None
) -> DeliveredBatch:
    """Return what a batch says of its samples.

    Args:
        batch: A mapping with ``"id"``, a str or a sequence of them, or anything if `get_ids` is given.
        number: Which batch it is, for messages.
        fields: Label and scalar fields that it may hold under their names.
        get_ids: Takes the batch and returns its ids.

    Raises:
        ShardkitError: It has no ids, or a different number of marks or values.
    """
    ids = _ids(batch, number) if get_ids is None else _listed_ids(get_ids(batch), number)
    table = batch if isinstance(batch, Mapping) else {}
    marks = table.get("is_pad")
    is_pad = [False] * len(ids) if marks is None else _marks(marks, len(ids), number)
    values: dict[str, Sequence[Number]] = {}
    not_comparable: dict[str, str] = {}
    for name in fields if ids else ():
        found = _numbers(table[name], name, len(ids), number) if name in table else "is not in the batches"
        if isinstance(found, str):
            not_comparable[name] = found
        else:
            values[name] = found
    return DeliveredBatch(ids, is_pad, values, not_comparable)


def _ids(batch: Batch, number: int) -> list[Any]:
    if isinstance(batch, Mapping) and "id" in batch:
        return _listed_ids(batch["id"], number)
    raise ShardkitError(
        f"batch {number} is a {type(batch).__name__} without 'id', so nobody can tell what it delivers; let the loader "
        "yield mappings with 'id', or pass get_ids"
    )


def _listed_ids(found: Any, number: int) -> list[Any]:  # Any: of the loader, or of the caller's get_ids
    ids = found.tolist() if isinstance(found, torch.Tensor | np.ndarray) else found
    if isinstance(ids, str | bytes):
        return [ids]
    if isinstance(ids, Iterable):
        return list(ids)
    raise ShardkitError(
        f"batch {number}: its ids are a {type(found).__name__}; expected is a str or a sequence of them"
    )


def _marks(marks: Any, count: int, number: int) -> list[bool]:  # Any: of the loader
    listed = _plain_list(marks) if isinstance(marks, torch.Tensor | np.ndarray | Sequence) else [marks]
    _require_count("is_pad", len(listed), count, number)
    strange = [mark for mark in listed if not isinstance(mark, int)]
    if strange:
        raise ShardkitError(f"batch {number}: 'is_pad' holds {strange[0]!r}; expected is one bool a sample")
    return [bool(mark) for mark in listed]


def _numbers(column: Any, name: str, count: int, number: int) -> list[Number] | str:  # Any: of the loader
    """Return one number a sample, or why there is none."""
    if isinstance(column, Number | np.generic):
        column = [column]
    if isinstance(column, str | bytes) or not isinstance(column, torch.Tensor | np.ndarray | Sequence):
        return f"is of type {type(column).__name__}"
    listed = _plain_list(column)
    _require_count(name, len(listed), count, number)
    strange = [value for value in listed if not isinstance(value, Number)]
    if not strange:
        return listed
    if isinstance(column, torch.Tensor | np.ndarray) and column.ndim > 1:
        return f"has the shape {list(column.shape)}"
    return f"holds values of type {type(strange[0]).__name__}"


def _plain_list(column: Any) -> list[Any]:  # Any: a tensor, an array or a sequence, of anything
    """Return one value a sample, plain where it is one number: of ``[B]``, ``[B, 1]`` or a list of such."""
    if isinstance(column, torch.Tensor | np.ndarray):
        if math.prod(column.shape[1:]) == 1:
            return list(column.reshape(-1).tolist())
        return list(column)
    return [_plain(value) for value in column]


def _plain(value: Any) -> Any:  # Any: of the loader
    is_array = isinstance(value, torch.Tensor | np.ndarray) and math.prod(value.shape) == 1
    return value.item() if is_array or isinstance(value, np.generic) else value


def _require_count(name: str, found: int, count: int, number: int) -> None:
    if found != count:
        raise ShardkitError(
            f"batch {number}: {name!r} holds {found} values for {count} ids; expected is one a sample"
        )
