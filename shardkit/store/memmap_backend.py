"""Shards as plain files that are memory-mapped: a folder a shard (docs/format.md, "memmap shards").

A fixed-size column is a .npy that numpy.load opens; a column of varying size is a .bin with a .offsets.npy.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.contract import Payload
from shardkit.errors import CorruptShardError, OutputError
from shardkit.store.backend import Column
from shardkit.store.checksum import SOURCE_DIGEST_BYTES
from shardkit.store.durable import (
    EarlySync,
    make_folder,
    partial_of,
    publish,
    refusals,
    remove,
    sync_file,
    sync_stream,
)
from shardkit.store.folder import DataFolder
from shardkit.store.manifest import FileEntry, ShardEntry
from shardkit.store.npy import OFFSET, check_npy, check_offsets, map_integers, map_npy, npy_header

_BUFFER = 1 << 20
_SYNCS_AT_ONCE = 8
_SHARDS = "shards"
_ID = "id"
_CHECKSUM = "checksum.npy"
_SOURCE_DIGEST = "source-digest.npy"  # with a hyphen: no field can have that name
_BYTE: np.dtype[Any] = np.dtype("|u1")


def _variable_names(name: str) -> tuple[str, str]:
    return f"{name}.bin", f"{name}.offsets.npy"


def _column_names(column: Column) -> tuple[str, ...]:
    return (f"{column.name}.npy",) if column.layout.is_fixed else _variable_names(column.name)


def _file_names(columns: Sequence[Column]) -> list[str]:
    names = [*_variable_names(_ID), _CHECKSUM, _SOURCE_DIGEST]
    for column in columns:
        names.extend(_column_names(column))
    return names


class MemmapBackend:
    """The ``memmap`` backend."""

    name = "memmap"

    def shard_path(self, number: int) -> str:
        """Return the shard's folder."""
        return f"{_SHARDS}/{number:05d}"

    def file_paths(self, number: int, columns: Sequence[Column]) -> list[str]:
        """Return the files of the shard."""
        return [f"{self.shard_path(number)}/{name}" for name in _file_names(columns)]

    def create(self, root: Path, number: int, columns: Sequence[Column]) -> "MemmapWriter":
        """Begin a shard."""
        return MemmapWriter(root / self.shard_path(number), columns)

    def check_files(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> None:
        """Check the size of every file, every .npy header, and both ends of every offsets file."""
        files = _files_by_name(shard)
        rows = shard.count
        _check_variable(folder, files, _ID, rows)
        checksums = files[_CHECKSUM]
        check_npy(folder, checksums.path, checksums.bytes, OFFSET, (rows, len(columns)))
        digests = files[_SOURCE_DIGEST]
        check_npy(folder, digests.path, digests.bytes, _BYTE, (rows, SOURCE_DIGEST_BYTES))
        for column in columns:
            dtype = column.layout.dtype
            if dtype is None:
                _check_variable(folder, files, column.name, rows)
            else:
                file = files[f"{column.name}.npy"]
                check_npy(folder, file.path, file.bytes, dtype, (rows, *column.layout.shape))

    def open(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> "MemmapReader":
        """Open a shard; a file is mapped when it is first read."""
        return MemmapReader(folder, shard, columns)


def _files_by_name(shard: ShardEntry) -> dict[str, FileEntry]:
    return {file.path.rpartition("/")[2]: file for file in shard.files}


def _check_variable(folder: DataFolder, files: dict[str, FileEntry], name: str, rows: int) -> None:
    data, offsets = (files[each] for each in _variable_names(name))
    os.close(folder.open(data.path, data.bytes))
    check_offsets(folder, offsets.path, offsets.bytes, rows, data.bytes)


class _ColumnWriter(Protocol):
    def append(self, payload: Payload) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class _FixedWriter:
    """Writes rows of one size behind a .npy header, which is filled in at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._dtype = dtype
        self._shape = shape
        self._row_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self._rows = 0
        self._stream = path.open("wb", buffering=_BUFFER)
        self._stream.write(npy_header(dtype, (0, *shape)))

    def append(self, payload: Payload) -> None:
        if len(payload) != self._row_bytes:
            raise OutputError(
                f"{self._stream.name}: row {self._rows}: has {len(payload)} bytes, not {self._row_bytes}"
            )
        self._stream.write(payload)
        self._rows += 1

    def finish(self) -> None:
        self._stream.seek(0)
        self._stream.write(npy_header(self._dtype, (self._rows, *self._shape)))
        sync_stream(self._stream)
        self._stream.close()

    def close(self) -> None:
        self._stream.close()


class _VariableWriter:
    """Writes values one after the other, and the offset of each."""

    def __init__(self, folder: Path, name: str) -> None:
        data, offsets = _variable_names(name)
        self._stream = (folder / data).open("wb", buffering=_BUFFER)
        self._early_sync = EarlySync(folder / data)
        self._offsets = _FixedWriter(folder / offsets, OFFSET, ())
        self._end = 0
        self._offsets.append(bytes(8))
        self.data_name = data
        self.digest = xxhash.xxh3_128()
        """Of what is meant to be in the file: taken while it is at hand, it spares reading the file back."""

    def append(self, payload: Payload) -> None:
        self._stream.write(payload)
        self.digest.update(payload)
        self._end += len(payload)
        self._offsets.append(self._end.to_bytes(8, "little"))
        self._early_sync.advance(len(payload))

    def finish(self) -> None:
        self._early_sync.close()
        sync_stream(self._stream)
        self._stream.close()
        self._offsets.finish()

    def close(self) -> None:
        with suppress(OutputError):
            self._early_sync.close()
        try:
            self._offsets.close()
        finally:
            self._stream.close()


class MemmapWriter:
    """Writes one memmap shard."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._path = path
        self._partial = partial_of(path)
        self._writers: list[_ColumnWriter] = []
        self._pack_checksums = struct.Struct(f"<{len(columns)}Q").pack
        remove(self._partial)
        make_folder(self._partial)
        try:
            with refusals(self._partial):
                self._ids = _VariableWriter(self._partial, _ID)
                self._writers.append(self._ids)
                self._checksums = _FixedWriter(self._partial / _CHECKSUM, OFFSET, (len(columns),))
                self._writers.append(self._checksums)
                self._digests = _FixedWriter(self._partial / _SOURCE_DIGEST, _BYTE, (SOURCE_DIGEST_BYTES,))
                self._writers.append(self._digests)
                self._columns = [self._open_column(column) for column in columns]
        except BaseException:
            self.abort()
            raise

    def _open_column(self, column: Column) -> _ColumnWriter:
        writer: _ColumnWriter
        if column.layout.dtype is None:
            writer = _VariableWriter(self._partial, column.name)
        else:
            path = self._partial / f"{column.name}.npy"
            writer = _FixedWriter(path, column.layout.dtype, column.layout.shape)
        self._writers.append(writer)
        return writer

    def append(
        self, record_id: str, payloads: Sequence[Payload], checksums: Sequence[int], source_digest: bytes
    ) -> None:
        """Add one row."""
        with refusals(self._partial):
            self._ids.append(record_id.encode())
            self._checksums.append(self._pack_checksums(*checksums))
            self._digests.append(source_digest)
            for writer, payload in zip(self._columns, payloads, strict=True):
                writer.append(payload)

    def finish(self) -> dict[str, str]:
        """Fill in the headers, fsync, and rename the folder."""
        with refusals(self._partial), ThreadPoolExecutor(_SYNCS_AT_ONCE) as background:
            for done in [background.submit(writer.finish) for writer in self._writers]:
                done.result()  # all at once: each fsync only waits, and the system writes them together
        sync_file(self._partial)
        publish(self._partial, self._path)
        return {
            f"{_SHARDS}/{self._path.name}/{writer.data_name}": writer.digest.hexdigest()
            for writer in self._writers
            if isinstance(writer, _VariableWriter)
        }

    def abort(self) -> None:
        """Remove the unfinished folder."""
        for writer in self._writers:
            with suppress(OSError):  # closing writes what is buffered, which may be what failed
                writer.close()
        remove(self._partial)


class MemmapReader:
    """Reads one memmap shard. Payloads are views of the mapped files."""

    def __init__(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> None:
        self._folder = folder
        self._files = _files_by_name(shard)
        self._rows = shard.count
        self._shown = folder.path / MemmapBackend().shard_path(shard.number)
        self._columns = list(columns)
        self._get: list[Callable[[int], memoryview] | None] = [None] * len(columns)
        self._get_id: Callable[[int], memoryview] | None = None
        self._checksums: memoryview | None = None
        self._get_digest: Callable[[int], memoryview] | None = None

    def payload(self, row: int, column: int) -> Payload:
        """Return a view of one payload."""
        return (self._get[column] or self._open(column))(row)

    def payloads(self, row: int, columns: Sequence[int]) -> list[Payload]:
        """Return views of several payloads."""
        get = self._get
        return [(get[column] or self._open(column))(row) for column in columns]

    def read_id(self, row: int) -> str:
        """Return the stored id."""
        if self._get_id is None:
            self._get_id = self._open_variable(_ID)
        try:
            return str(self._get_id(row), "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptShardError(
                f"{self._shown}: row {row}: its id is not UTF-8; it was altered: restore it, or ingest again"
            ) from error

    def checksum(self, row: int, column: int) -> int:
        """Return the stored checksum."""
        if self._checksums is None:
            file = self._files[_CHECKSUM]
            self._checksums = map_integers(
                self._folder, file.path, file.bytes, self._rows * len(self._columns)
            )
        return int(self._checksums[row * len(self._columns) + column])

    def source_digest(self, row: int) -> bytes:
        """Return the stored digest of what the record was made from."""
        if self._get_digest is None:
            self._get_digest = self._open_fixed(_SOURCE_DIGEST, SOURCE_DIGEST_BYTES)
        return bytes(self._get_digest(row))

    def scan(self, columns: Sequence[int]) -> Iterator[tuple[str, list[Payload]]]:
        """Yield id and payloads of every row."""
        for row in range(self._rows):
            yield self.read_id(row), self.payloads(row, columns)

    def array(self, column: int) -> npt.NDArray[Any] | None:
        """Return the whole column, mapped."""
        layout = self._columns[column].layout
        if layout.dtype is None:
            return None
        file = self._files[f"{self._columns[column].name}.npy"]
        return map_npy(self._folder, file.path, file.bytes, layout.dtype, (self._rows, *layout.shape))

    def _open(self, number: int) -> Callable[[int], memoryview]:
        """Map a column at its first use and return what gets a payload of it."""
        column = self._columns[number]
        if column.layout.is_fixed:
            get = self._open_fixed(f"{column.name}.npy", column.layout.nbytes)
        else:
            get = self._open_variable(column.name)
        self._get[number] = get
        return get

    def _open_variable(self, name: str) -> Callable[[int], memoryview]:
        data_file, offsets_file = (self._files[each] for each in _variable_names(name))
        data = self._folder.map(data_file.path, data_file.bytes)
        offsets = map_integers(self._folder, offsets_file.path, offsets_file.bytes, self._rows + 1)
        size = len(data)
        shown = self._shown  # and not self: a cycle would keep the maps until the next garbage collection

        def get(row: int) -> memoryview:
            begin, end = offsets[row], offsets[row + 1]
            if not begin <= end <= size:
                raise CorruptShardError(
                    f"{shown}: row {row}: {name}.offsets.npy says [{begin}, {end}) of {size} bytes; "
                    "it was altered: restore it, or ingest again"
                )
            return data[begin:end]

        return get

    def _open_fixed(self, name: str, row_bytes: int) -> Callable[[int], memoryview]:
        file = self._files[name]
        data = self._folder.map(file.path, file.bytes)[file.bytes - row_bytes * self._rows :]

        def get(row: int) -> memoryview:
            begin = row * row_bytes
            return data[begin : begin + row_bytes]

        return get
