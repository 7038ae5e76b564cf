"""FFCV: ``Loader`` in random order with the system's page cache, and its own centre crop, as in its ImageNet recipe.

Its writer takes pixels and would encode them anew; a field of ours stores the common bytes of a photo instead. Its
file and its decoder are its own. Arrays are pixels, stored raw, its default.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, SimpleRGBImageDecoder
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image
from reading import ARRAYS, Batch, Epochs, Job, list_photos, read, serve_epochs


class JpegField(RGBImageField):
    """Stores the JPEG bytes of a file as they are."""

    def encode(self, destination: Any, image: str, malloc: Callable[[int], tuple[int, Any]]) -> None:
        """Write the file `image`, and its facts to `destination`."""
        encoded = np.frombuffer(read(image), np.uint8)
        with Image.open(image) as opened:
            destination["width"], destination["height"] = opened.size
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(encoded.nbytes)
        storage[:] = encoded


class Numbered:
    """An indexed data set of (image, label), as its writer wants it."""

    def __init__(self, images: Any) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self._images[row], int(row)


def open_epochs(job: Job) -> Epochs:
    """Write one file, and read it."""
    if job.kind == ARRAYS:
        images, field = np.load(job.data), RGBImageField(write_mode="raw")
        pipeline = [SimpleRGBImageDecoder(), ToTensor()]
    else:
        images, field = list_photos(job.data), JpegField()
        pipeline = [CenterCropRGBImageDecoder((job.size, job.size), job.ratio), ToTensor(), ToTorchImage()]
    writer = DatasetWriter(job.out, {"image": field, "label": IntField()}, num_workers=job.threads)
    writer.from_indexed_dataset(Numbered(images))
    loader = Loader(
        job.out,
        batch_size=job.batch,
        num_workers=job.threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"image": pipeline, "label": [IntDecoder(), ToTensor(), Squeeze(1)]},
        custom_fields={"image": RGBImageField},
    )

    def epoch(_: int) -> Iterable[Batch]:
        return loader

    return epoch


if __name__ == "__main__":
    serve_epochs(["ffcv", "numba", "torch"], open_epochs)
