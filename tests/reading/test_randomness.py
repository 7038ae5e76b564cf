"""What transforms draw at random: decided by seed, epoch and id, whoever delivers the sample."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
    ingest,
    sample_rng,
)

COUNT = 21


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("randomness") / "out"
    records = [{"id": f"r{row}", "label": row % 3} for row in range(COUNT)]
    ingest(records, out, Contract({"label": LabelField(num_classes=3)}), workers=0)
    return out


def draw_own(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"drawn": [sample_rng().integers(2**62), sample_rng().integers(2**62)]}


def draw_from_process(sample: dict[str, Any]) -> dict[str, Any]:
    numbers = [random.random(), float(np.random.random()), float(torch.rand((), dtype=torch.float64))]
    return sample | {"drawn": numbers}


def iterable(path: Path, **options: Any) -> Any:
    return ShardIterableDataset(path, **options)


def iterable_in_workers(path: Path, **options: Any) -> Any:
    return DataLoader(iterable(path, **options), None, num_workers=2, multiprocessing_context="fork")


def sampler(path: Path, transform: Any, may_reshape: bool, workers: int = 0, **options: Any) -> Any:
    dataset = ShardDataset(path, transform, may_reshape=may_reshape)
    context = {"multiprocessing_context": "fork"} if workers else {}
    return DataLoader(
        dataset,
        batch_sampler=ShardSampler(dataset, **options),
        collate_fn=collate,
        num_workers=workers,
        **context,
    )


def sampler_in_workers(path: Path, **options: Any) -> Any:
    return sampler(path, workers=2, **options)


def threads(path: Path, **options: Any) -> Any:
    return ShardLoader(path, threads=3, **options)


def drawn(loader: Any) -> dict[str, list[Any]]:
    """Id -> what its transform drew."""
    return {
        record_id: numbers
        for batch in loader
        for record_id, numbers in zip(batch["id"], batch["drawn"], strict=True)
    }


def options(transform: Callable[..., Any], **others: Any) -> dict[str, Any]:
    return {"transform": transform, "may_reshape": True, "batch_size": 4, "seed": 5, "tail": "exact"} | others


@pytest.mark.parametrize(
    "way", [iterable, iterable_in_workers, sampler, sampler_in_workers, threads], ids=lambda way: way.__name__
)
def test_what_a_sample_draws_does_not_depend_on_who_delivers_it(data: Path, way: Any) -> None:
    expected = drawn(iterable(data, **options(draw_own)))
    assert len(expected) == COUNT
    found = drawn(way(data, **options(draw_own)))
    assert found == expected
    parts = [drawn(way(data, **options(draw_own, batch_size=3, rank=rank, world_size=2))) for rank in (0, 1)]
    assert parts[0] | parts[1] == expected


@pytest.mark.parametrize(
    "way", [iterable, iterable_in_workers, sampler, sampler_in_workers], ids=lambda way: way.__name__
)
def test_the_streams_of_the_process_are_decided_in_the_same_way(data: Path, way: Any) -> None:
    expected = drawn(iterable(data, **options(draw_from_process)))
    assert drawn(way(data, **options(draw_from_process, batch_size=3))) == expected
    numbers = list(itertools.chain(*expected.values()))
    assert len(set(numbers)) == len(numbers) == 3 * COUNT


def test_another_epoch_or_seed_draws_other_numbers(data: Path) -> None:
    made = iterable(data, **options(draw_own))
    first = drawn(made)
    assert drawn(made) == first
    made.set_epoch(1)
    second = drawn(made)
    other_seed = drawn(iterable(data, **options(draw_own, seed=6)))
    numbers = [number for each in (first, second, other_seed) for pair in each.values() for number in pair]
    assert len(set(numbers)) == 3 * 2 * COUNT


def test_a_resumed_run_draws_what_an_unbroken_one_draws(data: Path) -> None:
    expected = drawn(iterable(data, **options(draw_own)))
    first = threads(data, **options(draw_own))
    begun = iter(first)
    seen = drawn([next(begun), next(begun)])
    second = iterable(data, **options(draw_own, batch_size=5))
    second.load_state_dict(first.state_dict())
    assert seen | drawn(second) == expected


def test_a_record_that_is_drawn_again_does_not_draw_the_same_numbers(data: Path) -> None:
    weights = [1.0, 1.0] + [0.0] * (COUNT - 2)
    for way in (iterable, iterable_in_workers, sampler):
        loader = way(data, **options(draw_own, weights=weights, num_samples=40))
        numbers = [tuple(each) for batch in loader for each in batch["drawn"]]
        assert len(set(numbers)) == len(numbers) == 40


@pytest.mark.parametrize("transform", [draw_own, draw_from_process])
def test_loading_in_this_process_leaves_its_streams_alone(data: Path, transform: Any) -> None:
    def numbers() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def seed() -> None:
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)

    dataset = ShardDataset(data, transform, may_reshape=True)
    rows = iter(ShardSampler(dataset, batch_size=4))
    batches = iter(iterable(data, **options(transform)))
    seed()
    expected = [numbers(), numbers(), numbers()]
    seed()
    found = [numbers()]
    next(batches)
    found.append(numbers())
    dataset.__getitems__(next(rows))
    found.append(numbers())
    assert found == expected


def test_an_error_of_a_transform_leaves_the_streams_alone_too(data: Path) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(str(random.random()))

    random.seed(3)
    expected = random.random()
    random.seed(3)
    with pytest.raises(Exception, match="ValueError"):
        next(iter(iterable(data, **options(fail))))
    assert random.random() == expected


def test_without_an_epoch_the_numbers_come_from_torchs_stream(data: Path) -> None:
    def epoch() -> dict[str, list[Any]]:
        torch.manual_seed(7)
        dataset = ShardDataset(data, draw_own, may_reshape=True)
        return drawn(DataLoader(dataset, 4, collate_fn=collate))

    first = epoch()
    assert epoch() == first
    numbers = list(itertools.chain(*first.values()))
    assert len(set(numbers)) == 2 * COUNT
    torch.manual_seed(7)
    assert sample_rng().integers(2**62) != sample_rng().integers(2**62)
