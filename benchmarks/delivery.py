"""What does it cost to know which sample comes when: order, sampler, first batch, and going on from a state?

One process asks an order for its rows; a batch sampler gives out an epoch; a DataLoader with workers delivers its first
batch of a million records, against one whose data set holds nothing; and a state at 90 % of ten million rows is loaded
(the ids of those are never made: only their number counts).

Run it with ``python benchmarks/delivery.py``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): nothing here grows with the data set but the opening of its files.
"""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command_line import run_benchmark
from measure import spread_table
from torch.utils.data import DataLoader, Dataset

from shardkit import Contract, ScalarField, ShardDataset, ShardSampler, collate, ingest
from shardkit.reading import Partition, epoch_order
from shardkit.reading.batches import BatchIterator

LEAST_ORDER = 20e6
MOST_OVERHEAD = 2e-6
MOST_FIRST_BATCH = 1.2
MOST_STATE = 0.05
BATCH = 256


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Records of the data set whose first batch is waited for.
        rows: Rows of the order, and of the state.
        workers: Processes of the DataLoaders.
        repetitions: Timed runs of each.
    """

    records: int = 1_000_000
    rows: int = 10_000_000
    workers: int = 2
    repetitions: int = 7


class Nothing(Dataset[int]):
    """A data set of nothing, as large as another."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


def main() -> None:
    """Measure, and print the tables."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    data = ShardDataset(_write(folder / "data", settings.records))
    orders = [_order_rate(settings.rows) for _ in range(settings.repetitions)]
    overheads = [_overhead(data) for _ in range(settings.repetitions)]
    firsts = [_first_batches(data, settings.workers) for _ in range(settings.repetitions)]
    states = [_load_state(settings.rows) for _ in range(settings.repetitions)]
    ratio = statistics.median(ours / empty for ours, empty in firsts)
    print(
        spread_table(
            {
                "order, million rows a second": [rate / 1e6 for rate in orders],
                "sampler, us a sample": [each * 1e6 for each in overheads],
                "first batch, ms": [ours * 1e3 for ours, _ in firsts],
                "first batch of nothing, ms": [empty * 1e3 for _, empty in firsts],
                "first rows after a state, ms": [each * 1e3 for each, _ in states],
                "memory for that, KB": [peak / 1e3 for _, peak in states],
            }
        )
    )
    _say("order, rows a second", statistics.median(orders), LEAST_ORDER, at_least=True)
    _say("sampler, seconds a sample", statistics.median(overheads), MOST_OVERHEAD)
    _say("first batch, x that of nothing", ratio, MOST_FIRST_BATCH)
    _say("first rows after a state, seconds", statistics.median(each for each, _ in states), MOST_STATE)
    return {"order": orders, "overhead": overheads, "first_batches": firsts, "states": states}


def _write(out: Path, count: int) -> Path:
    records = ({"id": f"record-{row:09d}", "x": row} for row in range(count))
    ingest(records, out, Contract({"x": ScalarField("int64")}), records_per_shard=100_000)
    return out


def _order_rate(rows: int) -> float:
    order = epoch_order("global", rows, dataset_id="a", seed=0, epoch=0)
    positions = np.arange(min(rows, 4_000_000), dtype=np.int64)
    return len(positions) / _time(lambda: order.rows(positions))


def _overhead(data: ShardDataset) -> float:
    """Return the seconds a sample that it takes to say which rows make up an epoch, in batches."""
    sampler = ShardSampler(data, BATCH, seed=1)
    return _time(lambda: sum(len(rows) for rows in sampler)) / len(data)


def _first_batches(data: ShardDataset, workers: int) -> tuple[float, float]:
    """Return the seconds to the first batch, and to the first of nothing with as many workers."""
    context = {"num_workers": workers, "multiprocessing_context": "fork"}
    sampler = ShardSampler(data, BATCH)
    ours: Any = DataLoader(data, batch_sampler=sampler, collate_fn=collate, **context)  # type: ignore[arg-type]
    empty: Any = DataLoader(Nothing(len(data)), BATCH, **context)  # type: ignore[arg-type]
    return _time(lambda: next(iter(ours))), _time(lambda: next(iter(empty)))


def _load_state(rows: int) -> tuple[float, float]:
    """Return the seconds from a position to the first rows behind it, and the memory that took."""

    def go_on() -> None:
        order = epoch_order("global", rows, dataset_id="a", seed=0, epoch=3)
        partition = Partition(rows, 0, 1, BATCH, "pad", start=rows // 10 * 9)
        next(BatchIterator(order, partition, 3, 0, False, lambda: None))

    seconds = _time(go_on)
    tracemalloc.start()
    go_on()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return seconds, peak


def _time(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _say(what: str, found: float, target: float, *, at_least: bool = False) -> None:
    is_met = found >= target if at_least else found <= target
    word = "at least" if at_least else "at most"
    print(f"target: {what} {word} {target:g}: {found:.3g}, {'met' if is_met else 'MISSED'}")


if __name__ == "__main__":
    main()
