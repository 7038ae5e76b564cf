"""The loaders that compare.py holds against each other, and how fast shardkit's are to be beside them."""

from typing import NamedTuple

from measure import Target

BARE = "bare"
SHARDKIT = "shardkit"
SHARD_LOADER = "ShardLoader"
SHARDKIT_WORKERS = "shardkit, DataLoader"
FFCV = "FFCV"
TENSORS = "TensorDataset, 2 workers"
OWN_PEERS = (BARE, SHARDKIT, "lmdb", "memmap", "tensors")
"""Those that the Python which runs the benchmark has."""


class Loader(NamedTuple):
    """A way to read.

    Attributes:
        name: In the table.
        peer: Its program is ``peers/read_PEER.py``, and ``--python PEER=PATH`` names who runs it.
        how: Which of that program's ways.
        note: What it does.
        is_whole: Whether it resizes photos as a whole instead of a square of them.
    """

    name: str
    peer: str
    how: str
    note: str
    is_whole: bool = False


_BY_HAND = "simplejpeg"
_ALSO_BY_HAND = "the same, decoded by hand by simplejpeg and torch"
_THREADED = (
    Loader(FFCV, "ffcv", "", "Loader, random order, page cache; OpenCV's area filter"),
    Loader("TurboLoader", "turboloader", "crop", "FastDataLoader, its crop and resize"),
    Loader(
        "TurboLoader, no crop",
        "turboloader",
        "whole",
        "FastDataLoader; another picture: no crop",
        is_whole=True,
    ),
    Loader("SPDL", "spdl", "ffmpeg", "plain files; FFmpeg's filters"),
)
_WITH_WORKERS = (
    Loader("ImageFolder", "imagefolder", "pillow", "torchvision, Pillow; DataLoader"),
    Loader("ImageFolder, torchvision", "imagefolder", "torchvision", "the same, decoded by torchvision.io"),
    Loader("WebDataset", "webdataset", "pillow", "tar shards, buffer of 500, Pillow; WebLoader"),
    Loader("LitData", "litdata", "own", "JPEG format, torchvision.io; StreamingDataLoader"),
    Loader("HF datasets", "hf", "pillow", "Image column, Pillow; DataLoader"),
    Loader("MDS", "mds", "pillow", "jpeg column, Pillow; DataLoader"),
    Loader("LMDB", "lmdb", "pillow", "by hand, Pillow; DataLoader"),
    Loader("memmap", "memmap", "pillow", "by hand, Pillow; DataLoader"),
)
_THREADED_BY_HAND = (Loader("SPDL, simplejpeg", "spdl", _BY_HAND, _ALSO_BY_HAND),)
_WORKERS_BY_HAND = tuple(
    Loader(f"{loader.name}, {_BY_HAND}", loader.peer, _BY_HAND, _ALSO_BY_HAND)
    for loader in _WITH_WORKERS
    if loader.peer != "imagefolder"
)
_PEERS = (*_THREADED, *_WITH_WORKERS)
PHOTO_LOADERS = (
    Loader(BARE, BARE, _BY_HAND, "decoded and resized in threads: no storage, order or batches"),
    Loader(SHARD_LOADER, SHARDKIT, "threads", "checksums, ids"),
    Loader(SHARDKIT_WORKERS, SHARDKIT, "workers", "checksums, ids; torch's DataLoader"),
    *_PEERS,
    *_THREADED_BY_HAND,
    *_WORKERS_BY_HAND,
)
ARRAY_LOADERS = (
    Loader(BARE, BARE, "", "numpy gather from a memmap"),
    Loader(SHARD_LOADER, SHARDKIT, "threads", "ids"),
    Loader(f"{SHARD_LOADER}, preload", SHARDKIT, "preloaded", "ids; held in memory"),
    Loader(SHARDKIT_WORKERS, SHARDKIT, "workers", "ids; torch's DataLoader"),
    Loader(FFCV, "ffcv", "", "raw pixels; Loader, random order, page cache"),
    Loader("TensorDataset", "tensors", "0", "torch's DataLoader, no workers"),
    Loader(TENSORS, "tensors", "2", "torch's DataLoader"),
)
PHOTO_TARGETS = (
    Target(SHARD_LOADER, BARE, 0.95),
    Target(SHARD_LOADER, FFCV, 1.5),
    *(Target(SHARD_LOADER, loader.name, 1.7) for loader in _PEERS if loader.name != FFCV),
    *(Target(SHARD_LOADER, loader.name, 1.0) for loader in _THREADED_BY_HAND),
    Target(SHARDKIT_WORKERS, FFCV, 1.2),
    *(Target(SHARDKIT_WORKERS, loader.name, 1.0) for loader in (*_WITH_WORKERS, *_WORKERS_BY_HAND)),
)
SMALL_PHOTO_TARGETS = (Target(SHARD_LOADER, FFCV, 1.1),)
ARRAY_TARGETS = (
    Target(SHARD_LOADER, BARE, 0.8),
    Target(SHARD_LOADER, FFCV, 1.2),
    Target(SHARDKIT_WORKERS, TENSORS, 3.0),
)
PEERS = tuple(dict.fromkeys(loader.peer for loader in (*PHOTO_LOADERS, *ARRAY_LOADERS)))
