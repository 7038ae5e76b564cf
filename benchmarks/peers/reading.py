"""What every reader in this folder shares: its job, and how it is asked for epochs, times them and tells what came.

A reader is a program, ``read_X.py JOB``, run by a Python that has the peer. It writes the peer's store from the common
data, opens it, prints one line of JSON, and answers each line of its input by one line of JSON until the input ends.
So it starts and compiles once, and is idle while others have their turn. JOB is a `Job` as JSON.
"""

import gc
import hashlib
import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

PHOTOS = "photos"
ARRAYS = "arrays"
RAW = "raw"


@dataclass(frozen=True)
class Job:
    """What a reader is to deliver.

    Record n has the label n, so that the labels of a batch say which records it holds.

    Attributes:
        data: The common data: a folder of photos, one subfolder a class, or a file ``uint8[N, H, W, C]``.
        out: A folder that is not there yet, for what the reader makes of it.
        kind: ``photos``, ``arrays`` or ``raw``. Batches of photos are ``uint8[B, C, size, size]`` in any order of
            memory: a centre square of `ratio` times the shorter side, resized. Batches of arrays are as they are
            stored. Raw are single photos, not decoded.
        how: Which of the peer's ways, where its program knows several.
        records: Records of the data.
        batch: Samples of a batch; the last one of an epoch may have fewer.
        threads: Threads, or worker processes, that make batches.
        size, ratio: Of photos.
    """

    data: str
    out: str
    kind: str = PHOTOS
    how: str = ""
    records: int = 0
    batch: int = 64
    threads: int = 2
    size: int = 224
    ratio: float = 0.875


Batch = tuple[Any, Any]
"""Images, one behind the other; and their labels, a tensor ``int64[B]``."""

Epochs = Callable[[int], Iterable[Batch]]
"""Begins an epoch, given its number."""


def list_photos(folder: str) -> list[str]:
    """Return the paths of the photos, in the order of their labels."""
    return [str(file) for file in sorted(Path(folder).glob("*/*.jpg"))]


def read(path: str) -> bytes:
    """Return the bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def serve_epochs(packages: Sequence[str], open_epochs: Callable[[Job], Epochs]) -> None:
    """Be a reader of epochs.

    A question holds the numbers of the epochs to read, and the labels of the records whose pixels are to be kept.

    Args:
        packages: Those whose versions are reported.
        open_epochs: Writes the store, and opens it.
    """
    serve(packages, lambda job: _answerer(job, open_epochs(job)))


Loop = Callable[[Sequence[int]], tuple[bytes, int]]
"""Reads single records, one after the other, and returns bytes and label of the last."""


def serve_reads(packages: Sequence[str], open_loop: Callable[[Job], Loop]) -> None:
    """Be a reader of single records.

    A question holds the rows to read, and whether they are looked at, one by one, instead of timed.

    Args:
        packages: Those whose versions are reported.
        open_loop: Writes the store, and opens it.
    """
    serve(packages, lambda job: _read_answerer(open_loop(job)))


Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def serve(packages: Sequence[str], open_answer: Callable[[Job], Answer]) -> None:
    """Be a reader: open, say which versions these are, then answer each question.

    Args:
        packages: Those whose versions are reported.
        open_answer: Writes the store, opens it, and returns what answers questions.
    """
    out = _take_output()
    answer = open_answer(Job(**json.loads(sys.argv[1])))
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps({"versions": versions}), file=out, flush=True)
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


def _take_output() -> TextIO:
    """Return the standard output, and send to the standard error whatever peers print from now on."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Return the seconds that `work` takes: by the clock, and of CPU in this process and all below it."""
    gc.collect()
    cpu, wall = _cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - wall
    return {"wall": wall, "cpu": _cpu_seconds() - cpu}


def _read_answerer(loop: Loop) -> Answer:
    def answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
        rows = question["rows"]
        if not question["look"]:
            return timed(lambda: loop(rows))
        found = [loop([row]) for row in rows]
        return {"found": [[digest(value), int(label)] for value, label in found]}

    return answer


def digest(value: bytes) -> str:
    """Return what tells one record's bytes from another's."""
    return hashlib.sha256(value).hexdigest()


@dataclass
class _Delivered:
    """What came of some epochs.

    Attributes:
        first_batch: Seconds to the first batch of each epoch.
        labels: Tensors, one a batch, in a list an epoch.
        pixels: Those that were to be kept, by label.
    """

    first_batch: list[float] = field(default_factory=list)
    labels: list[list[Any]] = field(default_factory=list)
    pixels: dict[str, Any] = field(default_factory=dict)


def _answerer(job: Job, epochs: Epochs) -> Answer:
    def answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
        delivered, keep = _Delivered(), frozenset(question["keep"])

        def work() -> None:
            for number in question["epochs"]:
                _read_epoch(epochs(number), delivered, keep)

        taken = timed(work)
        pixels = f"{job.out}.pixels.npz"
        np.savez(pixels, **delivered.pixels)
        orders = [np.concatenate(labels) for labels in delivered.labels]
        return {
            **taken,
            "first_batch": delivered.first_batch,
            "wrong": sum(_count_wrong(order, job.records) for order in orders),
            "mixing": float(np.mean([_mixing(order) for order in orders])),
            "pixels": pixels,
        }

    return answer


def _read_epoch(batches: Iterable[Batch], delivered: _Delivered, keep: frozenset[int]) -> None:
    start = time.perf_counter()
    labels: list[Any] = []
    for images, numbers in batches:
        if not labels:
            delivered.first_batch.append(time.perf_counter() - start)
        labels.append(numbers.clone())  # some peers use the memory again, a few batches later
        if keep:
            _keep(images, numbers.tolist(), delivered.pixels, keep)
    delivered.labels.append(labels)


def _keep(images: Any, labels: Sequence[int], pixels: dict[str, Any], keep: frozenset[int]) -> None:
    for position, label in enumerate(labels):
        if label in keep:
            pixels[str(label)] = images[position].numpy().copy()


def _count_wrong(order: Any, records: int) -> int:
    """Return how often an epoch delivered a record too few, too often, or one there is not."""
    inside = order[(order >= 0) & (order < records)]
    return int(len(order) - len(inside) + np.abs(np.bincount(inside, minlength=records) - 1).sum())


def _mixing(order: Any) -> float:
    """Return how far records moved on average: 0 where nothing is shuffled, about 1 where any order is as likely."""
    return float(np.abs(order - np.arange(len(order))).mean() / (len(order) / 3))


def _cpu_seconds() -> float:
    """Return the CPU time so far of this process, and of all below it, ended ones and, on Linux, living ones."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ended = sum(each.ru_utime + each.ru_stime for each in used)
    return ended + _living_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")


def _living_ticks(ancestor: int) -> int:
    """Return the ticks of CPU time of all living processes below one, and of those that they waited for."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            numbers = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        process = int(path.parent.name)
        parents[process], ticks[process] = int(numbers[1]), sum(map(int, numbers[11:15]))
    return sum(ticks[process] for process in parents if _is_below(process, ancestor, parents))


def _is_below(process: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == ancestor:
            return True
    return False
