"""MosaicML Streaming: ``MDSWriter``, then ``StreamingDataset`` in torch's DataLoader.

``how`` is ``pillow``, its own ``jpeg`` column, or as in decoding.py over a column of bytes.
"""

from typing import Any

import torch
from decoding import crop_image, decoder
from map_style import epochs_from
from PIL import Image
from reading import Epochs, Job, list_photos, read, serve_epochs
from streaming import MDSWriter, StreamingDataset


class Photos(StreamingDataset):
    """Its data set, with the crop."""

    def __init__(self, job: Job) -> None:
        super().__init__(local=job.out, shuffle=True, batch_size=job.batch)
        self._job = job
        self._decode = None if job.how == "pillow" else decoder(job)

    def __getitem__(self, row: Any) -> Any:
        record = super().__getitem__(row)
        if self._decode is not None:
            return self._decode(record["image"]), record["label"]
        return crop_image(record["image"], self._job), record["label"]


def write(job: Job, column: str) -> None:
    """Write shards: opened files into a ``jpeg`` column, of which it stores the bytes, or bytes."""
    with MDSWriter(out=job.out, columns={"image": column, "label": "int"}) as writer:
        for row, photo in enumerate(list_photos(job.data)):
            writer.write({"image": Image.open(photo) if column == "jpeg" else read(photo), "label": row})


def open_epochs(job: Job) -> Epochs:
    """Write shards, and read them."""
    write(job, "jpeg" if job.how == "pillow" else "bytes")
    return epochs_from(
        torch.utils.data.DataLoader(
            Photos(job), batch_size=job.batch, num_workers=job.threads, persistent_workers=True
        )
    )


if __name__ == "__main__":
    serve_epochs(["mosaicml-streaming", "torch", "pillow"], open_epochs)
