"""SPDL: a pipeline over plain files, in threads. ``how`` is ``ffmpeg``, for its own decoding, or as in decoding.py.

Its own: whole batches decoded, cropped and resized by FFmpeg's filters, ``load_image_batch``.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import spdl.io
import torch
from decoding import centre_square, decoder
from PIL import Image
from reading import Batch, Epochs, Job, list_photos, read, serve_epochs
from spdl.pipeline import PipelineBuilder

Files = Sequence[tuple[str, int]]


def open_epochs(job: Job) -> Epochs:
    """Read the files where they are."""
    files = [(photo, row) for row, photo in enumerate(list_photos(job.data))]
    make = _with_ffmpeg(job, files[0][0]) if job.how == "ffmpeg" else _with_decoder(job)

    def load(batch: Files) -> Batch:
        return make([photo for photo, _ in batch]).permute(0, 3, 1, 2), torch.tensor(
            [row for _, row in batch]
        )

    def epoch(number: int) -> Iterator[Batch]:
        order = random.Random(number).sample(files, len(files))
        builder = PipelineBuilder().add_source(order).aggregate(job.batch).pipe(load, concurrency=job.threads)
        pipeline = builder.add_sink(2).build(num_threads=job.threads)
        with pipeline.auto_stop():
            yield from pipeline

    return epoch


def _with_ffmpeg(job: Job, photo: str) -> Callable[[Sequence[str]], torch.Tensor]:
    """Return what makes a batch of paths; all photos are of one size."""
    with Image.open(photo) as image:
        top, left, side = centre_square(image.height, image.width, job.ratio)
    crop = (
        f"crop={side}:{side}:{left}:{top}:exact=1"  # else odd corners move, since chroma has half the pixels
    )
    resize = "" if side == job.size else f"scale={job.size}:{job.size}:flags=bilinear,"
    filters = f"{crop},{resize}format=pix_fmts=rgb24"

    def make(photos: Sequence[str]) -> torch.Tensor:
        buffer = spdl.io.load_image_batch(photos, width=None, height=None, filter_desc=filters)
        return spdl.io.to_torch(buffer)

    return make


def _with_decoder(job: Job) -> Callable[[Sequence[str]], torch.Tensor]:
    torch.set_num_threads(1)  # the threads are the pipeline's, not within each resize
    decode = decoder(job)
    return lambda photos: torch.stack([decode(read(photo)) for photo in photos])


if __name__ == "__main__":
    serve_epochs(["spdl", "torch"], open_epochs)
