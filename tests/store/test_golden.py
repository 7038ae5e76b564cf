"""Data sets written by version 1.0 of the format, kept in ``tests/golden/v1``, read forever as what they are here.

They are never written again, unless `RECORDS` or `CONTRACT` gain something that the format allows from its first
version on. Then, in this folder, after removing the old one (LMDB with pages of 4 KiB):

    python -c "import test_golden as golden; [golden.write(golden.GOLDEN / name, name) for name in golden.DATASET_IDS]"
"""

import mmap
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from shardkit.contract import Contract
from shardkit.store import (
    ShardEntry,
    Store,
    columns_of,
    commit,
    create_shard,
    digest_file,
    load_manifest,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "v1"

RED_AND_GREEN = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000000f4944415478da63f8cf"
    "c0c0f09f010007ff01ffb80435e00000000049454e44ae426082"
)
"""A PNG of two pixels."""
CONTRACT = Contract.from_dict(
    {
        "fields": {
            "photo": {"type": "image"},
            "pixels": {"type": "image", "mode": "L", "store": "raw", "size": [2, 2]},
            "label": {"type": "label", "classes": ["cat", "dog"]},
            "score": {"type": "scalar", "dtype": "float32"},
            "box": {"type": "array", "dtype": "int16", "shape": [2]},
            "points": {"type": "array", "dtype": "float64", "shape": [-1, 2]},
            "caption": {"type": "text"},
            "tokens": {"type": "tokens", "dtype": "uint16"},
            "blob": {"type": "bytes"},
            "more": {"type": "json"},
        }
    }
)
RECORDS: list[dict[str, Any]] = [
    {
        "id": "cat/ü.png",
        "photo": RED_AND_GREEN,
        "pixels": np.array([[[0], [255]], [[3], [4]]], np.uint8),
        "label": 0,
        "score": 0.5,
        "box": np.array([-1, 2], np.int16),
        "points": np.zeros((0, 2)),
        "caption": "a cät",
        "tokens": [65535, 0, 7],
        "blob": b"\x00\xff",
        "more": {"tags": ["small", None], "n": 1},
    },
    {
        "id": "dog/1.png",
        "photo": RED_AND_GREEN,
        "pixels": np.array([[[1], [2]], [[3], [4]]], np.uint8),
        "label": 1,
        "score": -2.25,
        "box": np.array([32767, -32768], np.int16),
        "points": np.array([[1.5, -0.25]]),
        "caption": "",
        "tokens": [],
        "blob": b"",
        "more": [],
    },
    {
        "id": "dog/2.png",
        "photo": RED_AND_GREEN,
        "pixels": np.array([[[7], [8]], [[9], [10]]], np.uint8),
        "label": 1,
        "score": 0.0,
        "box": np.array([0, 1], np.int16),
        "points": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "caption": "two\nlines",
        "tokens": [1],
        "blob": bytes(range(256)),
        "more": {"deep": {"er": True}},
    },
]
SOURCE_DIGESTS = {
    "cat/ü.png": bytes.fromhex("00112233445566778899aabbccddeeff"),
    "dog/1.png": bytes(16),
    "dog/2.png": b"\xff" * 16,
}
REJECTED = [
    {
        "id": "cat/bad.png",
        "source": "cat/bad.png",
        "reason": "empty",
        "sentence": "it is empty",
        "field": "photo",
    }
]
DATASET_IDS = {"memmap": "8b3da333e36823ab4ac8365440fe65a0", "lmdb": "fb1cd0d79cb5ce895201a2ac096be634"}


def write(root: Path, backend: str) -> None:
    first = write_shard(root, 0, backend, RECORDS[:2])
    index = write_index(root, 1, CONTRACT, [first], REJECTED).entry
    commit(root, make_manifest(1, CONTRACT, [first], index, {"name": "golden"}))
    history = load_manifest(root).lineage
    shards = [first, write_shard(root, 1, backend, RECORDS[2:])]
    index = write_index(root, 2, CONTRACT, shards, REJECTED).entry
    commit(root, make_manifest(2, CONTRACT, shards, index, {"name": "golden"}, history=history))


def write_shard(root: Path, number: int, backend: str, records: list[dict[str, Any]]) -> ShardEntry:
    columns = columns_of(CONTRACT)
    writer = create_shard(root, number, backend, columns)
    for record in records:
        payloads = [value.payload for value in CONTRACT.check(record).values]
        digest = SOURCE_DIGESTS[record["id"]]
        writer.append(record["id"], payloads, record_checksums(record["id"], payloads), digest)
    writer.finish()
    return seal_shard(root, number, backend, columns, len(records))


@pytest.fixture
def golden(backend: str) -> Store:
    return Store(GOLDEN / backend)


def test_every_record_reads_as_it_did_when_it_was_written(golden: Store) -> None:
    assert list(golden.ids) == ["cat/ü.png", "dog/1.png", "dog/2.png"]
    for row, record in enumerate(RECORDS):
        payloads = golden.payloads(row, range(len(golden.columns)))
        assert golden.row_of(record["id"]) == row
        assert golden.stored_id(row) == record["id"]
        assert golden.source_digest(row) == SOURCE_DIGESTS[record["id"]]
        for number, (column, payload) in enumerate(zip(golden.columns, payloads, strict=True)):
            golden.check(row, number, payload)
            found, expected = CONTRACT.fields[column.name].decode(payload), record[column.name]
            if column.name == "photo":
                assert bytes(payload) == RED_AND_GREEN
                expected = [[[255, 0, 0], [0, 255, 0]]]
            np.testing.assert_array_equal(found, expected)


def test_columns_rejections_contract_and_identity_are_what_they_were(golden: Store, backend: str) -> None:
    assert golden.column("label").tolist() == [0, 1, 1]
    assert golden.column("score").tolist() == [0.5, -2.25, 0.0]
    assert list(golden.rejected()) == REJECTED
    assert golden.contract == CONTRACT
    assert golden.manifest.dataset_id == DATASET_IDS[backend]
    assert (golden.manifest.generation, golden.manifest.minor) == (2, 0)


def test_the_earlier_generation_reads_as_well(golden: Store, backend: str) -> None:
    first = Store(GOLDEN / backend, generation=1)
    assert list(first.ids) == ["cat/ü.png", "dog/1.png"]
    assert first.column("label").tolist() == [0, 1]
    assert golden.manifest.history == first.manifest.lineage
    assert (golden.manifest.next_shard, first.manifest.next_shard) == (2, 1)


def test_every_file_has_the_digest_that_the_manifest_names(golden: Store) -> None:
    for part in (*golden.manifest.shards, golden.manifest.index):
        for file in part.files:
            assert digest_file(golden.path / file.path) == file.digest


def test_the_same_records_are_still_written_as_the_same_bytes(
    golden: Store, backend: str, tmp_path: Path
) -> None:
    maker = golden.manifest.written_by["lmdb"], 4096
    if backend == "lmdb" and maker != (lmdb.__version__, mmap.PAGESIZE):
        pytest.skip("another LMDB, or pages of another size, lay out the file otherwise")
    write(tmp_path, backend)
    written = Store(tmp_path).manifest
    assert written.shards == golden.manifest.shards
    assert written.index == golden.manifest.index
    assert written.history == golden.manifest.history
    assert written.dataset_id == golden.manifest.dataset_id
