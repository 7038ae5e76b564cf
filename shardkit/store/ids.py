"""The id index: which id stands in which row, straight from its files, without a Python list of strings.

Implements docs/format.md, "Index". Ten million ids cost this process next to no memory of its own.
"""

import os
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from shardkit.contract import Payload
from shardkit.errors import CorruptShardError, RecordNotFoundError
from shardkit.store.backend import columns_of
from shardkit.store.checksum import id_hash
from shardkit.store.committed_folder import CommittedFolder
from shardkit.store.file_views import FileBytes, FileIntegers
from shardkit.store.index_files import (
    HASHES,
    IDS,
    OFFSETS,
    REJECTED,
    ROWS,
    column_path,
    index_folder,
    indexed_columns,
)
from shardkit.store.manifest import FileEntry
from shardkit.store.npy import OFFSET, check_npy, check_offsets, map_integers, map_npy

MAPPED_BYTES = 1 << 25
"""An index up to this size is mapped, which makes a look-up three to five times as fast; see file_views.py."""


class IdIndex:
    """Ids and single-valued columns of all rows. Safe among threads and after a fork; opens no file twice.

    Attributes:
        key: Path, data set id and generation: what it takes to open the same index elsewhere.
    """

    def __init__(self, folder: CommittedFolder) -> None:
        """Check the files of the index, and map them if they are small.

        Raises:
            CorruptShardError: A file is missing, of the wrong size, or its header or ends are off.
        """
        manifest = folder.manifest
        self.key = _key_of(folder)
        self._folder = folder
        self._shown = folder.path / index_folder(manifest.index.generation)
        self._manifest = manifest
        self._count = manifest.count
        self._files = {file.path: file for file in manifest.index.files}
        self.check()
        is_small = sum(file.bytes for file in manifest.index.files) <= MAPPED_BYTES
        integers = map_integers if is_small else FileIntegers
        self._data = folder.map(*self._place(IDS)) if is_small else FileBytes(folder, *self._place(IDS))
        self._data_bytes = len(self._data)
        self._offsets = integers(folder, *self._place(OFFSETS), self._count + 1)
        self._hashes = integers(folder, *self._place(HASHES), self._count)
        self._rows = integers(folder, *self._place(ROWS), self._count)
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return self._count

    def id_of(self, row: int) -> str:
        """Return the id in `row`, which must be in ``[0, len(self))``.

        Raises:
            CorruptShardError: The index is inconsistent.
        """
        try:
            return str(self.encoded_id(row), "utf-8")
        except UnicodeDecodeError as error:
            raise self._corrupt(f"the id of row {row} is not UTF-8") from error

    def encoded_id(self, row: int) -> Payload:
        """Return the UTF-8 bytes of the id in `row`.

        Raises:
            CorruptShardError: The index is inconsistent.
        """
        begin, end = self._offsets[row], self._offsets[row + 1]
        if not begin <= end <= self._data_bytes:
            raise self._corrupt(f"{OFFSETS} says [{begin}, {end}) of {self._data_bytes} bytes for row {row}")
        return self._data[begin:end]

    def row_of(self, record_id: str) -> int:
        """Return the row of an id, in O(log n).

        Raises:
            TypeError: `record_id` is not a str.
            RecordNotFoundError: No record has this id.
            CorruptShardError: The index is inconsistent.
        """
        if not isinstance(record_id, str):
            raise TypeError(f"an id is a str, not {type(record_id).__name__}")
        try:
            encoded = record_id.encode()
        except UnicodeEncodeError:  # a lone surrogate: no stored id has one
            raise self._not_found(record_id) from None
        wanted = id_hash(encoded)
        position = bisect_left(self._hashes, wanted)
        while position < self._count and self._hashes[position] == wanted:
            row = self._rows[position]
            if row >= self._count:
                raise self._corrupt(f"{ROWS} names row {row} of {self._count}")
            if self.encoded_id(row) == encoded:
                return int(row)
            position += 1
        raise self._not_found(record_id)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one value a row of a single-valued field, as a read-only view of the file, mapped once.

        Raises:
            LookupError: The contract has no such field, or it is not a single fixed-size value.
            CorruptShardError: The file changed its size.
            FormatError: The data set was replaced before the column was first asked for.
        """
        if name not in self._columns:
            self._columns[name] = self._map_column(name)
        return self._columns[name]

    def _map_column(self, name: str) -> npt.NDArray[Any]:
        columns = columns_of(self._manifest.contract)
        indexed = {columns[number].name: columns[number].layout.dtype for number in indexed_columns(columns)}
        dtype = indexed.get(name)
        if dtype is None:
            raise LookupError(
                f"field {name!r} is not kept over all rows; these are: {', '.join(indexed) or 'none'}"
            )
        file = self._files[column_path(self._manifest.index.generation, name)]
        return map_npy(self._folder, file.path, file.bytes, dtype, (self._count,))

    def check(self) -> None:
        """Hold the files against the manifest.

        Raises:
            CorruptShardError: A file is missing, of the wrong size, or its header or ends are off.
        """
        folder, count = self._folder, self._count
        data_path, data_bytes = self._place(IDS)
        os.close(folder.open(data_path, data_bytes))
        os.close(folder.open(*self._place(REJECTED)))
        check_offsets(folder, *self._place(OFFSETS), count, data_bytes)
        check_npy(folder, *self._place(HASHES), OFFSET, (count,))
        check_npy(folder, *self._place(ROWS), OFFSET, (count,))
        columns = columns_of(self._manifest.contract)
        for number in indexed_columns(columns):
            file = self._files[column_path(self._manifest.index.generation, columns[number].name)]
            dtype = columns[number].layout.dtype
            if dtype is not None:
                check_npy(folder, file.path, file.bytes, dtype, (count,))

    def _place(self, name: str) -> tuple[str, int]:
        file: FileEntry = self._files[f"{index_folder(self._manifest.index.generation)}/{name}"]
        return file.path, file.bytes

    def _not_found(self, record_id: str) -> RecordNotFoundError:
        return RecordNotFoundError(
            f"{self._folder.path}: no record has the id {record_id!r}", record_id=record_id
        )

    def _corrupt(self, problem: str) -> CorruptShardError:
        return CorruptShardError(f"{self._shown}: {problem}; it was altered: restore it, or ingest again")


_open_indexes: "weakref.WeakValueDictionary[tuple[str, str, int], IdIndex]" = weakref.WeakValueDictionary()


def _key_of(folder: CommittedFolder) -> tuple[str, str, int]:
    return str(folder.path), folder.manifest.dataset_id, folder.manifest.generation


def share_index(folder: CommittedFolder) -> IdIndex:
    """Return the index of a data set, the one that this process has open already if there is one.

    Raises:
        CorruptShardError: A file of the index is not what the manifest says.
    """
    key = _key_of(folder)
    index = _open_indexes.get(key)
    if index is None:
        index = IdIndex(folder)
        _open_indexes[key] = index
    else:
        index.check()  # a file may have been cut since; reading a map beyond it would end the process
    return index


class BatchIdView:
    """Ids of some rows, made when asked for. Compares equal to a list of the same strings; pickles small.

    It has the length, positions, slices and order of a list. A `collections.abc.Sequence` it is not, for torch takes
    those apart item by item in a DataLoader's worker, which costs more than reading a small batch; see `IdSequence`.
    """

    def __init__(self, index: IdIndex, rows: range | npt.NDArray[np.int64]) -> None:
        """Stand for the ids of `rows`, each in ``[0, len(index))``."""
        self._index = index
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> str: ...

    @overload
    def __getitem__(self, position: slice) -> Self: ...

    def __getitem__(self, position: int | slice) -> str | Self:
        if isinstance(position, slice):
            return type(self)(self._index, self._rows[position])
        return self._index.id_of(int(self._rows[position]))

    def __iter__(self) -> Iterator[str]:
        return map(self._index.id_of, self._rows if isinstance(self._rows, range) else self._rows.tolist())

    def __contains__(self, record_id: object) -> bool:
        if not isinstance(record_id, str):
            return False
        try:
            return self._index.row_of(record_id) in self._rows
        except RecordNotFoundError:
            return False

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BatchIdView) and other._index.key == self._index.key:
            return len(self) == len(other) and bool(np.array_equal(self._rows, other._rows))
        if isinstance(other, BatchIdView | Sequence) and not isinstance(other, str):
            return len(self) == len(other) and all(
                mine == theirs for mine, theirs in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list: it compares by content

    def __repr__(self) -> str:
        shown = ", ".join(repr(record_id) for record_id in self[:3])
        return f"<{len(self)} ids: {shown}{', …' if len(self) > 3 else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (type(self), *self._index.key, self._rows))


class IdSequence(BatchIdView, Sequence[str]):
    """Ids of the rows of a data set: a `BatchIdView` that is a `collections.abc.Sequence`.

    Example:
        >>> store.ids[-1], "cats/1.jpg" in store.ids, list(store.ids[:2])
        ('dogs/9.jpg', True, ['cats/1.jpg', 'cats/2.jpg'])
    """


def _reopen(
    kind: type[BatchIdView], path: str, dataset_id: str, generation: int, rows: range | npt.NDArray[np.int64]
) -> BatchIdView:
    index = _open_indexes.get((path, dataset_id, generation))
    if index is None:
        index = share_index(CommittedFolder(path, generation, dataset_id))
    return kind(index, rows)
