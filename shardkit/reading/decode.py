"""From stored payloads to the values of a sample: one row, or many at once.

Labels and scalars come from the index, which holds them for all rows. Fixed-size arrays of many rows are
gathered from the memory map where the backend has one. Everything else is decoded payload by payload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shardkit.contract import Field, Payload
from shardkit.errors import CorruptShardError, FormatError
from shardkit.reading.collate import PaddedSample, Sample
from shardkit.store import Store


@dataclass(frozen=True)
class Part:
    """One field of the samples and where its values come from.

    Attributes:
        name: The field.
        column: Its number in the store.
        field: Its kind, which decodes.
        is_checked: Whether each payload is held against its checksum before it is decoded.
        index: Its values over all rows, or None where payloads are decoded.
    """

    name: str
    column: int
    field: Field
    is_checked: bool
    index: npt.NDArray[Any] | None


class SampleReader:
    """Reads samples and records of an open store. Safe in threads and after a fork.

    Args:
        store: The open data set.
        names: Fields to read, in the order of the sample.
        verify_checksums: True checks every payload, also of records that are not decoded; None checks those
            of every field of varying size, as they are decoded; False checks none.
    """

    def __init__(self, store: Store, names: Sequence[str], verify_checksums: bool | None) -> None:
        self._store = store
        self._verifies_all = verify_checksums is True
        self._parts = [self._part(name, verify_checksums) for name in names]
        self._paddings = {
            part.name: part.field.padding for part in self._parts if part.field.padding is not None
        }
        self._stored = [part.column for part in self._parts if part.index is None]
        self._record_plan = [(part.name, _getter(part)) for part in self._parts]
        self._arrays: dict[tuple[int, int], npt.NDArray[Any] | None] = {}
        self._starts = np.array(
            [0, *accumulate(shard.count for shard in store.manifest.shards)][:-1], dtype=np.int64
        )

    def record(self, row: int) -> dict[str, Any]:
        """Return the stored record in `row`: its id, labels and scalars as numbers, all else as stored bytes.

        Raises:
            CorruptShardError: What is stored is inconsistent, or a checksum differs where all are verified.
        """
        store = self._store
        record: dict[str, Any] = {"id": store.id_of(row)}
        payloads = iter(store.payloads(row, self._stored))
        for name, get in self._record_plan:
            record[name] = bytes(next(payloads)) if get is None else get(row)
        if self._verifies_all:
            self._check_record(row, record)
        return record

    def sample(self, row: int) -> Sample:
        """Return the decoded sample in `row`.

        Raises:
            CorruptShardError: A payload is damaged; names shard, row, id and field.
        """
        sample: Sample = {"id": self._store.id_of(row)}
        payloads = iter(self._store.payloads(row, self._stored))
        for part, (name, get) in zip(self._parts, self._record_plan, strict=True):
            sample[name] = self._value(part, row, next(payloads)) if get is None else get(row)
        return self.mark(sample) if self._paddings else sample

    def samples(self, rows: Sequence[int]) -> list[Sample]:
        """Return the decoded samples in `rows`, in their order.

        Raises:
            CorruptShardError: A payload is damaged; names shard, row, id and field.
        """
        if not rows:
            return []
        chosen = np.array(rows, dtype=np.int64)
        values: dict[str, Sequence[Any]] = {"id": [self._store.id_of(row) for row in rows]}
        one_by_one = []
        for part in self._parts:
            gathered = self._gather(part, chosen)
            values[part.name] = [] if gathered is None else gathered
            if gathered is None:
                one_by_one.append(part)
        if one_by_one:
            values |= self._decode_each(one_by_one, rows)
        samples = [
            dict(zip(values, row_values, strict=True)) for row_values in zip(*values.values(), strict=True)
        ]
        return [self.mark(sample) for sample in samples] if self._paddings else samples

    def mark(self, sample: Sample) -> Sample:
        """Return a sample that tells `collate` how its fields are padded: the same one if none is, or if it does."""
        if not self._paddings or isinstance(sample, PaddedSample):
            return sample
        return PaddedSample(sample, self._paddings)

    def _part(self, name: str, verify_checksums: bool | None) -> Part:
        column = next(number for number, column in enumerate(self._store.columns) if column.name == name)
        field = self._store.contract.fields[name]
        layout = field.layout
        is_checked = not layout.is_fixed if verify_checksums is None else verify_checksums
        is_indexed = layout.is_single and not is_checked
        index = np.asarray(self._store.column(name)) if is_indexed else None
        return Part(name, column, field, is_checked, index)

    def _decode_each(self, parts: Sequence[Part], rows: Sequence[int]) -> dict[str, list[Any]]:
        columns = [part.column for part in parts]
        values: dict[str, list[Any]] = {part.name: [] for part in parts}
        for row in rows:
            for part, payload in zip(parts, self._store.payloads(row, columns), strict=True):
                values[part.name].append(self._value(part, row, payload))
        return values

    def _value(self, part: Part, row: int, payload: Payload) -> Any:
        if part.is_checked:
            self._store.check(row, part.column, payload)
        return _to_torch(part.field, self._decode(part, row, payload))

    def _decode(self, part: Part, row: int, payload: Payload) -> Any:
        try:
            return part.field.decode(payload)
        except FormatError as error:
            raise CorruptShardError(
                f"{self._store.where(row)}, field {part.name!r}: cannot be decoded: {type(error).__name__}: {error}; "
                f"`shardkit verify` tells whether the shard was altered"
            ) from None

    def _check_record(self, row: int, record: dict[str, Any]) -> None:
        for part in self._parts:
            self._store.check(row, part.column, record[part.name])
            if part.field.layout.is_single:
                record[part.name] = self._decode(part, row, record[part.name])

    def _gather(self, part: Part, rows: npt.NDArray[np.int64]) -> Sequence[Any] | None:
        """Return the values of a field in many rows without decoding each, or None where it takes that."""
        if part.index is not None:
            values = part.index[rows]
            return values.tolist() if part.field.kind == "label" else list(values)
        if part.is_checked or not part.field.layout.is_fixed:
            return None
        gathered = self._gather_arrays(part, rows)
        if gathered is None:
            return None
        tensor = torch.from_numpy(gathered)
        return (tensor.permute(0, 3, 1, 2) if part.field.kind == "image" else tensor).unbind(0)

    def _array(self, shard: int, column: int) -> npt.NDArray[Any] | None:
        """Return the memory map of a column in a shard; made once, for it costs more than a batch of small rows."""
        key = shard, column
        if key not in self._arrays:
            self._arrays[key] = self._store.array(shard, column)
        return self._arrays[key]

    def _gather_arrays(self, part: Part, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
        layout = part.field.layout
        gathered = np.empty((len(rows), *layout.shape), dtype=layout.dtype)
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(shards).tolist():
            array = self._array(shard, part.column)
            if array is None:
                return None
            chosen = np.flatnonzero(shards == shard)
            gathered[chosen] = array[rows[chosen] - self._starts[shard]]
        return gathered


def _getter(part: Part) -> Callable[[int], Any] | None:
    """Return what gives the value of a row from the index: a Python int for a label, else a numpy scalar."""
    if part.index is None:
        return None
    return part.index.item if part.field.kind == "label" else part.index.__getitem__


def _to_torch(field: Field, value: Any) -> Any:
    """Return `value` as a sample holds it: arrays as tensors that own their memory, images as ``[C,H,W]``.

    An image stays ``[H,W,C]`` in memory, as decoded: `collate` and convolutions take it so without another
    copy.
    """
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(value if value.flags.writeable else value.copy())
    return tensor.permute(2, 0, 1) if field.kind == "image" else tensor
