"""An index over shards that an earlier generation has is the same as one made from the shards alone."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_datasets import CONTRACT, ROWS, row, write_dataset, write_shard

from shardkit.contract import Contract
from shardkit.errors import CorruptShardError
from shardkit.store import BACKENDS, ShardEntry, Store, index_blocks, write_index
from shardkit.store.manifest import FileEntry


@pytest.fixture
def previous(dataset: Path) -> Store:
    return Store(dataset)


def index_bytes(root: Path, generation: int) -> dict[str, bytes]:
    folder = root / f"index/{generation:05d}"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def require_equal_indexes(root: Path, shards: list[ShardEntry], previous: Store) -> None:
    """Write the index both ways and compare the bytes, and what it says of ids that look alike."""
    reused = write_index(root, 8, CONTRACT, shards, [{"id": "x"}], previous)
    scanned = write_index(root, 9, CONTRACT, shards, [*previous.rejected(), {"id": "x"}])
    assert index_bytes(root, 8) == index_bytes(root, 9)
    assert (reused.lookalikes, reused.lookalike_count) == (scanned.lookalikes, scanned.lookalike_count)
    digests = [[file.digest for file in written.entry.files] for written in (reused, scanned)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("block_rows", [1, 2, 1024])
@pytest.mark.parametrize("kept", [[], [0], [1], [0, 1], [1, 0]])
def test_it_has_the_same_bytes(
    previous: Store, backend: str, kept: list[int], block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_blocks, "_BLOCK_ROWS", block_rows)
    new = write_shard(previous.path, 2, backend, [row("A/1.JPG", b"", 5, True), row("Ü/3"), row("c")])
    shards = [previous.manifest.shards[number] for number in kept]
    require_equal_indexes(previous.path, [*shards, new], previous)
    require_equal_indexes(previous.path, [new, *shards], previous)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(st.text("aAéß/1", min_size=1, max_size=4), unique=True, min_size=3, max_size=30),
    cuts=st.tuples(st.integers(1, 29), st.integers(1, 29)),
)
def test_it_has_the_same_bytes_for_any_ids(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], cuts: tuple[int, int]
) -> None:
    first, second = sorted(cuts)
    rows = [row(each, label=number) for number, each in enumerate(ids)]
    parts = [part for part in (rows[:first], rows[first:second], rows[second:]) if part]
    root = tmp_path_factory.mktemp("ids")
    previous = Store(write_dataset(root, "memmap", parts[:-1]))
    last = write_shard(root, 7, "memmap", parts[-1])
    require_equal_indexes(
        root, [*previous.manifest.shards[1:], last, *previous.manifest.shards[:1]], previous
    )


def test_shards_that_are_kept_are_not_read(previous: Store, backend: str) -> None:
    kept = previous.manifest.shards[1]
    path = previous.path / BACKENDS[backend].shard_path(kept.number)
    path.rename(path.with_name("elsewhere"))
    assert write_index(previous.path, 2, CONTRACT, [kept], previous=previous).entry.generation == 2


def test_a_shard_of_the_same_number_but_other_files_is_read(previous: Store, backend: str) -> None:
    kept = previous.manifest.shards[0]
    altered = tuple(FileEntry(file.path, file.bytes, "0" * 32) for file in kept.files)
    other = ShardEntry(kept.number, backend, kept.count, altered)
    require_equal_indexes(previous.path, [other], previous)


@pytest.mark.parametrize(
    "name", ["ids.bin", "ids.offsets.npy", "hashes.npy", "rows.npy", "columns/label.npy"]
)
def test_damage_in_the_earlier_index_is_not_passed_on(previous: Store, name: str) -> None:
    path = previous.path / "index/00001" / name
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptShardError, match=rf"{path.name}: its digest differs; it was altered"):
        write_index(previous.path, 2, CONTRACT, previous.manifest.shards, previous=previous)


@pytest.mark.parametrize(
    ("name", "crafted", "said"),
    [
        ("ids.offsets.npy", [0, 7, 5, 18, 25, 32], "its offsets decrease or leave the file"),
        ("ids.offsets.npy", [0, 1 << 63, 14, 18, 25, 32], "its offsets decrease or leave the file"),
        ("rows.npy", [0, 1, 2, 3, 5], "it names a row beyond 5"),
    ],
)
def test_a_crafted_index_with_the_right_digest_is_refused(
    dataset: Path, name: str, crafted: list[int], said: str
) -> None:
    path = dataset / "index/00001" / name
    old = Store(dataset).manifest.index
    data = path.read_bytes()
    path.write_bytes(data[: -8 * len(crafted)] + np.array(crafted, "<u8").tobytes())
    manifest = dataset / "manifest.json"
    before = next(file.digest for file in old.files if file.path == f"index/00001/{name}")
    manifest.write_text(manifest.read_text().replace(before, index_blocks.digest_file(path)))
    previous = Store(dataset)
    with pytest.raises(CorruptShardError, match=rf"{name}: {said}; it was altered"):
        write_index(dataset, 2, CONTRACT, previous.manifest.shards, previous=previous)


def test_an_earlier_generation_of_other_fields_is_refused(previous: Store) -> None:
    other = Contract({"blob": CONTRACT.fields["blob"]})
    with pytest.raises(ValueError, match="other columns"):
        write_index(previous.path, 2, other, previous.manifest.shards, previous=previous)


def test_an_earlier_generation_without_records_adds_none(tmp_path: Path) -> None:
    previous = Store(write_dataset(tmp_path, "memmap", []))
    require_equal_indexes(tmp_path, [write_shard(tmp_path, 0, "memmap", ROWS[0])], previous)
