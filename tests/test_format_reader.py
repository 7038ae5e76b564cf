"""docs/format.md is enough: a reader written from it alone returns what the Store returns."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest
import xxhash

from shardkit.contract import Contract
from shardkit.contract.json_field import MAX_DEPTH
from shardkit.contract.record_id import MAX_ID_BYTES
from shardkit.store import (
    BACKENDS,
    ShardEntry,
    Store,
    columns_of,
    commit,
    create_shard,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)
from shardkit.store.lmdb_backend import MAX_RECORD_BYTES
from shardkit.store.manifest_parser import MAX_BYTES, parse_manifest

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "format.md"
EXAMPLE_CONTRACT = {
    "fields": {"text": {"type": "text"}, "label": {"type": "label", "classes": ["cat", "dog"]}}
}
DIGEST = bytes(range(16))


# --- the reader: begin ---
class Reader:
    def __init__(self, root: Path, generation: int | None = None) -> None:
        self.root = root
        self.manifest = json.loads((root / "manifest.json").read_text("utf-8"))
        for past in self.manifest["history"]:
            if past["generation"] == generation:
                self.manifest = json.loads((root / f"history/{generation:05d}.json").read_text("utf-8"))
                assert past == {key: self.manifest[key] for key in past}
        assert self.manifest["format"] == "shardkit"
        assert self.manifest["version"].split(".")[0] == "1"
        self.fields = list(self.manifest["contract"]["fields"])
        self.index = root / f"index/{self.manifest['index']['generation']:05d}"
        self.hashes = np.load(self.index / "hashes.npy", mmap_mode="r", allow_pickle=False)
        self.rows = np.load(self.index / "rows.npy", mmap_mode="r", allow_pickle=False)

    def variable(self, folder: Path, name: str, row: int) -> bytes:
        offsets = np.load(folder / f"{name}.offsets.npy", mmap_mode="r", allow_pickle=False)
        with (folder / f"{name}.bin").open("rb") as stream:
            stream.seek(int(offsets[row]))
            return stream.read(int(offsets[row + 1] - offsets[row]))

    def id_of(self, row: int) -> str:
        return self.variable(self.index, "ids", row).decode()

    def row_of(self, record_id: str) -> int:
        wanted = xxhash.xxh3_64_intdigest(record_id.encode())
        position = int(np.searchsorted(self.hashes, np.uint64(wanted)))
        while int(self.hashes[position]) == wanted:
            if self.id_of(int(self.rows[position])) == record_id:
                return int(self.rows[position])
            position += 1
        raise LookupError(record_id)

    def read(self, row: int) -> tuple[str, list[int], bytes, list[bytes]]:
        for shard in self.manifest["shards"]:
            if row < shard["count"]:
                read = {"memmap": self.read_memmap, "lmdb": self.read_lmdb}[shard["backend"]]
                return read(f"{shard['number']:05d}", row)
            row -= shard["count"]
        raise IndexError(row)

    def read_memmap(self, number: str, row: int) -> tuple[str, list[int], bytes, list[bytes]]:
        folder = self.root / "shards" / number
        payloads = []
        for name in self.fields:
            if (folder / f"{name}.npy").exists():
                payloads.append(
                    np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)[row].tobytes()
                )
            else:
                payloads.append(self.variable(folder, name, row))
        checksums = np.load(folder / "checksum.npy", allow_pickle=False)[row].tolist()
        digest = np.load(folder / "source-digest.npy", allow_pickle=False)[row].tobytes()
        return self.variable(folder, "id", row).decode(), checksums, digest, payloads

    def read_lmdb(self, number: str, row: int) -> tuple[str, list[int], bytes, list[bytes]]:
        path = str(self.root / "shards" / f"{number}.lmdb")
        with (
            lmdb.open(path, subdir=False, readonly=True, lock=False) as environment,
            environment.begin() as txn,
        ):
            record = msgpack.unpackb(txn.get(row.to_bytes(8, "big")))
        payloads = [record[name] for name in self.fields]
        return record["id"], record["checksum"], record["source-digest"], payloads


# --- the reader: end ---


Records = list[tuple[str, list[bytes]]]


def write_shard(
    root: Path, number: int, backend: str, contract: Contract, records: Records, digest: bytes
) -> ShardEntry:
    columns = columns_of(contract)
    writer = create_shard(root, number, backend, columns)
    for record_id, payloads in records:
        writer.append(record_id, payloads, record_checksums(record_id, payloads), digest)
    writer.finish()
    return seal_shard(root, number, backend, columns, len(records))


def write(
    root: Path, contract: Contract, shards: list[tuple[str, Records]], digest: bytes = bytes(16)
) -> None:
    entries = [
        write_shard(root, number, backend, contract, records, digest)
        for number, (backend, records) in enumerate(shards)
    ]
    index = write_index(root, 1, contract, entries).entry
    commit(root, make_manifest(1, contract, entries, index, {"name": "raw"}))


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_reader_written_from_the_document_returns_the_same_records(tmp_path: Path, backend: str) -> None:
    fields: dict[str, Any] = {
        "image": {"type": "image", "store": "raw", "size": [2, 2]},
        "label": {"type": "label", "num_classes": 10},
        "score": {"type": "scalar", "dtype": "float32"},
        "points": {"type": "array", "dtype": "int16", "shape": [-1, 2]},
        "box": {"type": "array", "dtype": "float64", "shape": [4]},
        "caption": {"type": "text"},
        "tokens": {"type": "tokens", "dtype": "uint16"},
        "blob": {"type": "bytes"},
        "more": {"type": "json"},
    }
    contract = Contract.from_dict({"fields": fields})
    values = [
        {
            "id": f"ü/{number}",
            "image": np.full((2, 2, 3), number, np.uint8),
            "label": number,
            "score": number / 2,
            "points": np.arange(2 * number, dtype=np.int16).reshape(number, 2),
            "box": np.arange(4.0),
            "caption": "ein Wörtchen" * number,
            "tokens": list(range(number)),
            "blob": b"b" * 3000 * number + b".",
            "more": {"n": [number, None]},
        }
        for number in range(7)
    ]
    records = [
        (value["id"], [bytes(each.payload) for each in contract.check(value).values]) for value in values
    ]
    write(tmp_path, contract, [(backend, records[:3]), (backend, records[3:])], DIGEST)
    reader = Reader(tmp_path)
    found = [reader.read(row) for row in range(7)]  # before the Store: LMDB opens a file once in a process
    store = Store(tmp_path)
    assert reader.manifest["count"] == len(store) == 7
    for row in range(7):
        record_id, checksums, digest, payloads = found[row]
        assert digest == store.source_digest(row) == DIGEST
        assert record_id == reader.id_of(row) == store.id_of(row) == f"ü/{row}"
        assert reader.row_of(record_id) == row
        assert payloads == [bytes(payload) for payload in store.payloads(row, range(9))] == records[row][1]
        seed = xxhash.xxh3_64_intdigest(record_id.encode())
        assert checksums == [xxhash.xxh3_64_intdigest(payload, seed) for payload in payloads]
    for shard in reader.manifest["shards"] + [reader.manifest["index"]]:
        for file in shard["files"]:
            content = (tmp_path / file["path"]).read_bytes()
            assert (file["bytes"], file["xxh3_128"]) == (len(content), xxhash.xxh3_128_hexdigest(content))
    assert np.load(reader.index / "columns" / "label.npy").tolist() == list(range(7))


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_reader_written_from_the_document_opens_an_earlier_generation(tmp_path: Path, backend: str) -> None:
    contract = Contract.from_dict(EXAMPLE_CONTRACT)
    dog = (1).to_bytes(8, "little")
    records: Records = [(record_id, [record_id.encode(), dog]) for record_id in ("a", "b", "c")]
    write(tmp_path, contract, [(backend, records[:2]), (backend, records[2:])])
    with Store(tmp_path) as store:
        before = store.manifest
        shards = [write_shard(tmp_path, before.next_shard, backend, contract, records[:1], DIGEST)]
        shards.append(before.shards[1])
        index = write_index(tmp_path, 2, contract, shards, previous=store).entry
    commit(tmp_path, make_manifest(2, contract, shards, index, history=before.lineage))
    for generation, count in ((None, 2), (2, 2), (1, 3)):
        reader = Reader(tmp_path, generation)
        assert reader.manifest["count"] == count
        assert [reader.read(row)[0] for row in range(count)] == [reader.id_of(row) for row in range(count)]
        assert reader.read(reader.row_of("c"))[3] == [b"c", dog]
        assert ("b" in map(reader.id_of, range(count))) is (generation == 1)


def test_the_reader_is_short_and_uses_nothing_of_shardkit() -> None:
    text = Path(__file__).read_text()
    reader = text.split("# --- the reader: begin ---\n")[1].split("# --- the reader: end ---")[0]
    assert len([line for line in reader.splitlines() if line.strip()]) <= 60
    assert set(re.findall(r"\b(json|np|lmdb|msgpack|xxhash)\.", reader)) == {
        "json",
        "np",
        "lmdb",
        "msgpack",
        "xxhash",
    }
    assert not re.search(r"Store|Contract|columns_of|shardkit\.", reader)


def example() -> str:
    return re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]


def test_the_manifest_in_the_document_is_valid() -> None:
    manifest = parse_manifest(example().encode(), "docs/format.md")
    assert [shard.backend for shard in manifest.shards] == ["memmap", "lmdb"]
    assert manifest.count == 3
    assert set(manifest.to_dict()) == set(json.loads(example()))


def test_the_manifest_in_the_document_is_that_of_its_records(tmp_path: Path) -> None:
    cat, dog = (number.to_bytes(8, "little") for number in (0, 1))
    shards = [
        ("memmap", [("a/1", [b"meow", cat]), ("a/2", [b"wuff", dog])]),
        ("lmdb", [("b/1", [b"meow", cat])]),
    ]
    write(tmp_path, Contract.from_dict(EXAMPLE_CONTRACT), shards)
    written, shown = json.loads((tmp_path / "manifest.json").read_text()), json.loads(example())
    assert written["shards"][0] == shown["shards"][0]
    assert written["index"] == shown["index"]
    if shown["dataset_id"] != written["dataset_id"]:  # pages of another size, or another LMDB
        assert written["shards"][1]["files"][0]["xxh3_128"] != shown["shards"][1]["files"][0]["xxh3_128"]
        assert sys.platform != "linux" or lmdb.__version__ != shown["written_by"]["lmdb"]


def test_the_limits_in_the_document_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text()
    assert f"more than {MAX_RECORD_BYTES:,} bytes" in text
    assert f"at most {MAX_BYTES:,} bytes" in text
    assert f"1 to {MAX_ID_BYTES:,} bytes" in text
    assert f"at most {MAX_DEPTH} levels" in text
