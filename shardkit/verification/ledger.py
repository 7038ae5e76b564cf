"""The ledger of a delivery: how often each row came, in which order, and whether its values are those stored."""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.errors import RecordNotFoundError
from shardkit.reading import ShardDataset
from shardkit.reading.selection import Rows
from shardkit.verification.delivered_batch import DeliveredBatch, Number
from shardkit.verification.delivery_report import IDS_LISTED, DeliveryReport

_NOBODY = -1  # the row of an id that nobody stored
_ID_LENGTH = 200  # characters of a foreign id that are listed


class StoredValues:
    """The label and scalar values of a data set as its shards hold them, each read once.

    Takes up to 9 bytes a row and field.

    Args:
        dataset: The data set.

    Attributes:
        dataset: The data set.
        fields: Names of its label and scalar fields.
    """

    def __init__(self, dataset: ShardDataset) -> None:
        self.dataset = dataset
        specs = {
            name: spec for name, spec in dataset.contract.fields.items() if spec.kind in ("label", "scalar")
        }
        self.fields = list(specs)
        self._values = {name: np.zeros(len(dataset), dtype=spec.layout.dtype) for name, spec in specs.items()}
        self._is_read = {name: np.zeros(len(dataset), dtype=np.bool_) for name in specs}

    def of(self, name: str, rows: Rows) -> list[Number]:
        """Return the values of one field in some rows.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """
        values, is_read = self._values[name], self._is_read[name]
        for row in rows[~is_read[rows]].tolist():
            values[row] = self.dataset.stored_value(row, name)
            is_read[row] = True
        return list(values[rows].tolist())


class Ledger:
    """Counts how often each row came.

    Args:
        stored: The values of the data set.
        rows: Those that should come once; None for all.
        may_repeat: Whether rows may come again, and others not at all.

    Attributes:
        expected: Number of rows that should come.
        taken: Samples that came, of any kind.
    """

    def __init__(self, stored: StoredValues, rows: Rows | None = None, may_repeat: bool = False) -> None:
        count = len(stored.dataset)
        self._stored = stored
        self._may_repeat = may_repeat
        self._is_expected = np.ones(count, dtype=np.bool_)
        if rows is not None:
            self._is_expected[:] = False
            self._is_expected[rows] = True
        self.expected = int(self._is_expected.sum())
        self.taken = 0
        self._times = np.zeros(count, dtype=np.int64)
        self._order = array("q")  # 8 bytes a sample: there may be as many as a data set has
        self._padded = self._batches = self._wrong = self._unknown = 0
        self._duplicates: list[str] = []
        self._unknowns: list[str] = []
        self._wrongs: list[str] = []
        self._not_compared: dict[str, str] = {}

    def take(self, batch: DeliveredBatch) -> Rows:
        """Enter a batch, and return its rows: ``int64[B]``, -1 for an id that is unknown or was not expected."""
        rows = np.array([self._find(record_id) for record_id in batch.ids], dtype=np.int64)
        self._batches += 1
        self.taken += len(rows)
        self._not_compared = dict(batch.not_comparable) | self._not_compared
        is_known = rows != _NOBODY
        for name, found in batch.values.items():
            self._compare(name, batch.ids, rows, is_known, found)
        for record_id, row, is_pad in zip(batch.ids, rows.tolist(), batch.is_pad, strict=True):
            self._enter(record_id, row, is_pad)
        return rows

    def report(self, is_endless: bool = False) -> DeliveryReport:
        """Return what came, compared with what should have come."""
        missing = np.flatnonzero(self._is_expected & (self._times == 0))
        return DeliveryReport(
            expected=self.expected,
            delivered=len(self._order),
            padded=self._padded,
            batches=self._batches,
            missing=len(missing),
            duplicate=int(np.maximum(self._times - 1, 0).sum()),
            unknown=self._unknown,
            wrong=self._wrong,
            order=np.array(self._order, dtype=np.int64),
            missing_ids=tuple(self._stored.dataset.ids[int(row)] for row in missing[:IDS_LISTED]),
            duplicate_ids=tuple(self._duplicates),
            unknown_ids=tuple(self._unknowns),
            wrong_values=tuple(self._wrongs),
            not_compared=self._not_compared,
            may_repeat=self._may_repeat,
            is_endless=is_endless,
        )

    def _find(self, record_id: Any) -> int:  # Any: a foreign loader's id
        try:
            row = self._stored.dataset.row_of(record_id)
        except (RecordNotFoundError, TypeError):
            return _NOBODY
        return row if self._is_expected[row] else _NOBODY

    def _enter(self, record_id: Any, row: int, is_pad: bool) -> None:
        if row == _NOBODY:
            self._unknown += 1
            _note(self._unknowns, str(record_id)[:_ID_LENGTH])
        elif is_pad:
            self._padded += 1
        else:
            if self._times[row]:
                _note(self._duplicates, record_id)
            self._times[row] += 1
            self._order.append(row)

    def _compare(
        self,
        name: str,
        ids: Sequence[Any],
        rows: Rows,
        is_known: npt.NDArray[np.bool_],
        delivered: Sequence[Number],
    ) -> None:
        places = np.flatnonzero(is_known).tolist()
        stored = self._stored.of(name, rows[is_known])
        found = [delivered[place] for place in places]
        if found == stored:  # nearly always, and much faster than one by one
            return
        for place, value, kept in zip(places, found, stored, strict=True):
            if value != kept and not (value != value and kept != kept):  # NaN is equal to NaN here
                self._wrong += 1
                _note(self._wrongs, f"{ids[place]}: {name}: delivered {value}, stored {kept}")


def _note(listed: list[str], text: str) -> None:
    if len(listed) < IDS_LISTED:
        listed.append(text)
