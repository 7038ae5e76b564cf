"""A state counts for one iteration, whichever loader begins it, however late its workers are, and for no other."""

import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from shardkit import (
    Contract,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
    ingest,
)
from shardkit.errors import TransformError

BATCHES = 13
IN_WORKERS = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "fork"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("resumed") / "out"
    records = [{"id": f"r{row}", "label": 0} for row in range(101)]
    ingest(records, out, Contract({"label": LabelField(num_classes=10)}), workers=0, records_per_shard=40)
    return out


def ids(batches: Iterable[Any]) -> list[list[str]]:
    return [list(batch["id"]) for batch in batches]


def resumed(path: Path) -> ShardIterableDataset:
    """After five of thirteen batches."""
    data = ShardIterableDataset(path, 8)
    data.load_state_dict(data.state_dict(step=5))
    return data


def test_the_iteration_after_a_resumed_one_is_whole_and_so_are_its_length_and_state(path: Path) -> None:
    data = resumed(path)
    loader = DataLoader(data, **IN_WORKERS)
    assert len(data) == 8
    assert len(ids(loader)) == 8
    assert data.state_dict(step=8)["position"] == 101
    assert len(data) == BATCHES
    whole = ids(loader)
    assert len(whole) == BATCHES
    assert ids(itertools.islice(loader, 2)) == whole[:2]
    assert data.state_dict(step=2)["position"] == 16


@pytest.mark.filterwarnings("ignore:This DataLoader will")  # four workers on two cores
@pytest.mark.parametrize("workers", [0, 4])
def test_another_loader_after_the_resumed_iteration_begins_at_the_beginning(path: Path, workers: int) -> None:
    whole = ids(ShardIterableDataset(path, 8))
    data = resumed(path)
    assert ids(DataLoader(data, **IN_WORKERS)) == whole[5:]
    context = {"multiprocessing_context": "fork"} if workers else {}
    assert ids(DataLoader(data, batch_size=None, num_workers=workers, **context)) == whole


@pytest.mark.parametrize("tail", ["exact", "drop"])
def test_every_rank_says_so_when_its_epoch_is_over(path: Path, tail: Any) -> None:
    ranks: list[Any] = [ShardLoader(path, 10, 1, tail=tail, rank=rank, world_size=5) for rank in range(5)] + [
        ShardIterableDataset(path, 10, tail=tail, rank=rank, world_size=5) for rank in range(5)
    ]
    for rank in ranks:
        ids(rank)
    assert [rank.state_dict()["position"] for rank in ranks] == [101] * 10


def begin(path: Path, kind: str, workers: int) -> tuple[Any, Any]:
    context = {"multiprocessing_context": "fork"} if workers else {}
    if kind == "iterable":
        data = ShardIterableDataset(path, 8)
        return StatefulDataLoader(data, batch_size=None, num_workers=workers, **context), data
    records = ShardDataset(path)
    sampler = ShardSampler(records, 8)
    loader = StatefulDataLoader(
        records, batch_sampler=sampler, num_workers=workers, collate_fn=collate, **context
    )
    return loader, sampler


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["iterable", "sampler"])
def test_a_stateful_loader_saved_at_an_epochs_end_delivers_the_next(
    path: Path, kind: str, workers: int
) -> None:
    loader, source = begin(path, kind, workers)
    source.set_epoch(3)
    ids(loader)
    state = loader.state_dict()
    loader, source = begin(path, kind, workers)
    source.set_epoch(4)
    expected = ids(loader)
    loader, source = begin(path, kind, workers)
    loader.load_state_dict(state)  # which torchdata hands on only when it is iterated
    source.set_epoch(4)
    assert ids(loader) == expected


def start_late(worker: int) -> None:
    if worker == 1:
        time.sleep(0.5)


def test_a_worker_that_starts_late_does_not_use_up_a_state_that_was_loaded_since(path: Path) -> None:
    data = ShardIterableDataset(path, 8)
    whole = ids(data)
    state = data.state_dict(step=5)
    loader = DataLoader(data, **IN_WORKERS, persistent_workers=True, worker_init_fn=start_late)
    ids(itertools.islice(loader, 1))
    data.load_state_dict(state)
    assert ids(loader) == whole[5:]
    assert ids(loader) == whole


def test_a_seed_that_was_loaded_reaches_persistent_workers(path: Path) -> None:
    other = ShardIterableDataset(path, 8, seed=5)
    whole = ids(other)
    state = other.state_dict(step=3)
    data = ShardIterableDataset(path, 8, seed=0)
    loader = DataLoader(data, **IN_WORKERS, persistent_workers=True)
    ids(loader)
    data.load_state_dict(state)
    assert ids(loader) == whole[3:]
    assert ids(loader) == whole


@pytest.mark.parametrize("way", [ShardIterableDataset, ShardLoader])
def test_a_batch_that_failed_does_not_count_as_delivered(path: Path, way: Any) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] == "r20":
            raise ValueError("no")
        return sample

    data = way(path, 8, shuffle=False, transform=fail)
    batches = iter(data)
    assert [len(next(batches)["id"]), len(next(batches)["id"])] == [8, 8]
    with pytest.raises(TransformError):
        next(batches)
    assert data.state_dict()["position"] == 16


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1])
def test_the_widest_seeds_are_seeds(path: Path, seed: int) -> None:
    data = ShardIterableDataset(path, 50, seed=seed)
    assert data.state_dict()["seed"] == seed
    assert sorted(itertools.chain(*ids(data)))[:101] != []
    for beyond in (-(2**63) - 1, 2**63):
        with pytest.raises(ValueError, match="seed"):
            ShardIterableDataset(path, 50, seed=beyond)
