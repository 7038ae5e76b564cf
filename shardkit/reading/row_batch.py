"""The samples of some rows, read field by field into what will be the batch."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch

from shardkit.errors import CorruptShardError
from shardkit.reading.allocation import Allocate
from shardkit.reading.collate import Batch, BatchIds, PaddedSample, Paddings, PreparedSamples, Sample
from shardkit.reading.columns import (
    DecodedColumn,
    GatheredColumn,
    ListColumn,
    PictureColumn,
    Rows,
    make_column,
)
from shardkit.reading.decode import FieldReader
from shardkit.reading.marked import MarkedRows
from shardkit.reading.records import Records
from shardkit.reading.worker_batch import as_made_here
from shardkit.transforms.randomness import Draws, rng_of

DECODED_AT_ONCE = 8
"""Rows that a thread decodes of a batch before it looks for other work: looking costs a hundredth of them."""


class RowBatch(PreparedSamples):
    """The samples of some rows: a sequence of them for any collation, and a batch at no further cost for our own.

    First `fill` reads every place, in parts and in any number of threads.

    Args:
        store: The records of the open data set.
        readers: The fields, in the order of the sample.
        paddings: How fields are padded.
        rows: ``int64[B]``, their rows.
        allocate: Gives the memory of tensors.
        draws: Decides random numbers; None draws from torch's stream.
        is_pad: ``bool[B]``: which are repeats that only fill the batch; None if nobody asked for it.
        skipped: Where damaged records are noted that are to be left out; None raises the damage.

    Attributes:
        part_size: Places that one call of `fill` should take.
    """

    def __init__(
        self,
        store: Records,
        readers: Sequence[FieldReader],
        paddings: Paddings,
        rows: Rows,
        allocate: Allocate,
        draws: Draws | None,
        is_pad: "np.ndarray[Any, np.dtype[np.bool_]] | None",
        skipped: MarkedRows | None,
    ) -> None:
        self._store = store
        self._paddings = paddings
        self._rows = rows
        self._names = [reader.name for reader in readers]
        self._columns = [make_column(reader, rows, allocate) for reader in readers]
        self._gathered = [column for column in self._columns if isinstance(column, GatheredColumn)]
        self._decoded: list[DecodedColumn] = [
            column for column in self._columns if isinstance(column, PictureColumn | ListColumn)
        ]
        self._numbers = [column.reader.column for column in self._decoded]
        self._is_random = any(reader.is_random for reader in readers)
        self._draws = draws
        self._is_pad = is_pad
        self._skipped = skipped
        self._lost: set[int] = set()
        self.part_size = DECODED_AT_ONCE if self._decoded else max(1, len(rows))

    def fill(self, begin: int, end: int) -> None:
        """Read the samples at the places from `begin` to `end`.

        Raises:
            CorruptShardError: A record is damaged, and damage is not skipped.
            TransformError: An image operation cannot be done.
        """
        self._gather(begin, end)
        if not self._decoded:
            return
        rows = self._rows[begin:end].tolist()
        if (
            self._skipped is None
        ):  # without a call more than it takes: it keeps other threads from the interpreter
            for place, row in enumerate(rows, begin):
                self._put(place, row)
            for place in range(begin, end):
                self._finish(place)
            return
        prepared = [
            place
            for place, row in enumerate(rows, begin)
            if place not in self._lost and self._is_sound(place, row, self._put)
        ]
        for place in prepared:
            self._is_sound(place, rows[place - begin], lambda place, _: self._finish(place))

    def batches(self) -> list[Batch]:
        """Return the one batch."""
        return [self.batch()]

    def batch(self) -> Batch:
        """Return the batch: what `collate` makes of the samples."""
        kept = self._kept if self._lost else None
        ids = self._ids(kept)
        batch: Batch = {"id": ids}
        if len(ids):
            for column in self._columns:
                column.add_to(batch, kept, self._paddings, ids)
        if self._is_pad is not None:
            batch["is_pad"] = torch.from_numpy(self._is_pad if kept is None else self._is_pad[kept])
        return as_made_here(batch)

    def with_gaps(self) -> list[Sample | None]:
        """Return the samples, None in place of those that were skipped."""
        return [None if place in self._lost else self._sample(place) for place in range(len(self._rows))]

    def __len__(self) -> int:
        return len(self._rows) - len(self._lost)

    @overload
    def __getitem__(self, position: int) -> Sample: ...

    @overload
    def __getitem__(self, position: slice) -> list[Sample]: ...

    def __getitem__(self, position: int | slice) -> Sample | list[Sample]:
        if isinstance(position, slice):
            return [self._sample(place) for place in self._kept[position]]
        return self._sample(self._kept[position])

    def __iter__(self) -> Iterator[Sample]:
        return map(self._sample, self._kept)

    @property
    def _kept(self) -> list[int]:
        return [place for place in range(len(self._rows)) if place not in self._lost]

    def _is_sound(self, place: int, row: int, read: Callable[[int, int], None]) -> bool:
        """Do a part of reading a record; note it, and return False, if it is damaged and is to be skipped."""
        try:
            read(place, row)
        except CorruptShardError:
            if self._skipped is None:
                raise
            self._skipped.mark(row)
            self._lost.add(place)
            return False
        return True

    def _gather(self, begin: int, end: int) -> None:
        for column in self._gathered:
            try:
                column.fill(begin, end)
            except CorruptShardError:
                if self._skipped is None:
                    raise
                for place in range(begin, end):  # to find those that are damaged
                    self._is_sound(place, int(self._rows[place]), column.fill_one)

    def _finish(self, place: int) -> None:
        for column in self._decoded:
            column.finish(place)

    def _put(self, place: int, row: int) -> None:
        rng = self._rng(place, row) if self._is_random else None
        payloads = self._store.payloads(row, self._numbers)
        for column, payload in zip(self._decoded, payloads, strict=True):
            column.put(place, row, payload, rng)

    def _rng(self, place: int, row: int) -> random.Random:
        return rng_of(self._draws, place, self._store.id_of(row))

    def _ids(self, kept: list[int] | None) -> Any:
        """Return the ids: as strings where records are decoded, else so that they are made when asked for."""
        rows = self._rows if kept is None else self._rows[kept]
        if self._decoded or not len(rows):
            return BatchIds(map(self._store.id_of, rows.tolist()))
        return self._store.ids_of(rows)

    def _sample(self, place: int) -> Sample:
        sample: Sample = {"id": self._store.id_of(int(self._rows[place]))}
        for name, column in zip(self._names, self._columns, strict=True):
            sample[name] = column.value(place)
        if self._is_pad is not None:
            sample["is_pad"] = bool(self._is_pad[place])
        return PaddedSample(sample, self._paddings) if self._paddings else sample
