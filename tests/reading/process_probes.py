"""The ways into one data set, and what a process holds: for the tests of processes and of memory."""

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from shardkit import (
    ArrayField,
    Contract,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    TextField,
    collate,
    ingest,
)

COUNT = 100
BATCH = 8
ALL_IDS = [f"r{row:02d}" for row in range(COUNT)]
SIDE = 96
BATCH_BYTES = BATCH * 3 * SIDE * SIDE


def write_samples(out: Path, backend: str) -> Path:
    """Write 100 records in four shards: `x` is 27 KB of the row's number, `caption` is ``caption NN``."""
    contract = Contract({"x": ArrayField("uint8", (3, SIDE, SIDE)), "caption": TextField()})
    records = (
        {"id": ALL_IDS[row], "x": np.full((3, SIDE, SIDE), row, np.uint8), "caption": f"caption {row:02d}"}
        for row in range(COUNT)
    )
    ingest(records, out, contract, backend=backend, workers=0, records_per_shard=30)
    return out


def open_loader(
    kind: str, path: Path, workers: int, method: str = "fork", batch_size: int = BATCH, **options: Any
) -> tuple[Any, Any]:
    """Return a loader of one kind, and the data set that counts what it leaves out.

    Args:
        kind: ``"iterable"``, ``"sampler"`` or ``"threads"``.
        path: The data set.
        workers: Worker processes, or threads.
        method: How worker processes are started.
        batch_size: Samples of a batch.
        options: For the data set and its order, and ``persistent_workers`` and ``worker_init_fn`` for torch's loader.
    """
    if kind == "threads":
        threads = ShardLoader(path, batch_size, workers, **options)
        return threads, threads
    starting = {"num_workers": workers, "multiprocessing_context": method if workers else None}
    starting |= _take(options, "persistent_workers", "worker_init_fn")
    if kind == "iterable":
        batches = ShardIterableDataset(path, batch_size, **options)
        return DataLoader(batches, batch_size=None, **starting), batches
    order = _take(options, "shuffle", "tail")
    data = ShardDataset(path, **options)
    return DataLoader(
        data, batch_sampler=ShardSampler(data, batch_size, **order), collate_fn=collate, **starting
    ), data


def _take(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Move some options into a dict of their own."""
    return {name: options.pop(name) for name in names if name in options}


def ids(batches: Iterable[Any]) -> list[str]:
    """Return the ids of an epoch, in the order of delivery."""
    return [record_id for batch in batches for record_id in batch["id"]]


@dataclass(frozen=True)
class Footprint:
    """What this process holds now.

    Attributes:
        threads: Of Python.
        tasks: How many threads the system counts.
        descriptors: Open files.
        children: Processes, those that ended and were not waited for among them.
        dirty: Bytes of memory that were written: pages of files that are only read come and go as the system likes.
    """

    threads: frozenset[threading.Thread]
    tasks: int
    descriptors: int
    children: set[int]
    dirty: int

    @classmethod
    def now(cls) -> "Footprint":
        """Look."""
        return cls(
            threads=frozenset(threading.enumerate()),
            tasks=len(os.listdir("/proc/self/task")),
            descriptors=len(os.listdir("/proc/self/fd")),
            children=children_of(os.getpid()),
            dirty=dirty_bytes("self"),
        )


def dirty_bytes(process: int | str, *, is_own: bool = False) -> int:
    """Return the memory of a process that was written to.

    Args:
        process: Its number, or ``"self"``.
        is_own: Leave out what it still shares with the parent it was forked from: the rest grows as it copies pages.
    """
    counted = ("Private_Dirty:",) if is_own else ("Private_Dirty:", "Shared_Dirty:")
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(counted))


def children_of(process: int) -> set[int]:
    """Return the processes whose parent is `process`."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {number for number in numbers if _parent_of(number) == process}


def _parent_of(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return None
