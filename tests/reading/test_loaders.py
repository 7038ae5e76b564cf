"""Both data sets in real DataLoaders: every start method, several workers, errors, filters, epochs."""

import copy
import multiprocessing
import os
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from read_datasets import (
    START_METHODS,
    drop_label_one,
    fail_on_label_two,
    name_process,
    read_all,
    require_own_epoch,
)
from torch.utils.data import DataLoader

from shardkit.errors import CorruptShardError, DatasetNotFoundError, ShardkitError, TransformError
from shardkit.reading import ShardDataset, ShardIterableDataset, collate

ALL_IDS = [f"folder/{row}.png" for row in range(10)]


@pytest.fixture(autouse=True)
def workers_find_the_test_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    )


def map_loader(data: ShardDataset, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=4, collate_fn=collate, **options)


def batch_loader(data: ShardIterableDataset, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=None, **options)


def ids(batches: Iterator[dict[str, Any]] | DataLoader[Any]) -> list[str]:
    return [record_id for batch in batches for record_id in batch["id"]]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_map_style_loader_delivers_each_id_once(path: Path, num_workers: int) -> None:
    loader = map_loader(ShardDataset(path), num_workers=num_workers, shuffle=True)
    batches = list(loader)
    assert sorted(ids(iter(batches))) == ALL_IDS
    assert [tuple(batch["image"].shape) for batch in batches] == [
        (4, 3, 16, 16),
        (4, 3, 16, 16),
        (2, 3, 16, 16),
    ]
    for batch in batches:
        numbers = [ALL_IDS.index(record_id) for record_id in batch["id"]]
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert batch["image"][:, 0, 0, 0].tolist() == [20 * number for number in numbers]
        assert batch["label"].tolist() == [number % 3 for number in numbers]
        assert batch["weight"].dtype == torch.float32
        assert batch["vector"][:, 0, 0].tolist() == numbers
        assert batch["extra"] == [{"n": number} for number in numbers]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")  # on a machine with two cores
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_the_batches_of_a_rank_do_not_depend_on_its_workers(path: Path, num_workers: int) -> None:
    data = ShardIterableDataset(path, batch_size=3, seed=5)
    loader = batch_loader(data, num_workers=num_workers)
    assert len(loader) == len(data) == 4
    assert [batch["id"] for batch in loader] == [batch["id"] for batch in data]
    assert sorted(ids(loader)) == ALL_IDS


@pytest.mark.parametrize("start_method", START_METHODS)
def test_both_deliver_each_id_once_under_every_start_method(path: Path, start_method: str) -> None:
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": start_method}
    data = ShardDataset(path, transform=name_process)
    assert data[0]["process"] == os.getpid()  # opened in the parent before its workers start
    batches = list(map_loader(data, **options))
    assert ids(iter(batches)) == ALL_IDS
    assert os.getpid() not in batches[0]["process"].tolist()
    assert data[0]["id"] == ALL_IDS[0]
    assert sorted(ids(batch_loader(ShardIterableDataset(path, batch_size=4), **options))) == ALL_IDS


@pytest.mark.parametrize("start_method", START_METHODS)
def test_epoch_filtered_ids_and_rank_cross_to_persistent_workers(
    memmap_path: Path, start_method: str
) -> None:
    data = ShardIterableDataset(
        memmap_path, batch_size=2, rank=1, world_size=2, transform=drop_label_one, may_filter=True
    )
    loader = batch_loader(data, num_workers=2, multiprocessing_context=start_method, persistent_workers=True)
    plain = ShardIterableDataset(memmap_path, batch_size=2, rank=1, world_size=2, fields=["label"])
    left_out = set()
    for epoch in range(3):
        data.set_epoch(epoch)
        plain.set_epoch(epoch)
        expected = [
            (record_id, label)
            for batch in plain
            for record_id, label in zip(batch["id"], batch["label"].tolist(), strict=True)
        ]
        assert ids(loader) == [record_id for record_id, label in expected if label != 1]
        left_out |= {record_id for record_id, label in expected if label == 1}
        assert data.filtered == sorted(left_out)
    assert left_out


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_an_epoch_set_on_a_copy_reaches_its_persistent_workers(
    memmap_path: Path, duplicate: Callable[[ShardIterableDataset], ShardIterableDataset]
) -> None:
    data = duplicate(ShardIterableDataset(memmap_path, fields=["label"]))
    loader = batch_loader(data, num_workers=1, multiprocessing_context="fork", persistent_workers=True)
    first = ids(loader)
    data.set_epoch(1)
    assert ids(loader) == ids(iter(data)) != first


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_ranks_started_from_one_object_have_each_their_own_epoch(
    memmap_path: Path, start_method: str
) -> None:
    data = ShardIterableDataset(memmap_path, fields=["label"])
    rank = multiprocessing.get_context(start_method).Process(target=require_own_epoch, args=(data,))
    rank.start()
    rank.join()
    assert rank.exitcode == 0
    assert data.epoch == 0


def test_what_another_rank_filtered_is_not_counted_here(memmap_path: Path) -> None:
    data = ShardDataset(memmap_path, transform=drop_label_one, may_filter=True)
    rank = multiprocessing.get_context("fork").Process(target=read_all, args=(data,))
    rank.start()
    rank.join()
    assert rank.exitcode == 0
    assert data.filtered == []


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_filtered_ids_of_a_map_style_loader_reach_the_parent(memmap_path: Path, start_method: str) -> None:
    data = ShardDataset(memmap_path, transform=drop_label_one, may_filter=True)
    delivered = ids(map_loader(data, num_workers=1, multiprocessing_context=start_method))
    assert data.filtered == ["folder/1.png", "folder/4.png", "folder/7.png"]
    assert sorted(delivered + data.filtered) == ALL_IDS


def error_of(loader: DataLoader[Any]) -> tuple[type[BaseException], str]:
    """Iterate until the loader raises.

    The frames that torch re-raises from hold the error, and so the loader's iterator, in a cycle: until it is
    broken the workers live on, and what the garbage collector ends takes torch five seconds.
    """
    try:
        list(loader)
    except ShardkitError as error:
        traceback.clear_frames(error.__traceback__)
        return type(error), str(error)
    pytest.fail("the loader raised nothing")


def test_a_transform_error_in_a_worker_names_the_sample_and_the_cause(memmap_path: Path) -> None:
    for loader in (
        map_loader(ShardDataset(memmap_path, transform=fail_on_label_two), num_workers=1),
        batch_loader(ShardIterableDataset(memmap_path, transform=fail_on_label_two), num_workers=1),
    ):
        kind, text = error_of(loader)
        assert kind is TransformError
        assert re.search(
            r"shards/0000\d: row \d \(id 'folder/[258]\.png', ingested from test\).*raised ZeroDivisionError: nothing",
            text,
        )


def test_damage_found_in_a_worker_names_shard_row_id_and_field(memmap_path: Path) -> None:
    file = memmap_path / "shards/00001/image.bin"
    file.write_bytes(bytes(file.stat().st_size))
    kind, text = error_of(map_loader(ShardDataset(memmap_path), num_workers=1))
    assert kind is CorruptShardError
    assert re.search(r"shards/00001: row 0 \(id 'folder/4\.png', ingested from test\), field 'image'", text)


def test_a_data_set_gone_by_the_time_a_worker_opens_it_is_an_error_and_no_crash(
    memmap_path: Path, tmp_path: Path
) -> None:
    data = ShardDataset(memmap_path)
    memmap_path.rename(tmp_path / "elsewhere")
    kind, text = error_of(map_loader(data, num_workers=1, multiprocessing_context="forkserver"))
    assert kind is DatasetNotFoundError
    assert str(memmap_path) in text


def test_leaving_a_loader_early_and_often_leaves_the_next_epoch_whole(memmap_path: Path) -> None:
    loader = batch_loader(ShardIterableDataset(memmap_path, batch_size=2), num_workers=0)
    for _ in range(50):
        next(iter(loader))
    assert sorted(ids(loader)) == ALL_IDS
