"""Plain numpy memmap, by hand: photos end to end and their offsets, a map-style data set in torch's DataLoader."""

from pathlib import Path

import numpy as np
import torch
from decoding import decoder
from map_style import epochs_of
from reading import Epochs, Job, list_photos, read, serve_epochs


class Photos:
    """The map-style data set."""

    def __init__(self, job: Job) -> None:
        self._data = np.memmap(f"{job.out}/photos.bin", np.uint8, "r")
        self._offsets = np.load(f"{job.out}/offsets.npy")
        self._decode = decoder(job)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self._decode(bytes(self._data[self._offsets[row] : self._offsets[row + 1]])), row


def open_epochs(job: Job) -> Epochs:
    """Write the files, and read them in a DataLoader."""
    photos = [read(photo) for photo in list_photos(job.data)]
    Path(job.out).mkdir()
    Path(job.out, "photos.bin").write_bytes(b"".join(photos))
    np.save(f"{job.out}/offsets.npy", np.cumsum([0, *map(len, photos)]))
    return epochs_of(Photos(job), job)


if __name__ == "__main__":
    serve_epochs(["numpy", "torch"], open_epochs)
