"""Which records an examination takes: the first and last, the largest and smallest, one of each class, random ones.

Sizes and classes are looked up in a few thousand rows from all over the data set: choosing takes seconds at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardkit.contract import LabelField
from shardkit.errors import ShardkitError
from shardkit.measurement.doctor_steps import Announce, Step, locate
from shardkit.permutation import Permutation
from shardkit.store import Store

_LOOKED_AT = 4096  # rows
_COPIED_BYTES = 1 << 28  # of records that must be copied to know their sizes, as those of LMDB must
_EXTREMES = 2  # of each end


@dataclass(frozen=True)
class Choice:
    """A record that is taken, and why.

    Attributes:
        row: Its row.
        reasons: Such as ``("first", "label cat")``.
    """

    row: int
    reasons: tuple[str, ...]


def choose_records(store: Store, count: int, announce: Announce) -> list[Choice]:
    """Return about `count` rows, in row order: all of them where there are no more.

    Args:
        store: The data set.
        count: How many, at least 1; the first, the last and the extremes are always among them.
        announce: Is told of each record before its size is looked up.
    """
    sizes, damaged = _look_up_sizes(store, announce)
    chosen: dict[int, list[str]] = {row: ["cannot be read"] for row in damaged}
    for row, reason in _special(store, sizes, count):
        chosen.setdefault(row, []).append(reason)
    for row in _random_rows(len(store), count):
        if len(chosen) >= count:
            break
        chosen.setdefault(row, ["random"])
    return [Choice(row, tuple(reasons)) for row, reasons in sorted(chosen.items())]


def _look_up_sizes(store: Store, announce: Announce) -> tuple[dict[int, int], list[int]]:
    """Return row -> stored bytes for some rows, and the first of them whose size cannot be had."""
    sizes: dict[int, int] = {}
    copied = 0
    for row in _random_rows(len(store), _LOOKED_AT):
        try:
            announce(Step("choose", (locate(store, row),)))
            payloads = store.payloads(row, range(len(store.columns)))
        except ShardkitError:
            return sizes, [row]
        sizes[row] = sum(map(len, payloads))
        copied += sum(len(payload) for payload in payloads if isinstance(payload, bytes))
        if copied > _COPIED_BYTES:
            break
    return sizes, []


def _random_rows(count: int, most: int) -> list[int]:
    rows: list[int] = Permutation(count, "doctor").apply(np.arange(min(count, most), dtype=np.int64)).tolist()
    return rows


def _special(store: Store, sizes: Mapping[int, int], count: int) -> Iterator[tuple[int, str]]:
    """Yield the rows that are taken whatever chance says, and why."""
    if len(store):
        yield 0, "first"
        yield len(store) - 1, "last"
    by_size = sorted(sizes, key=lambda row: (sizes[row], row))
    if sizes and sizes[by_size[0]] < sizes[by_size[-1]]:
        for row in by_size[-_EXTREMES:]:
            yield row, f"among the largest, {sizes[row]:,} bytes"
        for row in by_size[:_EXTREMES]:
            yield row, f"among the smallest, {sizes[row]:,} bytes"
    yield from _classes(store, sorted(sizes), count // 3)


def _classes(store: Store, rows: Sequence[int], most: int) -> Iterator[tuple[int, str]]:
    """Yield a row of each class of the label fields, `most` at most of each field."""
    for name, field in store.contract.fields.items():
        if isinstance(field, LabelField) and rows:
            numbers, places = np.unique(store.column(name)[list(rows)], return_index=True)
            for number, place in list(zip(numbers.tolist(), places.tolist(), strict=True))[:most]:
                yield rows[place], f"{name} {_class_name(field, number)}"


def _class_name(field: LabelField, number: int) -> str:
    """Return the name of a class; of what is no class, as a damaged index may have it, the number."""
    classes = field.classes or ()
    return classes[number] if 0 <= number < len(classes) else str(number)
