"""The lock that keeps two runs out of one output folder.

An flock belongs to the open file, which workers share, forked or spawned: it is held until the last of them is gone,
so that workers which outlive a killed parent for a moment cannot write into the folder of the next run.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from shardkit.errors import OutputError

LOCK_NAME = ".shardkit.lock"


_PATIENCE_SECONDS = 2.0  # four times what the workers of a killed run take to notice that it is gone
_POLL_SECONDS = 0.05


class HeldLock:
    """A lock that this process holds, and each worker too that it is sent to as an argument at its start.

    Attributes:
        descriptor: The open file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle into a process that is being spawned, and nowhere else."""
        return (_receive, (reduction.DupFd(self.descriptor),))


def _receive(duplicate: Any) -> HeldLock:  # Any: multiprocessing publishes no type for it
    return HeldLock(duplicate.detach())


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[HeldLock]:
    """Hold the lock of `folder`. Waits for a moment only, in which the workers of a run that was killed go away.

    Raises:
        OutputError: Another run holds it, or the folder cannot be written.
    """
    path = folder / LOCK_NAME
    try:
        descriptor = _acquire(path)
    except BlockingIOError as error:
        raise OutputError(f"{folder}: another ingest is writing to this folder", path=folder) from error
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot write to the output folder: {error.strerror}", path=folder
        ) from error
    try:
        yield HeldLock(descriptor)
    finally:
        path.unlink(missing_ok=True)  # while it is held: whoever locks the name next finds a new file
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """Return a descriptor that holds the lock on the file that `path` names at this moment.

    Raises:
        BlockingIOError: Another process holds it.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            _wait_for(descriptor, deadline)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it between the opening and the locking


def _wait_for(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
