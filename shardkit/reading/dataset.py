"""The map-style data set: a sample for a row or an id, with or without decoding."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from shardkit.contract import Contract
from shardkit.errors import CorruptShardError
from shardkit.reading.allocation import Allocate, allocate, allocate_private
from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import NoSamples, Sample
from shardkit.reading.decode import ops_by_field
from shardkit.reading.gathered import GatheredBatches
from shardkit.reading.guard import TransformGuard
from shardkit.reading.integer import row_at
from shardkit.reading.marked import MarkedRows
from shardkit.reading.opened import OpenedData
from shardkit.reading.row_batch import RowBatch
from shardkit.reading.selection import Columns, choose_fields, select_rows, the_label_field
from shardkit.store import IdSequence, Store
from shardkit.transforms.compose import Transform, split
from shardkit.transforms.randomness import Draws, begin_sample, transforming

OnError = Literal["raise", "skip"]


class ShardDataset(Dataset[Sample | None]):
    """A data set for a torch DataLoader, or to look into.

    A sample is a dict: ``"id"`` (str) and a value for each field: an image as a ``uint8[C,H,W]`` tensor
    (channels last in memory, as decoded: use ``reshape`` where ``view`` refuses), an array as a tensor of
    its dtype, tokens as an ``int32[n]`` or ``int64[n]`` tensor, a label as an int, a scalar as a numpy scalar, text
    as str, bytes as bytes, JSON as what it stands for. Where the contract pads a field, samples tell `collate` how.

    Tensors are the caller's own. Those of samples that are read as a batch, as by `__getitems__`, may be views of one
    block of memory for the whole batch, all of which stays as long as one is kept: clone what is to outlive it.

    Works in workers under fork, spawn and forkserver: it pickles to a few kilobytes and opens the files
    when first used in a process. Threads may share it.

    Example:
        >>> data = ShardDataset("out/")
        >>> loader = DataLoader(data, 64, shuffle=True, num_workers=2, collate_fn=collate)

    Args:
        path: The folder that ingestion made.
        transform: Takes a sample and returns the one to deliver. It must keep the id, every field, the shape
            and dtype of every tensor, and the type of every other value, or an error names the sample.
        fields: Names of the fields to read; the others are not touched. By default all.
        verify_checksums: None checks every field of varying size, as it is decoded; fixed-size values are not
            checked. True checks all, also in `read`; False none.
        may_reshape: Whether the transform may change shapes, dtypes and types (a crop, a resize, a conversion
            to float) or drop fields. All shapes are compared with those of the untransformed sample.
        may_filter: Whether the transform may return None to leave a sample out. `filtered` then names those
            left out so far, in this process and in the workers of its loaders.
        on_error: ``"raise"``, or ``"skip"``: a record whose stored bytes are damaged is left out, and `skipped` names
            it. Errors of a transform are always raised.
        preload: Hold the fields in memory, as stored. They are read once, here, and each value is checked unless
            `verify_checksums` is False. Workers share the memory; a copy that is unpickled for anything else reads
            its own when it is first used.

    Raises:
        DatasetNotFoundError: There is no manifest in `path`.
        FormatError: What is there is not a sound data set of a version that this one reads.
        ValueError: `fields` names one that the contract has not, or there is not the memory to preload them.
        CorruptShardError: A record to be preloaded is damaged, and damage is not skipped.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        transform: Transform | None = None,
        fields: Sequence[str] | None = None,
        verify_checksums: bool | None = None,
        may_reshape: bool = False,
        may_filter: bool = False,
        on_error: OnError = "raise",
        preload: bool = False,
    ) -> None:
        if on_error not in get_args(OnError):
            raise ValueError(f'on_error must be "raise" or "skip", not {on_error!r}')
        store = Store(path)
        self._count = len(store)
        self._names = choose_fields(fields, list(store.contract.fields))
        ops, rest = split(transform)
        by_field = ops_by_field(ops, store.contract, self._names)
        self._guard = (
            None if rest is None else TransformGuard(rest, may_reshape=may_reshape, may_filter=may_filter)
        )
        self._filtered = MarkedRows(self._count) if may_filter else None
        self._skipped = MarkedRows(self._count) if on_error == "skip" else None
        self._opened = OpenedData(store, self._names, verify_checksums, by_field, preload, self._skipped)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}>"

    def describe(self) -> str:
        """Return what is read, in words: path, number of records, and fields."""
        fields = f"fields {', '.join(self._names)}" if self._names else "no fields"
        return f"{self.path}: {self._count} records; {fields}"

    def __len__(self) -> int:
        """Number of records."""
        return self._count

    def __getitem__(self, index: SupportsIndex) -> Sample | None:
        """Return the sample in row `index`, from the end if negative; None if the transform filtered it.

        Args:
            index: An int, a numpy integer or an integer tensor of one element.

        Raises:
            IndexError: There is no such row.
            TypeError: `index` is no integer; a bool is none.
            CorruptShardError: What is stored is damaged; names shard, row, id and field.
            FormatError: Another data set took the folder before this shard was first read.
            TransformError: The transform raised, or did what it has no leave for.
        """
        return self._sample(self._row(index))

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Sequence[Sample]:
        """Return the samples of a whole batch, as torch's fetcher asks for it, without those filtered or skipped.

        Without a transform they are read straight into what `collate` will make of them.

        Raises:
            IndexError, TypeError, CorruptShardError, FormatError, TransformError: As for ``self[index]``.
        """
        if self._guard is None:
            batch = self.begin_batch(indices)
            batch.fill(0, len(indices))
            return batch
        kept = [sample for sample in self.read_batch(indices) if sample is not None]
        return kept if kept or getattr(indices, "is_pad", None) is None else NoSamples()

    def read_batch(self, indices: Sequence[SupportsIndex]) -> list[Sample | None]:
        """Return one item for each of `indices`: the sample, or None if it was filtered or skipped.

        Raises:
            IndexError, TypeError, CorruptShardError, FormatError, TransformError: As for ``self[index]``.
        """
        draws: Draws | None = getattr(indices, "draws", None)
        rows = self._rows(indices)
        batch = self._opened.reader.batch(rows, draws, None, self._skipped, allocate_private)
        batch.fill(0, len(rows))
        delivered = batch.with_gaps()
        if self._guard is not None:
            delivered = self._all_transformed(rows.tolist(), delivered, self._guard, draws)
        is_pad = getattr(indices, "is_pad", None)
        if is_pad is not None:
            for sample, mark in zip(delivered, is_pad.tolist(), strict=True):
                if sample is not None:
                    sample["is_pad"] = mark
        return delivered

    @property
    def has_transform(self) -> bool:
        """Whether samples go through a transform after they are decoded (image operations are part of that)."""
        return self._guard is not None

    def begin_batch(self, indices: Sequence[SupportsIndex], memory: Allocate = allocate) -> RowBatch:
        """Return the samples of a batch as they are before any transform, yet to be read: see `RowBatch`.

        Raises:
            IndexError, TypeError, FormatError: As for ``self[index]``.
        """
        return self._opened.reader.batch(
            self._rows(indices),
            getattr(indices, "draws", None),
            getattr(indices, "is_pad", None),
            self._skipped,
            memory,
        )

    def begin_batches(self, batches: Sequence[BatchRows], memory: Allocate) -> GatheredBatches:
        """Return several batches, yet to be read; for as many as `batches_at_once`, where that is more than one."""
        return self._opened.reader.batches(batches, memory)

    def batches_at_once(self, batch_size: int) -> int:
        """Return how many batches should be read at one go: 1 where something is decoded or transformed."""
        return 1 if self.has_transform else self._opened.reader.batches_at_once(batch_size)

    def get(self, record_id: str) -> Sample | None:
        """Return the sample with an id; None if the transform filtered it.

        Raises:
            TypeError: `record_id` is not a str.
            RecordNotFoundError: No record has this id.
            CorruptShardError, FormatError, TransformError: As for ``self[index]``.
        """
        return self[self._opened.store.row_of(record_id)]

    def read(self, index: SupportsIndex) -> dict[str, Any]:
        """Return the stored record in row `index`, nothing decoded or transformed.

        Returns:
            ``"id"`` (str); a label as int, a scalar as numpy scalar; any other field as its bytes, as stored.

        Raises:
            IndexError, TypeError: As for ``self[index]``.
            CorruptShardError: What is stored is inconsistent, or with ``verify_checksums=True`` differs
                from its checksum.
            FormatError: As for ``self[index]``.
        """
        return self._opened.reader.record(self._row(index))

    def slice(self, index: SupportsIndex, field: str, key: Any) -> Any:
        """Return a part of the array of one record, such as ``data.slice(7, "volume", np.s_[10:20])``.

        From memmap shards, and from a data set that is preloaded, only that part is read, and nothing is copied where
        the key is made of integers and slices. From LMDB the whole record is copied first. The part is not checked
        against the checksum, which is over the whole value.

        Args:
            index: As for ``self[index]``.
            field: An array, tokens, or an image that is stored raw.
            key: What numpy takes between brackets, for the array as it is stored: an image is ``uint8[C, H, W]``,
                tokens have the dtype of the contract.

        Returns:
            A read-only view (a numpy scalar where the key picks one element); where the key picks by lists or masks, a
            copy of what it picks.

        Raises:
            IndexError: There is no such row, or the key does not fit the array.
            TypeError: `index` is no integer.
            LookupError: The field cannot be read in part, or is not among those read; names those that can.
            CorruptShardError: What is stored is inconsistent, or preloading found the record damaged.
            FormatError: As for ``self[index]``.
        """
        return self._opened.reader.part(self._row(index), field, key)

    def stored_value(self, row: int, name: str) -> Any:
        """Return the value of a label or scalar field as the shard itself stores it, not the index: a Python value.

        Raises:
            IndexError: There is no such row.
            CorruptShardError: What is stored is inconsistent.
        """
        store = self._opened.store
        column = list(store.contract.fields).index(name)
        value = store.contract.fields[name].decode(store.payload(row, column))
        return value.item() if isinstance(value, np.generic) else value

    def select(
        self,
        *,
        ids: Iterable[str] | None = None,
        ids_from: str | PathLike[str] | None = None,
        labels: Iterable[str | int] | None = None,
        where: Callable[[Columns], npt.ArrayLike] | None = None,
    ) -> npt.NDArray[np.int64]:
        """Return the rows that fit all that is asked for, ascending: ``int64[k]``; what samplers take as ``rows``.

        Args:
            ids: The records of these ids.
            ids_from: The records of the ids in this file, one a line, UTF-8.
            labels: The records of these classes, by name or number, of the one label field.
            where: Takes label and scalar columns by name, each ``dtype[len(self)]``, and returns ``bool[len(self)]``:
                ``lambda columns: columns["age"] >= 18``.

        Raises:
            RecordNotFoundError: No record has one of the ids; names the first.
            LookupError: There is no such class, or not one label field.
            ValueError: The file is not UTF-8, or `where` returned something else.
        """
        return select_rows(self._opened.store, ids, ids_from, labels, where)

    def row_of(self, record_id: str) -> int:
        """Return the row of an id.

        Raises:
            TypeError: `record_id` is not a str.
            RecordNotFoundError: No record has this id.
        """
        return self._opened.store.row_of(record_id)

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return self._opened.path

    @property
    def contract(self) -> Contract:
        """What every record fits."""
        return self._opened.store.contract

    @property
    def ids(self) -> IdSequence:
        """Every id, in row order: a sequence of str that makes them when asked for."""
        return self._opened.store.ids

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class number of every row, ``int64[len(self)]``: a read-only memory map of the one label field.

        Raises:
            LookupError: The contract has no label field, or several; use `column` with a name then.
        """
        store = self._opened.store
        return store.column(the_label_field(store)[0])

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names of the one label field, in the order of their numbers: ``data.classes[data.labels[0]]``.

        Raises:
            LookupError: The contract has no label field, or several, or its classes have no names.
        """
        name, field = the_label_field(self._opened.store)
        if field.classes is None:
            raise LookupError(
                f"{self.path}: the classes of {name!r} have no names: they are 0 to {field.count - 1}"
            )
        return field.classes

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return the values of a label or scalar field in all rows: a read-only map, ``dtype[len(self)]``.

        Raises:
            LookupError: There is no such field, or it is of another kind.
        """
        return self._opened.store.column(name)

    @property
    def dataset_id(self) -> str:
        """What names this content: 32 hexadecimal digits."""
        return self._opened.dataset_id

    @property
    def generation(self) -> int:
        """The counter of commits to this folder."""
        return self._opened.generation

    @property
    def filtered(self) -> list[str]:
        """Ids of the samples that the transform has left out since the data set was opened, in row order.

        Those left out in DataLoader workers are among them, as soon as the worker has come to them. Empty
        unless the data set was opened with ``may_filter=True``.
        """
        if self._filtered is None:
            return []
        return [self._opened.store.id_of(row) for row in self._filtered.rows().tolist()]

    @property
    def skipped(self) -> list[str]:
        """Ids of the damaged records that were left out since the data set was opened, in row order.

        Those that DataLoader workers came upon are among them. Empty unless it was opened with ``on_error="skip"``.
        """
        if self._skipped is None:
            return []
        return [self._opened.store.id_of(row) for row in self._skipped.rows().tolist()]

    def _rows(self, indices: Sequence[SupportsIndex]) -> npt.NDArray[np.int64]:
        if isinstance(indices, BatchRows):  # whole numbers, of this data set or of another one
            rows = indices.array
            if len(rows) and 0 <= int(rows.min()) <= int(rows.max()) < self._count:
                return rows
        return np.array([self._row(index) for index in indices], dtype=np.int64)

    def _row(self, index: SupportsIndex) -> int:
        if type(index) is int and 0 <= index < self._count:
            return index
        return row_at(index, self._count, self.path)

    def _sample(self, row: int) -> Sample | None:
        """Return the sample in a row, transformed; None if it was filtered or skipped."""
        try:
            sample = self._opened.reader.sample(row)
        except CorruptShardError:
            if self._skipped is None:
                raise
            self._skipped.mark(row)
            return None
        return sample if self._guard is None else self._transformed(row, sample, self._guard)

    def _all_transformed(
        self, rows: list[int], samples: list[Sample | None], guard: TransformGuard, draws: Draws | None
    ) -> list[Sample | None]:
        delivered: list[Sample | None] = []
        with transforming(draws):
            for place, (row, sample) in enumerate(zip(rows, samples, strict=True)):
                if sample is not None and draws is not None:
                    begin_sample(draws, place, sample["id"])
                delivered.append(None if sample is None else self._transformed(row, sample, guard))
        return delivered

    def _transformed(self, row: int, sample: Sample, guard: TransformGuard) -> Sample | None:
        result = guard(sample, lambda: self._opened.store.where(row))
        if result is None and self._filtered is not None:
            self._filtered.mark(row)
        return result if result is None else self._opened.reader.mark(result)
