"""Loaders and the processes and threads they start: what goes wrong in one, what is left of one, what they share."""

import itertools
import multiprocessing
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from process_probes import ALL_IDS, BATCH, COUNT, Footprint, children_of, ids, open_loader, write_samples
from torch.utils.data import ConcatDataset, DataLoader

from shardkit import ShardDataset, ShardIterableDataset, collate
from shardkit.errors import CorruptShardError, TransformError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

SECONDS = 30
"""In which what died is noticed, and what lost its parent ends: torch looks every five, machines may be busy."""

IN_PROCESSES = [("iterable", "lmdb"), ("sampler", "memmap")]


@pytest.fixture(autouse=True)
def workers_find_the_test_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Backend -> a data set. Nobody changes it."""
    root = tmp_path_factory.mktemp("samples")
    return {backend: write_samples(root / backend, backend) for backend in ("memmap", "lmdb")}


@pytest.fixture
def copy(paths: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that returns a data set to damage."""
    return lambda backend: Path(shutil.copytree(paths[backend], tmp_path / backend))


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files of this process and those that it forks: a short path, for sockets lie in it."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def captions_of(path: Path, shard: int) -> Path:
    """Return the file that holds the captions of a shard of 30 rows."""
    return next(path.glob(f"shards/0000{shard}*/caption.bin"), path / f"shards/0000{shard}.lmdb")


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    """Change a file in place, as those that have it open will see."""
    with path.open("r+b") as stream:
        stream.seek(stream.read().index(old))
        stream.write(new)


# --- errors ----------------------------------------------------------------------------------------------------------


def error_of(iterator: Iterator[Any]) -> tuple[type[Exception], str]:
    """Return the type and the text of what an iteration raises.

    The frames that torch re-raises from hold the error, and so the iterator, in a cycle: until it is broken the
    workers live on.
    """
    try:
        for _ in iterator:
            pass
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        return type(error), str(error)
    pytest.fail("the loader raised nothing")


def begun(kind: str, path: Path, workers: int) -> Any:
    """Return an iterator that has taken three batches.

    They hold no tensors: to take one over, torch connects to the worker that made it, and may find it gone.
    """
    loader, _ = open_loader(kind, path, workers, fields=["caption"], tail="exact")
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    return iterator


def losing(iterator: Iterator[Any], lose: Callable[[], None]) -> Iterator[Any]:
    """Go on with an iterator, but lose something first: torch's signal handler may raise as soon as that is done."""
    lose()
    yield from iterator


@pytest.mark.parametrize(("kind", "backend"), IN_PROCESSES)
def test_a_killed_worker_is_an_error_soon_and_another_loader_goes_on(
    paths: dict[str, Path], kind: str, backend: str
) -> None:
    before = Footprint.now().children
    began = time.monotonic()
    iterator = begun(kind, paths[backend], 2)
    victim = min(children_of(os.getpid()) - before)
    error, text = error_of(losing(iterator, lambda: os.kill(victim, signal.SIGKILL)))
    del iterator
    assert error is RuntimeError
    assert re.search(rf"DataLoader worker \(pid.*\b{victim}\b", text)
    assert ids(open_loader(kind, paths[backend], 2)[0]) == ids(ShardIterableDataset(paths[backend], BATCH))
    assert children_of(os.getpid()) == before
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(("kind", "backend"), IN_PROCESSES)
def test_a_shard_cut_while_a_worker_reads_it_is_an_error_soon_and_spares_the_training_process(
    copy: Callable[[str], Path], kind: str, backend: str
) -> None:
    path = copy(backend)

    def cut() -> None:
        for shard in range(4):
            os.truncate(captions_of(path, shard), 0)

    began = time.monotonic()
    error, text = error_of(losing(begun(kind, path, 1), cut))
    assert error is RuntimeError
    assert re.search(r"DataLoader worker \(pid.*(Bus error|exited unexpectedly)", text)
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(("kind", "backend"), IN_PROCESSES)
def test_a_shard_cut_before_a_worker_opens_it_is_named(
    copy: Callable[[str], Path], kind: str, backend: str
) -> None:
    path = copy(backend)
    loader, _ = open_loader(kind, path, 1)
    captions = captions_of(path, 3)
    os.truncate(captions, captions.stat().st_size - 1)
    error, text = error_of(iter(loader))
    assert error is CorruptShardError
    assert str(captions) in text


class FailWhile:
    """A transform that fails on r40 while a file exists."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] == "r40" and self._flag.exists():
            raise ZeroDivisionError("nothing to divide")
        return sample


@pytest.mark.parametrize(
    ("kind", "backend", "workers", "method"),
    [
        ("iterable", "memmap", 1, "fork"),
        ("iterable", "lmdb", 1, "spawn"),
        ("sampler", "lmdb", 1, "fork"),
        ("sampler", "memmap", 1, "spawn"),
        ("threads", "memmap", 2, "none"),
        ("threads", "lmdb", 2, "none"),
    ],
)
def test_an_error_names_shard_row_id_and_field_and_the_next_iteration_is_whole_after_repair(
    copy: Callable[[str], Path], tmp_path: Path, kind: str, backend: str, workers: int, method: str
) -> None:
    path, flag = copy(backend), tmp_path / "flag"
    flag.touch()
    staying: dict[str, Any] = {} if kind == "threads" else {"persistent_workers": True}
    loader, _ = open_loader(kind, path, workers, method, shuffle=False, transform=FailWhile(flag), **staying)
    place = r"shards/00001(\.lmdb)?: row {} \(id '{}'.*"
    replace_bytes(captions_of(path, 1), b"caption 33", b"capt\xffon 33")
    error, text = error_of(iter(loader))
    assert error is CorruptShardError
    assert re.search(place.format(3, "r33") + "field 'caption'.*checksum", text)
    replace_bytes(captions_of(path, 1), b"capt\xffon 33", b"caption 33")
    error, text = error_of(iter(loader))
    assert error is TransformError
    assert re.search(place.format(10, "r40") + "ZeroDivisionError: nothing to divide", text)
    flag.unlink()
    assert ids(loader) == ALL_IDS


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
def test_after_an_error_the_iteration_of_threads_is_over(copy: Callable[[str], Path], backend: str) -> None:
    path = copy(backend)
    replace_bytes(captions_of(path, 1), b"caption 33", b"capt\xffon 33")
    before = Footprint.now()
    iterator = iter(open_loader("threads", path, 2, shuffle=False)[0])
    assert ids(itertools.islice(iterator, 4)) == ALL_IDS[:32]
    error_of(iterator)
    assert list(iterator) == []
    assert Footprint.now().threads == before.threads


@pytest.mark.parametrize(
    ("kind", "workers", "backend"),
    [
        ("iterable", 2, "lmdb"),
        ("sampler", 0, "lmdb"),
        ("sampler", 2, "memmap"),
        ("threads", 2, "memmap"),
        ("threads", 2, "lmdb"),
    ],
)
def test_a_damaged_record_is_skipped_and_named_wherever_it_was_read(
    copy: Callable[[str], Path], kind: str, workers: int, backend: str
) -> None:
    path = copy(backend)
    replace_bytes(captions_of(path, 1), b"caption 33", b"capt\xffon 33")
    loader, data = open_loader(kind, path, workers, on_error="skip")
    assert data.skipped == []
    assert sorted(ids(loader)) == [record_id for record_id in ALL_IDS if record_id != "r33"]
    assert data.skipped == ["r33"]


# --- what is left ----------------------------------------------------------------------------------------------------


def in_shared_memory(processes: set[int]) -> list[str]:
    """Return what some processes have in /dev/shm: torch names its files after who made them."""
    return [
        name
        for name in os.listdir("/dev/shm")
        if processes & {int(each) for each in re.findall(r"\d+", name)}
    ]


def train(loaders: list[Any], sender: Connection) -> None:
    """As a process: read with all loaders until killed, and tell which workers they have."""
    for epoch in itertools.count():
        for batches in zip(*loaders, strict=True):
            assert ids(batches[:1]) == ids(batches[1:])
        if epoch == 0:
            sender.send(children_of(os.getpid()))


def test_a_killed_training_process_leaves_nothing_and_disturbs_no_other(
    paths: dict[str, Path], temporary: Path
) -> None:
    whole = ids(ShardIterableDataset(paths["lmdb"], BATCH))
    loaders = [
        open_loader(kind, paths["lmdb"], 2, persistent_workers=True)[0] for kind in ("iterable", "sampler")
    ]
    receiver, sender = multiprocessing.Pipe(duplex=False)
    training = multiprocessing.get_context("fork").Process(target=train, args=(loaders, sender))
    training.start()
    try:
        assert receiver.poll(SECONDS)
        workers = receiver.recv()
        watched = [os.pidfd_open(worker) for worker in workers]
        assert ids(open_loader("iterable", paths["lmdb"], 2)[0]) == whole  # beside the other job
    finally:
        training.kill()
        training.join()
    assert ids(open_loader("sampler", paths["lmdb"], 2)[0]) == whole  # at once
    assert len(workers) == 4
    deadline = time.monotonic() + SECONDS
    for worker in watched:
        assert select.select([worker], [], [], max(0, deadline - time.monotonic()))[0], "a worker lives on"
        os.close(worker)
    assert in_shared_memory({training.pid or 0, *workers}) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("kind", "backend"), IN_PROCESSES)
def test_nothing_is_left_of_an_epoch_whole_or_broken_off(
    paths: dict[str, Path], temporary: Path, kind: str, backend: str
) -> None:
    before, remaining = Footprint.now(), in_shared_memory({os.getpid()})
    loader, _ = open_loader(kind, paths[backend], 2)
    made = {os.getpid()}
    for steps in (None, 2):
        for step, _ in enumerate(loader):
            made |= children_of(os.getpid()) - before.children
            if step == steps:
                break
    assert len(made) == 5
    assert Footprint.now().children <= before.children
    assert in_shared_memory(made) == remaining
    assert list(temporary.iterdir()) == []


# --- what is shared --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_parent_and_workers_read_the_same_lmdb_files_in_turn(paths: dict[str, Path], method: str) -> None:
    loader, data = open_loader("sampler", paths["lmdb"], 1, method, persistent_workers=True)
    whole = ids(ShardIterableDataset(paths["lmdb"], BATCH))
    for _ in range(2):
        delivered = []
        for batch in loader:
            delivered += batch["id"]
            for record_id, caption in zip(batch["id"], batch["caption"], strict=True):
                assert data.get(record_id)["caption"] == caption == f"caption {record_id[1:]}"
        assert delivered == whole


def descriptors_of(path: Path) -> int:
    """Return how many descriptors this process has of the shards of a data set."""
    numbers = [Path("/proc/self/fd") / number for number in os.listdir("/proc/self/fd")]
    opened = [os.readlink(number) for number in numbers if os.path.lexists(number)]
    return sum(name.startswith(str(path / "shards")) for name in opened)


def test_an_lmdb_file_is_open_once_a_data_set_whoever_reads_it(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    path = paths["lmdb"]
    (tmp_path / "link").symlink_to(path)
    data = [ShardDataset(path), ShardDataset(tmp_path / "link")]
    with ThreadPoolExecutor(4) as pool:  # all at once, at first use
        captions = list(pool.map(lambda row: data[row % 2][row]["caption"], range(COUNT)))
    assert captions == [f"caption {row:02d}" for row in range(COUNT)]
    assert descriptors_of(path) == 8
    both = DataLoader(
        ConcatDataset(data), BATCH, collate_fn=collate, num_workers=2, multiprocessing_context="fork"
    )
    assert ids(both) == ALL_IDS * 2
    del data[0], both
    assert data[0][99]["caption"] == "caption 99"
    assert descriptors_of(path) == 4


def draw(sample: dict[str, Any]) -> dict[str, Any]:
    """As a transform: add a number of each of the random streams that a transform may draw from."""
    drawn = [random.random(), np.random.random(), torch.rand((), dtype=torch.float64).item()]
    return sample | {"drawn": torch.tensor(drawn, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("kind", "workers"), [("iterable", 0), ("iterable", 2), ("sampler", 2), ("threads", 2)]
)
def test_no_two_samples_draw_the_same_random_numbers(paths: dict[str, Path], kind: str, workers: int) -> None:
    loader, _ = open_loader(kind, paths["memmap"], workers, transform=draw)
    drawn = {
        record_id: numbers
        for batch in loader
        for record_id, numbers in zip(batch["id"], batch["drawn"].tolist(), strict=True)
    }
    assert sorted(drawn) == ALL_IDS
    for stream in zip(*drawn.values(), strict=True):
        assert len(set(stream)) == len(ALL_IDS)
