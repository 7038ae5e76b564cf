"""What a loader delivers, held against the data set: nothing missing, nothing twice, every label right.

It looks at batches alone, so that any loader can be checked, whoever wrote it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.errors import RecordNotFoundError, ShardkitError
from shardkit.reading import ShardDataset

IDS_LISTED = 20
"""Ids that a report names of each kind; the others are counted."""

Batch = Any
"""Whatever the loader yields; see `verify_loader`."""


@dataclass(frozen=True)
class DeliveryReport:
    """What was delivered, compared with what should have been.

    Attributes:
        expected: Ids that should come once.
        delivered: Samples that came, those marked as padding aside.
        padded: Samples that came marked as padding (``batch["is_pad"]``).
        batches: Batches that came.
        missing: How many ids did not come.
        duplicate: How many samples came again.
        unknown: How many samples have an id that the data set has not, or that was not expected.
        wrong: How many values of label and scalar fields differ from what is stored.
        order: The rows in the order in which they came, padding and unknown ids aside: ``int64[k]``.
        missing_ids: The first of the ids that did not come.
        duplicate_ids: The first of the ids that came again.
        unknown_ids: The first of the unknown ids.
        wrong_values: The first of the differing values, as ``id: field: delivered x, stored y``.
    """

    expected: int
    delivered: int
    padded: int
    batches: int
    missing: int
    duplicate: int
    unknown: int
    wrong: int
    order: npt.NDArray[np.int64]
    missing_ids: tuple[str, ...] = ()
    duplicate_ids: tuple[str, ...] = ()
    unknown_ids: tuple[str, ...] = ()
    wrong_values: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every expected id came once, with the values that are stored."""
        return not (self.missing or self.duplicate or self.unknown or self.wrong)

    def describe(self) -> str:
        """Say in one line what is wrong, or that all is well."""
        found = [
            f"{count} {kind} ({', '.join(named[:3])}{', …' if count > 3 else ''})"
            for kind, count, named in (
                ("missing", self.missing, self.missing_ids),
                ("delivered again", self.duplicate, self.duplicate_ids),
                ("unknown", self.unknown, self.unknown_ids),
                ("wrong values", self.wrong, self.wrong_values),
            )
            if count
        ]
        return "; ".join(found) if found else f"all {self.expected} ids delivered once"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object, the order aside."""
        table = {name: value for name, value in self.__dict__.items() if name != "order"}
        return {"ok": self.ok} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in table.items()
        }


def verify_loader(
    loader: Iterable[Batch],
    dataset: ShardDataset,
    *,
    rows: npt.ArrayLike | None = None,
    get_ids: Callable[[Batch], Sequence[str]] | None = None,
) -> DeliveryReport:
    """Iterate a loader once, and compare what it delivers with what it should.

    For several ranks, chain their loaders: ``verify_loader(itertools.chain(*loaders), dataset)``.

    Args:
        loader: Any iterable of batches that carry ids: mappings with ``"id"``, a str or a sequence of str. Where a
            batch has a label or scalar field of the data set under its own name, its values are compared too; where
            it has ``"is_pad"``, samples that are marked do not count.
        dataset: The data set that it reads.
        rows: The rows that should come once; None for all.
        get_ids: Takes a batch and returns its ids, for batches that are no mappings with ``"id"``.

    Raises:
        ShardkitError: A batch carries no ids.

    Example:
        >>> report = verify_loader(loader, ShardDataset("out/"))
        >>> assert report.ok, report.describe()
    """
    ledger = _Ledger(dataset, rows)
    for number, batch in enumerate(loader):
        ledger.take(batch, _ids_of(batch, number) if get_ids is None else list(get_ids(batch)))
    return ledger.report()


def _ids_of(batch: Batch, number: int) -> list[str]:
    if isinstance(batch, Mapping) and "id" in batch:
        ids = batch["id"]
        return [ids] if isinstance(ids, str) else list(ids)
    raise ShardkitError(
        f"batch {number} is a {type(batch).__name__} without 'id', so nobody can tell what it delivers; let the loader "
        "yield mappings with 'id', or pass get_ids"
    )


class _Ledger:
    """Counts how often each row came."""

    def __init__(self, dataset: ShardDataset, rows: npt.ArrayLike | None) -> None:
        self._dataset = dataset
        self._is_expected = np.ones(len(dataset), dtype=np.bool_)
        if rows is not None:
            self._is_expected[:] = False
            self._is_expected[np.asarray(rows, dtype=np.int64)] = True
        self._times = np.zeros(len(dataset), dtype=np.int64)
        self._fields = [
            name for name, field in dataset.contract.fields.items() if field.kind in ("label", "scalar")
        ]
        self._order: list[int] = []
        self._padded = self._batches = self._wrong = self._unknown = 0
        self._duplicates: list[str] = []
        self._unknowns: list[str] = []
        self._wrongs: list[str] = []

    def take(self, batch: Batch, ids: Sequence[str]) -> None:
        self._batches += 1
        marks = batch.get("is_pad") if isinstance(batch, Mapping) else None
        is_pad = [False] * len(ids) if marks is None else [bool(mark) for mark in marks]
        values = {name: batch[name] for name in self._fields if isinstance(batch, Mapping) and name in batch}
        for place, record_id in enumerate(ids):
            row = self._find(record_id)
            if row is None:
                self._unknown += 1
                _note(self._unknowns, str(record_id))
                continue
            self._compare(record_id, row, {name: column[place] for name, column in values.items()})
            if is_pad[place]:
                self._padded += 1
                continue
            if self._times[row]:
                _note(self._duplicates, record_id)
            self._times[row] += 1
            self._order.append(row)

    def report(self) -> DeliveryReport:
        missing = np.flatnonzero(self._is_expected & (self._times == 0))
        return DeliveryReport(
            expected=int(self._is_expected.sum()),
            delivered=len(self._order),
            padded=self._padded,
            batches=self._batches,
            missing=len(missing),
            duplicate=int(np.maximum(self._times - 1, 0).sum()),
            unknown=self._unknown,
            wrong=self._wrong,
            order=np.array(self._order, dtype=np.int64),
            missing_ids=tuple(self._dataset.ids[int(row)] for row in missing[:IDS_LISTED]),
            duplicate_ids=tuple(self._duplicates),
            unknown_ids=tuple(self._unknowns),
            wrong_values=tuple(self._wrongs),
        )

    def _find(self, record_id: str) -> int | None:
        try:
            row = self._dataset.row_of(record_id)
        except (RecordNotFoundError, TypeError):
            return None
        return row if self._is_expected[row] else None

    def _compare(self, record_id: str, row: int, delivered: Mapping[str, Any]) -> None:
        for name, value in delivered.items():
            stored = self._dataset.stored_value(row, name)
            found = value.item() if hasattr(value, "item") else value
            if found != stored and not (found != found and stored != stored):  # NaN is equal to NaN here
                self._wrong += 1
                _note(self._wrongs, f"{record_id}: {name}: delivered {found}, stored {stored}")


def _note(listed: list[str], text: str) -> None:
    if len(listed) < IDS_LISTED:
        listed.append(text)
