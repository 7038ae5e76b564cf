"""LitData: ``optimize`` with a function a sample, and 64 MB a chunk, as its documentation begins."""

from typing import Any

from conversion import Photo, list_photos, read, run
from litdata import StreamingDataset, optimize


def sample(photo: Photo) -> dict[str, Any]:
    """Return what is stored of one photo."""
    return {"id": photo.id, "image": read(photo), "label": photo.label}


def convert(photos: str, out: str, workers: int) -> None:
    """Write chunks."""
    optimize(
        fn=sample,
        inputs=list_photos(photos),
        output_dir=out,
        chunk_bytes="64MB",
        num_workers=workers,
        verbose=False,
    )


if __name__ == "__main__":
    run("litdata", convert, lambda out: len(StreamingDataset(out)))
