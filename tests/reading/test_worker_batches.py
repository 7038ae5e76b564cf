"""Batches on their way from a DataLoader's workers: in memory that is used again, but never while somebody has it."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from read_datasets import write_records
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset

from shardkit import Contract, ShardDataset, ShardIterableDataset, ShardSampler, collate

COUNT, BATCH = 400, 8  # a batch of 24 KB goes by a block


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kinds = {
        "x": {"type": "array", "dtype": "uint8", "shape": [32, 32, 3]},
        "few": {"type": "image", "store": "raw", "size": [2, 3]},
        "label": {"type": "label", "num_classes": COUNT},
        "caption": {"type": "text"},
        "ragged": {"type": "array", "dtype": "float32", "shape": [-1, 100]},
    }
    records = [
        {
            "id": f"r{row}",
            "x": np.full((32, 32, 3), row % 251, np.uint8),
            "few": np.full((2, 3, 3), row % 251, np.uint8),
            "label": row,
            "caption": f"number {row}",
            "ragged": np.full((row % 30, 100), row, np.float32),
        }
        for row in range(COUNT)
    ]
    folder = tmp_path_factory.mktemp("batches") / "data"
    return write_records(folder, "memmap", Contract.from_dict({"fields": kinds}), records)


def workers_of(data: Path, count: int = 2, **options: Any) -> "DataLoader[Any]":
    dataset = ShardIterableDataset(data, BATCH, tail="exact")
    return DataLoader(dataset, batch_size=None, num_workers=count, **options)


def require_own_values(batch: dict[str, Any]) -> None:
    labels = batch["label"]
    assert list(batch["id"]) == [f"r{row}" for row in labels.tolist()]
    assert batch["caption"] == [f"number {row}" for row in labels.tolist()]
    for name, shape in (("x", (32, 32, 3)), ("few", (3, 2, 3))):
        expected = (labels % 251).to(torch.uint8)[:, None, None, None].expand(-1, *shape)
        assert torch.equal(batch[name], expected)
    for row, array in zip(labels.tolist(), batch["ragged"], strict=True):
        assert torch.equal(array, torch.full((row % 30, 100), float(row)))


def maps_of_shared_memory() -> int:
    return Path("/proc/self/maps").read_text().count("/torch_")


def file_of(tensor: torch.Tensor) -> str:
    """Return what tells the shared memory apart in which a tensor lies; its address may be used again by chance."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, _, end = line.split()[0].partition("-")
        if int(begin, 16) <= tensor.data_ptr() < int(end, 16):
            return line.split()[4]
    raise LookupError("not mapped")


def test_a_batch_that_is_kept_keeps_its_values(data: Path) -> None:
    loader = workers_of(data, persistent_workers=True)
    kept = []
    for epoch in range(2):
        for number, batch in enumerate(loader):
            assert type(batch) is dict
            require_own_values(batch)
            if number % 3 == epoch:
                kept.append({name: value[2:] for name, value in batch.items()})  # views keep it as well
    for batch in kept:
        require_own_values(batch)


def test_all_batches_may_be_kept(data: Path) -> None:
    batches = list(workers_of(data))
    assert sorted(torch.cat([batch["label"] for batch in batches]).tolist()) == list(range(COUNT))
    for batch in batches:
        require_own_values(batch)
        assert batch["few"].is_contiguous(memory_format=torch.channels_last)
        batch["x"] += 1  # it is the training loop's to write to


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_memory_is_used_again_and_goes_with_the_loader(data: Path) -> None:
    loader = workers_of(data, persistent_workers=True)
    files, descriptors = set(), set()
    for _ in range(2):
        for batch in loader:
            files.add(file_of(batch["x"]))
            descriptors.add(len(os.listdir("/proc/self/fd")))
    assert len(files) <= COUNT // BATCH // 2  # of twice that many batches
    assert max(descriptors) - min(descriptors) <= 48
    del loader, batch
    gc.collect()
    assert maps_of_shared_memory() <= 4  # what the data set shares with workers to come


class Growing(IterableDataset[Any]):
    """Batches, each larger than the one before."""

    def __init__(self, data: Path) -> None:
        self._dataset = ShardDataset(data, fields=["x"])

    def __iter__(self) -> Iterator[Any]:
        for count in range(8, 180):
            yield collate(self._dataset.__getitems__(list(range(count))))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_batches_that_grow_leave_no_more_memory_behind_than_is_in_use(data: Path) -> None:
    maps = []
    for count, batch in enumerate(DataLoader(Growing(data), batch_size=None, num_workers=1), 8):
        assert len(batch["x"]) == count
        assert torch.equal(batch["x"][:, 0, 0, 0], (torch.arange(count) % 251).to(torch.uint8))
        maps.append(maps_of_shared_memory())
    assert max(maps) <= 40


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_start_method_delivers_the_same(data: Path, method: str) -> None:
    batches = list(workers_of(data, 1, multiprocessing_context=method))
    assert torch.equal(
        torch.cat([batch["label"] for batch in batches]),
        torch.cat([batch["label"] for batch in ShardIterableDataset(data, BATCH, tail="exact")]),
    )
    for batch in batches:
        require_own_values(batch)


def test_map_style_batches_go_the_same_way(data: Path) -> None:
    dataset = ShardDataset(data)
    sampler = ShardSampler(dataset, batch_size=BATCH, tail="exact")
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=1)
    files = set()
    for batch in loader:
        require_own_values(batch)
        files.add(file_of(batch["x"]))
    assert len(files) <= 16


def as_pair(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"], batch["label"]


def test_what_a_collation_makes_of_batches_keeps_its_values(data: Path) -> None:
    pairs = list(workers_of(data, collate_fn=as_pair))
    assert len(pairs) == COUNT // BATCH
    for x, labels in pairs:
        assert torch.equal(x[:, 0, 0, 0], (labels % 251).to(torch.uint8))


class Again(IterableDataset[Any]):
    """Passes on each batch, and the one before once more."""

    def __init__(self, data: Path) -> None:
        self._batches = ShardIterableDataset(data, BATCH, tail="exact")

    def __iter__(self) -> Iterator[Any]:
        before = None
        for batch in self._batches:
            yield batch
            if before is not None:
                yield before
            before = batch


def test_a_batch_that_the_worker_keeps_keeps_its_values(data: Path) -> None:
    delivered = list(DataLoader(Again(data), batch_size=None, num_workers=1))
    assert len(delivered) == 2 * (COUNT // BATCH) - 1
    for batch in delivered:
        require_own_values(batch)


class Views(IterableDataset[Any]):
    """Adds to each batch views that lie elsewhere in memory than a tensor of their own would, and other kinds."""

    def __init__(self, data: Path) -> None:
        self._batches = ShardIterableDataset(data, BATCH, tail="exact")

    def __iter__(self) -> Iterator[Any]:
        base = torch.arange(10000.0)
        for batch in self._batches:
            batch["views"] = [
                base[5000].expand(10000),
                base[1:8001:2],
                torch.zeros(0, 3),
                base.view(100, 100).t(),
            ]
            batch["part"] = batch["x"][2:5, ::2]
            batch["complex"] = torch.full((9000,), 1 + 2j)
            yield pytree.tree_map(lambda value: value, batch)


def test_views_and_other_kinds_of_tensors_arrive_as_they_are(data: Path) -> None:
    base = torch.arange(10000.0)
    for batch in DataLoader(Views(data), batch_size=None, num_workers=1):
        require_own_values(batch)
        constant, every_second, empty, turned = batch["views"]
        assert torch.equal(constant, torch.full((10000,), 5000.0))
        assert torch.equal(every_second, base[1:8001:2])
        assert empty.shape == (0, 3)
        assert torch.equal(turned, base.view(100, 100).t())
        assert torch.equal(batch["part"], batch["x"][2:5, ::2])
        assert torch.equal(batch["complex"], torch.full((9000,), 1 + 2j))


def test_torch_may_share_by_files_as_well(data: Path) -> None:
    program = f"""
        import torch
        torch.multiprocessing.set_sharing_strategy("file_system")
        from pathlib import Path
        import test_worker_batches as tests
        tests.test_a_batch_that_is_kept_keeps_its_values(Path({str(data)!r}))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class Copied(IterableDataset[Any]):
    """Passes on copies of batches, and bytes of them."""

    def __init__(self, data: Path) -> None:
        self._batches = ShardIterableDataset(data, BATCH, tail="exact")

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            yield {"copy": copy.deepcopy(batch), "bytes": pickle.dumps(batch), "batch": batch}


def test_copies_and_pickles_made_in_a_worker_are_of_their_own(data: Path) -> None:
    delivered = list(DataLoader(Copied(data), batch_size=None, num_workers=1))
    for each in delivered:
        for batch in (each["copy"], pickle.loads(each["bytes"]), each["batch"]):
            require_own_values(batch)


def test_a_batch_left_out_midway_disturbs_no_later_one(data: Path) -> None:
    loader = workers_of(data, persistent_workers=True)
    for stop in (1, 3, 2):
        for number, batch in enumerate(loader):
            require_own_values(batch)
            if number == stop:
                break
    rows = torch.cat([batch["label"] for batch in loader])
    assert sorted(rows.tolist()) == list(range(COUNT))


def test_a_child_of_the_training_process_gives_nothing_back(data: Path) -> None:
    batches = iter(workers_of(data, 1))
    kept = next(batches)
    child = os.fork()
    if child == 0:
        del kept
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    for batch in batches:
        require_own_values(batch)
    require_own_values(kept)


def test_what_a_forked_child_has_is_not_given_back_by_the_training_process(data: Path) -> None:
    batches = iter(workers_of(data, 1))
    batch = next(batches)
    goes_on, go_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(goes_on, 1)
        try:
            require_own_values(batch)
        except AssertionError:
            os._exit(1)
        os._exit(0)
    for batch in batches:
        require_own_values(batch)
    os.write(go_on, b"x")
    assert os.waitpid(child, 0)[1] == 0
