"""Plain LMDB, by hand: one MessagePack map a record, a map-style data set in torch's DataLoader."""

from pathlib import Path

import lmdb
import msgpack
import torch
from decoding import decoder
from map_style import epochs_of
from reading import Epochs, Job, list_photos, read, serve_epochs


class Photos:
    """The map-style data set; each process opens the file for itself."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._decode = decoder(job)
        self._reading: lmdb.Transaction | None = None

    def __len__(self) -> int:
        return self._job.records

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        if self._reading is None:
            environment = lmdb.open(self._job.out, readonly=True, lock=False, readahead=False)
            self._reading = environment.begin(buffers=True)
        record = msgpack.unpackb(self._reading.get(row.to_bytes(8, "big")))
        return self._decode(record["image"]), record["label"]


def open_epochs(job: Job) -> Epochs:
    """Write the file, and read it in a DataLoader."""
    photos = list_photos(job.data)
    map_size = 2 * sum(Path(photo).stat().st_size for photo in photos) + (1 << 26)
    with lmdb.open(job.out, map_size=map_size) as output, output.begin(write=True) as transaction:
        for row, photo in enumerate(photos):
            record = msgpack.packb({"image": read(photo), "label": row})
            transaction.put(row.to_bytes(8, "big"), record, append=True)
    return epochs_of(Photos(job), job)


if __name__ == "__main__":
    serve_epochs(["lmdb", "torch"], open_epochs)
