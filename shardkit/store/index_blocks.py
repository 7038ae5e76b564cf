"""What an index is made from, block by block: rows of new shards, and rows that an earlier index has already.

Implements the equality in docs/format.md, "Index": both give the same bytes.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardkit.errors import CorruptShardError
from shardkit.store.backend import Column, columns_of
from shardkit.store.backends import BACKENDS
from shardkit.store.checksum import digest_file, id_hash
from shardkit.store.committed_folder import CommittedFolder
from shardkit.store.file_views import FileBytes
from shardkit.store.folder import DataFolder
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
from shardkit.store.manifest import FileEntry, ShardEntry
from shardkit.store.npy import OFFSET, npy_header
from shardkit.store.store import Store

_BLOCK_ROWS = 1024  # of ids of the greatest length, 64 MiB


class IndexBlock(NamedTuple):
    """Consecutive rows of an index.

    Attributes:
        ids: UTF-8 bytes of the ids, one after the other.
        ends: End of each id in `ids`, ``uint64[rows]``.
        hashes: `id_hash` of each, ``uint64[rows]``.
        columns: The payloads of each indexed column, one after the other.
    """

    ids: bytes
    ends: npt.NDArray[np.uint64]
    hashes: npt.NDArray[np.uint64]
    columns: list[bytes]


def scan_shard(folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> Iterator[IndexBlock]:
    """Yield the rows of a shard, read back from it.

    Raises:
        CorruptShardError: It is not what its entry says.
    """
    backend = BACKENDS[shard.backend]
    backend.check_files(folder, shard, columns)
    wanted = indexed_columns(columns)
    rows = backend.open(folder, shard, columns).scan(wanted)
    while block := list(islice(rows, _BLOCK_ROWS)):
        ids = [record_id.encode() for record_id, _ in block]
        yield IndexBlock(
            ids=b"".join(ids),
            ends=np.cumsum([len(encoded) for encoded in ids], dtype=np.uint64),
            hashes=np.fromiter(map(id_hash, ids), np.uint64, len(ids)),
            columns=[b"".join([payloads[place] for _, payloads in block]) for place in range(len(wanted))],
        )


class KeptRows:
    """The rows of an earlier index, for the shards that a new generation takes over.

    Every file that rows are taken from is held against its digest first, so that damage is not passed on under a
    new one.
    """

    def __init__(self, previous: Store, columns: Sequence[Column]) -> None:
        """Open the index of `previous`, whose columns must be `columns`.

        Raises:
            ValueError: They are others.
            CorruptShardError: A file of the index was altered.
            FormatError: The data set was replaced.
        """
        manifest = previous.manifest
        if columns_of(manifest.contract) != list(columns):
            raise ValueError("the earlier generation has other columns")
        self._folder = CommittedFolder(previous.path, manifest.generation, manifest.dataset_id)
        self._index = manifest.index
        self._count = manifest.count
        starts = [0, *accumulate(shard.count for shard in manifest.shards)]
        self._first_rows = dict(zip(manifest.shards, starts, strict=False))
        self._require_unaltered()
        self._ids = FileBytes(self._folder, *self._place(IDS))
        self._offsets = self._array(self._path(OFFSETS), OFFSET, self._count + 1)
        self._columns = [
            (
                self._array(
                    column_path(self._index.generation, column.name), column.layout.dtype, self._count
                ),
                column.layout.nbytes,
            )
            for column in (columns[number] for number in indexed_columns(columns))
            if column.layout.dtype is not None
        ]
        self._hashes = self._hashes_in_row_order()

    def __contains__(self, shard: ShardEntry) -> bool:
        """Whether the earlier generation has this very shard."""
        return shard in self._first_rows

    def blocks(self, shard: ShardEntry) -> Iterator[IndexBlock]:
        """Yield the rows of a shard that is in the earlier generation.

        Raises:
            CorruptShardError: The index is inconsistent.
        """
        first = self._first_rows[shard]
        for begin in range(first, first + shard.count, _BLOCK_ROWS):
            end = min(begin + _BLOCK_ROWS, first + shard.count)
            offsets = np.frombuffer(self._offsets.read(8 * begin, 8 * end + 8), OFFSET)
            if (offsets[1:] < offsets[:-1]).any() or offsets[-1] > len(self._ids):
                raise self._corrupt(OFFSETS, "its offsets decrease or leave the file")
            yield IndexBlock(
                ids=self._ids.read(int(offsets[0]), int(offsets[-1])),
                ends=offsets[1:] - offsets[0],
                hashes=self._hashes[begin:end],
                columns=[view.read(size * begin, size * end) for view, size in self._columns],
            )

    def _hashes_in_row_order(self) -> npt.NDArray[np.uint64]:
        hashes, rows = (
            np.frombuffer(self._array(self._path(name), OFFSET, self._count).read(0, 8 * self._count), OFFSET)
            for name in (HASHES, ROWS)
        )
        if len(rows) and rows.max() >= self._count:
            raise self._corrupt(ROWS, f"it names a row beyond {self._count}")
        in_order = np.zeros(self._count, np.uint64)
        in_order[rows] = hashes
        return in_order

    def _require_unaltered(self) -> None:
        for file in self._index.files:
            if file.path == self._path(REJECTED):
                continue
            name = file.path.rpartition("/")[2]
            try:
                found = digest_file(self._folder.resolve(file.path))
            except OSError as error:
                raise self._corrupt(name, f"it cannot be read: {error.strerror}") from error
            if found != file.digest:
                raise self._corrupt(name, "its digest differs")

    def _array(self, path: str, dtype: np.dtype[Any], count: int) -> FileBytes:
        """Open the elements of a .npy file."""
        return FileBytes(self._folder, path, self._entry(path).bytes, len(npy_header(dtype, (count,))))

    def _path(self, name: str) -> str:
        return f"{index_folder(self._index.generation)}/{name}"

    def _place(self, name: str) -> tuple[str, int]:
        return self._path(name), self._entry(self._path(name)).bytes

    def _entry(self, path: str) -> FileEntry:
        return next(file for file in self._index.files if file.path == path)

    def _corrupt(self, name: str, problem: str) -> CorruptShardError:
        return CorruptShardError(
            f"{self._folder.path / self._path(name)}: {problem}; it was altered: restore it, or ingest again"
        )
