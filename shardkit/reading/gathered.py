"""Batches of values that are copied as they are stored: nothing is decoded, so several are made at one go."""

from collections.abc import Sequence

import numpy as np
import torch

from shardkit.reading.allocation import Allocate
from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import Batch
from shardkit.reading.columns import GatheredColumn, IndexColumn
from shardkit.reading.decode import FieldReader
from shardkit.reading.records import Records

_MADE_AT_ONCE = 8 << 20
"""Bytes of the batches that are made at one go. What the interpreter does for a batch of 1 MB takes as long as copying
it, as it then finds the caches full of values, and a third of that if it is done for several batches on end. And two
threads copy at the same time only if they do so for milliseconds: to take turns with the interpreter takes 0.1 ms."""
_MOST_AT_ONCE = 64


class GatheredBatches:
    """Some consecutive batches, which lie side by side.

    Args:
        store: The records of the open data set.
        readers: The fields, in the order of the sample; none is decoded.
        batches: Their rows.
        allocate: Gives the memory of tensors.

    Attributes:
        part_size: Places that one call of `fill` should take: all.
    """

    def __init__(
        self,
        store: Records,
        readers: Sequence[FieldReader],
        batches: Sequence[BatchRows],
        allocate: Allocate,
    ) -> None:
        self._store = store
        self._batches = batches
        rows = np.concatenate([batch.array for batch in batches])
        self.part_size = len(rows)
        self._columns = {
            reader.name: IndexColumn(reader, rows)
            if reader.index is not None
            else GatheredColumn(reader, rows, allocate)
            for reader in readers
        }

    def fill(self, begin: int, end: int) -> None:
        """Copy the values at the places from `begin` to `end`.

        Raises:
            CorruptShardError: One of them is damaged.
        """
        for column in self._columns.values():
            if isinstance(column, GatheredColumn):
                column.fill(begin, end)

    def batches(self) -> list[Batch]:
        """Return the batches: what `collate` makes of the samples of each."""
        made: list[Batch] = []
        begin = 0
        for rows in self._batches:
            end = begin + len(rows)
            batch: Batch = {"id": self._store.ids_of(rows.array)}
            for name, column in self._columns.items():
                batch[name] = column.part(begin, end)
            if rows.is_pad is not None:
                batch["is_pad"] = torch.from_numpy(rows.is_pad)
            made.append(batch)
            begin = end
        return made


def batches_at_once(readers: Sequence[FieldReader], batch_size: int) -> int:
    """Return how many batches should be made at one go: 1 where values are decoded."""
    if any(reader.is_decoded for reader in readers):
        return 1
    row_bytes = sum(reader.layout.nbytes for reader in readers)
    return min(_MOST_AT_ONCE, max(1, _MADE_AT_ONCE // (row_bytes * batch_size or 1)))
