"""How fast is ingestion, which checks every photo whole, against two processes that only read and decode?

The input is a folder of JPEG photos (500x400, quality 90, 4:2:0) in the page cache: every file was just written,
and a warm-up reads all of them. The reference is a pool of two processes that share the list of files evenly, in
chunks, read each and decode it by simplejpeg with every remark of libjpeg an error: the quickest decoder here. A
second pool decodes at 1/8, which decodes all coded data but makes no pixels, as ingestion itself does where it stores
the original. The pools are given the list; shardkit lists the folder itself, and also judges, checksums, writes,
fsyncs, digests and indexes. Starting the processes counts for all. Before anything is timed, both data sets must hold
each file and its label exactly, and the pools must have seen every pixel.

A second table shows where the time goes, stage by stage in one process.

Run it with ``python benchmarks/ingest_speed.py``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): a ratio over 1 means that not making pixels saves more than all else
costs. fsync waits for the disk, so on a slow one the ratio falls, and on tmpfs it costs nothing.
"""

import multiprocessing
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simplejpeg
from command_line import run_benchmark
from ingest_stages import median_stages, stage_table
from measure import Comparison, Contender, Target
from photos import PhotoFolder, PhotoSettings, describe_run, make_photos
from PIL import Image

from shardkit import ShardDataset, ingest

DECODE = "read + simplejpeg"
SCALED = "read + simplejpeg at 1/8"
PILLOW = "read + Pillow"
BACKENDS = ("memmap", "lmdb")
LEAST = 0.9
CHUNK = 32
"""Files a chunk: small enough that neither process is long without work at the end."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Photos.
        workers: Processes.
        repetitions: Timed runs of each contender.
        width, height, quality: Of the photos.
        seed: Of the photos.
    """

    records: int = 3000
    workers: int = 2
    repetitions: int = 7
    width: int = 500
    height: int = 400
    quality: int = 90
    seed: int = 0


def main() -> None:
    """Measure, and print the tables."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    shape = PhotoSettings(settings.records, settings.width, settings.height, settings.quality, settings.seed)
    photos = make_photos(folder / "photos", shape)
    print(describe_run(photos, settings) + "\n")
    for backend in BACKENDS:
        _check_ingestion(backend, photos, folder, settings.workers)
    contenders = [
        _pool(DECODE, _decode_turbo, "strict; decodes only", photos, settings),
        _pool(SCALED, _decode_scaled, "strict, at 1/8; decodes only", photos, settings),
        _pool(PILLOW, _decode_pillow, "Image.load(); decodes only", photos, settings),
        *(_ingestion(backend, photos, folder, settings.workers) for backend in BACKENDS),
    ]
    targets = [Target(_name(backend), DECODE, LEAST) for backend in BACKENDS]
    comparison = Comparison(
        contenders, DECODE, settings.repetitions, settings.records, photos.total_bytes, targets
    )
    report = comparison.run()
    stages = {
        backend: median_stages(photos, folder / "stages", backend, settings.repetitions)
        for backend in BACKENDS
    }
    print("\nwhere the time goes, in one process: microseconds a record, medians\n")
    print(stage_table(stages))
    return report | {"stages_microseconds": stages}


def _name(backend: str) -> str:
    return f"shardkit {backend}"


def _ingestion(backend: str, photos: PhotoFolder, folder: Path, workers: int) -> Contender:
    out = folder / backend
    return Contender(
        _name(backend),
        lambda _: _ingest(photos, out, backend, workers),
        "validated, durable, indexed",
        lambda: shutil.rmtree(out, ignore_errors=True),
    )


def _ingest(photos: PhotoFolder, out: Path, backend: str, workers: int) -> None:
    report = ingest(photos.path, out, backend=backend, workers=workers)
    _require(_name(backend), report.stored, len(photos.files), "records stored")


def _check_ingestion(backend: str, photos: PhotoFolder, folder: Path, workers: int) -> None:
    """Ingest once and make sure that the data set holds every file and label as it is."""
    _ingest(photos, folder / backend, backend, workers)
    dataset = ShardDataset(folder / backend)
    _require(_name(backend), list(dataset.ids), photos.files, "ids")
    for row, (file, label) in enumerate(zip(photos.files, photos.labels, strict=True)):
        record = {"id": file, "image": (photos.path / file).read_bytes(), "label": label}
        _require(_name(backend), dataset.read(row), record, f"row {row}")


def _pool(
    name: str, decode: Callable[[str], int], note: str, photos: PhotoFolder, settings: Settings
) -> Contender:
    """Return the contender that decodes every file in a pool of processes and keeps nothing."""
    paths = [str(photos.path / file) for file in photos.files]
    pixels = len(paths) * settings.width * settings.height
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")

    def run(_: int) -> None:
        with context.Pool(settings.workers) as pool:
            found = sum(pool.imap_unordered(decode, paths, CHUNK))
        _require(name, found, pixels, "pixels")

    return Contender(name, run, note)


def _decode_turbo(path: str) -> int:
    """Return the number of pixels in a file."""
    with open(path, "rb") as file:
        data = file.read()
    height, width, _ = simplejpeg.decode_jpeg(data, "RGB", strict=True).shape
    return int(height * width)


def _decode_scaled(path: str) -> int:
    """Return the number of pixels in a file, having decoded its coded data and made none of them."""
    with open(path, "rb") as file:
        data = file.read()
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    simplejpeg.decode_jpeg(data, "GRAY", strict=True, min_height=1, min_width=1, min_factor=8)
    return int(height * width)


def _decode_pillow(path: str) -> int:
    """Return the number of pixels in a file."""
    with Image.open(path) as image:
        image.load()
        return image.width * image.height


def _require(name: str, found: object, expected: object, what: str) -> None:
    if found != expected:
        raise SystemExit(f"{name}: {what} are not what they should be; the figures would mean nothing")


if __name__ == "__main__":
    main()
