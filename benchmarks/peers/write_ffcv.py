"""FFCV: ``DatasetWriter.from_indexed_dataset`` with ``RGBImageField``; the fourth argument is its ``write_mode``.

``raw`` is its default: decoded pixels are stored. ``jpg`` decodes and encodes anew (OpenCV), since its writer takes
pixels only.
"""

import sys

from conversion import list_photos, run
from ffcv.fields import IntField, RGBImageField
from ffcv.reader import Reader
from ffcv.writer import DatasetWriter
from PIL import Image


class Photos:
    """An indexed data set of (image, label), as FFCV wants it."""

    def __init__(self, folder: str) -> None:
        self._photos = list_photos(folder)

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, row: int) -> tuple[Image.Image, int]:
        photo = self._photos[row]
        with Image.open(photo.path) as image:
            return image.convert("RGB"), photo.label


def convert(photos: str, out: str, workers: int) -> None:
    """Write one file."""
    fields = {"image": RGBImageField(write_mode=sys.argv[4]), "label": IntField()}
    DatasetWriter(out, fields, num_workers=workers).from_indexed_dataset(Photos(photos))


if __name__ == "__main__":
    run("ffcv", convert, lambda out: int(Reader(out).num_samples))
