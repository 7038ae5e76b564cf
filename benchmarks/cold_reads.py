"""How fast is a shuffled epoch from a cold page cache, against a sequential read of the same files?

Before each run the files of the data set are dropped from the page cache, and the system is asked page by page what
remained (mincore). Then either all shard files are read from end to end, one after the other, in pieces of 1 MiB; or a
ShardLoader delivers an epoch in ``shuffle="block"`` order, checksums verified as by default. Records are bytes that
nobody decodes, or arrays, so that the disk may be the limit. An epoch with all files in the page cache tells whether
it is.

Run it with ``python benchmarks/cold_reads.py``; ``--help`` names the settings. For Linux. Only this system's cache can
be dropped: where it is a guest, its host may still hold the files in memory.

Result (see benchmarks/README.md for figures): on a fast disk an epoch is limited by the processor before the disk, as
the warm one shows.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command_line import run_benchmark
from measure import Comparison, Contender, Target

from shardkit import ArrayField, BytesField, Contract, ShardLoader, ingest
from shardkit.measurement.page_cache import cached_share, drop_files

BACKENDS = ("memmap", "lmdb")
SEQUENTIAL = "sequential read"
EPOCH = "ShardLoader, block order"
WARM = "the same, cache warm"
LEAST = 0.8
MOST_CACHED = 0.01
"""Share of the data set that may be in the page cache before a run."""
SIDE = 32
PIECE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Records of each data set.
        kilobytes: Size of a record, in units of 3 x 1024 bytes.
        batch: Records of a batch.
        threads: Threads of the loader.
        repetitions: Timed runs of each contender.
        seed: Of contents and orders.
    """

    records: int = 16_384
    kilobytes: int = 27
    batch: int = 64
    threads: int = 2
    repetitions: int = 5
    seed: int = 0


def main() -> None:
    """Measure, and print the tables."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    size = 3 * SIDE * SIDE * settings.kilobytes
    print(f"{settings.records} records of {size / 1000:.1f} KB, {settings.repetitions} repetitions")
    reports = {}
    for kind in ("bytes", "arrays"):
        for backend in BACKENDS:
            path = folder / f"{kind}-{backend}"
            _write(path, kind, backend, settings)
            print(f"\n{kind}, {backend}\n")
            reports[f"{kind}, {backend}"] = _compare(path, size, settings)
            shutil.rmtree(path)
    return {"comparisons": reports}


def _write(path: Path, kind: str, backend: str, settings: Settings) -> None:
    """Store records of random content."""
    shape = (settings.kilobytes, 3, SIDE, SIDE)
    field = BytesField() if kind == "bytes" else ArrayField("uint8", shape)

    def records() -> Iterator[dict[str, Any]]:
        random = np.random.default_rng(settings.seed)
        for number in range(settings.records):
            value = random.integers(0, 256, shape, np.uint8)
            yield {"id": f"{number:08d}", "x": value.tobytes() if kind == "bytes" else value}

    ingest(records(), path, Contract({"x": field}), backend=backend)


def _compare(path: Path, size: int, settings: Settings) -> dict[str, Any]:
    shares: list[float] = []

    def drop() -> None:
        drop_files(path)
        share = cached_share(path)
        if share is None or share > MOST_CACHED:
            raise SystemExit(
                f"{path}: the page cache cannot be dropped or looked into ({share}); nothing was measured"
            )
        shares.append(share)

    read_files, deliver = _read_files(path), _deliver(path, size, settings)
    contenders = [
        Contender(SEQUENTIAL, read_files, "in pieces of 1 MiB", drop),
        Contender(EPOCH, deliver, f"batches of {settings.batch}", drop),
        Contender(WARM, deliver, "no disk", lambda: read_files(0)),
    ]
    targets = [Target(EPOCH, SEQUENTIAL, LEAST)]
    report = Comparison(
        contenders, SEQUENTIAL, settings.repetitions, settings.records, settings.records * size, targets
    ).run()
    print(
        f"page cache: dropped before each run; {max(shares):.1%} of the data set at most remained in memory"
    )
    return report | {"cached_share": max(shares)}


def _read_files(path: Path) -> Callable[[int], None]:
    files = sorted(file for file in (path / "shards").rglob("*") if file.is_file())
    piece = memoryview(bytearray(PIECE))

    def run(_: int) -> None:
        for file in files:
            with file.open("rb", buffering=0) as opened:
                while opened.readinto(piece):
                    pass

    return run


def _deliver(path: Path, size: int, settings: Settings) -> Callable[[int], None]:
    def run(repetition: int) -> None:
        loader = ShardLoader(  # made here, since a file that is mapped cannot be dropped from the cache
            path,
            batch_size=settings.batch,
            threads=settings.threads,
            shuffle="block",
            seed=settings.seed + repetition + 1,
            tail="exact",
        )
        delivered = sum(_bytes_of(batch["x"]) for batch in loader)
        if delivered != settings.records * size:
            raise SystemExit(
                f"{delivered} bytes were delivered, not those of all records; nothing was measured"
            )

    return run


def _bytes_of(values: Any) -> int:
    return sum(map(len, values)) if isinstance(values, list) else int(values.nbytes)


if __name__ == "__main__":
    main()
