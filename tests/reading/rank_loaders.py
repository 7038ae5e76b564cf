"""The three ways in to the batches of one rank, and the order that they are compared with."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import DataLoader

from shardkit import ShardDataset, ShardIterableDataset, ShardLoader, ShardSampler, collate
from shardkit.reading.order import epoch_order


class Rank(NamedTuple):
    """What a rank iterates over, and what its epochs and states are set on."""

    loader: Any
    source: Any


def iterable(path: Path, workers: int = 0, persistent: bool = True, **options: Any) -> Rank:
    data = ShardIterableDataset(path, fields=[], **options)
    return Rank(DataLoader(data, batch_size=None, **in_workers(workers, persistent)), data)


def sampler(path: Path, workers: int = 0, persistent: bool = True, **options: Any) -> Rank:
    data = ShardDataset(path, fields=[])
    batches = ShardSampler(data, **options)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=collate, **in_workers(workers, persistent))
    return Rank(loader, batches)


def threads(path: Path, workers: int = 2, **options: Any) -> Rank:
    loader = ShardLoader(path, threads=workers, fields=[], **options)
    return Rank(loader, loader)


def in_workers(workers: int, persistent: bool) -> dict[str, Any]:
    """What a DataLoader is to be given, with batches fetched further ahead than by default."""
    if not workers:
        return {"num_workers": 0}
    return {
        "num_workers": workers,
        "persistent_workers": persistent,
        "multiprocessing_context": "fork",
        "prefetch_factor": 4,
    }


def ordered_ids(data: ShardDataset, seed: int, epoch: int) -> list[str]:
    """The ids in the epoch's order, by no loader."""
    order = epoch_order("global", len(data), dataset_id=data.dataset_id, seed=seed, epoch=epoch)
    return [data.ids[row] for row in order.rows(np.arange(len(data))).tolist()]


def ids(batches: Iterable[Any]) -> list[list[str]]:
    return [list(batch["id"]) for batch in batches]


def in_step(ranks: Sequence[Sequence[Any]], name: str) -> list[Any]:
    """The values of all batches, the first of each rank, then the second of each rank, and so on."""
    steps = itertools.zip_longest(*ranks)
    return [value for step in steps for batch in step if batch is not None for value in list(batch[name])]
