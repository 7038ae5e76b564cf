"""Writes the index of a generation from its shards alone (docs/format.md, "Index").

Ids and columns stream through in the order of the rows; only the hash of each id is held in memory (8 bytes a
row, and as much again while sorting).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import Contract, Reason
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
from shardkit.store.index_blocks import IndexBlock, KeptRows, scan_shard
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
from shardkit.store.lookalikes import LookalikeFinder
from shardkit.store.manifest import IndexEntry, ShardEntry
from shardkit.store.npy import OFFSET, npy_header
from shardkit.store.store import Store

_BUFFER = 1 << 20


@dataclass(frozen=True)
class WrittenIndex:
    """What `write_index` did.

    Attributes:
        entry: The manifest entry.
        lookalikes: Pairs of ids that differ only in case or in Unicode normal form: the first of its look in row
            order, and a later one; at most 100, by the row of the later.
        lookalike_count: How many such pairs there are.
    """

    entry: IndexEntry
    lookalikes: tuple[tuple[str, str], ...]
    lookalike_count: int


def write_index(
    root: Path,
    generation: int,
    contract: Contract,
    shards: Sequence[ShardEntry],
    rejected: Iterable[Mapping[str, Any]] = (),
    previous: Store | None = None,
) -> WrittenIndex:
    """Write the index over `shards`.

    Args:
        root: The folder of the data set.
        generation: At least 1, and not one that a committed manifest refers to.
        contract: Of the records.
        shards: In row order.
        rejected: One JSON-ready mapping for each record that is not stored: the contract refused it, or it was deleted.
        previous: A generation of the same fields in the same folder: the rows of the shards that it has are taken
            from its index, and those shards are not read; and what it lists as not stored is listed again, unless it
            is stored now.

    Raises:
        FormatError: Two records have the same id; names the id, and shard and row of both.
        CorruptShardError: A shard, or the index of `previous`, cannot be read back.
        OutputError: The system refused.
        ValueError: `previous` has other fields.
    """
    columns = columns_of(contract)
    final = root / index_folder(generation)
    partial = partial_of(final)
    remove(partial)
    make_folder(partial / "columns")
    finder = LookalikeFinder()
    blocks = _blocks(DataFolder(root), shards, columns, previous)
    hashes = _write_columns(partial, blocks, columns, sum(shard.count for shard in shards), finder)
    written = _WrittenIds(partial)
    order = np.argsort(hashes, kind="stable")
    _refuse_duplicates(root, hashes[order], order, written, shards)
    lookalikes = finder.find(hashes, written.id_of)
    _write_array(partial / HASHES, hashes[order])
    _write_array(partial / ROWS, order.astype(OFFSET))
    still_out = () if previous is None else _still_out(previous, written, hashes[order], order)
    count = _write_rejected(partial / REJECTED, chain(still_out, rejected))
    sync_file(partial / "columns")
    sync_file(partial)
    publish(partial, final)
    files = tuple(seal_file(root, path) for path in index_paths(generation, columns))
    return WrittenIndex(IndexEntry(generation, count, files), lookalikes.pairs, lookalikes.count)


def _blocks(
    folder: DataFolder, shards: Sequence[ShardEntry], columns: Sequence[Column], previous: Store | None
) -> Iterator[IndexBlock]:
    kept = None if previous is None else KeptRows(previous, columns)
    for shard in shards:
        if kept is not None and shard in kept:
            yield from kept.blocks(shard)
        else:
            yield from scan_shard(folder, shard, columns)


def _write_columns(
    folder: Path, blocks: Iterable[IndexBlock], columns: Sequence[Column], count: int, finder: LookalikeFinder
) -> npt.NDArray[np.uint64]:
    """Write ids, offsets and columns, show the ids to `finder`, and return the hash of each in row order."""
    hashes = np.empty(count, np.uint64)
    row = end = 0
    kept = [columns[number] for number in indexed_columns(columns)]
    with refusals(folder), ExitStack() as stack:
        ids = stack.enter_context((folder / IDS).open("wb", buffering=_BUFFER))
        offsets = stack.enter_context((folder / OFFSETS).open("wb", buffering=_BUFFER))
        offsets.write(npy_header(OFFSET, (count + 1,)) + bytes(8))
        streams = [stack.enter_context(_open_column(folder, column, count)) for column in kept]
        for block in blocks:
            finder.add(row, block.ids, block.ends)
            hashes[row : row + len(block.hashes)] = block.hashes
            row += len(block.hashes)
            ids.write(block.ids)
            offsets.write((block.ends + np.uint64(end)).astype(OFFSET).tobytes())
            end += len(block.ids)
            for stream, payloads in zip(streams, block.columns, strict=True):
                stream.write(payloads)
        for stream in (ids, offsets, *streams):
            sync_stream(stream)
    return hashes


def _open_column(folder: Path, column: Column, count: int) -> IO[bytes]:
    stream = (folder / "columns" / f"{column.name}.npy").open("wb", buffering=_BUFFER)
    if column.layout.dtype is not None:
        stream.write(npy_header(column.layout.dtype, (count,)))
    return stream


def _write_array(path: Path, values: npt.NDArray[Any]) -> None:
    with refusals(path), path.open("wb") as stream:
        stream.write(npy_header(OFFSET, values.shape))
        stream.write(values.astype(OFFSET, copy=False).data)  # tofile() keeps a full disk to itself
        sync_stream(stream)


def _write_rejected(path: Path, rejected: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with refusals(path), path.open("wb", buffering=_BUFFER) as stream:
        for rejection in rejected:
            stream.write(json.dumps(rejection, ensure_ascii=True, allow_nan=False).encode() + b"\n")
            count += 1
        sync_stream(stream)
    return count


class _WrittenIds:
    """The ids just written, by row. The files are mapped when first asked: mostly nobody asks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _files(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        return np.memmap(self._folder / IDS, np.uint8, "r"), np.load(self._folder / OFFSETS, mmap_mode="r")

    def id_of(self, row: int) -> bytes:
        data, offsets = self._files
        return data[int(offsets[row]) : int(offsets[row + 1])].tobytes()


def _still_out(
    previous: Store, written: _WrittenIds, hashes: npt.NDArray[np.uint64], order: npt.NDArray[np.intp]
) -> Iterator[Mapping[str, Any]]:
    """Yield what an earlier generation lists as not stored, less what is stored by now.

    That a record repeated an id stays true with the record of that id stored.

    Args:
        previous: The earlier generation.
        written: The ids that are stored now.
        hashes: The hash of each, ascending.
        order: The row of each of `hashes`.
    """
    for rejection in previous.rejected():
        encoded = str(rejection.get("id")).encode("utf-8", "surrogatepass")
        place = int(np.searchsorted(hashes, np.uint64(id_hash(encoded))))
        is_stored = False
        while not is_stored and place < len(hashes) and int(hashes[place]) == id_hash(encoded):
            is_stored = written.id_of(int(order[place])) == encoded
            place += 1
        if not is_stored or rejection.get("reason") == Reason.DUPLICATE_ID:
            yield rejection


def _refuse_duplicates(
    root: Path,
    hashes: npt.NDArray[np.uint64],
    order: npt.NDArray[np.intp],
    written: _WrittenIds,
    shards: Sequence[ShardEntry],
) -> None:
    """Compare the ids whose hashes are equal: among honest ids hardly any, unless one comes twice."""
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    starts = np.cumsum([0, *(shard.count for shard in shards)])
    bearers: dict[bytes, int] = {}
    for row in np.union1d(order[same], order[same + 1]).tolist():
        encoded = written.id_of(row)
        first = bearers.setdefault(encoded, row)
        if first != row:
            places = " and ".join(_place(starts, shards, each) for each in (first, row))
            shown = encoded.decode(errors="replace")  # ids out of an older index were not decoded yet
            raise FormatError(f"{root}: the id {shown!r} comes twice: in {places}")


def _place(starts: npt.NDArray[np.int64], shards: Sequence[ShardEntry], row: int) -> str:
    position = int(np.searchsorted(starts, row, "right")) - 1
    shard = shards[position]
    return f"{BACKENDS[shard.backend].shard_path(shard.number)} row {row - int(starts[position])}"
