"""Does memory stay as it is while epochs go by?

Photos and arrays are read for several epochs, by a ShardLoader and by a DataLoader whose workers stay. After each
epoch the proportional set sizes (PSS) of the process and of all its workers are added: a page that several of them
share counts once. The first epoch maps files and fills the pools of allocators; from the second on nothing should grow.
Each setting is measured in a process of its own, forked from one that has only imported what all need. The page cache
is warm.

Run it with ``python benchmarks/reading_memory.py``; ``--help`` names the settings. For Linux, which tells PSS.

Result (see benchmarks/README.md for figures): growth is that from the second epoch to the last.
"""

import gc
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command_line import run_benchmark
from measure import table
from photos import PhotoSettings, make_photos
from torch.utils.data import DataLoader

from shardkit import ArrayField, Contract, ShardDataset, ShardLoader, ShardSampler, collate, ingest
from shardkit.measurement.memory import MemoryUse, descendants, measure_memory
from shardkit.transforms import CenterCrop

MOST_GROWTH = 5_000_000
"""Bytes from the second epoch to the last."""
KINDS = ("photos", "arrays")
WAYS = ("ShardLoader", "DataLoader")
ARRAY_SHAPE = (32, 32, 3)


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Photos.
        arrays: Arrays of 32 x 32 x 3 bytes.
        epochs: At least 3.
        batch: Photos of a batch.
        array_batch: Arrays of a batch.
        workers: Threads of the ShardLoader, processes of the DataLoader.
        backend: Of the shards.
        context: How the DataLoader starts its workers: those that are forked share memory with their parent, and each
            page that Python then writes to, as its garbage collector does to all, counts anew.
    """

    records: int = 1000
    arrays: int = 50_000
    epochs: int = 8
    batch: int = 64
    array_batch: int = 256
    workers: int = 2
    backend: str = "memmap"
    context: str = "spawn"


def main() -> None:
    """Measure, and print the table."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    _write(folder, settings)
    print(
        f"{settings.records} photos, {settings.arrays} arrays, {settings.epochs} epochs; {settings.backend} shards\n"
    )
    uses = {
        f"{kind}, {way}": _in_fresh_process(folder / kind, kind, way, settings)
        for kind in KINDS
        for way in WAYS
    }
    print(table([["MB after epoch", "1", "2", "last", "files of it", "growth", ""], *_rows(uses)]))
    growths = {name: _growth(each) for name, each in uses.items()}
    for name, growth in growths.items():
        is_met = growth <= MOST_GROWTH
        print(
            f"target: {name} grows by at most {MOST_GROWTH / 1e6:g} MB: {growth / 1e6:.1f}, "
            f"{'met' if is_met else 'MISSED'}"
        )
    return {
        "growth_bytes": growths,
        "epochs": {name: [asdict(use) for use in each] for name, each in uses.items()},
    }


def _rows(uses: dict[str, list[MemoryUse]]) -> Iterator[list[str]]:
    for name, each in uses.items():
        figures = (each[0].pss, each[1].pss, each[-1].pss, each[-1].files, _growth(each))
        yield [name, *(f"{figure / 1e6:,.1f}" for figure in figures), ""]


def _growth(uses: list[MemoryUse]) -> int:
    return uses[-1].pss - uses[1].pss


def _write(folder: Path, settings: Settings) -> None:
    photos = make_photos(folder / "raw", PhotoSettings(settings.records, 500, 400))
    ingest(photos.path, folder / "photos", backend=settings.backend)
    values = np.random.default_rng(0).integers(0, 256, (settings.arrays, *ARRAY_SHAPE), np.uint8)
    records = ({"id": f"{number:08d}", "x": value} for number, value in enumerate(values))
    ingest(
        records,
        folder / "arrays",
        Contract({"x": ArrayField("uint8", ARRAY_SHAPE)}),
        backend=settings.backend,
    )


def _in_fresh_process(path: Path, kind: str, way: str, settings: Settings) -> list[MemoryUse]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shardkit", "sklearn.datasets", "torch.utils.data"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_epochs, path, kind, way, settings).result()


def _epochs(path: Path, kind: str, way: str, settings: Settings) -> list[MemoryUse]:
    """Read all epochs, and return the memory after each."""
    batch_size = settings.batch if kind == "photos" else settings.array_batch
    transform = CenterCrop(224, ratio=0.875) if kind == "photos" else None
    data = ShardDataset(path, transform)
    numbered, batches = _open(data, transform, way, batch_size, settings.workers, settings.context)
    uses = []
    for epoch in range(settings.epochs):
        numbered.set_epoch(epoch)
        found = sum(len(batch["id"]) for batch in batches)
        if found != len(data):
            raise SystemExit(f"{kind}, {way}: {found} samples were delivered, not {len(data)}")
        uses.append(_memory())
    return uses


def _open(
    data: ShardDataset, transform: CenterCrop | None, way: str, batch_size: int, workers: int, context: str
) -> tuple[ShardLoader | ShardSampler, Iterable[Any]]:
    """Return what is told the epoch, and what gives the batches."""
    if way == "ShardLoader":
        loader = ShardLoader(
            data.path, batch_size=batch_size, threads=workers, transform=transform, tail="exact"
        )
        return loader, loader
    sampler = ShardSampler(data, batch_size, tail="exact")
    batches: Iterable[Any] = DataLoader(
        data,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    return sampler, batches


def _memory() -> MemoryUse:
    gc.collect()
    use = measure_memory([os.getpid(), *descendants(os.getpid())])
    if use is None:
        raise SystemExit("this system does not tell how much memory processes use; nothing was measured")
    return use


if __name__ == "__main__":
    main()
