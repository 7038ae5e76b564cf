"""How fast are raw records (the bytes of an encoded photo, and its label) read in random order by one process?

The records are JPEG photos of about 82 KB, in the page cache (every file was just written, and a warm-up reads
all of them). Each contender reads the same rows in the same order, one record a call unless its name says
otherwise, and makes Python ``bytes`` of the photo; nothing is decoded. Before anything is timed, every contender
must return each record exactly.

MDS and ArrayRecord are programs in ``peers/``, each run by a Python of its own, since their packages bend others:
``--python mds=/path/to/python``, ``--python arrayrecord=...``. They time the same loop for themselves.

Run it with ``python benchmarks/random_reads.py``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): copying 82 KB takes most of every contender's time, so the ratios
come closer to 1 on a machine with slow memory. shardkit is held against the loops that one would write with numpy
and LMDB, and against one record a call of other formats.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import readers
from command_line import run_benchmark
from measure import Comparison, Contender, Missing, Taken, Target
from peer_process import PeerError, PeerProcess, parse_pythons
from peers.reading import RAW, Job, digest
from photos import PhotoFolder, PhotoSettings, make_photos

MEMMAP = "numpy memmap"
SHARDKIT_MEMMAP = "shardkit memmap"
SHARDKIT_LMDB = "shardkit lmdb"
LMDB = "LMDB + msgpack"
HUGGING_FACE = "HF datasets"
HUGGING_FACE_ARROW = "HF datasets, arrow"
PROGRAMS = {"mds": ("MDS", "mds_records"), "arrayrecord": ("ArrayRecord", "arrayrecord")}
"""What ``--python`` calls a peer -> its name in the table, and its program ``peers/read_PROGRAM.py``."""
TARGETS = (
    Target(SHARDKIT_MEMMAP, MEMMAP, 0.8),
    Target(SHARDKIT_LMDB, LMDB, 0.8),
    *(
        Target(ours, theirs, 3.0)
        for theirs in (HUGGING_FACE, HUGGING_FACE_ARROW, *(name for name, _ in PROGRAMS.values()))
        for ours in (SHARDKIT_MEMMAP, SHARDKIT_LMDB)
    ),
)


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Photos.
        passes: Times that one run reads each of them.
        repetitions: Timed runs of each contender.
        width, height, quality: Of the photos; the defaults make about 82 KB.
        seed: Of photos and orders.
        python: ``PEER=PATH`` of a Python that has the peer.
    """

    records: int = 3000
    passes: int = 5
    repetitions: int = 9
    width: int = 720
    height: int = 576
    quality: int = 90
    seed: int = 0
    python: tuple[str, ...] = ()


def main() -> None:
    """Measure, and print the table."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    shape = PhotoSettings(settings.records, settings.width, settings.height, settings.quality, settings.seed)
    photos = make_photos(folder / "photos", shape)
    print(
        f"{settings.records} photos of {photos.mean_bytes / 1000:.1f} KB on average, {settings.passes} passes "
        f"a repetition, {settings.repetitions} repetitions; page cache warm\n"
    )
    pythons = parse_pythons(settings.python, list(PROGRAMS))
    orders = _Orders(settings)
    openers, missing = _openers(folder, photos)
    contenders = []
    for name, (note, open_loop) in openers.items():
        loop = open_loop()
        _check(name, loop, photos)
        contenders.append(Contender(name, _runner(loop, orders), note))
    records, total_bytes = settings.records * settings.passes, photos.total_bytes * settings.passes
    with ExitStack() as stack:
        programs, absent = _programs(pythons, folder, photos, orders, stack)
        contenders, missing = [*contenders, *programs], [*missing, *absent]
        return Comparison(
            contenders, MEMMAP, settings.repetitions, records, total_bytes, TARGETS, missing
        ).run()


class _Orders:
    """The rows that each repetition reads, drawn before it is timed."""

    def __init__(self, settings: Settings) -> None:
        self._rows = {
            repetition: self._draw(settings, repetition) for repetition in range(-1, settings.repetitions)
        }

    def __getitem__(self, repetition: int) -> list[int]:
        return self._rows[repetition]

    @staticmethod
    def _draw(settings: Settings, repetition: int) -> list[int]:
        random = np.random.default_rng([settings.seed, repetition + 1])
        passes = [random.permutation(settings.records) for _ in range(settings.passes)]
        return [int(row) for row in np.concatenate(passes)]


def _runner(loop: readers.Loop, orders: _Orders) -> Callable[[int], None]:
    def run(repetition: int) -> None:
        loop(orders[repetition])

    return run


_Openers = dict[str, tuple[str, Callable[[], readers.Loop]]]


def _openers(folder: Path, photos: PhotoFolder) -> tuple[_Openers, Sequence[Missing]]:
    """Return for each contender what it returns and what opens it, and the contenders that are not installed."""
    memmap, peer = folder / "memmap", folder / "hugging-face"
    readers.write_memmap(memmap, photos)
    openers: _Openers = {
        MEMMAP: ("bytes, label: the loop one writes by hand", lambda: readers.open_memmap(memmap)),
        "numpy memmap, id": ("a dict with id", lambda: readers.open_memmap_with_id(memmap)),
        "memoryview, lists": (
            "bytes, label; offsets as Python lists",
            lambda: readers.open_memoryview(memmap),
        ),
        LMDB: ("bytes, label", lambda: readers.open_lmdb(folder / "lmdb", photos)),
        "plain files": ("bytes, label", lambda: readers.open_files(photos)),
        SHARDKIT_MEMMAP: (
            "ShardDataset.read: a dict with id",
            lambda: readers.open_shardkit(folder / "shardkit-memmap", photos, "memmap"),
        ),
        SHARDKIT_LMDB: (
            "ShardDataset.read: a dict with id",
            lambda: readers.open_shardkit(folder / "shardkit-lmdb", photos, "lmdb"),
        ),
    }
    if not readers.HAS_HUGGING_FACE:
        return openers, [Missing(HUGGING_FACE, "pip install datasets")]
    readers.write_hugging_face(peer, photos)
    openers |= {
        HUGGING_FACE: ("bytes, label; binary column", lambda: readers.open_hugging_face(peer)),
        "HF datasets, Image": ("decode=False", lambda: readers.open_hugging_face_images(peer)),
        HUGGING_FACE_ARROW: (
            'with_format("arrow"), as_py() by hand',
            lambda: readers.open_hugging_face_arrow(peer),
        ),
        "HF datasets, batches": (
            f"{readers.BATCH} rows a call",
            lambda: readers.open_hugging_face_batches(peer),
        ),
    }
    return openers, []


def _programs(
    pythons: Mapping[str, str], folder: Path, photos: PhotoFolder, orders: _Orders, stack: ExitStack
) -> tuple[list[Contender], list[Missing]]:
    """Return the peers in processes of their own, and those that are not there."""
    contenders, missing = [], []
    for peer, (name, program) in PROGRAMS.items():
        if peer not in pythons:
            missing.append(Missing(name, f"give --python {peer}=PATH of a Python that has it"))
            continue
        process = PeerProcess(pythons[peer], program, Job(str(photos.path), str(folder / peer), RAW))
        stack.callback(process.close)
        try:
            process.start()
        except PeerError as error:
            missing.append(Missing(name, str(error)))
            continue
        _check_program(name, process, photos)
        versions = ", ".join(f"{package} {version}" for package, version in process.versions.items())
        contenders.append(Contender(name, _program_runner(process, orders), versions))
    return contenders, missing


def _program_runner(process: PeerProcess, orders: _Orders) -> Callable[[int], Taken]:
    def run(repetition: int) -> Taken:
        answer = process.ask(rows=orders[repetition], look=False)
        return Taken(answer["wall"], answer["cpu"])

    return run


def _check_program(name: str, process: PeerProcess, photos: PhotoFolder) -> None:
    """Make sure that the peer returns every record as it is; the label is the number of the file."""
    rows = range(len(photos.files))
    found = process.ask(rows=list(rows), look=True)["found"]
    for row, file, (value, label) in zip(rows, photos.files, found, strict=True):
        if (value, label) != (digest((photos.path / file).read_bytes()), row):
            raise SystemExit(f"{name}: row {row} ({file}) is not what was stored; nothing was measured")


def _check(name: str, loop: readers.Loop, photos: PhotoFolder) -> None:
    """Make sure that the contender returns every record as it is."""
    for row, (file, label) in enumerate(zip(photos.files, photos.labels, strict=True)):
        if loop([row]) != ((photos.path / file).read_bytes(), label):
            raise SystemExit(f"{name}: row {row} ({file}) is not what was stored; nothing was measured")


if __name__ == "__main__":
    main()
