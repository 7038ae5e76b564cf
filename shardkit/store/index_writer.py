"""Writes the index of a generation from its shards alone (docs/format.md, "Index").

Ids and columns stream through in the order of the rows; only the hash of each id is held in memory (8 bytes a
row, and as much again while sorting).
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import Contract, Payload
from shardkit.errors import FormatError
from shardkit.store.backend import Column, columns_of
from shardkit.store.backends import BACKENDS, seal_file
from shardkit.store.checksum import id_hash
from shardkit.store.durable import (
    make_folder,
    partial_of,
    publish,
    refusals,
    remove,
    sync_file,
    sync_stream,
)
from shardkit.store.folder import DataFolder
from shardkit.store.index_files import (
    HASHES,
    IDS,
    OFFSETS,
    REJECTED,
    ROWS,
    index_folder,
    index_paths,
    indexed_columns,
)
from shardkit.store.manifest import IndexEntry, ShardEntry
from shardkit.store.npy import OFFSET, npy_header

_BUFFER = 1 << 20


def write_index(
    root: Path,
    generation: int,
    contract: Contract,
    shards: Sequence[ShardEntry],
    rejected: Iterable[Mapping[str, Any]] = (),
) -> IndexEntry:
    """Write the index over `shards` and return its manifest entry.

    Args:
        root: The folder of the data set.
        generation: At least 1, and not one that a committed manifest refers to.
        contract: Of the records.
        shards: In row order.
        rejected: One JSON-ready mapping for each record that the contract refused.

    Raises:
        FormatError: Two records have the same id; names the id, and shard and row of both.
        CorruptShardError: A shard cannot be read back.
        OutputError: The system refused.
    """
    columns = columns_of(contract)
    final = root / index_folder(generation)
    partial = partial_of(final)
    remove(partial)
    make_folder(partial / "columns")
    rows = _scan_shards(DataFolder(root), shards, columns)
    hashes = _write_columns(partial, rows, columns, sum(shard.count for shard in shards))
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    _refuse_duplicates(partial, hashes, order, shards)
    _write_array(partial / HASHES, hashes)
    _write_array(partial / ROWS, order.astype(OFFSET))
    count = _write_rejected(partial / REJECTED, rejected)
    sync_file(partial / "columns")
    sync_file(partial)
    publish(partial, final)
    return IndexEntry(
        generation, count, tuple(seal_file(root, path) for path in index_paths(generation, columns))
    )


def _scan_shards(
    folder: DataFolder, shards: Sequence[ShardEntry], columns: Sequence[Column]
) -> Iterator[tuple[str, list[Payload]]]:
    wanted = indexed_columns(columns)
    for shard in shards:
        backend = BACKENDS[shard.backend]
        backend.check_files(folder, shard, columns)
        reader = backend.open(folder, shard, columns)
        yield from reader.scan(wanted)


def _write_columns(
    folder: Path, rows: Iterable[tuple[str, list[Payload]]], columns: Sequence[Column], count: int
) -> npt.NDArray[np.uint64]:
    """Write ids, offsets and columns, and return the hash of each id in row order."""
    hashes = array("Q")
    end = 0
    kept = [columns[number] for number in indexed_columns(columns)]
    with refusals(folder), ExitStack() as stack:
        ids = stack.enter_context((folder / IDS).open("wb", buffering=_BUFFER))
        offsets = stack.enter_context((folder / OFFSETS).open("wb", buffering=_BUFFER))
        offsets.write(npy_header(OFFSET, (count + 1,)) + bytes(8))
        streams = [stack.enter_context(_open_column(folder, column, count)) for column in kept]
        for record_id, payloads in rows:
            encoded = record_id.encode()
            hashes.append(id_hash(encoded))
            end += len(encoded)
            ids.write(encoded)
            offsets.write(end.to_bytes(8, "little"))
            for stream, payload in zip(streams, payloads, strict=True):
                stream.write(payload)
        for stream in (ids, offsets, *streams):
            sync_stream(stream)
    return np.frombuffer(hashes, np.uint64) if hashes else np.empty(0, np.uint64)


def _open_column(folder: Path, column: Column, count: int) -> IO[bytes]:
    stream = (folder / "columns" / f"{column.name}.npy").open("wb", buffering=_BUFFER)
    if column.layout.dtype is not None:
        stream.write(npy_header(column.layout.dtype, (count,)))
    return stream


def _write_array(path: Path, values: npt.NDArray[Any]) -> None:
    with refusals(path), path.open("wb") as stream:
        stream.write(npy_header(OFFSET, values.shape))
        values.astype(OFFSET, copy=False).tofile(stream)
        sync_stream(stream)


def _write_rejected(path: Path, rejected: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with refusals(path), path.open("wb", buffering=_BUFFER) as stream:
        for rejection in rejected:
            stream.write(json.dumps(rejection, ensure_ascii=True, allow_nan=False).encode() + b"\n")
            count += 1
        sync_stream(stream)
    return count


def _refuse_duplicates(
    folder: Path, hashes: npt.NDArray[np.uint64], order: npt.NDArray[np.intp], shards: Sequence[ShardEntry]
) -> None:
    """Compare the ids whose hashes are equal: among honest ids hardly any, unless one comes twice."""
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(same):
        return
    data = np.memmap(folder / IDS, np.uint8, "r")
    offsets = np.load(folder / OFFSETS, mmap_mode="r")
    starts = np.cumsum([0, *(shard.count for shard in shards)])
    bearers: dict[bytes, int] = {}
    for row in np.union1d(order[same], order[same + 1]).tolist():
        encoded = data[int(offsets[row]) : int(offsets[row + 1])].tobytes()
        first = bearers.setdefault(encoded, row)
        if first != row:
            places = " and ".join(_place(starts, shards, each) for each in (first, row))
            raise FormatError(f"{folder.parent.parent}: the id {encoded.decode()!r} comes twice: in {places}")


def _place(starts: npt.NDArray[np.int64], shards: Sequence[ShardEntry], row: int) -> str:
    position = int(np.searchsorted(starts, row, "right")) - 1
    shard = shards[position]
    return f"{BACKENDS[shard.backend].shard_path(shard.number)} row {row - int(starts[position])}"
