"""LitData: ``optimize``, then ``StreamingDataset`` in a ``StreamingDataLoader``.

``how`` is ``own``, photos in its JPEG format, which it decodes by torchvision, or as in decoding.py.
"""

from typing import Any

import torch
from decoding import crop_pixels, decoder
from litdata import StreamingDataLoader, StreamingDataset, optimize
from map_style import epochs_from
from PIL import Image
from reading import Epochs, Job, list_photos, read, serve_epochs


def opened(numbered: tuple[int, str]) -> tuple[Any, int]:
    """Return what its JPEG format takes: an opened file, whose bytes it stores."""
    return Image.open(numbered[1]), numbered[0]


def encoded(numbered: tuple[int, str]) -> tuple[bytes, int]:
    """Return the bytes."""
    return read(numbered[1]), numbered[0]


class Photos(StreamingDataset):
    """Its data set, with the crop."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.out, shuffle=True, drop_last=False)
        self._job = job
        self._decode = None if job.how == "own" else decoder(job)

    def __getitem__(self, row: Any) -> tuple[torch.Tensor, int]:
        image, label = super().__getitem__(row)
        if self._decode is not None:
            return self._decode(image), label
        return crop_pixels(image.permute(1, 2, 0), self._job), label


def open_epochs(job: Job) -> Epochs:
    """Write chunks, and read them."""
    optimize(
        fn=opened if job.how == "own" else encoded,
        inputs=list(enumerate(list_photos(job.data))),
        output_dir=job.out,
        chunk_bytes="64MB",
        num_workers=job.threads,
        verbose=False,
    )
    loader = StreamingDataLoader(
        Photos(job), batch_size=job.batch, num_workers=job.threads, persistent_workers=True
    )
    return epochs_from(loader)


if __name__ == "__main__":
    serve_epochs(["litdata", "torch", "torchvision"], open_epochs)
