"""WebDataset: one ``ShardWriter``, which is one process."""

import tarfile
from pathlib import Path

from conversion import list_photos, read, run
from webdataset import ShardWriter


def convert(photos: str, out: str, workers: int) -> None:
    """Write tar files."""
    Path(out).mkdir()
    with ShardWriter(f"{out}/%06d.tar", maxsize=1 << 26, verbose=0) as writer:
        for photo in list_photos(photos):
            key = photo.id.removesuffix(".jpg")
            writer.write({"__key__": key, "jpg": read(photo), "cls": photo.label})


def count(out: str) -> int:
    """Return the number of photos in all tar files."""
    found = 0
    for path in Path(out).glob("*.tar"):
        with tarfile.open(path) as archive:
            found += sum(name.endswith(".jpg") for name in archive.getnames())
    return found


if __name__ == "__main__":
    run("webdataset", convert, count)
