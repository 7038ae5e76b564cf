"""Does opening a data set of ten million ids stay under a second and under 50 MB of private memory?

A synthetic data set is written once through the store's own writers, shards of one ``uint8`` scalar, with ids like
``class-0123/image-00001234.jpg``. A fresh process then opens it, looks up ids both ways and checks the answers,
and reports its wall time and its private memory (``/proc/self/smaps_rollup``, Linux) before and after. The files
are in the page cache: they have just been written or read.

Run it with ``python benchmarks/open_large.py``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): private memory counts every page that the process alone has mapped or
written, pages of files among them.
"""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from command_line import run_benchmark
from measure import spread_table

from shardkit.contract import Contract
from shardkit.errors import RecordNotFoundError
from shardkit.store import (
    ShardEntry,
    Store,
    columns_of,
    commit,
    create_shard,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)

SHARD_RECORDS = 100_000
LOOKUPS = 5_000
LIMIT_SECONDS = 1.0
LIMIT_BYTES = 50_000_000


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Ids.
        repetitions: Fresh processes.
    """

    records: int = 10_000_000
    repetitions: int = 5


@dataclass(frozen=True)
class Measured:
    """What one fresh process saw.

    Attributes:
        open_seconds: ``Store(path)``.
        lookup_seconds: `LOOKUPS` ids by row and as many rows by id, at random.
        private_bytes: Growth of private memory over both.
    """

    open_seconds: float
    lookup_seconds: float
    private_bytes: int


def id_of(row: int) -> str:
    """Return the id of a row of the synthetic data set."""
    return f"class-{row % 1000:04d}/image-{row:08d}.jpg"


def write_dataset(root: Path, records: int) -> None:
    """Write the synthetic data set."""
    contract = Contract.from_dict({"fields": {"value": {"type": "scalar", "dtype": "uint8"}}})
    columns = columns_of(contract)
    shards: list[ShardEntry] = []
    for number, first in enumerate(range(0, records, SHARD_RECORDS)):
        rows = range(first, min(first + SHARD_RECORDS, records))
        writer = create_shard(root, number, "memmap", columns)
        for row in rows:
            payloads = [bytes([row % 256])]
            writer.append(id_of(row), payloads, record_checksums(id_of(row), payloads), bytes(16))
        writer.finish()
        shards.append(seal_shard(root, number, "memmap", columns, len(rows)))
    index = write_index(root, 1, contract, shards).entry
    commit(root, make_manifest(1, contract, shards, index))


def private_bytes() -> int:
    """Return the private memory of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def measure(root: Path, records: int) -> Measured:
    """Open the data set in this process, look ids up both ways, and check every answer."""
    rows = random.Random(0).choices(range(records), k=LOOKUPS)
    before = private_bytes()
    began = time.perf_counter()
    store = Store(root)
    opened = time.perf_counter()
    if len(store) != records or len(store.ids) != records:
        raise SystemExit(f"{len(store)} records, expected {records}")
    for row in rows:
        if store.id_of(row) != id_of(row) or store.row_of(id_of(row)) != row:
            raise SystemExit(f"row {row}: wrong answer")
    try:
        store.row_of("absent")
    except RecordNotFoundError:
        pass
    else:
        raise SystemExit("found an id that is not there")
    ended = time.perf_counter()
    return Measured(opened - began, ended - opened, private_bytes() - before)


def main() -> None:
    """Run the benchmark."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    root = folder / "data"
    began = time.perf_counter()
    write_dataset(root, settings.records)
    write_seconds = time.perf_counter() - began
    repeats = [_in_fresh_process(root, settings.records) for _ in range(settings.repetitions)]
    print(f"{settings.records:,} ids, {settings.repetitions} repetitions; warm page cache\n")
    print(
        spread_table(
            {
                "open, ms": [each.open_seconds * 1e3 for each in repeats],
                "look-up both ways, us": [each.lookup_seconds / LOOKUPS * 1e6 for each in repeats],
                "private memory, MB": [each.private_bytes / 1e6 for each in repeats],
            }
        )
    )
    is_within = all(
        each.open_seconds + each.lookup_seconds < LIMIT_SECONDS and each.private_bytes < LIMIT_BYTES
        for each in repeats
    )
    print(f"\nwritten in {write_seconds:.0f} s")
    print(
        f"target: under {LIMIT_SECONDS:.0f} s and {LIMIT_BYTES // 10**6} MB with all look-ups: "
        f"{'met' if is_within else 'MISSED'}"
    )
    return {
        "lookups": LOOKUPS,
        "write_seconds": write_seconds,
        "runs": [asdict(each) for each in repeats],
        "within_limits": is_within,
    }


def _in_fresh_process(root: Path, records: int) -> Measured:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, root, records).result()


if __name__ == "__main__":
    main()
