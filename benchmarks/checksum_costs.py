"""What does it cost to verify the checksums of photos while they are read?

An epoch of JPEG photos is decoded and cropped, with the checksums that are verified by default (those of the photos),
with all, and with none: as batches by a ShardLoader, and one by one by a ShardDataset. The page cache is warm. Before
anything is timed, a byte of a copy is altered, which must be noticed where checksums are verified.

Run it with ``python benchmarks/checksum_costs.py``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): a checksum takes a few microseconds, a photo about a millisecond; the
difference drowns in the noise of a clock that others disturb, so look at the CPU time as well.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import run_benchmark
from measure import Comparison, Contender, Target
from photos import PhotoSettings, make_photos

from shardkit import ShardDataset, ShardLoader, ingest
from shardkit.errors import CorruptShardError
from shardkit.transforms import CenterCrop

BACKENDS = ("memmap", "lmdb")
NONE = "none verified"
VERIFIED = {"by default": None, "all verified": True, NONE: False}
LEAST = 0.98
"""Speed with checksums, as a multiple of that without: a cost of under 2 %."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Photos.
        batch: Photos of a batch.
        threads: Threads of the loader.
        repetitions: Timed epochs of each contender.
        width, height: Of the photos.
        size: Of the crops.
    """

    records: int = 1500
    batch: int = 64
    threads: int = 2
    repetitions: int = 9
    width: int = 500
    height: int = 400
    size: int = 224


def main() -> None:
    """Measure, and print the tables."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    photos = make_photos(folder / "photos", PhotoSettings(settings.records, settings.width, settings.height))
    print(
        f"{settings.records} photos of {settings.width}x{settings.height} pixels and "
        f"{photos.mean_bytes / 1000:.1f} KB on average, {settings.repetitions} repetitions; page cache warm"
    )
    reports: dict[str, Any] = {}
    for backend in BACKENDS:
        ingest(photos.path, folder / backend, backend=backend)
        _require_notice(folder / backend, folder / "altered")
        for way, epoch_of in (("ShardLoader", _loaded), ("one by one", _one_by_one)):
            print(f"\n{backend}, {way}\n")
            contenders = [
                Contender(name, epoch_of(folder / backend, verified, settings))
                for name, verified in VERIFIED.items()
            ]
            targets = [Target(name, NONE, LEAST) for name in VERIFIED if name != NONE]
            reports[f"{backend}, {way}"] = Comparison(
                contenders, NONE, settings.repetitions, settings.records, photos.total_bytes, targets
            ).run()
    return {"comparisons": reports}


def _loaded(path: Path, verified: bool | None, settings: Settings) -> Callable[[int], None]:
    loader = ShardLoader(
        path,
        batch_size=settings.batch,
        threads=settings.threads,
        tail="exact",
        transform=CenterCrop(settings.size, ratio=0.875),
        verify_checksums=verified,
    )

    def run(_: int) -> None:
        _require_all(sum(len(batch["id"]) for batch in loader), settings)

    return run


def _one_by_one(path: Path, verified: bool | None, settings: Settings) -> Callable[[int], None]:
    data = ShardDataset(path, CenterCrop(settings.size, ratio=0.875), verify_checksums=verified)

    def run(_: int) -> None:
        _require_all(sum(data[row] is not None for row in range(len(data))), settings)

    return run


def _require_all(found: int, settings: Settings) -> None:
    if found != settings.records:
        raise SystemExit(f"{found} samples were delivered, not {settings.records}; nothing was measured")


def _require_notice(path: Path, altered: Path) -> None:
    """Make sure that an altered byte of the first photo's pixels is noticed, where checksums are verified."""
    photo = ShardDataset(path).read(0)["image"]
    shutil.copytree(path, altered)
    file = next(
        each for each in (altered / "shards").rglob("*") if each.is_file() and photo in each.read_bytes()
    )
    place = file.read_bytes().index(photo) + len(photo) // 2
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(bytes([photo[len(photo) // 2] ^ 1]))
    for name, verified in VERIFIED.items():
        if verified is not False and not _is_noticed(altered, verified):
            raise SystemExit(f"{name}: an altered photo was delivered; nothing was measured")
    shutil.rmtree(altered)


def _is_noticed(path: Path, verified: bool | None) -> bool:
    try:
        ShardDataset(path, verify_checksums=verified)[0]
    except CorruptShardError as error:
        return "has checksum" in str(error)
    return False


if __name__ == "__main__":
    main()
