"""The ways to read raw records at random that random_reads.py compares: each writes its store, then opens it.

Each opener returns a loop: it reads the given rows one after the other and returns the last of them as
``(bytes, label)``, so that the very loop that is timed can be checked row by row.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
from photos import PhotoFolder

from shardkit import ShardDataset, ingest

try:
    import datasets
except ImportError:
    datasets = None

HAS_HUGGING_FACE = datasets is not None

Read = tuple[bytes, int]
Loop = Callable[[Sequence[int]], Read]

BATCH = 64
"""Rows a call where many are read at once."""


def write_memmap(folder: Path, photos: PhotoFolder) -> None:
    """Write what the hand-written memmap loops read: bytes end to end, offsets, labels; and so the ids."""
    folder.mkdir()
    values = [(photos.path / file).read_bytes() for file in photos.files]
    for name, parts in (("images", values), ("ids", [file.encode() for file in photos.files])):
        (folder / f"{name}.bin").write_bytes(b"".join(parts))
        np.save(folder / f"{name}.offsets.npy", np.cumsum([0, *map(len, parts)]))
    np.save(folder / "labels.npy", np.array(photos.labels))


def open_memmap(folder: Path) -> Loop:
    """Return the loop as one writes it: slices of a numpy memmap, offsets and labels in arrays."""
    data = np.memmap(folder / "images.bin", np.uint8, "r")
    offsets = np.load(folder / "images.offsets.npy")
    labels = np.load(folder / "labels.npy")

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            value, label = bytes(data[offsets[row] : offsets[row + 1]]), labels[row]
        return value, label

    return read


def open_memoryview(folder: Path) -> Loop:
    """Return the same loop tuned by hand: a memoryview, and all offsets and labels as Python integers in lists."""
    data = np.memmap(folder / "images.bin", np.uint8, "r").data
    offsets = np.load(folder / "images.offsets.npy").tolist()
    labels = np.load(folder / "labels.npy").tolist()

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            value, label = bytes(data[offsets[row] : offsets[row + 1]]), labels[row]
        return value, label

    return read


def open_memmap_with_id(folder: Path) -> Loop:
    """Return the loop of `open_memmap`, which also makes the id and a dict: as much as shardkit returns."""
    data, ids = (np.memmap(folder / f"{name}.bin", np.uint8, "r") for name in ("images", "ids"))
    offsets, id_offsets = (np.load(folder / f"{name}.offsets.npy") for name in ("images", "ids"))
    labels = np.load(folder / "labels.npy")

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            record: dict[str, Any] = {
                "id": bytes(ids[id_offsets[row] : id_offsets[row + 1]]).decode(),
                "image": bytes(data[offsets[row] : offsets[row + 1]]),
                "label": int(labels[row]),
            }
        return record["image"], record["label"]

    return read


def open_lmdb(folder: Path, photos: PhotoFolder) -> Loop:
    """Return the loop over a hand-written LMDB file of MessagePack maps, in one read transaction."""
    map_size = 2 * photos.total_bytes + (1 << 26)
    with lmdb.open(str(folder), map_size=map_size) as output, output.begin(write=True) as transaction:
        for row, (file, label) in enumerate(zip(photos.files, photos.labels, strict=True)):
            value = {"image": (photos.path / file).read_bytes(), "label": label}
            transaction.put(row.to_bytes(8, "big"), msgpack.packb(value), append=True)
    reading = lmdb.open(str(folder), readonly=True, lock=False, readahead=False).begin(buffers=True)

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            record = msgpack.unpackb(reading.get(row.to_bytes(8, "big")))
        return record["image"], record["label"]

    return read


def open_files(photos: PhotoFolder) -> Loop:
    """Return the loop over the plain files."""
    paths = [str(photos.path / file) for file in photos.files]
    labels = photos.labels

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            with open(paths[row], "rb") as file:
                value, label = file.read(), labels[row]
        return value, label

    return read


def open_shardkit(folder: Path, photos: PhotoFolder, backend: str) -> Loop:
    """Return the loop over a shardkit data set."""
    ingest(photos.path, folder, backend=backend)
    dataset = ShardDataset(folder)

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            record = dataset.read(row)
        return record["image"], record["label"]

    return read


def write_hugging_face(folder: Path, photos: PhotoFolder) -> None:
    """Save two data sets: the photos as an `Image` column in ``images``, as a binary column in ``binary``."""
    datasets.disable_progress_bars()
    values = [(photos.path / file).read_bytes() for file in photos.files]
    label = datasets.Value("int64")
    for name, kind, column in (
        ("images", datasets.Image(decode=False), [{"bytes": value, "path": None} for value in values]),
        ("binary", datasets.Value("binary"), values),
    ):
        features = datasets.Features({"image": kind, "label": label})
        made = datasets.Dataset.from_dict({"image": column, "label": photos.labels}, features=features)
        made.save_to_disk(str(folder / name))


def open_hugging_face_images(folder: Path) -> Loop:
    """Return the loop over an `Image` column that is not decoded."""
    dataset = datasets.load_from_disk(str(folder / "images"))

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            record = dataset[row]
            value, label = record["image"]["bytes"], record["label"]
        return value, label

    return read


def open_hugging_face(folder: Path) -> Loop:
    """Return the loop over a binary column, in the default format: Python objects."""
    dataset = datasets.load_from_disk(str(folder / "binary"))

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            record = dataset[row]
        return record["image"], record["label"]

    return read


def open_hugging_face_arrow(folder: Path) -> Loop:
    """Return the loop over a binary column in Arrow format, made Python objects by hand."""
    dataset = datasets.load_from_disk(str(folder / "binary")).with_format("arrow")

    def read(rows: Sequence[int]) -> Read:
        for row in rows:
            record = dataset[row]
            value, label = record["image"][0].as_py(), record["label"][0].as_py()
        return value, label

    return read


def open_hugging_face_batches(folder: Path) -> Loop:
    """Return the loop over a binary column that reads many rows in one call."""
    dataset = datasets.load_from_disk(str(folder / "binary"))

    def read(rows: Sequence[int]) -> Read:
        for start in range(0, len(rows), BATCH):
            batch = dataset[rows[start : start + BATCH]]
        return batch["image"][-1], batch["label"][-1]

    return read
