"""LMDB environments for reading: one a file and process, shared by its readers, never carried over a fork.

LMDB must not open one file twice in a process, and a forked child must not use its parent's environment
(http://www.lmdb.tech/doc/, "Caveats").
"""

import os
import threading
import weakref
from typing import Any

import lmdb

from shardkit.errors import CorruptShardError
from shardkit.store.folder import DataFolder

_FileKey = tuple[int, int]  # device and inode


class Environment:
    """An LMDB file that is open for reading. It closes when the last reader lets go of it.

    It is opened at the first look-up, and again at the first in a forked child. Transactions are per thread: LMDB
    forbids using one from two threads at a time.
    """

    def __init__(self, folder: DataFolder, relative: str, size: int) -> None:
        self._folder = folder
        self._relative = relative
        self._size = size
        self.key = self._find_key()
        self._leave()

    def get(self, key: bytes) -> memoryview | None:
        """Return the value of a key: a view that is valid while this environment is referenced.

        Raises:
            CorruptShardError: The file was replaced, or LMDB refuses it.
            lmdb.Error: LMDB cannot read on.
        """
        try:
            transaction = self._local.transaction
        except AttributeError:
            transaction = self._begin()
        value: memoryview | None = transaction.get(key)
        return value

    def leave_to_parent(self) -> None:
        """In a forked child: drop the handles. That takes nothing from the parent, and frees the file to be opened."""
        if self._environment is not None:
            self._environment.close()
        self._leave()

    def _leave(self) -> None:
        self._environment: Any = None  # an lmdb.Environment; the package is not typed
        self._local = threading.local()

    def _begin(self) -> Any:
        with _open_files.lock:
            if self._environment is None:
                self._environment = self._open()
        transaction = self._local.transaction = self._environment.begin(buffers=True)
        return transaction

    def _open(self) -> Any:
        shown = self._folder.path / self._relative
        if self._find_key() != self.key:  # what was checked was another file
            raise CorruptShardError(f"{shown}: was replaced while in use; open the data set anew")
        try:
            return lmdb.open(
                self._folder.resolve(self._relative),
                map_size=self._size,
                subdir=False,
                readonly=True,
                lock=False,
                readahead=False,
                max_dbs=0,
                create=False,
            )
        except lmdb.Error as error:
            raise CorruptShardError(
                f"{shown}: LMDB refuses it: {error}; restore it, or ingest again"
            ) from error

    def _find_key(self) -> _FileKey:
        descriptor = self._folder.open(self._relative, self._size)
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return status.st_dev, status.st_ino


class _OpenFiles:
    """The environments of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.environments: weakref.WeakValueDictionary[_FileKey, Environment] = weakref.WeakValueDictionary()

    def leave_to_parent(self) -> None:
        """In a forked child: drop the handles, and the lock, which a thread of the parent may hold."""
        self.lock = threading.Lock()
        for environment in list(self.environments.values()):
            environment.leave_to_parent()


_open_files = _OpenFiles()
os.register_at_fork(after_in_child=_open_files.leave_to_parent)


def share_environment(folder: DataFolder, relative: str, size: int) -> Environment:
    """Return the environment of a checked file, the one that there is already if so.

    Raises:
        CorruptShardError: The file changed its size.
    """
    environment = Environment(folder, relative, size)
    with _open_files.lock:
        return _open_files.environments.setdefault(environment.key, environment)
