"""ShardIterableDataset: ranks, tails, epochs, arguments."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardkit.errors import DatasetNotFoundError
from shardkit.reading import ShardIterableDataset

ALL_IDS = [f"folder/{row}.png" for row in range(10)]


def ranks(path: Path, world_size: int, **options: Any) -> list[ShardIterableDataset]:
    return [
        ShardIterableDataset(path, rank=rank, world_size=world_size, fields=["label"], **options)
        for rank in range(world_size)
    ]


def ids(data: ShardIterableDataset) -> list[str]:
    return [record_id for batch in data for record_id in batch["id"]]


@pytest.mark.parametrize("shuffle", ["global", "block", False])
def test_exact_ranks_together_deliver_each_id_once(path: Path, shuffle: Any) -> None:
    for world_size in (1, 2, 3, 12):
        together = ranks(path, world_size, batch_size=2, shuffle=shuffle, tail="exact")
        assert sorted(record_id for data in together for record_id in ids(data)) == ALL_IDS


def test_padded_ranks_take_equal_steps_and_mark_their_repeats(memmap_path: Path) -> None:
    together = ranks(memmap_path, 3, batch_size=2, seed=1)
    batches = [list(data) for data in together]
    assert [len(each) for each in batches] == [len(data) for data in together] == [2, 2, 2]
    marked = [
        (record_id, pad)
        for each in batches
        for batch in each
        for record_id, pad in zip(batch["id"], batch["is_pad"].tolist(), strict=True)
    ]
    assert sorted(record_id for record_id, pad in marked if not pad) == ALL_IDS
    assert sum(pad for _, pad in marked) == 2
    assert batches[0][0]["is_pad"].dtype == torch.bool


def test_dropping_ranks_lose_less_than_one_step(memmap_path: Path) -> None:
    delivered = [
        record_id for data in ranks(memmap_path, 2, batch_size=4, tail="drop") for record_id in ids(data)
    ]
    assert len(delivered) == len(set(delivered)) == 8


def test_only_padding_adds_a_mark(memmap_path: Path) -> None:
    assert list(next(iter(ShardIterableDataset(memmap_path, fields=["label"])))) == ["id", "label", "is_pad"]
    for tail in ("drop", "exact"):
        data = ShardIterableDataset(memmap_path, batch_size=5, fields=["label"], tail=tail)
        assert list(next(iter(data))) == ["id", "label"]


def test_the_order_depends_on_seed_and_epoch_alone(memmap_path: Path) -> None:
    def order(epoch: int = 0, **options: Any) -> list[str]:
        data = ShardIterableDataset(memmap_path, fields=["label"], tail="exact", **options)
        data.set_epoch(epoch)
        assert data.epoch == epoch
        return ids(data)

    assert order(batch_size=3) == order(batch_size=10)
    assert order() != order(epoch=1)
    assert order() != order(seed=1)
    assert order(shuffle=False) == ALL_IDS


def test_set_epoch_between_iterations_changes_the_next_one(memmap_path: Path) -> None:
    data = ShardIterableDataset(memmap_path, fields=["label"])
    first = ids(data)
    assert ids(data) == first
    data.set_epoch(1)
    second = ids(data)
    assert second != first
    assert sorted(second) == ALL_IDS


def test_an_epoch_set_while_iterating_does_not_touch_the_running_one(memmap_path: Path) -> None:
    data = ShardIterableDataset(memmap_path, batch_size=2, fields=["label"])
    whole = ids(data)
    running = iter(data)
    data.set_epoch(1)
    assert [record_id for batch in running for record_id in batch["id"]] == whole


def test_a_batch_of_which_all_is_filtered_still_counts_as_a_step(memmap_path: Path) -> None:
    data = ShardIterableDataset(memmap_path, batch_size=5, transform=lambda sample: None, may_filter=True)
    batches = list(data)
    assert [batch["id"] for batch in batches] == [[], []]
    assert [len(batch["is_pad"]) for batch in batches] == [0, 0]
    assert data.filtered == ALL_IDS


def test_rank_and_world_size_come_from_torch_distributed(
    memmap_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ShardIterableDataset(memmap_path, batch_size=2, fields=["label"], tail="exact")
    assert len(ids(data)) == 10
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    expected = ids(ranks(memmap_path, 2, batch_size=2, tail="exact")[1])
    assert ids(data) == expected
    pickled = pickle.dumps(data)
    monkeypatch.undo()
    assert ids(pickle.loads(pickled)) == expected
    assert len(pickled) < 4000


def test_a_copy_made_before_torch_distributed_is_initialised_takes_its_rank_later(
    memmap_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(ShardIterableDataset(memmap_path, batch_size=2, fields=["label"], tail="exact"))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert ids(pickle.loads(pickled)) == ids(ranks(memmap_path, 2, batch_size=2, tail="exact")[1])


def test_a_copy_keeps_the_epoch_and_has_one_of_its_own(memmap_path: Path) -> None:
    data = ShardIterableDataset(memmap_path)
    data.set_epoch(3)
    for copied in (copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
        assert copied.epoch == 3
        copied.set_epoch(4)
        assert data.epoch == 3


def test_it_shows_where_it_is_and_what_it_reads(memmap_path: Path) -> None:
    data = ShardIterableDataset(memmap_path, batch_size=2, fields=["label"])
    assert repr(data) == f"<ShardIterableDataset {memmap_path}: 10 records; fields label>"


@pytest.mark.parametrize("name", ["batch_size", "seed", "rank", "world_size"])
@pytest.mark.parametrize("value", [1.0, "1", True])
def test_an_argument_that_is_no_integer_is_named(memmap_path: Path, name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"rank": 0, "world_size": 1} | {name: value}
    with pytest.raises(TypeError, match=rf"{name} must be an integer, not {type(value).__name__}"):
        ShardIterableDataset(memmap_path, **arguments)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"shuffle": True}, "shuffle"),
        ({"tail": "keep"}, "tail"),
        ({"rank": 2, "world_size": 2}, r"\[0, 2\)"),
        ({"rank": 0}, "both rank and world_size"),
        ({"world_size": 2}, "both rank and world_size"),
        ({"fields": ["nope"]}, "nope"),
    ],
)
def test_a_wrong_argument_is_named(memmap_path: Path, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ShardIterableDataset(memmap_path, **wrong)


def test_a_negative_epoch_is_refused(memmap_path: Path) -> None:
    with pytest.raises(ValueError, match="epoch"):
        ShardIterableDataset(memmap_path).set_epoch(-1)
    with pytest.raises(ValueError, match="epoch"):
        ShardIterableDataset(memmap_path).set_epoch(2**63)


def test_an_epoch_that_is_no_integer_is_refused(memmap_path: Path) -> None:
    data = ShardIterableDataset(memmap_path)
    with pytest.raises(TypeError, match="epoch must be an integer, not float"):
        data.set_epoch(1.5)  # type: ignore[arg-type]
    data.set_epoch(np.int64(2))
    assert data.epoch == 2


def test_a_missing_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        ShardIterableDataset(tmp_path / "nothing")


def test_threads_that_share_an_iterator_get_each_batch_once(path: Path) -> None:
    data = ShardIterableDataset(
        path, batch_size=1, fields=["label"], weights=[1] * 10, num_samples=3000, tail="exact"
    )
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they meet in all places
    try:
        batches, found = iter(data), []
        with ThreadPoolExecutor(4) as threads:
            taken = [threads.submit(lambda: [batch["id"] for batch in batches]) for _ in range(4)]
        for each in taken:
            found += each.result()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(map(list, found)) == sorted([record_id] for record_id in ids(data))
