"""LMDB environments for reading: one a file and process, shared by its readers, never carried over a fork.

LMDB must not open one file twice in a process, and a forked child must not use its parent's environment
(http://www.lmdb.tech/doc/, "Caveats").
"""

import os
import threading
import weakref

import lmdb

from shardkit.errors import CorruptShardError
from shardkit.store.files import DataFolder


class Environment:
    """An open LMDB file. It closes when the last reader lets go of it.

    Transactions are per thread: LMDB forbids using one from two threads at a time.
    """

    def __init__(self, real_path: str, size: int) -> None:
        self._environment = lmdb.open(
            real_path,
            map_size=size,
            subdir=False,
            readonly=True,
            lock=False,
            readahead=False,
            max_dbs=0,
            create=False,
        )
        self._local = threading.local()

    def get(self, key: bytes) -> memoryview | None:
        """Return the value of a key: a view that is valid while this environment is referenced."""
        try:
            transaction = self._local.transaction
        except AttributeError:
            transaction = self._local.transaction = self._environment.begin(buffers=True)
        value: memoryview | None = transaction.get(key)
        return value

    def close(self) -> None:
        """Unmap the file. Nobody may read through this environment any more."""
        self._environment.close()


class _OpenFiles:
    """The environments of this process, by device and inode."""

    def __init__(self) -> None:
        self.forget()

    def leave_to_parent(self) -> None:
        """Start afresh in a forked child: handles and lock are its parent's.

        Closing here takes nothing from the parent, and lets the child open the same files.
        """
        for environment in list(self.environments.values()):
            environment.close()
        self.forget()

    def forget(self) -> None:
        """Begin with nothing open."""
        self.lock = threading.Lock()
        self.environments: weakref.WeakValueDictionary[tuple[int, int], Environment] = (
            weakref.WeakValueDictionary()
        )


_open_files = _OpenFiles()
os.register_at_fork(after_in_child=_open_files.leave_to_parent)


def open_environment(folder: DataFolder, relative: str, size: int) -> Environment:
    """Return the environment of a checked file, the one that is open already if there is one.

    Raises:
        CorruptShardError: The file changed its size, or LMDB refuses it.
    """
    descriptor = folder.open(relative, size)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    key = (status.st_dev, status.st_ino)
    with _open_files.lock:
        environment = _open_files.environments.get(key)
        if environment is None:
            try:
                environment = Environment(folder.resolve(relative), size)
            except lmdb.Error as error:
                raise CorruptShardError(
                    f"{folder.path / relative}: LMDB refuses it: {error}; restore it, or ingest again"
                ) from error
            _open_files.environments[key] = environment
    return environment
