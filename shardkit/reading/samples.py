"""From stored records to samples: one row, or a batch of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import Payload
from shardkit.reading.allocation import Allocate
from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import PaddedSample, Sample
from shardkit.reading.decode import FieldReader
from shardkit.reading.gathered import GatheredBatches, batches_at_once
from shardkit.reading.marked import MarkedRows
from shardkit.reading.records import Records
from shardkit.reading.row_batch import RowBatch
from shardkit.reading.stored_array import holds_array
from shardkit.transforms.image_ops import ImageOp
from shardkit.transforms.randomness import Draws, rng_of


class SampleReader:
    """Reads samples and records of an open store. Safe in threads and after a fork.

    Args:
        store: The records of the open data set.
        names: Fields to read, in the order of the sample.
        verify_checksums: True checks every payload, also of records that are not decoded; None checks those
            of every field of varying size, as they are decoded; False checks none.
        ops: Name of an image field -> what becomes of it as it is decoded.
    """

    def __init__(
        self,
        store: Records,
        names: Sequence[str],
        verify_checksums: bool | None,
        ops: dict[str, list[ImageOp]],
    ) -> None:
        self._store = store
        self._verifies_all = verify_checksums is True
        self._readers = [FieldReader(store, name, verify_checksums, ops.get(name, ())) for name in names]
        self._paddings = {
            reader.name: reader.field.padding for reader in self._readers if reader.field.padding is not None
        }
        stored = [reader for reader in self._readers if reader.index is None]
        self._stored = [reader.column for reader in stored]
        self._judged = [
            (place, reader)
            for place, reader in enumerate(stored)
            if self._verifies_all or reader.layout.is_single
        ]
        self._from_index = [
            (reader.name, None if reader.index is None else reader.from_index) for reader in self._readers
        ]
        self._is_random = any(reader.is_random for reader in self._readers)

    def record(self, row: int) -> dict[str, Any]:
        """Return the stored record in `row`: its id, labels and scalars as numbers, all else as stored bytes.

        Raises:
            CorruptShardError: What is stored is inconsistent, or a checksum differs where all are verified.
        """
        record: dict[str, Any] = {"id": self._store.id_of(row)}
        payloads = self._store.payloads(row, self._stored)
        place = 0
        for name, from_index in self._from_index:
            if from_index is None:
                record[name] = bytes(payloads[place])
                place += 1
            else:
                record[name] = from_index(row)
        for place, reader in self._judged:
            record[reader.name] = self._stored_value(reader, row, payloads[place])
        return record

    def sample(self, row: int) -> Sample:
        """Return the decoded sample in `row`.

        Raises:
            CorruptShardError: A payload is damaged; names shard, row, id and field.
            TransformError: An image operation cannot be done.
        """
        sample: Sample = {"id": self._store.id_of(row)}
        rng = rng_of(None, 0, sample["id"]) if self._is_random else None
        payloads = iter(self._store.payloads(row, self._stored))
        for reader in self._readers:
            if reader.index is None:
                sample[reader.name] = reader.decode(row, next(payloads), rng)
            else:
                sample[reader.name] = reader.from_index(row)
        return self.mark(sample)

    def part(self, row: int, name: str, key: Any) -> Any:  # Any: what numpy takes, and gives
        """Return what a key of numpy's picks from the array of a field in `row`.

        Raises:
            LookupError: The field is none that can be read in part, or none that is read.
            IndexError: The key does not fit the array.
            CorruptShardError: What is stored is inconsistent.
        """
        arrays = {reader.name: reader for reader in self._readers if holds_array(reader.field)}
        if name not in arrays:
            these = ", ".join(arrays) or "none"
            raise LookupError(f"field {name!r} cannot be read in part; fields read here that can: {these}")
        reader = arrays[name]
        (payload,) = self._store.payloads(row, (reader.column,))
        return reader.part(row, payload, key)

    def batch(
        self,
        rows: npt.NDArray[np.int64],
        draws: Draws | None,
        is_pad: npt.NDArray[np.bool_] | None,
        skipped: MarkedRows | None,
        memory: Allocate,
    ) -> RowBatch:
        """Return the samples of some rows, yet to be read; see `RowBatch`."""
        return RowBatch(self._store, self._readers, self._paddings, rows, memory, draws, is_pad, skipped)

    def batches(self, batches: Sequence[BatchRows], memory: Allocate) -> GatheredBatches:
        """Return several batches, yet to be read; see `GatheredBatches`."""
        return GatheredBatches(self._store, self._readers, batches, memory)

    def batches_at_once(self, batch_size: int) -> int:
        """Return how many batches should be read at one go: 1 where something is decoded."""
        return batches_at_once(self._readers, batch_size)

    def mark(self, sample: Sample) -> Sample:
        """Return a sample that tells `collate` how its fields are padded: the same one if none is, or if it does."""
        if not self._paddings or isinstance(sample, PaddedSample):
            return sample
        return PaddedSample(sample, self._paddings)

    def _stored_value(self, reader: FieldReader, row: int, payload: Payload) -> Any:
        """Return a label or scalar as a number, anything else as its bytes."""
        if reader.layout.is_single:
            return reader.value(row, payload)
        if self._verifies_all:
            self._store.check(row, reader.column, payload)
        return bytes(payload)
