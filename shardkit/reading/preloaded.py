"""Records held in memory: the payloads of some fields, read and checked once, for all processes that read them.

Nothing is decoded here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import Contract, Layout, Payload
from shardkit.errors import CorruptShardError
from shardkit.reading.marked import MarkedRows
from shardkit.reading.shared_block import SharedBlock, available_memory
from shardkit.store import BatchIdView, Column, Store

_ALIGNMENT = 64  # of arrays: a cache line
_OFFSET = np.dtype("<u8")

Take = Callable[[int, int, Payload], None]
"""Takes row, column and payload."""


@dataclass(frozen=True)
class Preloaded:
    """The payloads of some columns of all rows; pickles only for a process that is being started, and small.

    Attributes:
        block: Where they lie. A column of fixed size is ``[rows, *shape]`` there, one of varying size
            ``uint64[rows + 1]``, which are its offsets in the block.
        places: Column number -> where it begins in the block.
        damage: Row -> what is wrong with a record that was left out.
    """

    block: SharedBlock
    places: dict[int, int]
    damage: dict[int, str]


def preload_fields(
    store: Store, names: Sequence[str], is_checked: bool, skipped: MarkedRows | None
) -> Preloaded:
    """Read all rows of some fields into memory.

    Args:
        store: The open data set. Its shards are let go of when they have been read.
        names: The fields.
        is_checked: Whether each payload is held against its checksum.
        skipped: Where damaged records are noted that are to be left out; None raises the damage.

    Raises:
        CorruptShardError: A record is damaged, and damage is not skipped.
        ValueError: They need more memory than there is.
    """
    numbers = [number for number, column in enumerate(store.columns) if column.name in names]
    try:
        return _Preloading(store, numbers, is_checked, skipped).run()
    finally:
        store.close()


class PreloadedRecords:
    """`Records` that lie in memory. They were checked as they were read.

    Where damaged ones were left out, each row must be asked for by `payloads`, which tells.

    Args:
        store: Has the ids.
        preloaded: The payloads.

    Attributes:
        contract: What every record fits.
        columns: One column a field, in field order; only those that were preloaded can be read.
        starts: All rows are one part.
    """

    def __init__(self, store: Store, preloaded: Preloaded) -> None:
        self.contract: Contract = store.contract
        self.columns: Sequence[Column] = store.columns
        self.starts: Sequence[int] = [0]
        self._store = store
        self._data = preloaded.block.data
        self._places = preloaded.places
        self._damage = preloaded.damage
        self._spans = {
            number: _spans(self.columns[number].layout, len(store), place, self._data)
            for number, place in preloaded.places.items()
        }

    def __len__(self) -> int:
        return len(self._store)

    def id_of(self, row: int) -> str:
        """Return the id in a row."""
        return self._store.id_of(row)

    def ids_of(self, rows: npt.NDArray[np.int64]) -> BatchIdView:
        """Return the ids in some rows."""
        return self._store.ids_of(rows)

    def where(self, row: int) -> str:
        """Return how a message names a row: as in its shard."""
        return self._store.where(row)

    def payloads(self, row: int, columns: Sequence[int]) -> list[Payload]:
        """Return views of the payloads of a row.

        Raises:
            CorruptShardError: The record was damaged when it was read.
        """
        if row in self._damage:
            raise CorruptShardError(self._damage[row])
        data, spans = self._data, self._spans
        return [data[spans[column](row)] for column in columns]

    def check(self, row: int, column: int, payload: Payload) -> None:
        """Nothing: all were checked, if they were to be."""

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return one value a row of a label or scalar field, over all rows; None where records were left out."""
        number = next(number for number, column in enumerate(self.columns) if column.name == name)
        return self.array(0, number)

    def array(self, part: int, column: int, /) -> npt.NDArray[Any] | None:
        """Return ``[len(self), *shape]`` of a fixed-size column; None of another, or where records were left out."""
        layout = self.columns[column].layout
        if self._damage or not layout.is_fixed:
            return None
        return np.ndarray((len(self), *layout.shape), layout.dtype, self._data, self._places[column])


class _Preloading:
    """Goes through all rows: for the sizes of what varies, if anything does, and then for all payloads."""

    def __init__(
        self, store: Store, numbers: list[int], is_checked: bool, skipped: MarkedRows | None
    ) -> None:
        self._store = store
        self._numbers = numbers
        self._is_checked = is_checked
        self._skipped = skipped
        self._available = available_memory()
        layouts = {number: store.columns[number].layout for number in numbers}
        self._fixed = {number: layout.nbytes for number, layout in layouts.items() if layout.is_fixed}
        self._offsets = {
            number: np.zeros(len(store) + 1, _OFFSET) for number in numbers if number not in self._fixed
        }
        self._total = 0
        self._places: dict[int, int] = {}
        self._damage: dict[int, str] = {}

    def run(self) -> Preloaded:
        row_bytes = sum(self._fixed.values()) + _OFFSET.itemsize * len(self._offsets)
        self._need(row_bytes * len(self._store))
        if self._offsets:
            self._each(list(self._offsets), self._measure)
        nbytes = self._lay_out()
        try:
            block = SharedBlock.allocate(nbytes)
        except OSError as error:
            raise self._too_large(f"{nbytes:,} bytes", error.strerror or str(error)) from error
        self._fill(block.writable())
        return Preloaded(block, self._places, self._damage)

    def _each(self, numbers: list[int], take: Take) -> None:
        """Take every payload of some columns, but those of records that are left out."""
        store = self._store
        for row in range(len(store)):
            if row in self._damage:
                continue
            try:
                for number, payload in zip(numbers, store.payloads(row, numbers), strict=True):
                    take(row, number, payload)
            except CorruptShardError as error:
                if self._skipped is None:
                    raise
                self._skipped.mark(row)
                self._damage[row] = str(error)

    def _measure(self, row: int, number: int, payload: Payload) -> None:
        self._offsets[number][row + 1] = len(payload)
        self._need(len(payload))

    def _need(self, nbytes: int) -> None:
        """Count what is needed, and stop as soon as it is too much: what is too large is not read to its end."""
        self._total += nbytes
        if self._available is not None and self._total > self._available:
            raise self._too_large(f"more than {self._available:,} bytes", "which is what is available")

    def _too_large(self, needed: str, why: str) -> ValueError:
        return ValueError(
            f"{self._store.path}: preload=True needs {needed} of memory, {why}: read fewer fields, or open it "
            f"without preload"
        )

    def _lay_out(self) -> int:
        """Give each column its place, turn sizes into offsets, and return the bytes that all take."""
        end = 0
        for number in self._numbers:
            place = self._places[number] = -(-end // _ALIGNMENT) * _ALIGNMENT
            if number in self._fixed:
                end = place + self._fixed[number] * len(self._store)
            else:
                offsets = self._offsets[number]
                offsets[0] = place + offsets.nbytes
                np.cumsum(offsets, out=offsets)
                end = int(offsets[-1])
        return end

    def _fill(self, target: memoryview) -> None:
        """Write the block."""
        for number, offsets in self._offsets.items():
            place = self._places[number]
            target[place : place + offsets.nbytes] = offsets.tobytes()
        store = self._store
        spans = {
            number: _spans(store.columns[number].layout, len(store), place, target)
            for number, place in self._places.items()
        }

        def keep(row: int, number: int, payload: Payload) -> None:
            if self._is_checked:
                store.check(row, number, payload)
            span = spans[number](row)
            if span.stop - span.start != len(payload):
                raise CorruptShardError(f"{store.where(row)}: was altered while it was read")
            target[span] = payload

        self._each(self._numbers, keep)


def _spans(layout: Layout, rows: int, place: int, data: memoryview) -> Callable[[int], slice]:
    """Return what tells where in the block the payload of a row lies, for a column that begins at `place`."""
    if layout.is_fixed:
        nbytes = layout.nbytes
        return lambda row: slice(place + row * nbytes, place + (row + 1) * nbytes)
    offsets = data[place : place + (rows + 1) * _OFFSET.itemsize].cast("Q")
    return lambda row: slice(offsets[row], offsets[row + 1])
