"""MosaicML Streaming: ``MDSWriter``, without compression.

With one process as its own ImageNet converter does it (streaming/vision/convert/imagenet.py): each file is opened as
an image, which reads its header, and shards are hashed by SHA-1 and XXH64. With more, as its documentation on parallel
conversion shows it, and with as little work as can be: encoded bytes, no hashes, a part a process, ``merge_index``.
"""

from multiprocessing import Pool
from pathlib import Path

from conversion import Photo, list_photos, read, run
from PIL import Image
from streaming import LocalDataset, MDSWriter
from streaming.base.util import merge_index


def convert(photos: str, out: str, workers: int) -> None:
    """Write shards: one process into one folder, several into one each."""
    found = list_photos(photos)
    if workers == 1:
        write_images(found, out)
        return
    share = -(-len(found) // workers)
    parts = [(found[number * share : (number + 1) * share], f"{out}/{number}") for number in range(workers)]
    with Pool(workers) as pool:
        pool.starmap(write_bytes, parts)
    merge_index(out, keep_local=True)


def write_images(photos: list[Photo], folder: str) -> None:
    """Write photos to a folder as its ImageNet converter does."""
    columns = {"id": "str", "image": "jpeg", "label": "int"}
    with MDSWriter(out=folder, columns=columns, hashes=["sha1", "xxh64"]) as writer:
        for photo in photos:
            writer.write({"id": photo.id, "image": Image.open(photo.path), "label": photo.label})


def write_bytes(photos: list[Photo], folder: str) -> None:
    """Write photos to a folder as bytes that nobody looks at."""
    columns = {"id": "str", "image": "bytes", "label": "int"}
    with MDSWriter(out=folder, columns=columns) as writer:
        for photo in photos:
            writer.write({"id": photo.id, "image": read(photo), "label": photo.label})


def count(out: str) -> int:
    """Return the number of records in a folder of shards, or in its subfolders."""
    parts = [path for path in Path(out).iterdir() if path.is_dir()] or [Path(out)]
    return sum(len(LocalDataset(str(part))) for part in parts)


if __name__ == "__main__":
    run("mosaicml-streaming", convert, count)
