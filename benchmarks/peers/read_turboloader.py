"""TurboLoader: ``FastDataLoader`` over one tar, with its own threads and its batches as numpy arrays of bytes.

``how`` is ``crop``, which crops as all do by its transforms, or ``whole``: the fast way that its documentation leads to
resizes each photo as a whole to a square, which is another picture.
"""

import tarfile
from collections.abc import Iterator
from typing import Any

import torch
import turboloader
from PIL import Image
from reading import Batch, Epochs, Job, list_photos, serve_epochs


def open_epochs(job: Job) -> Epochs:
    """Write one tar, and read it."""
    photos, tar = list_photos(job.data), f"{job.out}.tar"
    with tarfile.open(tar, "w") as archive:
        for row, photo in enumerate(photos):
            archive.add(photo, f"{row:08d}.jpg")
    loader = turboloader.FastDataLoader(
        tar,
        batch_size=job.batch,
        num_workers=job.threads,
        output_format="numpy",
        shuffle=True,
        **_output(job, photos[0]),
    )

    def epoch(number: int) -> Iterator[Batch]:
        loader.set_epoch(number)
        for images, facts in loader:
            yield torch.from_numpy(images).permute(0, 3, 1, 2), torch.tensor(facts["indices"])

    return epoch


def _output(job: Job, photo: str) -> dict[str, Any]:
    """Return what the loader is told of its output; all photos are of one size."""
    if job.how == "whole":
        return {"target_height": job.size, "target_width": job.size}
    with Image.open(photo) as image:
        side = int(job.ratio * min(image.size))
    crop = turboloader.CenterCrop(side, side)
    return {"transform": crop if side == job.size else crop | turboloader.Resize(job.size, job.size)}


if __name__ == "__main__":
    serve_epochs(["turboloader", "torch"], open_epochs)
