"""Writes small data sets for the tests of the store."""

from collections.abc import Sequence
from pathlib import Path

import xxhash

from shardkit.contract import Contract
from shardkit.store import (
    Manifest,
    ShardEntry,
    Store,
    columns_of,
    commit,
    create_shard,
    load_manifest,
    make_manifest,
    record_checksums,
    remove_unreferenced,
    seal_shard,
    write_index,
)

CONTRACT = Contract.from_dict(
    {
        "fields": {
            "blob": {"type": "bytes"},
            "label": {"type": "label", "num_classes": 300},
            "vector": {"type": "array", "dtype": "float32", "shape": [2, 3]},
            "flag": {"type": "scalar", "dtype": "bool"},
        }
    }
)
Row = tuple[str, list[bytes]]


def row(record_id: str, blob: bytes = b"blob", label: int = 0, flag: bool = False) -> Row:
    return record_id, [blob, label.to_bytes(8, "little"), bytes(range(24)), bytes([flag])]


def digest_of(record_id: str) -> bytes:
    """Return the source digest that a record of this id is given here."""
    return xxhash.xxh3_128_digest(record_id.encode())


def write_shard(root: Path, number: int, backend: str, rows: Sequence[Row]) -> ShardEntry:
    columns = columns_of(CONTRACT)
    writer = create_shard(root, number, backend, columns)
    try:
        for record_id, payloads in rows:
            checksums = record_checksums(record_id, payloads)
            writer.append(record_id, payloads, checksums, digest_of(record_id))
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    return seal_shard(root, number, backend, columns, len(rows))


def write_dataset(root: Path, backend: str, shards: Sequence[Sequence[Row]], generation: int = 1) -> Path:
    entries = [write_shard(root, number, backend, rows) for number, rows in enumerate(shards)]
    index = write_index(root, generation, CONTRACT, entries, [{"id": "bad", "reason": "empty"}]).entry
    commit(root, make_manifest(generation, CONTRACT, entries, index, {"name": "test"}))
    return root


def succeed(root: Path, shards: Sequence[ShardEntry]) -> Manifest:
    """Commit `shards` as the generation after the current one, which is kept, as appending and deleting do."""
    with Store(root) as previous:
        before = previous.manifest
        generation = before.generation + 1
        index = write_index(root, generation, CONTRACT, shards, previous=previous).entry
    manifest = make_manifest(
        generation, CONTRACT, shards, index, history=before.lineage, next_shard=before.next_shard
    )
    commit(root, manifest)
    remove_unreferenced(root, before, manifest)
    return manifest


def append_rows(root: Path, backend: str, rows: Sequence[Row]) -> Manifest:
    """Commit a generation that has a further shard."""
    before = load_manifest(root)
    return succeed(root, [*before.shards, write_shard(root, before.next_shard, backend, rows)])


ROWS = [
    [row("a/1.jpg", b"", 1, True), row("a/2.jpg", b"x" * 5000, 2), row("ü/3", b"\x00\xff", 299)],
    [row("b/1.jpg", b"y" * 100_000, 0), row("b/2.jpg", b"z", 7, True)],
]
"""Two shards, five rows: an empty value, values inside and outside the leaf pages of LMDB, a non-ASCII id."""
