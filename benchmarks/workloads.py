"""What the loaders that compare.py holds against each other are to deliver, and from which data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from loaders import (
    ARRAY_LOADERS,
    ARRAY_TARGETS,
    PHOTO_LOADERS,
    PHOTO_TARGETS,
    SMALL_PHOTO_TARGETS,
    Loader,
)
from measure import Target
from peers.reading import ARRAYS, PHOTOS, Job, list_photos
from photos import PhotoSettings, make_photos
from PIL import Image

ARRAY_SHAPE = (32, 32, 3)
WITNESSES = 8  # records whose pixels are looked at

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Sizes:
    """How much there is of it.

    Attributes:
        records: Photos.
        arrays: Arrays.
        passes: Epochs of arrays in one repetition, since one takes but a fraction of a second.
        batch, array_batch: Samples of a batch of photos, and of arrays.
        threads: Threads or workers of each contender.
    """

    records: int = 3000
    arrays: int = 50_000
    passes: int = 10
    batch: int = 64
    array_batch: int = 256
    threads: int = 2


@dataclass(frozen=True)
class Workload:
    """What all contenders are to deliver.

    Attributes:
        title: What the table is headed by.
        job: For each contender, but for the folder and the way that are its own.
        loaders: The contenders.
        targets: What is promised.
        passes: Epochs of one repetition.
        total_bytes: Of all records.
        expected: Returns what a contender is to deliver for a label.
    """

    title: str
    job: Job
    loaders: Sequence[Loader]
    targets: Sequence[Target]
    passes: int
    total_bytes: int
    expected: Callable[[Loader, int], Pixels]

    @property
    def witnesses(self) -> list[int]:
        """Labels of the records whose pixels are looked at."""
        return list(range(0, self.job.records, max(1, self.job.records // WITNESSES)))


def _photos(width: int, height: int, targets: Sequence[Target], sizes: Sizes, folder: Path) -> Workload:
    photos = make_photos(folder / "data", PhotoSettings(sizes.records, width, height))
    job = Job(str(photos.path), str(folder), PHOTOS, "", sizes.records, sizes.batch, sizes.threads)
    files = list_photos(job.data)
    return Workload(
        f"{sizes.records} photos of {width}x{height} pixels and {photos.mean_bytes / 1000:.1f} KB on average",
        job,
        PHOTO_LOADERS,
        targets,
        passes=1,
        total_bytes=photos.total_bytes,
        expected=lambda loader, label: _reference(files[label], job, loader.is_whole),
    )


def _arrays(sizes: Sizes, folder: Path) -> Workload:
    arrays = np.random.default_rng(0).integers(0, 256, (sizes.arrays, *ARRAY_SHAPE), np.uint8)
    file = folder / "data.npy"
    np.save(file, arrays)
    return Workload(
        f"{sizes.arrays} arrays of {list(ARRAY_SHAPE)} bytes, {sizes.passes} epochs a repetition",
        Job(str(file), str(folder), ARRAYS, "", sizes.arrays, sizes.array_batch, sizes.threads),
        ARRAY_LOADERS,
        ARRAY_TARGETS,
        sizes.passes,
        arrays.nbytes,
        expected=lambda _, label: arrays[label],
    )


def _reference(file: str, job: Job, is_whole: bool) -> Pixels:
    """Return what Pillow makes of a photo, ``uint8[3, size, size]``."""
    with Image.open(file) as photo:
        picture = photo.convert("RGB")
    if not is_whole:
        side = int(job.ratio * min(picture.size))
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    resized = picture.resize((job.size, job.size), Image.Resampling.BILINEAR)
    return np.asarray(resized).transpose(2, 0, 1)


WORKLOADS: dict[str, Callable[[Sizes, Path], Workload]] = {
    "photos": partial(_photos, 500, 400, PHOTO_TARGETS),
    "photos256": partial(_photos, 320, 256, SMALL_PHOTO_TARGETS),
    "arrays": _arrays,
}
"""Name -> what makes its data in a folder."""
