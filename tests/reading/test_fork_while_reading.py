"""A process that is forked while threads of its parent are inside LMDB can read as well."""

import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from process_probes import COUNT, write_samples

from shardkit import ShardDataset

SECONDS = 30


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("samples")
    return {backend: write_samples(root / backend, backend) for backend in ("memmap", "lmdb")}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
def test_a_process_forked_while_threads_read_reads_as_well(paths: dict[str, Path], backend: str) -> None:
    data = ShardDataset(paths[backend])
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for row in range(COUNT):
                data.read(row)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert exit_of_child(lambda: data[99]["caption"] == "caption 99") == 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def exit_of_child(check: Callable[[], bool]) -> int:
    """Fork a process, and return 0 if what it checks holds there; one that hangs is killed."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    watched = os.pidfd_open(child)
    if not select.select([watched], [], [], SECONDS)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
