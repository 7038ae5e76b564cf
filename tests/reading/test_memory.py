"""What loaders hold on to: nothing after an iteration that was left early, and nothing for each id of a long one."""

import gc
import multiprocessing
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from process_probes import (
    ALL_IDS,
    BATCH,
    BATCH_BYTES,
    Footprint,
    dirty_bytes,
    ids,
    open_loader,
    write_samples,
)

from shardkit import Contract, ScalarField, ShardIterableDataset
from shardkit.store import columns_of, commit, create_shard, make_manifest, seal_shard, write_index

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

MANY = 200_000
MOST_BYTES_AN_ID = 32
"""A list of ids takes 8 for the pointer and 60 for the str; the heaps of threads may grow by 4 MB, whatever is read."""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Backend -> a data set."""
    root = tmp_path_factory.mktemp("samples")
    return {backend: write_samples(root / backend, backend) for backend in ("memmap", "lmdb")}


@pytest.mark.parametrize(
    ("kind", "workers", "backend", "breaks"),
    [
        ("iterable", 0, "memmap", 200),
        ("iterable", 0, "lmdb", 200),
        ("sampler", 0, "memmap", 200),
        ("sampler", 0, "lmdb", 200),
        ("threads", 2, "memmap", 200),
        ("threads", 2, "lmdb", 200),
        ("iterable", 2, "lmdb", 12),  # each starts two processes and ends them
        ("sampler", 2, "memmap", 12),
    ],
)
def test_leaving_early_again_and_again_leaves_nothing_and_the_next_epoch_whole(
    paths: dict[str, Path], kind: str, workers: int, backend: str, breaks: int
) -> None:
    loader, _ = open_loader(kind, paths[backend], workers)
    whole = ids(ShardIterableDataset(paths[backend], BATCH))
    assert ids(loader) == whole  # every file is open from here on
    leave_early(loader, breaks // 4)  # and memory has found its size
    before = Footprint.now()
    leave_early(loader, breaks)
    for thread in (
        set(threading.enumerate()) - before.threads
    ):  # torch's own end a moment after their iterator
        thread.join(5)
    after = Footprint.now()
    assert after.threads <= before.threads
    assert after.tasks - before.tasks < 5  # a thread that was joined may still be leaving
    assert after.descriptors <= before.descriptors
    assert after.children <= before.children
    assert after.dirty - before.dirty < breaks * BATCH_BYTES / 2
    delivered = ids(loader)
    assert delivered == whole
    assert sorted(delivered) == ALL_IDS


def leave_early(loader: Any, times: int) -> None:
    for _ in range(times):
        next(iter(loader))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200,000 records of one number."""
    root = tmp_path_factory.mktemp("many") / "out"
    contract = Contract({"value": ScalarField("uint8")})
    columns = columns_of(contract)
    writer = create_shard(root, 0, "memmap", columns)
    for row in range(MANY):
        writer.append(f"record-{row:07d}", [b"\0"], [0], bytes(16))  # nothing looks at the checksum
    writer.finish()
    shards = [seal_shard(root, 0, "memmap", columns, MANY)]
    commit(root, make_manifest(1, contract, shards, write_index(root, 1, contract, shards).entry))
    return root


def collect_garbage(worker: int) -> None:
    """In a worker: touch now, not at some time later, the objects of the parent that collections write to."""
    gc.collect()


@pytest.mark.parametrize(
    ("kind", "shuffle"),
    [("iterable", False), ("sampler", False), ("threads", "global")],
)
def test_memory_does_not_grow_with_the_ids_delivered(many: Path, kind: str, shuffle: Any) -> None:
    """In stored order memory that workers copy from their parent would grow evenly, in a global one all at first."""
    options: dict[str, Any] = {"shuffle": shuffle, "batch_size": 500}
    if kind != "threads":
        options |= {"persistent_workers": True, "worker_init_fn": collect_garbage}
    loader, _ = open_loader(kind, many, 2, **options)
    delivered = 0
    early: dict[int, int] = {}
    for batch in loader:
        delivered += len(batch["id"])
        if delivered == MANY // 10:
            early = memory_of_all()
    assert delivered == MANY
    late = memory_of_all()
    assert len(early) == (1 if kind == "threads" else 3)
    assert early.keys() == late.keys()
    for process in early:
        read = MANY * 0.9 / (1 if process == os.getpid() else 2)
        assert late[process] - early[process] < MOST_BYTES_AN_ID * read


def memory_of_all() -> dict[int, int]:
    """Return process -> memory it has written to: of this one and the workers it has."""
    workers = [each.pid for each in multiprocessing.active_children() if each.pid is not None]
    return {os.getpid(): dirty_bytes("self")} | {
        worker: dirty_bytes(worker, is_own=True) for worker in workers
    }
