"""Does the time a record, and the memory of the parent, stay the same for many tiny records from one table?

A CSV table of ids, labels and numbers is ingested, with no files beside it: 10,000 and 100,000 rows in turn for the
time a record, then 1,000,000 rows once for the memory of the process that plans, waits and commits: its own peak
(``VmHWM`` in ``/proc/self/status``, Linux) in a fresh process, interpreter and packages included.

Run it with ``python benchmarks/ingest_many.py``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): what is done once a run, such as starting the workers, is part of the
time, and makes a record dearer where there are few.
"""

import csv
import multiprocessing
import shutil
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from command_line import run_benchmark
from measure import Contender, Runs, interleave, spread_table

from shardkit import Contract, ingest

CLASSES = 10
LEAST_SHARE = 0.8
"""Speed a record with many, as a multiple of that with few: a record may take a fifth longer."""
LIMIT_BYTES = 200_000_000
CONTRACT = {
    "fields": {
        "label": {"type": "label", "num_classes": CLASSES},
        "value": {"type": "scalar", "dtype": "float32"},
    }
}


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        few, many: Rows whose times a record are compared.
        most: Rows whose memory is taken.
        workers: Processes.
        repetitions: Timed runs of each.
    """

    few: int = 10_000
    many: int = 100_000
    most: int = 1_000_000
    workers: int = 2
    repetitions: int = 5


def main() -> None:
    """Measure, and print the tables."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    contenders = [_contender(folder, count, settings.workers) for count in (settings.few, settings.many)]
    runs = interleave(contenders, settings.repetitions)
    times = {
        f"{count:,} rows, us a record": [taken.wall / count * 1e6 for taken in runs[f"{count}"]]
        for count in (settings.few, settings.many)
    }
    share = _share(runs, settings)
    peak = _peak_of_parent(folder, settings)
    print(f"{settings.workers} processes, {settings.repetitions} repetitions; page cache warm\n")
    print(spread_table(times))
    print(
        f"\ntarget: speed a record with {settings.many:,} at least {LEAST_SHARE:g} x {settings.few:,}: {share:.2f}, "
        f"{'met' if share >= LEAST_SHARE else 'MISSED'}"
    )
    print(
        f"target: peak memory of the parent at {settings.most:,} under {LIMIT_BYTES // 10**6} MB: "
        f"{peak / 1e6:.0f} MB, {'met' if peak < LIMIT_BYTES else 'MISSED'}"
    )
    return {
        "runs": {name: [asdict(taken) for taken in each] for name, each in runs.items()},
        "speed_share": share,
        "peak_bytes_of_parent": peak,
    }


def _share(runs: Runs, settings: Settings) -> float:
    """Return the median over repetitions of the speed a record with many rows, as a multiple of that with few."""
    pairs = zip(runs[f"{settings.few}"], runs[f"{settings.many}"], strict=True)
    return statistics.median((few.wall / settings.few) / (many.wall / settings.many) for few, many in pairs)


def _contender(folder: Path, count: int, workers: int) -> Contender:
    table, out = write_table(folder / f"{count}.csv", count), folder / f"out-{count}"
    return Contender(
        f"{count}",
        lambda _: ingest_table(table, out, count, workers),
        prepare=lambda: shutil.rmtree(out, ignore_errors=True),
    )


def write_table(path: Path, count: int) -> Path:
    """Write a table of `count` rows and return its path."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "label", "value"])
        writer.writerows([f"record-{row:09d}", row % CLASSES, row / 8] for row in range(count))
    return path


def ingest_table(table: Path, out: Path, count: int, workers: int) -> None:
    """Ingest a table, and make sure that every row was stored."""
    report = ingest(table, out, Contract.from_dict(CONTRACT), workers=workers)
    if report.stored != count:
        raise SystemExit(
            f"{table}: {report.stored} of {count} rows were stored; the figures would mean nothing"
        )


def _peak_of_parent(folder: Path, settings: Settings) -> int:
    table = write_table(folder / "most.csv", settings.most)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(
            peak_of_ingest, table, folder / "out-most", settings.most, settings.workers
        ).result()


def peak_of_ingest(table: Path, out: Path, count: int, workers: int) -> int:
    """Ingest in this process and return the most memory in bytes that it, without its workers, ever held."""
    ingest_table(table, out, count, workers)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main()
