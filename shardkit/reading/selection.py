"""Finds what is asked for in a data set: its fields by name, its rows by id, by class, by the values of its columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shardkit.contract import Contract, LabelField
from shardkit.store import Store

Columns = Mapping[str, npt.NDArray[Any]]
"""Name of a label or scalar field -> its values over all rows."""
Rows = npt.NDArray[np.int64]


class UnderContract(Protocol):
    """A data set, as it is stored or as it is read."""

    @property
    def path(self) -> Path:
        """Its folder."""

    @property
    def contract(self) -> Contract:
        """What every record fits."""


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


def require_rows(rows: npt.ArrayLike, count: int) -> Rows:
    """Return rows that a caller gives, ``int64[k]``.

    Args:
        rows: Numbers of rows, in any order.
        count: Rows of the data set.

    Raises:
        ValueError: They are no list of whole numbers, or one is not in ``[0, count)``.
    """
    found = np.asarray(rows)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(f"rows must be a list of row numbers, not {found.dtype}{list(found.shape)}")
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < count:
        raise ValueError(f"rows must lie in [0, {count}), the rows of the data set")
    return found.astype(np.int64)


def the_label_field(data: UnderContract, name: str | None = None) -> tuple[str, LabelField]:
    """Return a label field of a data set, and its name.

    Args:
        data: The data set.
        name: Which one; None for the only one.

    Raises:
        LookupError: There is none of that name; or, without a name, there is none, or there are several.
    """
    found = {each: field for each, field in data.contract.fields.items() if isinstance(field, LabelField)}
    names = ", ".join(found)
    if name is not None and name not in found:
        raise LookupError(f"{data.path}: {name!r} is no label field; these are: {names or 'none'}")
    if name is None and len(found) != 1:
        has = f"label fields {names}: choose one with column(name)" if found else "no label field"
        raise LookupError(f"{data.path}: the contract has {has}")
    chosen = next(iter(found)) if name is None else name
    return chosen, found[chosen]


def _mark(store: Store, ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    marked = np.zeros(len(store), dtype=np.bool_)
    for record_id in [ids] if isinstance(ids, str) else ids:
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
        elif _is_integer(label) and 0 <= int(label) < field.count:
            numbers.append(int(label))
        else:
            known = ", ".join(field.classes[:20]) if field.classes else f"0 to {field.count - 1}"
            raise LookupError(f"{store.path}: field {name!r} has no class {label!r}; its classes are {known}")
    return name, numbers


def _is_integer(label: object) -> bool:
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


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


def choose_fields(fields: Sequence[str] | None, known: list[str]) -> list[str]:
    """Return the fields to read, in contract order.

    Args:
        fields: Their names, or None for all.
        known: Those of the contract.

    Raises:
        TypeError: It is one str.
        ValueError: There is no such field.
    """
    if fields is None:
        return known
    if isinstance(fields, str):
        raise TypeError(f"fields must be a sequence of names, such as [{fields!r}], not a str")
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ValueError(f"the data set has no field {unknown[0]!r}; its fields are {', '.join(known)}")
    return [name for name in known if name in fields]
