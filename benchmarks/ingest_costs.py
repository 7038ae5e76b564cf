"""What do the search for warnings, the checksums and fsync together cost an ingest?

The same photos are ingested as always, and with all of that switched off: ``os.fsync`` and LMDB's sync do nothing,
checksums and digests are zeros, and nothing is looked for in a JPEG but what its decoder says. The switches are thrown
from here, in the modules of this process; workers are forked, so they inherit them. Every record counts as stored
either way, yet a data set written without cannot be trusted, nor opened with its checksums verified.

Run it with ``python benchmarks/ingest_costs.py``; ``--help`` names the settings. For Linux, since workers must be
forked.

Result (see benchmarks/README.md for figures): the ratio is of speed with all of it to speed without. fsync waits for
the disk, so its part is that of this disk.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import lmdb
import xxhash
from command_line import run_benchmark
from measure import Comparison, Contender, Target
from photos import PhotoFolder, PhotoSettings, describe_run, make_photos

from shardkit import ingest
from shardkit.contract.images import examination
from shardkit.store import backends

BACKENDS = ("memmap", "lmdb")
LEAST = 0.9
"""Speed with all of it, as a multiple of that without: a cost of under a tenth."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Photos.
        workers: Processes.
        repetitions: Timed runs of each contender.
        width, height: Of the photos.
    """

    records: int = 3000
    workers: int = 2
    repetitions: int = 9
    width: int = 500
    height: int = 400


class Unsynced:
    """An LMDB environment that leaves it to the system when its file reaches the disk."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._environment = _OPEN(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def sync(self, force: bool = False) -> None:
        """Do nothing."""


def no_checksum(data: object, seed: int | None = None) -> int:
    """Return 0 for the checksum of a value, and the true hash of an id, which has no seed: the index needs it."""
    return _HASH(data) if seed is None else 0


_HASH = xxhash.xxh3_64_intdigest
_OPEN = lmdb.open
WITHOUT = (
    (os, "fsync", lambda descriptor: None),
    (lmdb, "open", Unsynced),
    (xxhash, "xxh3_64_intdigest", no_checksum),
    (xxhash, "xxh3_128_digest", lambda data: bytes(16)),
    (backends, "digest_file", lambda path: "0" * 32),
    (examination, "plain_end", lambda data, facts: len(data)),
    (examination, "zero_hole", lambda data, facts, end: None),
    (examination, "after_end", lambda data, end, facts: None),
)
"""Where something is switched off, its name there, and what stands in its place."""


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Put the stand-ins in place, for this process and all that it forks meanwhile."""
    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in WITHOUT:
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield


def main() -> None:
    """Measure, and print the table."""
    if sys.platform != "linux":  # elsewhere an ingest spawns its workers
        raise SystemExit("this benchmark needs processes that are forked: run it on Linux")
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    photos = make_photos(folder / "photos", PhotoSettings(settings.records, settings.width, settings.height))
    print(describe_run(photos, settings))
    reports = {}
    for backend in BACKENDS:
        print(f"\n{backend}\n")
        names = (f"{backend}, with all", f"{backend}, without")
        contenders = [
            _contender(name, photos, folder / backend, backend, settings.workers, is_off)
            for name, is_off in zip(names, (False, True), strict=True)
        ]
        target = Target(names[0], names[1], LEAST)
        reports[backend] = Comparison(
            contenders, names[1], settings.repetitions, settings.records, photos.total_bytes, (target,)
        ).run()
    return {"backends": reports}


def _contender(
    name: str, photos: PhotoFolder, out: Path, backend: str, workers: int, is_off: bool
) -> Contender:
    def run(_: int) -> None:
        with switched_off() if is_off else contextlib.nullcontext():
            report = ingest(photos.path, out, backend=backend, workers=workers)
        if report.stored != len(photos.files):
            raise SystemExit(f"{name}: {report.stored} records were stored; the figures would mean nothing")

    note = "no fsync, checksum, digest, nor search for warnings" if is_off else "as always"
    return Contender(name, run, note, lambda: shutil.rmtree(out, ignore_errors=True))


if __name__ == "__main__":
    main()
