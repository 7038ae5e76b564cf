"""No loader at all: what the same work costs with no storage, order or batches around it.

Photos: their bytes are in memory, and threads decode and crop one after the other. Arrays: one numpy gather from a
memmap a batch, in a new order each epoch.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from decoding import decoder
from reading import ARRAYS, Batch, Epochs, Job, list_photos, read, serve_epochs

_PORTION = 8  # photos that a thread takes at a time


def open_epochs(job: Job) -> Epochs:
    """Return the epochs of what the job names."""
    return _gather(job) if job.kind == ARRAYS else _decode(job)


def _decode(job: Job) -> Epochs:
    torch.set_num_threads(1)  # the threads are here, not within each resize
    photos = [read(photo) for photo in list_photos(job.data)]
    decode = decoder(job)
    portions = torch.arange(len(photos)).split(_PORTION)

    def make(rows: torch.Tensor) -> Batch:
        return [decode(photos[row]).permute(2, 0, 1) for row in rows.tolist()], rows

    def epoch(_: int) -> Iterator[Batch]:
        with ThreadPoolExecutor(job.threads) as pool:
            yield from pool.map(make, portions)

    return epoch


def _gather(job: Job) -> Epochs:
    arrays = np.load(job.data, mmap_mode="r")

    def epoch(number: int) -> Iterator[Batch]:
        order = np.random.default_rng(number).permutation(len(arrays))
        for start in range(0, len(order), job.batch):
            rows = order[start : start + job.batch]
            yield torch.from_numpy(arrays[rows]), torch.from_numpy(rows)

    return epoch


if __name__ == "__main__":
    serve_epochs(["simplejpeg", "numpy", "torch"], open_epochs)
