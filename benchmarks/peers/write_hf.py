"""Hugging Face datasets: ``load_dataset("imagefolder")``, then ``save_to_disk``, which copies the files in."""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the package is imported

import datasets
from conversion import run


def convert(photos: str, out: str, workers: int) -> None:
    """Write Arrow files."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        made = datasets.load_dataset("imagefolder", data_dir=photos, split="train", cache_dir=cache)
        made.save_to_disk(out, num_proc=workers)


if __name__ == "__main__":
    run("datasets", convert, lambda out: len(datasets.load_from_disk(out)))
