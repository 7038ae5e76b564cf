"""One sequence of batches, three ways in: the sampler, the iterable data set, the thread loader."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    LabelField,
    ScalarField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    TextField,
    collate,
    ingest,
)
from shardkit.errors import CorruptShardError, RecordNotFoundError, TransformError

CLASSES = ("cat", "dog", "owl")
CONTRACT = Contract({"label": LabelField(classes=CLASSES), "age": ScalarField("int32")})
COUNT = 101


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """101 records in uneven shards, sorted by class: 50 cats, 48 dogs, 3 owls."""
    out = tmp_path_factory.mktemp("sequences") / "out"
    labels = [0] * 50 + [1] * 48 + [2] * 3
    records = [{"id": f"r{row}", "label": CLASSES[labels[row]], "age": row} for row in range(COUNT)]
    ingest(records[:50], out, CONTRACT, workers=0, records_per_shard=50)
    ingest(records[50:53], out, workers=0, append=True)
    ingest(records[53:], out, workers=0, append=True)
    return out


def ids(batches: Iterable[Any]) -> list[list[str]]:
    return [list(batch["id"]) for batch in batches]


def iterable(path: Path, **options: Any) -> Any:
    return ShardIterableDataset(path, **options)


def iterable_in_workers(path: Path, **options: Any) -> Any:
    return DataLoader(
        ShardIterableDataset(path, **options), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )


def sampler(path: Path, **options: Any) -> Any:
    dataset = ShardDataset(path)
    return DataLoader(dataset, batch_sampler=ShardSampler(dataset, **options), collate_fn=collate)


def threads(path: Path, **options: Any) -> Any:
    return ShardLoader(path, threads=3, **options)


@pytest.mark.parametrize("tail", ["pad", "drop", "exact"])
@pytest.mark.parametrize("shuffle", ["global", "block", False])
def test_all_three_give_the_same_batches(data: Path, tail: Any, shuffle: Any) -> None:
    for world_size, rank in ((1, 0), (3, 0), (3, 2)):
        options = {
            "batch_size": 8,
            "shuffle": shuffle,
            "seed": 3,
            "tail": tail,
            "rank": rank,
            "world_size": world_size,
        }
        made = [list(way(data, **options)) for way in (iterable, iterable_in_workers, sampler, threads)]
        assert ids(made[0]) == ids(made[1]) == ids(made[2]) == ids(made[3])
        assert len(made[0]) == len(iterable(data, **options))
        for batches in zip(*made, strict=True):
            assert [set(batch) for batch in batches] == [set(batches[0])] * 4
            for name in set(batches[0]) - {"id"}:
                for batch in batches[1:]:
                    assert torch.equal(batch[name], batches[0][name])


@pytest.mark.parametrize("way", [iterable, sampler, threads])
def test_a_subset_delivers_its_rows_once(data: Path, way: Callable[..., Any]) -> None:
    rows = ShardDataset(data).select(labels=["owl", "dog"], where=lambda columns: columns["age"] % 2 == 0)
    expected = [f"r{row}" for row in range(50, COUNT) if row % 2 == 0]
    delivered = list(itertools.chain(*ids(way(data, batch_size=4, tail="exact", rows=rows))))
    assert sorted(delivered) == sorted(expected)
    assert delivered != expected


def test_rows_are_selected_by_id_class_column_and_file(data: Path, tmp_path: Path) -> None:
    dataset = ShardDataset(data)
    listed = tmp_path / "ids.txt"
    listed.write_text("r7\nr3\n\nr100\n")
    assert dataset.select(ids=["r5", "r2"]).tolist() == [2, 5]
    assert dataset.select(ids_from=listed).tolist() == [3, 7, 100]
    assert dataset.select(labels=[2]).tolist() == dataset.select(labels=["owl"]).tolist() == [98, 99, 100]
    assert dataset.select(where=lambda columns: columns["age"] < 2).tolist() == [0, 1]
    assert dataset.select(ids_from=listed, labels=["cat"]).tolist() == [3, 7]
    assert dataset.select().tolist() == list(range(COUNT))
    with pytest.raises(RecordNotFoundError, match="nobody"):
        dataset.select(ids=["nobody"])
    with pytest.raises(LookupError, match="'bird'"):
        dataset.select(labels=["bird"])
    with pytest.raises(ValueError, match=r"bool\[101\]"):
        dataset.select(where=lambda columns: columns["age"])


def test_weights_by_class_decide_how_often_a_class_comes(data: Path) -> None:
    options = {"weights": {"cat": 0.0, "dog": 1.0, "owl": 16.0}, "num_samples": 20_000, "batch_size": 500}
    delivered = Counter(
        label for batch in threads(data, tail="exact", **options) for label in batch["label"].tolist()
    )
    assert delivered.total() == 20_000
    assert delivered[0] == 0
    assert abs(delivered[1] - 10_000) < 5 * (20_000 * 0.25) ** 0.5  # 48 : 3 * 16, five standard deviations


def test_weights_may_be_changed_by_id_and_reach_persistent_workers(data: Path) -> None:
    dataset = ShardIterableDataset(data, batch_size=10, weights=[1.0] * COUNT, num_samples=40)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    before = ids(loader)
    assert ids(loader) == before
    dataset.set_weights({f"r{row}": 0.0 for row in range(COUNT) if row != 42})
    assert set(itertools.chain(*ids(loader))) == {"r42"}
    with pytest.raises(ValueError, match="all 0"):
        dataset.set_weights({"r42": 0.0})
    with pytest.raises(ValueError, match="no weights"):
        ShardIterableDataset(data).set_weights({"r42": 0.0})


@pytest.mark.parametrize("way", [iterable, sampler, threads])
def test_strata_hold_in_every_batch(data: Path, way: Callable[..., Any]) -> None:
    batches = list(way(data, batch_size=10, stratify="label", tail="exact"))
    assert sorted(itertools.chain(*ids(batches))) == sorted(f"r{row}" for row in range(COUNT))
    for batch in batches[:-1]:
        counts = np.bincount(batch["label"].numpy(), minlength=3)
        assert abs(counts[0] - 10 * 50 / COUNT) <= 2
        assert abs(counts[1] - 10 * 48 / COUNT) <= 2
        assert counts[2] <= 1


def test_arguments_that_cannot_be_are_refused(data: Path) -> None:
    for options, words in (
        ({"rows": [0, 0]}, "repeat"),
        ({"rows": [COUNT]}, r"\[0, 101\)"),
        ({"rows": [0.5]}, "row numbers"),
        ({"weights": [1.0]}, "one a row"),
        ({"weights": [-1.0] * COUNT}, "0 or more"),
        ({"weights": {"cat": 1.0}}, "'dog'"),
        ({"weights": {"cat": 1.0, "dog": 1.0, "owl": 1.0, "cow": 1.0}}, "'cow'"),
        ({"num_samples": 5}, "weights"),
        ({"weights": [1.0] * COUNT, "stratify": "label"}, "exclude"),
        ({"rank": 0}, "both"),
        ({"rank": 2, "world_size": 2}, r"\[0, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            ShardIterableDataset(data, **options)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="label"):
        ShardIterableDataset(data, stratify="age")


# --- threads ---------------------------------------------------------------------------------------------------------


def test_an_error_is_raised_at_the_batch_it_belongs_to(data: Path) -> None:
    def fail_on_r50(sample: Any) -> Any:
        if sample["id"] == "r50":
            raise ValueError("no")
        return sample

    loader = ShardLoader(data, 10, threads=4, shuffle=False, transform=fail_on_r50)
    iterator = iter(loader)
    assert ids(itertools.islice(iterator, 5)) == [
        [f"r{10 * batch + row}" for row in range(10)] for batch in range(5)
    ]
    with pytest.raises(TransformError, match=r"r50.*ValueError: no"):
        next(iterator)


def test_leaving_early_leaves_no_thread_behind(data: Path) -> None:
    before = threading.active_count()
    loader = ShardLoader(data, 8, threads=2)
    for _ in range(50):
        iterator: Iterator[Any] = iter(loader)
        next(iterator)
        del iterator
    assert threading.active_count() == before
    assert len(ids(loader)) == len(loader)


# --- damaged records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_record_is_skipped_counted_and_named(tmp_path: Path, workers: int) -> None:
    contract = Contract({"text": TextField()})
    ingest([{"id": f"r{row}", "text": f"text {row:03d}"} for row in range(100)], tmp_path / "out", contract)
    shard = tmp_path / "out" / "shards" / "00000" / "text.bin"
    shard.write_bytes(shard.read_bytes().replace(b"text 010", b"text 01X"))
    with pytest.raises(CorruptShardError, match="'r10'"):
        ids(ShardLoader(tmp_path / "out", 8, 1))
    dataset = ShardIterableDataset(tmp_path / "out", 8, tail="exact", on_error="skip")
    context = {"multiprocessing_context": "fork"} if workers else {}
    delivered = ids(DataLoader(dataset, batch_size=None, num_workers=workers, **context))  # type: ignore[arg-type]
    assert sorted(itertools.chain(*delivered)) == sorted(f"r{row}" for row in range(100) if row != 10)
    assert dataset.skipped == ["r10"]
    single = ShardDataset(tmp_path / "out", on_error="skip")
    assert single[10] is None
    assert single.skipped == ["r10"]
    with pytest.raises(ValueError, match="on_error"):
        ShardDataset(tmp_path / "out", on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [iterable, sampler, threads])
def test_a_batch_all_of_which_is_filtered_has_marks_of_none(data: Path, way: Callable[..., Any]) -> None:
    if way is sampler:
        dataset = ShardDataset(data, lambda sample: None, may_filter=True)
        loader: Any = DataLoader(dataset, batch_sampler=ShardSampler(dataset, 8), collate_fn=collate)
    else:
        loader = way(data, batch_size=8, transform=lambda sample: None, may_filter=True)
    batches = list(loader)
    assert len(batches) == 13
    for batch in batches:
        assert set(batch) == {"id", "is_pad"}
        assert len(batch["id"]) == len(batch["is_pad"]) == 0
