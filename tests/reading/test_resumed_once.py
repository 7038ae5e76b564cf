"""A state counts for one iteration, whichever loader begins it, however late its workers are, and for no other."""

import copy
import itertools
import multiprocessing
import pickle
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
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
from shardkit.errors import StateError, TransformError

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


@pytest.mark.parametrize("workers", [1, 2])
def test_a_state_is_taken_up_where_the_loop_sets_torchs_seed_anew(path: Path, workers: int) -> None:
    data = ShardIterableDataset(path, 8, tail="exact")
    whole = ids(data)

    def begin() -> DataLoader[Any]:
        seeded = torch.Generator().manual_seed(42)
        return DataLoader(data, None, num_workers=workers, multiprocessing_context="fork", generator=seeded)

    first = ids(itertools.islice(begin(), 5))
    data.load_state_dict(data.state_dict(step=5))
    assert first + ids(begin()) == whole
    assert ids(begin()) == whole


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_goes_on_where_the_original_would(path: Path, twin: Any) -> None:
    data = resumed(path)
    other = twin(data)
    assert len(ids(other)) == len(ids(data)) == 8
    assert len(ids(other)) == BATCHES
    other.set_epoch(1)
    assert data.epoch == 0


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_has_weights_of_its_own_which_reach_its_workers(path: Path, twin: Any) -> None:
    data = ShardIterableDataset(path, 8, weights=[1.0] * 101)
    other = twin(data)
    loader = DataLoader(other, **IN_WORKERS, persistent_workers=True)
    ids(loader)
    other.set_weights({f"r{row}": float(row == 5) for row in range(101)})
    other.set_epoch(1)
    assert set(itertools.chain(*ids(loader))) == {"r5"}
    assert set(itertools.chain(*ids(data))) != {"r5"}


def test_a_state_speaks_of_the_weights_with_which_its_iteration_began(path: Path) -> None:
    data = ShardLoader(path, 8, 1, weights=[1.0] * 101)
    batches = iter(data)
    next(batches)
    data.set_weights({"r5": 9.0})
    next(batches)
    with pytest.raises(StateError, match="weights"):
        data.load_state_dict(data.state_dict())


def test_a_rank_of_a_launcher_that_nobody_numbered_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    data = ShardIterableDataset(path, 8)  # torch.distributed may be initialised later
    with pytest.raises(ValueError, match="init_process_group"):
        next(iter(data))
    with pytest.raises(ValueError, match="init_process_group"):
        next(iter(DataLoader(data, **IN_WORKERS)))
    assert len(ids(ShardIterableDataset(path, 8, rank=0, world_size=1))) == BATCHES


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata
def test_a_stateful_loader_goes_on_after_an_epoch_whose_rest_was_dropped(path: Path) -> None:
    def start() -> tuple[Any, Any]:
        records = ShardDataset(path)
        sampler = ShardSampler(records, 8, tail="drop")
        context = {"num_workers": 2, "multiprocessing_context": "fork"}
        return StatefulDataLoader(records, batch_sampler=sampler, collate_fn=collate, **context), sampler

    loader, sampler = start()
    ids(loader)
    state = loader.state_dict()
    sampler.set_epoch(1)
    expected = ids(loader)
    loader, sampler = start()
    loader.load_state_dict(state)
    sampler.set_epoch(1)
    assert ids(loader) == expected


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata
@pytest.mark.parametrize("workers", [0, 2])
def test_the_epochs_after_a_resumed_one_keep_its_seed(path: Path, workers: int) -> None:
    def start(seed: int) -> tuple[Any, Any]:
        data = ShardIterableDataset(path, 8, seed=seed)
        context = {"multiprocessing_context": "fork"} if workers else {}
        return StatefulDataLoader(data, batch_size=None, num_workers=workers, **context), data

    loader, _ = start(7)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches
    loader, data = start(0)
    loader.load_state_dict(state)
    ids(loader)
    data.set_epoch(1)
    expected = ShardIterableDataset(path, 8, seed=7)
    expected.set_epoch(1)
    assert ids(loader) == ids(expected)


def count_later(data: Any, counted: Any) -> None:
    time.sleep(0.3)
    counted.put(len(ids(data)))


def test_a_rank_that_is_forked_goes_on_from_where_its_parent_was_at_that_moment(path: Path) -> None:
    data = resumed(path)
    context = multiprocessing.get_context("fork")
    counted = context.SimpleQueue()
    rank = context.Process(target=count_later, args=(data, counted))
    rank.start()
    assert len(ids(data)) == 8
    assert counted.get() == 8
    rank.join()


@pytest.mark.parametrize("given", ["out/", 3, None])
def test_a_sampler_samples_from_a_data_set(given: Any) -> None:
    with pytest.raises(TypeError, match=r"ShardDataset\(path\)"):
        ShardSampler(given)


def test_a_state_speaks_of_the_latest_iteration_be_it_here_or_in_workers(path: Path) -> None:
    data = resumed(path)
    assert len(ids(data)) == 8
    loader = DataLoader(data, **IN_WORKERS)
    ids(itertools.islice(loader, 2))
    assert data.state_dict(step=2)["position"] == 16
    with pytest.raises(StateError, match="step="):
        data.state_dict()
    ids(itertools.islice(data, 3))
    assert data.state_dict()["position"] == data.state_dict(step=3)["position"] == 24
