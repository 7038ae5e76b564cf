"""Data sets held in memory: the same samples, checked once, in one copy for all workers."""

import copy
import itertools
import multiprocessing
import os
import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from block_memory import anonymous_of, mapped_of, open_blocks, read_and_tell
from hypothesis import given, settings
from hypothesis import strategies as st
from read_datasets import png, write_records
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
)
from shardkit.errors import CorruptShardError
from shardkit.reading import preloaded
from shardkit.store import BACKENDS, Store
from shardkit.transforms import CenterCrop

FIELDS: dict[str, dict[str, Any]] = {
    "photo": {"type": "image"},
    "label": {"type": "label", "num_classes": 3},
    "picture": {"type": "image", "store": "raw", "size": [5, 6]},
    "weight": {"type": "scalar", "dtype": "float32"},
    "vector": {"type": "array", "dtype": "int16", "shape": [2, 3]},
    "track": {"type": "array", "dtype": "float64", "shape": [-1, 2], "pad_value": -1},
    "words": {"type": "tokens", "dtype": "uint16"},
    "caption": {"type": "text"},
    "blob": {"type": "bytes"},
    "extra": {"type": "json"},
}
CONTRACT = Contract.from_dict({"fields": FIELDS})
COUNT = 17


def make_record(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (5, 6, 3), np.uint8)
    return {
        "id": f"r{number}",
        "photo": png(pixels),
        "label": number % 3,
        "picture": pixels,
        "weight": number / 2,
        "vector": np.full((2, 3), number, np.int16),
        "track": rng.random((number, 2)),
        "words": rng.integers(0, 65_536, number % 5, np.uint16),
        "caption": f"caption {number:02}",
        "blob": bytes([number]) * number,
        "extra": {"n": number},
    }


RECORDS = [make_record(number) for number in range(COUNT)]


def write(root: Path, backend: str, count: int = COUNT) -> Path:
    return write_records(root, backend, CONTRACT, RECORDS[:count], rows_per_shard=7)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Seventeen records in three shards, by backend."""
    root = tmp_path_factory.mktemp("preload")
    return {backend: write(root / backend, backend) for backend in BACKENDS}


@pytest.fixture
def path(tmp_path: Path, sound: dict[str, Path], backend: str) -> Path:
    """The same, to be altered."""
    return Path(shutil.copytree(sound[backend], tmp_path / "data"))


def alter(path: Path, content: bytes) -> None:
    """Change the first byte of some content, which is stored once."""
    (file,) = [
        each for each in (path / "shards").rglob("*") if each.is_file() and content in each.read_bytes()
    ]
    before, after = file.read_bytes().split(content)
    file.write_bytes(before + bytes([content[0] ^ 32]) + content[1:] + after)


def alter_all(path: Path) -> None:
    """Alter all vectors and captions."""
    for record in RECORDS:
        alter(path, record["caption"].encode())
        if record["vector"].any():
            alter(path, record["vector"].tobytes())


def assert_same(found: Any, expected: Any) -> None:
    """Compare two values of samples or batches, down to types, dtypes and strides."""
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape, found.stride()) == (
            expected.dtype,
            expected.shape,
            expected.stride(),
        )
        assert torch.equal(found, expected)
    elif isinstance(expected, list) and expected and isinstance(expected[0], torch.Tensor):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert type(found) is type(expected)
        assert found == expected


def assert_same_batches(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        assert list(one["id"]) == list(other["id"])
        for name in one.keys() - {"id"}:
            assert_same(one[name], other[name])


def with_sampler(path: Path, batch_size: int, seed: int, shuffle: Any, **options: Any) -> Any:
    data = ShardDataset(path, **options)
    sampler = ShardSampler(data, batch_size=batch_size, seed=seed, shuffle=shuffle)
    return DataLoader(data, batch_sampler=sampler, collate_fn=collate)


def iterable(path: Path, **options: Any) -> Any:
    return ShardIterableDataset(path, **options)


def threads(path: Path, **options: Any) -> Any:
    return ShardLoader(path, threads=2, **options)


# --- what is delivered -----------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_batches_are_the_same_with_and_without_on_any_backend_by_any_way_in(
    sound: dict[str, Path], data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(list(FIELDS)), unique=True))
    is_cropped = any(FIELDS[name]["type"] == "image" for name in names) and data.draw(st.booleans())
    images = [name for name in names if FIELDS[name]["type"] == "image"]
    options: dict[str, Any] = {
        "batch_size": data.draw(st.integers(1, 9)),
        "seed": data.draw(st.integers(0, 3)),
        "shuffle": data.draw(st.sampled_from(["global", "block", False])),
        "fields": names,
        "verify_checksums": data.draw(st.sampled_from([None, True, False])),
        "transform": CenterCrop(3, field=data.draw(st.sampled_from(images))) if is_cropped else None,
    }
    way = data.draw(st.sampled_from([with_sampler, iterable, threads]))
    for path in sound.values():
        held = list(way(path, preload=True, **options))
        assert_same_batches(held, list(with_sampler(path, **options)))


def test_single_reads_are_the_same(sound: dict[str, Path], backend: str) -> None:
    plain, held = ShardDataset(sound[backend]), ShardDataset(sound[backend], preload=True)
    for row in range(COUNT):
        sample = held[row]
        for name, value in plain[row].items():
            assert_same(sample[name], value)
        assert held.read(row) == plain.read(row)
    assert held.get("r5")["caption"] == "caption 05"
    assert list(held.ids) == list(plain.ids)
    assert held.labels.tolist() == plain.labels.tolist()


def test_what_is_delivered_belongs_to_the_caller(sound: dict[str, Path], backend: str) -> None:
    data = ShardDataset(sound[backend], preload=True)
    for read in (lambda: data[4], lambda: data.__getitems__([4])[0]):
        for name in ("photo", "picture", "vector", "track", "words"):
            before = read()[name].clone()
            read()[name].fill_(7)
            assert torch.equal(read()[name], before)


def test_a_data_set_without_records_can_be_preloaded(tmp_path: Path, backend: str) -> None:
    data = ShardDataset(write(tmp_path / "empty", backend, 0), preload=True)
    assert list(data) == []


# --- damage ----------------------------------------------------------------------------------------------------------


def test_nothing_is_read_from_the_files_any_more(path: Path) -> None:
    data = ShardDataset(path, preload=True, verify_checksums=True)
    alter_all(path)
    for row, sample in enumerate(data):
        assert sample["caption"] == f"caption {row:02}"
        assert sample["vector"].unique().tolist() == [row]
        assert data.read(row)["caption"] == f"caption {row:02}".encode()


@pytest.mark.parametrize("verify_checksums", [None, True])
@pytest.mark.parametrize("field", ["caption", "vector"])
def test_a_damaged_value_of_any_field_is_found_when_it_is_preloaded(
    path: Path, field: str, verify_checksums: bool | None
) -> None:
    alter(path, {"caption": b"caption 09", "vector": RECORDS[9]["vector"].tobytes()}[field])
    with pytest.raises(CorruptShardError, match=rf"shards/00001.*row 2 \(id 'r9'.*'{field}': has checksum"):
        ShardDataset(path, verify_checksums=verify_checksums, preload=True)
    assert len(ShardDataset(path, fields=["label"], preload=True)) == COUNT


def test_checksums_are_not_looked_at_if_not_wanted(path: Path) -> None:
    alter(path, b"caption 09")
    assert ShardDataset(path, verify_checksums=False, preload=True)[9]["caption"] == "Caption 09"


@pytest.mark.parametrize("fields", [list(FIELDS), ["label", "vector"], ["vector"]])
def test_damaged_records_are_left_out_and_named_if_they_are_to_be_skipped(
    path: Path, fields: list[str]
) -> None:
    alter(path, RECORDS[9]["vector"].tobytes())
    options: dict[str, Any] = {"fields": fields, "on_error": "skip", "preload": True}
    data = ShardDataset(path, **options)
    assert data.skipped == ["r9"]
    assert data[9] is None
    plain = ShardDataset(path, fields=fields)
    for row in (8, 10):
        for name, value in plain[row].items():
            assert_same(data[row][name], value)
        assert {name: (type(value), value) for name, value in data.read(row).items()} == {
            name: (type(value), value) for name, value in plain.read(row).items()
        }
    with pytest.raises(CorruptShardError, match=r"'r9'.*'vector'"):
        data.read(9)
    with pytest.raises(CorruptShardError, match=r"'r9'.*'vector'"):
        data.slice(9, "vector", 0)
    left = [row for row in range(COUNT) if row != 9]
    for way in (with_sampler, iterable, threads):
        batches = list(way(path, batch_size=4, seed=0, shuffle=False, **options))
        delivered = itertools.chain(*(batch["id"] for batch in batches))
        assert list(delivered)[:16] == [f"r{row}" for row in left]
        assert torch.cat([batch["vector"][:, 0, 0] for batch in batches]).tolist()[:16] == left


def test_offsets_that_make_no_sense_are_damage_as_well(tmp_path: Path) -> None:
    path = write(tmp_path / "data", "memmap")
    file = path / "shards/00001/caption.offsets.npy"
    offsets = np.load(file)
    offsets[3] = 2**60
    np.save(file, offsets)
    with pytest.raises(CorruptShardError, match=r"shards/00001: row 2: caption\.offsets\.npy"):
        ShardDataset(path, preload=True)
    data = ShardDataset(path, preload=True, on_error="skip")
    assert data.skipped == ["r9", "r10"]
    assert data[11]["caption"] == "caption 11"


def test_a_value_that_grows_while_it_is_read_is_an_error(
    sound: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads, read = Store.payloads, []

    def grow(store: Store, row: int, columns: Any) -> Any:
        read.append(row)
        more = b"x" if row == 4 and read.count(4) == 2 else b""
        return [bytes(payload) + more for payload in payloads(store, row, columns)]

    monkeypatch.setattr(Store, "payloads", grow)
    with pytest.raises(CorruptShardError, match=r"\(id 'r4'.*\): was altered while it was read"):
        ShardDataset(sound["memmap"], fields=["caption"], verify_checksums=False, preload=True)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_more_than_the_memory_there_is_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row_bytes = 90 + 8 + 4 + 12  # picture, label, weight, vector
    monkeypatch.setattr(preloaded, "available_memory", lambda: row_bytes * COUNT)
    fixed = ["picture", "label", "weight", "vector"]
    assert ShardDataset(path, fields=fixed, preload=True)[3]["weight"] == 1.5
    for fields in ([*fixed, "caption"], None):
        with pytest.raises(
            ValueError, match=r"needs more than 1,938 bytes.*fields.*without preload$"
        ) as raised:
            ShardDataset(path, fields=fields, preload=True)
        assert "\n" not in str(raised.value)
    monkeypatch.setattr(preloaded, "available_memory", lambda: None)
    assert len(ShardDataset(path, preload=True)) == COUNT


def test_memory_that_the_system_refuses_is_an_error_in_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    with pytest.raises(ValueError, match=r"bytes of memory, Cannot allocate memory: read fewer fields"):
        ShardDataset(path, preload=True)


def test_what_is_available_is_told_in_bytes() -> None:
    available = preloaded.available_memory()
    assert available is None or 1 << 20 < available < 1 << 50


needs_smaps = pytest.mark.skipif(
    not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc/self/smaps"
)


@needs_smaps
def test_memory_and_files_are_given_back(path: Path) -> None:
    before = open_blocks()
    data = ShardDataset(path, preload=True)
    (block,) = open_blocks() - before
    assert str(path / "shards") not in Path("/proc/self/maps").read_text()
    del data
    assert block not in open_blocks()


def large(root: Path) -> Path:
    """32 MiB of arrays."""
    contract = Contract.from_dict({"fields": {"x": {"type": "array", "dtype": "uint8", "shape": [1 << 18]}}})
    records = [{"id": f"r{row}", "x": np.full(1 << 18, row, np.uint8)} for row in range(128)]
    return write_records(root, "memmap", contract, records)


@pytest.fixture
def workers_find_the_test_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))


@needs_smaps
@pytest.mark.usefixtures("workers_find_the_test_modules")
@pytest.mark.parametrize(("start_method", "count"), [("fork", 2), ("forkserver", 1)])
def test_workers_read_one_copy_whatever_starts_them(tmp_path: Path, start_method: str, count: int) -> None:
    path = large(tmp_path / "data")
    before, blocks = anonymous_of(), open_blocks()
    data = ShardDataset(path, preload=True)
    (block,) = open_blocks() - blocks
    array = np.load(path / "shards/00000/x.npy", mmap_mode="r+")
    array[:] = 0
    array.flush()
    del array  # so whoever reads the files reads zeros, and counts for no memory
    loader = DataLoader(
        data,
        8,
        num_workers=count,
        multiprocessing_context=start_method,
        persistent_workers=True,
        collate_fn=read_and_tell,
    )
    reports = list(loader)
    assert [number for numbers, _, _ in reports for number in numbers] == list(range(128))
    assert all(block in found <= open_blocks() for _, _, found in reports)
    workers = {worker for _, worker, _ in reports}
    assert len(workers - {os.getpid()}) == count
    for worker in workers:
        assert mapped_of(block, worker)["Rss"] > 15 * 1024
        assert start_method != "fork" or anonymous_of(worker) - before < 16 * 1024
    assert anonymous_of() - before < 16 * 1024
    assert sum(mapped_of(block, process)["Pss"] for process in (os.getpid(), *workers)) < 33 * 1024


@pytest.mark.usefixtures("workers_find_the_test_modules")
def test_all_kinds_of_fields_and_what_was_left_out_reach_spawned_workers(
    tmp_path: Path, sound: dict[str, Path]
) -> None:
    path = Path(shutil.copytree(sound["lmdb"], tmp_path / "data"))
    alter(path, bytes([9]) * 9)  # a blob
    data = ShardIterableDataset(path, batch_size=4, shuffle=False, on_error="skip", preload=True)
    expected = list(data)
    alter_all(path)
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert_same_batches(list(loader), expected)
    assert data.skipped == ["r9"]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_reads_its_own_when_it_is_first_used(
    path: Path, duplicate: Callable[[ShardDataset], ShardDataset]
) -> None:
    data = ShardDataset(path, preload=True)
    assert len(pickle.dumps(data)) < 6000
    first, second = duplicate(data), duplicate(data)
    assert_same(first[5]["vector"], data[5]["vector"])
    alter(path, b"caption 09")
    assert first[9]["caption"] == "caption 09"
    with pytest.raises(CorruptShardError, match="'r9'"):
        second[5]


@pytest.fixture
def threads_take_turns() -> Iterator[None]:
    """Threads give way to each other all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_take_turns")
@pytest.mark.parametrize("preload", [False, True])
def test_threads_that_use_a_copy_first_at_once_open_it_once(
    sound: dict[str, Path], backend: str, preload: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.loads(pickle.dumps(ShardDataset(sound[backend], preload=preload)))
    payloads, read = Store.payloads, []

    def note(store: Store, row: int, columns: Any) -> Any:
        read.append(row)
        return payloads(store, row, columns)

    count = 4
    start = threading.Barrier(count)

    def first_use(row: int) -> tuple[Any, str, Any]:
        start.wait()
        return data.slice(row, "vector", ...), data[row]["caption"], data.ids

    monkeypatch.setattr(Store, "payloads", note)
    with ThreadPoolExecutor(count) as pool:
        parts, captions, ids = zip(*pool.map(first_use, range(count)), strict=True)
    assert all(each is ids[0] for each in ids)
    assert read.count(count) == (2 if preload else 0)  # for the sizes of what it holds, and for that itself
    assert [part.flat[0] for part in parts] == list(range(count))
    assert list(captions) == [f"caption {row:02}" for row in range(count)]


def read_one(data: ShardDataset) -> None:
    sample = data[3]
    if sample is None or sample["caption"] != "caption 03":
        raise ValueError(f"is {sample}")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_forked_while_a_thread_preloads_reads_its_own(
    sound: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.loads(pickle.dumps(ShardDataset(sound["memmap"], preload=True)))
    payloads, parent = Store.payloads, os.getpid()
    is_reading, may_go_on = threading.Event(), threading.Event()

    def wait(store: Store, row: int, columns: Any) -> Any:
        if os.getpid() == parent:
            is_reading.set()
            may_go_on.wait()
        return payloads(store, row, columns)

    monkeypatch.setattr(Store, "payloads", wait)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_one, data)
        is_reading.wait()
        child = multiprocessing.get_context("fork").Process(target=read_one, args=(data,), daemon=True)
        child.start()
        child.join(30)
        exit_status = child.exitcode
        may_go_on.set()
        reading.result()
    child.kill()
    assert exit_status == 0


@needs_smaps
def test_a_worker_that_is_handed_no_memory_reads_the_files(tmp_path: Path) -> None:
    data = pickle.loads(pickle.dumps(ShardDataset(large(tmp_path / "data"), preload=True)))
    loader = DataLoader(data, 64, num_workers=2, multiprocessing_context="fork", collate_fn=read_and_tell)
    reports = list(loader)
    assert [number for numbers, _, _ in reports for number in numbers] == list(range(128))
    blocks = open_blocks()
    assert all(found <= blocks for _, _, found in reports)
    assert int(data[3]["x"][0]) == 3
    (block,) = open_blocks() - blocks
    assert all(block in found for _, _, found in loader)


def test_a_system_without_nameless_memory_takes_a_nameless_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    data = ShardIterableDataset(path, batch_size=4, preload=True)
    expected = list(data)
    alter_all(path)
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="fork")
    assert_same_batches(list(loader), expected)
