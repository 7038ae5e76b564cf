"""shardkit: ``how`` is ``threads`` or ``preloaded`` for ShardLoader, ``workers`` for its data set in a DataLoader."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from reading import ARRAYS, Batch, Epochs, Job, list_photos, read, serve_epochs

from shardkit import (
    ArrayField,
    Contract,
    ImageField,
    LabelField,
    ShardIterableDataset,
    ShardLoader,
    ingest,
)
from shardkit.transforms import CenterCrop


def open_epochs(job: Job) -> Epochs:
    """Ingest what the job names, and read it."""
    write = _write_arrays if job.kind == ARRAYS else _write_photos
    write(job)
    asked: dict[str, Any] = {"batch_size": job.batch, "shuffle": "global", "tail": "exact"}
    if job.kind != ARRAYS:
        asked["transform"] = CenterCrop(job.size, ratio=job.ratio)
    if job.how != "workers":
        loader = ShardLoader(job.out, threads=job.threads, preload=job.how == "preloaded", **asked)
        return _epochs(loader, loader)
    dataset = ShardIterableDataset(job.out, **asked)
    workers = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=job.threads, persistent_workers=True
    )
    return _epochs(dataset, workers)


def _epochs(ordered: Any, loader: Any) -> Epochs:
    def epoch(number: int) -> Iterator[Batch]:
        ordered.set_epoch(number)
        for batch in loader:
            yield batch["image"], batch["label"]

    return epoch


def _write_photos(job: Job) -> None:
    contract = Contract({"image": ImageField(), "label": LabelField(num_classes=job.records)})
    ingest(_photos(job.data), job.out, contract, workers=job.threads)


def _photos(folder: str) -> Iterator[Mapping[str, Any]]:
    for row, photo in enumerate(list_photos(folder)):
        yield {"id": photo.removeprefix(f"{folder}/"), "image": read(photo), "label": row}


def _write_arrays(job: Job) -> None:
    arrays = np.load(job.data, mmap_mode="r")
    contract = Contract(
        {"image": ArrayField("uint8", arrays.shape[1:]), "label": LabelField(num_classes=job.records)}
    )
    raw = f"{job.out}.npz"
    np.savez(raw, image=arrays, label=np.arange(job.records))
    ingest(raw, job.out, contract, workers=job.threads)


if __name__ == "__main__":
    serve_epochs(["shardkit", "torch"], open_epochs)
