"""Writes small data sets for the tests of the store."""

from collections.abc import Sequence
from pathlib import Path

from shardkit.contract import Contract
from shardkit.store import (
    columns_of,
    commit,
    create_shard,
    make_manifest,
    record_checksums,
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


def write_dataset(root: Path, backend: str, shards: Sequence[Sequence[Row]], generation: int = 1) -> Path:
    columns = columns_of(CONTRACT)
    entries = []
    for number, rows in enumerate(shards):
        writer = create_shard(root, number, backend, columns)
        try:
            for record_id, payloads in rows:
                writer.append(record_id, payloads, record_checksums(record_id, payloads))
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        entries.append(seal_shard(root, number, backend, columns, len(rows)))
    index = write_index(root, generation, CONTRACT, entries, [{"id": "bad", "reason": "empty"}])
    commit(root, make_manifest(generation, CONTRACT, entries, index, {"name": "test"}))
    return root


ROWS = [
    [row("a/1.jpg", b"", 1, True), row("a/2.jpg", b"x" * 5000, 2), row("ü/3", b"\x00\xff", 299)],
    [row("b/1.jpg", b"y" * 100_000, 0), row("b/2.jpg", b"z", 7, True)],
]
"""Two shards, five rows: an empty value, values inside and outside the leaf pages of LMDB, a non-ASCII id."""
