"""Shards as LMDB files: one file a shard (docs/format.md, "lmdb shards").

The key is the row in the shard, big-endian; the value is a MessagePack map of id, checksums and payloads.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy.typing as npt

from shardkit.contract import Payload
from shardkit.errors import CorruptShardError, OutputError
from shardkit.store.backend import Column
from shardkit.store.checksum import SOURCE_DIGEST_BYTES
from shardkit.store.durable import EarlySync, make_folder, partial_of, publish, remove, sync_file
from shardkit.store.folder import DataFolder
from shardkit.store.lmdb_header import LmdbFault, LmdbMeta, check_header
from shardkit.store.lmdb_values import open_values
from shardkit.store.manifest import ShardEntry

MAX_RECORD_BYTES = (1 << 31) - (1 << 16)
"""Largest record: LMDB and its bindings were reported to lose values between 2 and 4 GiB."""

_BATCH_BYTES = 1 << 20
"""A transaction's size. LMDB keeps its pages in memory until commit, and as few as these stay in the processor's
cache: writing 48 KB records took half the CPU time that it took with 64 MiB."""

_MAP_SLACK = 1 << 20
_HEAD_BYTES = 4096
_HEAD_ENTRIES = 3  # id, checksum, source digest
_SOURCE_DIGEST = "source-digest"  # with a hyphen: no field can have that name
_MODE = 0o644
_FULL_BYTES = 1 << 16
_NOT_MESSAGEPACK = (ValueError, TypeError, OverflowError)
_NO_MAP = "is not a MessagePack map"


class LmdbBackend:
    """The ``lmdb`` backend."""

    name = "lmdb"

    def shard_path(self, number: int) -> str:
        """Return the shard's file."""
        return f"shards/{number:05d}.lmdb"

    def file_paths(self, number: int, columns: Sequence[Column]) -> list[str]:
        """Return the one file of the shard."""
        return [self.shard_path(number)]

    def create(self, root: Path, number: int, columns: Sequence[Column]) -> "LmdbWriter":
        """Begin a shard."""
        return LmdbWriter(root / self.shard_path(number), columns)

    def check_files(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> None:
        """Check the size of the file and its two headers."""
        _check_header(folder, shard)

    def open(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> "LmdbReader":
        """Open a shard, after a walk through its tree."""
        (file,) = shard.files
        meta = _check_header(folder, shard)
        try:
            get = open_values(folder.map(file.path, file.bytes), meta)
        except LmdbFault as fault:
            raise _altered(folder, shard, fault) from fault
        return LmdbReader(folder, shard, columns, get)


def _check_header(folder: DataFolder, shard: ShardEntry) -> LmdbMeta:
    (file,) = shard.files
    descriptor = folder.open(file.path, file.bytes)
    try:
        return check_header(descriptor, file.bytes, shard.count)
    except LmdbFault as fault:
        raise _altered(folder, shard, fault) from fault
    finally:
        os.close(descriptor)


def _altered(folder: DataFolder, shard: ShardEntry, fault: LmdbFault) -> CorruptShardError:
    return CorruptShardError(f"{folder.path / shard.files[0].path}: {fault}; restore it, or ingest again")


def _stored_order(columns: Sequence[Column]) -> list[int]:
    """Return column numbers as they stand in a record: single values first, on its first page."""
    return sorted(range(len(columns)), key=lambda number: not columns[number].layout.is_single)


class LmdbWriter:
    """Writes one lmdb shard, in transactions of about 1 MiB.

    The map grows between transactions to what the next one needs at most.
    """

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._path = path
        self._partial = partial_of(path)
        self._names = [column.name for column in columns]
        self._sizes = [column.layout.nbytes if column.layout.is_fixed else None for column in columns]
        self._order = _stored_order(columns)
        self._rows = 0
        self._batch: list[tuple[bytes, bytes]] = []
        self._batch_bytes = 0
        remove(self._partial)
        make_folder(path.parent)
        with _refusals(self._path):
            self._environment = lmdb.open(
                str(self._partial),
                map_size=_MAP_SLACK,
                subdir=False,
                lock=False,
                sync=False,  # nothing counts before finish() has synced it all
                mode=_MODE,
                max_dbs=0,
            )
        self._early_sync = EarlySync(self._partial)
        self._page_size: int = self._environment.stat()["psize"]

    def append(
        self, record_id: str, payloads: Sequence[Payload], checksums: Sequence[int], source_digest: bytes
    ) -> None:
        """Add one row."""
        self._require_fit(record_id, payloads, source_digest)
        record: dict[str, Any] = {"id": record_id, "checksum": list(checksums), _SOURCE_DIGEST: source_digest}
        record.update((self._names[number], payloads[number]) for number in self._order)
        value: bytes = msgpack.packb(record)
        self._batch.append((self._rows.to_bytes(8, "big"), value))
        self._batch_bytes += len(value)
        self._rows += 1
        if self._batch_bytes >= _BATCH_BYTES:
            self._write_batch()

    def _require_fit(self, record_id: str, payloads: Sequence[Payload], source_digest: bytes) -> None:
        if len(source_digest) != SOURCE_DIGEST_BYTES:
            raise OutputError(
                f"{self._path}: record {record_id!r}: its source digest has {len(source_digest)} bytes, "
                f"not {SOURCE_DIGEST_BYTES}"
            )
        size = sum(len(payload) for payload in payloads)
        if size > MAX_RECORD_BYTES:
            raise OutputError(
                f"{self._path}: record {record_id!r} has {size} bytes; an lmdb shard takes at most "
                f"{MAX_RECORD_BYTES} a record: use the memmap backend"
            )
        for name, fixed_size, payload in zip(self._names, self._sizes, payloads, strict=True):
            if fixed_size is not None and len(payload) != fixed_size:
                raise OutputError(
                    f"{self._path}: record {record_id!r}, field {name!r}: has {len(payload)} bytes, "
                    f"not {fixed_size}"
                )

    def finish(self) -> dict[str, str]:
        """Write the last batch, sync, and rename the file."""
        with _refusals(self._path):
            self._write_batch()
            self._environment.sync(True)
            self._environment.close()
        self._early_sync.close()
        sync_file(self._partial)
        publish(self._partial, self._path)
        return {}  # pages are LMDB's to lay out

    def abort(self) -> None:
        """Remove the unfinished file."""
        with suppress(OutputError):
            self._early_sync.close()
        with suppress(lmdb.Error):
            self._environment.close()
        remove(self._partial)

    def _write_batch(self) -> None:
        with _refusals(self._path):
            map_size = self._needed_map_size()
            while True:
                self._environment.set_mapsize(map_size)
                try:
                    with self._environment.begin(write=True) as transaction:
                        for key, value in self._batch:
                            transaction.put(key, value, append=True)
                    break
                except lmdb.MapFullError:  # the batch is still here: nothing is lost
                    map_size *= 2
        self._early_sync.advance(self._batch_bytes)
        self._batch.clear()
        self._batch_bytes = 0

    def _needed_map_size(self) -> int:
        """Return what is used, and what the batch adds at most: for a record, its pages and a leaf page."""
        info = self._environment.info()
        pages = info["last_pgno"] + 1 + sum(3 + len(value) // self._page_size for _, value in self._batch)
        needed = pages * self._page_size + _MAP_SLACK
        return max(info["map_size"], -(-needed // _MAP_SLACK) * _MAP_SLACK)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turn what LMDB says against a write into an OutputError."""
    try:
        yield
    except lmdb.Error as error:
        reason = str(error)
        if os.strerror(errno.EIO) in reason and shutil.disk_usage(path.parent).free < _FULL_BYTES:
            reason = os.strerror(errno.ENOSPC)  # LMDB calls a short write an input/output error
        raise OutputError(f"{path}: cannot be written: {reason}") from error


class LmdbReader:
    """Reads one lmdb shard. Payloads are bytes of their own."""

    def __init__(
        self,
        folder: DataFolder,
        shard: ShardEntry,
        columns: Sequence[Column],
        get: Callable[[int], memoryview],
    ) -> None:
        self._shown = folder.path / shard.files[0].path
        self._rows = shard.count
        self._expected = [
            (column.name, column.layout.nbytes if column.layout.is_fixed else None) for column in columns
        ]
        self._get = get

    def payload(self, row: int, column: int) -> Payload:
        """Return one payload."""
        return self.payloads(row, (column,))[0]

    def payloads(self, row: int, columns: Sequence[int]) -> list[Payload]:
        """Return several payloads of one record."""
        return self._pick(row, self._record(row), columns)

    def read_id(self, row: int) -> str:
        """Return the stored id."""
        return self._id_of(row, self._head(row, 1))

    def checksum(self, row: int, column: int) -> int:
        """Return the stored checksum."""
        checksums = self._head(row, 2).get("checksum")
        expected = len(self._expected)
        if type(checksums) is not list or len(checksums) != expected or type(checksums[column]) is not int:
            raise self._corrupt(row, f"does not hold {expected} checksums")
        return int(checksums[column])

    def source_digest(self, row: int) -> bytes:
        """Return the stored digest of what the record was made from."""
        digest = self._head(row, _HEAD_ENTRIES).get(_SOURCE_DIGEST)
        if type(digest) is not bytes or len(digest) != SOURCE_DIGEST_BYTES:
            raise self._corrupt(row, f"does not hold a source digest of {SOURCE_DIGEST_BYTES} bytes")
        return digest

    def scan(self, columns: Sequence[int]) -> Iterator[tuple[str, list[Payload]]]:
        """Yield id and single values of every row, from the first page of each record."""
        for row in range(self._rows):
            head = self._head(row, _HEAD_ENTRIES + len(columns))
            yield self._id_of(row, head), self._pick(row, head, columns)

    def array(self, column: int) -> npt.NDArray[Any] | None:
        """Return None: records lie apart."""
        return None

    def _pick(self, row: int, record: dict[str, Any], columns: Sequence[int]) -> list[Payload]:
        payloads: list[Payload] = []
        for column in columns:
            name, size = self._expected[column]
            value = record.get(name)
            if type(value) is not bytes or (size is not None and len(value) != size):
                raise self._corrupt(row, f"holds no value of the right size for field {name!r}")
            payloads.append(value)
        return payloads

    def _record(self, row: int) -> dict[str, Any]:
        try:
            record = msgpack.unpackb(self._get(row))
        except (LmdbFault, *_NOT_MESSAGEPACK) as error:
            raise self._unreadable(row, error) from error
        if type(record) is not dict:
            raise self._corrupt(row, _NO_MAP)
        return record

    def _head(self, row: int, entries: int) -> dict[str, Any]:
        """Return the first entries of a record, reading no more of it than they take."""
        try:
            value = self._get(row)
            unpacker = msgpack.Unpacker(max_buffer_size=len(value))
            unpacker.feed(value[:_HEAD_BYTES])
            unpacker.read_map_header()
            head = {}
            for _ in range(entries):
                key = unpacker.unpack()
                head[key] = unpacker.unpack()
        except msgpack.OutOfData:
            return self._record(row)
        except (LmdbFault, *_NOT_MESSAGEPACK) as error:
            raise self._unreadable(row, error) from error
        return head

    def _id_of(self, row: int, record: dict[str, Any]) -> str:
        record_id = record.get("id")
        if type(record_id) is not str:
            raise self._corrupt(row, "holds no id")
        return record_id

    def _unreadable(self, row: int, error: Exception) -> CorruptShardError:
        return self._corrupt(row, str(error) if isinstance(error, LmdbFault) else _NO_MAP)

    def _corrupt(self, row: int, problem: str) -> CorruptShardError:
        return CorruptShardError(
            f"{self._shown}: row {row} {problem}; it was altered: restore it, or ingest again"
        )
