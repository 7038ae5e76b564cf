"""Hugging Face datasets: a saved data set with a transform on access, in torch's DataLoader.

``how`` is ``pillow``, its own ``Image`` column, or as in decoding.py, over the undecoded column.
"""

import os
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the package is imported

import datasets
import torch
from decoding import crop_image, decoder
from map_style import epochs_of
from reading import Epochs, Job, list_photos, read, serve_epochs


class Photos:
    """The map-style data set."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._saved = datasets.load_from_disk(job.out)
        self._decode = None if job.how == "pillow" else decoder(job)

    def __len__(self) -> int:
        return len(self._saved)

    def __getitems__(self, rows: list[int]) -> list[tuple[torch.Tensor, int]]:
        found = self._saved[rows]
        return [
            (self._crop(image), label) for image, label in zip(found["image"], found["label"], strict=True)
        ]

    def _crop(self, image: Any) -> torch.Tensor:
        return crop_image(image, self._job) if self._decode is None else self._decode(image["bytes"])


def open_epochs(job: Job) -> Epochs:
    """Save a data set, and read it."""
    datasets.disable_progress_bars()
    images = [{"bytes": read(photo), "path": None} for photo in list_photos(job.data)]
    features = datasets.Features(
        {"image": datasets.Image(decode=job.how == "pillow"), "label": datasets.Value("int64")}
    )
    columns = {"image": images, "label": list(range(job.records))}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(job.out)
    return epochs_of(Photos(job), job)


if __name__ == "__main__":
    serve_epochs(["datasets", "torch", "pillow"], open_epochs)
