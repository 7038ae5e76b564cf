"""Makes folders of JPEG photos: crops of the real photos that scikit-learn, and scikit-image if it is there, ship.

Nothing is downloaded. The same settings give the same files, as far as the same packages are installed.
"""

import importlib.util
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image
from sklearn.datasets import load_sample_image

_SCIKIT_LEARN = ("china.jpg", "flower.jpg")
_SCIKIT_IMAGE = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "rocket.jpg",
    "hubble_deep_field.jpg",
    "retina.jpg",
    "motorcycle_left.png",
    "ihc.png",
)
_LEAST_SHARE = 0.5  # of the largest crop that fits the photo, so that scaling up blurs at most a little


@dataclass(frozen=True)
class PhotoSettings:
    """What a folder holds.

    Attributes:
        count: Files.
        width, height: Pixels.
        quality: JPEG quality in Pillow's sense; chroma is stored as 4:2:0.
        seed: Of the choice of crops.
    """

    count: int
    width: int
    height: int
    quality: int = 90
    seed: int = 0


@dataclass(frozen=True)
class PhotoFolder:
    """A folder of photos, one class subfolder a source photo.

    Attributes:
        path: The folder.
        classes: Names of the subfolders, sorted: the position is the label.
        files: Paths relative to the folder, sorted, ``/`` between: these are the ids.
        labels: One for each file.
        total_bytes: Sizes of all files, added.
    """

    path: Path
    classes: list[str]
    files: list[str]
    labels: list[int]
    total_bytes: int

    @property
    def mean_bytes(self) -> int:
        """Bytes a file, averaged."""
        return self.total_bytes // len(self.files)


class IngestSettings(Protocol):
    """What the benchmarks of ingestion have in common, of their settings."""

    records: int
    width: int
    height: int
    workers: int
    repetitions: int


def describe_run(photos: PhotoFolder, settings: IngestSettings) -> str:
    """Return the line above a table: how many photos of what size, and how they are ingested."""
    return (
        f"{settings.records} photos of {settings.width}x{settings.height} pixels and "
        f"{photos.mean_bytes / 1000:.1f} KB on average, {settings.workers} processes, "
        f"{settings.repetitions} repetitions; page cache warm"
    )


def make_photos(path: Path, settings: PhotoSettings) -> PhotoFolder:
    """Write the photos to the folder `path`, which must not be there yet, and return what it holds."""
    choose = random.Random(settings.seed)
    sources = _sources()
    names = sorted(sources)
    for number in range(settings.count):
        name = names[number % len(names)]
        file = path / name / f"{number:06d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        _crop(sources[name], settings, choose).save(
            file, "JPEG", quality=settings.quality, subsampling="4:2:0"
        )
    files = sorted(file.relative_to(path).as_posix() for file in path.glob("*/*.jpg"))
    classes = sorted({file.split("/")[0] for file in files})
    labels = [classes.index(file.split("/")[0]) for file in files]
    return PhotoFolder(path, classes, files, labels, sum((path / file).stat().st_size for file in files))


def _sources() -> dict[str, Image.Image]:
    """Return the photos by name, in RGB."""
    photos = {name: Image.fromarray(load_sample_image(name)) for name in _SCIKIT_LEARN}
    package = importlib.util.find_spec("skimage")
    if package is not None and package.origin is not None:
        data = Path(package.origin).parent / "data"
        for name in _SCIKIT_IMAGE:
            if (data / name).is_file():
                with Image.open(data / name) as image:
                    photos[name] = image.convert("RGB")
    return {name.split(".")[0]: photo for name, photo in photos.items()}


def _crop(photo: Image.Image, settings: PhotoSettings, choose: random.Random) -> Image.Image:
    """Return a crop chosen at random, scaled to the wanted size."""
    width, height = settings.width, settings.height
    scale = min(photo.width / width, photo.height / height) * choose.uniform(_LEAST_SHARE, 1.0)
    left = choose.uniform(0, photo.width - scale * width)
    top = choose.uniform(0, photo.height - scale * height)
    box = (left, top, left + scale * width, top + scale * height)
    return photo.resize((width, height), Image.Resampling.BICUBIC, box=box)
