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
    Store,
    columns_of,
    commit,
    create_shard,
    digest_file,
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
        "blob": bytes(range(256)),
        "more": {"deep": {"er": True}},
    },
]
REJECTED = [
    {
        "id": "cat/bad.png",
        "source": "cat/bad.png",
        "reason": "empty",
        "sentence": "it is empty",
        "field": "photo",
    }
]
DATASET_IDS = {"memmap": "28143e727afdc9246e861db08fddafaa", "lmdb": "861cf27cda86a00ff49e5c1024dc9794"}


def write(root: Path, backend: str) -> None:
    columns = columns_of(CONTRACT)
    shards = []
    for number, records in enumerate((RECORDS[:2], RECORDS[2:])):
        writer = create_shard(root, number, backend, columns)
        for record in records:
            payloads = [value.payload for value in CONTRACT.check(record).values]
            writer.append(record["id"], payloads, record_checksums(record["id"], payloads))
        writer.finish()
        shards.append(seal_shard(root, number, backend, columns, len(records)))
    index = write_index(root, 1, CONTRACT, shards, REJECTED)
    commit(root, make_manifest(1, CONTRACT, shards, index, {"name": "golden"}))


@pytest.fixture
def golden(backend: str) -> Store:
    return Store(GOLDEN / backend)


def test_every_record_reads_as_it_did_when_it_was_written(golden: Store) -> None:
    assert list(golden.ids) == ["cat/ü.png", "dog/1.png", "dog/2.png"]
    for row, record in enumerate(RECORDS):
        payloads = golden.payloads(row, range(len(golden.columns)))
        assert golden.row_of(record["id"]) == row
        assert golden.stored_id(row) == record["id"]
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
    assert (golden.manifest.generation, golden.manifest.minor) == (1, 0)


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
    assert written.dataset_id == golden.manifest.dataset_id
