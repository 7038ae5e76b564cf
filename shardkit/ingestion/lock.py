"""The lock that keeps two runs out of one output folder.

An flock belongs to the open file, which forked workers share: it is held until the last of them is gone, so that
workers which outlive a killed parent for a moment cannot write into the folder of the next run.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from shardkit.errors import OutputError

LOCK_NAME = ".shardkit.lock"


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, without waiting for it.

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
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: whoever locks the name next finds a new file
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """Return a descriptor that holds the lock on the file that `path` names at this moment."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it between the opening and the locking
