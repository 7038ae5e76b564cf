"""Every size, layout, backend and way in: no id is missing, none comes twice, and each length is what it says."""

import functools
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from rank_loaders import Rank, in_step, iterable, ordered_ids, sampler, threads
from read_datasets import write_records

from shardkit import Contract, LabelField, ShardDataset, ingest
from shardkit.reading.partition import Tail
from shardkit.store import BACKENDS

SIZES = (0, 1, 2, 63, 64, 65, 101, 1000)
BATCH_SIZES = (1, 8, 64)
WORLD_SIZES = (1, 2, 3, 7)
TAILS: tuple[Tail, ...] = get_args(Tail)
SEED = 4
CONTRACT = Contract({"label": LabelField(num_classes=3)})

Make = Callable[[str, int], Path]


class Layout(NamedTuple):
    batch_size: int
    world_size: int
    tail: Tail


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a data set of some backend and size when first asked for it, in shards of uneven sizes."""

    @functools.cache
    def make_once(backend: str, size: int) -> Path:
        out = tmp_path_factory.mktemp(f"{backend}-{size}") / "out"
        records = [{"id": f"r{row}", "label": row % 3} for row in range(size)]
        if size < 2:
            return write_records(out, backend, CONTRACT, records)
        first = 2 * size // 3
        ingest(records[:first], out, CONTRACT, workers=0, backend=backend, records_per_shard=-(-size // 4))
        ingest(records[first:], out, workers=0, backend=backend, append=True)
        return out

    return make_once


def start(way: Callable[..., Rank], data: ShardDataset, layout: Layout, **options: Any) -> list[Rank]:
    """One loader for each rank."""
    given = {"seed": SEED} | layout._asdict() | options
    return [way(data.path, rank=rank, **given) for rank in range(layout.world_size)]


def layouts(size: int) -> list[Layout]:
    """All layouts; of a thousand batches a rank, which take seconds, only those that leave something over."""
    every = itertools.starmap(Layout, itertools.product(BATCH_SIZES, WORLD_SIZES, TAILS))
    return [each for each in every if size < 1000 or each.batch_size > 1 or each.world_size == 7]


def epochs(size: int) -> range:
    return range(3 if size < 1000 else 2)


def batch_sizes(size: int, layout: Layout, rank: int) -> list[int]:
    """The sizes of a rank's batches, as documented."""
    full, rest = divmod(size, layout.batch_size * layout.world_size)
    last = {
        "pad": -(-rest // layout.world_size),
        "drop": 0,
        "exact": len(range(rank, rest, layout.world_size)),
    }[layout.tail]
    return [layout.batch_size] * full + [last] * (last > 0)


def check_epoch(data: ShardDataset, layout: Layout, ranks: list[Rank], epoch: int) -> None:
    """Deliver an epoch on every rank, and compare it with the epoch's order."""
    delivered = []
    for number, rank in enumerate(ranks):
        rank.source.set_epoch(epoch)
        promised = len(rank.loader)
        batches = list(rank.loader)
        assert [len(batch["id"]) for batch in batches] == batch_sizes(len(data), layout, number)
        assert len(batches) == promised == len(rank.loader)
        assert all(("is_pad" in batch) == (layout.tail == "pad") for batch in batches)
        delivered.append(batches)
    ids = in_step(delivered, "id")
    order = ordered_ids(data, SEED, epoch)
    step = layout.batch_size * layout.world_size
    if layout.tail == "pad":
        marks = [bool(mark) for mark in in_step(delivered, "is_pad")]
        repeats = -len(data) % step % layout.world_size
        assert marks == [False] * len(data) + [True] * repeats
        assert ids == order + [order[number % len(data)] for number in range(repeats)]
    elif layout.tail == "exact":
        assert ids == order
    else:
        assert ids == order[: len(data) // step * step]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_the_orders_compared_with_hold_each_id_once_and_differ_by_epoch(
    make: Make, backend: str, size: int
) -> None:
    data = ShardDataset(make(backend, size))
    orders = [ordered_ids(data, SEED, epoch) for epoch in range(3)]
    assert [sorted(order) for order in orders] == [sorted(f"r{row}" for row in range(size))] * 3
    assert size <= 2 or len(set(map(tuple, orders))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("way", [iterable, sampler, threads])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_every_layout_delivers_the_order_of_each_epoch(
    make: Make, backend: str, size: int, way: Callable[..., Rank]
) -> None:
    data = ShardDataset(make(backend, size))
    for layout in layouts(size):
        ranks = start(way, data, layout)
        for epoch in epochs(size):
            check_epoch(data, layout, ranks, epoch)


class Case(NamedTuple):
    """One combination that is tried with real worker processes."""

    size: int
    batch_size: int
    world_size: int
    tail: Tail
    workers: int
    backend: str
    way: Callable[..., Rank]


def cases() -> list[Case]:
    """Forty combinations, always the same, of up to 8 processes each; and ranks x workers beyond the batches there are.

    Of 3,000 seeds this one's sample has the most pairs of values that meet in some combination: 257 of 273.
    """
    product = itertools.product(
        SIZES, BATCH_SIZES, WORLD_SIZES, TAILS, range(1, 5), sorted(BACKENDS), (iterable, sampler)
    )
    every = [case for case in itertools.starmap(Case, product) if case.world_size * case.workers <= 8]
    cheap = [case for case in every if case.size < 1000 or case.batch_size > 1]
    return [
        *random.Random(602).sample(cheap, 40),
        Case(2, 8, 3, "pad", 4, "memmap", iterable),
        Case(101, 8, 3, "exact", 3, "lmdb", sampler),
    ]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has CPUs
@pytest.mark.parametrize(
    "case", cases(), ids=lambda case: "-".join(getattr(x, "__name__", str(x)) for x in case)
)
def test_worker_processes_deliver_the_order_of_each_epoch(make: Make, case: Case) -> None:
    data = ShardDataset(make(case.backend, case.size))
    layout = Layout(case.batch_size, case.world_size, case.tail)
    ranks = start(case.way, data, layout, workers=case.workers)
    for epoch in epochs(case.size):
        check_epoch(data, layout, ranks, epoch)
