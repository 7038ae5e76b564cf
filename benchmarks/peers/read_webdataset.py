"""WebDataset: tar shards, shuffled through a buffer of 500 samples, batched in the workers of a ``WebLoader``.

``how`` is ``pillow``, its own ``decode("pil")``, or as in decoding.py.
"""

from pathlib import Path
from typing import Any

import torch
import webdataset
from decoding import crop_image, decoder
from map_style import epochs_from
from reading import Epochs, Job, list_photos, read, serve_epochs

_SHARDS_A_WORKER = 4
_BUFFER = 500  # samples, in each worker


def open_epochs(job: Job) -> Epochs:
    """Write tar files, and read them."""
    shards = _write(job)
    samples = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(_BUFFER)
    dataset = _decoded(samples, job).batched(job.batch, partial=True)
    return epochs_from(
        webdataset.WebLoader(dataset, batch_size=None, num_workers=job.threads, persistent_workers=True)
    )


def _write(job: Job) -> list[str]:
    Path(job.out).mkdir()
    photos_a_shard = -(-job.records // (_SHARDS_A_WORKER * job.threads))
    with webdataset.ShardWriter(f"{job.out}/%06d.tar", maxcount=photos_a_shard, verbose=0) as writer:
        for row, photo in enumerate(list_photos(job.data)):
            writer.write({"__key__": f"{row:08d}", "jpg": read(photo), "cls": row})
    return [str(path) for path in sorted(Path(job.out).glob("*.tar"))]


def _decoded(samples: Any, job: Job) -> Any:
    def crop(image: Any) -> torch.Tensor:
        return crop_image(image, job)

    if job.how == "pillow":
        return samples.decode("pil").to_tuple("jpg", "cls").map_tuple(crop)
    return samples.to_tuple("jpg", "cls").map_tuple(decoder(job), int)


if __name__ == "__main__":
    serve_epochs(["webdataset", "torch", "pillow"], open_epochs)
