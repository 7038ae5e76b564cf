"""Batches on their way from a DataLoader's workers: in memory that is used again, but never while somebody has it."""

import copy
import gc
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from read_datasets import write_records
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
    places, descriptors, maps = set(), set(), set()
    for batch in loader:
        places.add(batch["x"].data_ptr())
        descriptors.add(len(os.listdir("/proc/self/fd")))
        maps.add(maps_of_shared_memory())
    assert len(places) <= 16
    assert max(descriptors) - min(descriptors) <= 16
    assert max(maps) <= 32
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
    places = set()
    for batch in loader:
        require_own_values(batch)
        places.add(batch["x"].data_ptr())
    assert len(places) <= 8


def as_pair(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"], batch["label"]


def test_what_a_collation_makes_of_batches_keeps_its_values(data: Path) -> None:
    pairs = list(workers_of(data, collate_fn=as_pair))
    assert len(pairs) == COUNT // BATCH
    for x, labels in pairs:
        assert torch.equal(x[:, 0, 0, 0], (labels % 251).to(torch.uint8))


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
