"""Finds the rows of a data set that fit what is asked for: by id, by class, by the values of its columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import LabelField
from shardkit.store import Store

Columns = Mapping[str, npt.NDArray[Any]]
"""Name of a label or scalar field -> its values over all rows."""
Rows = npt.NDArray[np.int64]


def select_rows(
    store: Store,
    ids: Iterable[str] | None,
    ids_from: str | PathLike[str] | None,
    labels: Iterable[str | int] | None,
    where: Callable[[Columns], npt.ArrayLike] | None,
) -> Rows:
    """Return the rows that fit all that is asked for; see `ShardDataset.select`."""
    is_chosen = np.ones(len(store), dtype=np.bool_)
    if ids is not None:
        is_chosen &= _mark(store, ids)
    if ids_from is not None:
        is_chosen &= _mark(store, _read_ids(ids_from))
    if labels is not None:
        name, classes = _class_numbers(store, labels)
        is_chosen &= np.isin(store.column(name), classes)
    if where is not None:
        is_chosen &= _ask(store, where)
    return np.flatnonzero(is_chosen).astype(np.int64)


def the_label_field(store: Store) -> tuple[str, LabelField]:
    """Return the one label field of a data set, and its name.

    Raises:
        LookupError: There is none, or there are several.
    """
    found = [(name, field) for name, field in store.contract.fields.items() if isinstance(field, LabelField)]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found)
        has = f"label fields {names}: choose one with column(name)" if found else "no label field"
        raise LookupError(f"{store.path}: the contract has {has}")
    return found[0]


def _mark(store: Store, ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    marked = np.zeros(len(store), dtype=np.bool_)
    for record_id in ids:
        marked[store.row_of(record_id)] = True
    return marked


def _read_ids(path: str | PathLike[str]) -> Iterator[str]:
    with open(path, encoding="utf-8-sig", newline="\n") as lines:
        for line in lines:
            record_id = line.rstrip("\n")
            if record_id:
                yield record_id


def _class_numbers(store: Store, labels: Iterable[str | int]) -> tuple[str, list[int]]:
    name, field = the_label_field(store)
    numbers = []
    for label in [labels] if isinstance(labels, str) else labels:
        if isinstance(label, str) and field.classes is not None and label in field.classes:
            numbers.append(field.classes.index(label))
        elif isinstance(label, int) and not isinstance(label, bool) and 0 <= label < field.count:
            numbers.append(label)
        else:
            known = ", ".join(field.classes[:20]) if field.classes else f"0 to {field.count - 1}"
            raise LookupError(f"{store.path}: field {name!r} has no class {label!r}; its classes are {known}")
    return name, numbers


def _ask(store: Store, where: Callable[[Columns], npt.ArrayLike]) -> npt.NDArray[np.bool_]:
    columns = {
        column.name: store.column(column.name)
        for column in store.columns
        if column.layout.is_fixed and column.layout.shape == ()
    }
    answer = np.asarray(where(columns))
    if answer.dtype != np.bool_ or answer.shape != (len(store),):
        raise ValueError(
            f"where must return bool[{len(store)}], one value a row, not {answer.dtype}{list(answer.shape)}"
        )
    return answer
