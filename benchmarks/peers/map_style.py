"""The way of every map-style data set: torch's DataLoader, with workers that stay."""

from collections.abc import Iterator
from typing import Any

import torch
from reading import Batch, Epochs, Job


def epochs_of(dataset: Any, job: Job) -> Epochs:
    """Return the epochs of a data set of (``uint8[H, W, C]``, label), shuffled by torch's DataLoader."""
    return epochs_from(
        torch.utils.data.DataLoader(
            dataset,
            job.batch,
            shuffle=True,
            num_workers=job.threads,
            persistent_workers=job.threads > 0,
        )
    )


def epochs_from(loader: Any) -> Epochs:
    """Return the epochs of a loader of batches (``uint8[B, H, W, C]``, labels)."""

    def epoch(_: int) -> Iterator[Batch]:
        for images, labels in loader:
            yield images.permute(0, 3, 1, 2), labels

    return epoch
