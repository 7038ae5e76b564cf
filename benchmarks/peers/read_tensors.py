"""torch's ``TensorDataset`` in its DataLoader; ``how`` is the number of workers."""

from collections.abc import Iterable

import numpy as np
import torch
from reading import Batch, Epochs, Job, serve_epochs


def open_epochs(job: Job) -> Epochs:
    """Hold all arrays in memory, and read them in a DataLoader."""
    workers = int(job.how)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(np.load(job.data)), torch.arange(job.records))
    loader = torch.utils.data.DataLoader(
        dataset, job.batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )

    def epoch(_: int) -> Iterable[Batch]:
        return loader

    return epoch


if __name__ == "__main__":
    serve_epochs(["torch"], open_epochs)
