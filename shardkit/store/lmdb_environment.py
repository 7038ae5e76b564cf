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
            reader = self._local.reader
        except AttributeError:
            reader = self._begin()
        with reader.lock:
            value: memoryview | None = reader.transaction.get(key)
        return value

    def leave_to_parent(self) -> None:
        """In a forked child: drop the handles. That takes nothing from the parent, and frees the file to be opened."""
        if self._environment is not None:
            self._environment.close()
        self._leave()

    def _leave(self) -> None:
        self._environment: Any = None  # an lmdb.Environment; the package is not typed
        self._local = threading.local()

    def _begin(self) -> "_Reader":
        with _open_files.lock:
            if self._environment is None:
                self._environment = self._open()
            reader = self._local.reader = _Reader(self._environment.begin(buffers=True))
            _open_files.readers.add(reader)
        return reader

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


class _Reader:
    """The transaction of a thread, and the lock that it holds while it looks something up."""

    def __init__(self, transaction: Any) -> None:
        self.transaction = transaction
        self.lock = threading.RLock()  # a signal handler may fork


class _OpenFiles:
    """The environments of this process, and the threads that read them.

    A fork waits until no thread is inside LMDB: the child could not close the file, as that waits for such threads,
    which it does not have, and could so not open it.
    """

    def __init__(self) -> None:
        self.environments: weakref.WeakValueDictionary[_FileKey, Environment] = weakref.WeakValueDictionary()
        self._held: list[_Reader] = []
        self._forget_threads()

    def hold(self) -> None:
        """Before a fork: stop the other threads at their next look-up."""
        self.lock.acquire()
        self._held = list(self.readers)
        for reader in self._held:
            reader.lock.acquire()

    def release(self) -> None:
        """In the parent, after a fork: let them go on."""
        for reader in self._held:
            reader.lock.release()
        self._held.clear()
        self.lock.release()

    def leave_to_parent(self) -> None:
        """In a forked child: drop the handles."""
        self._forget_threads()
        for environment in list(self.environments.values()):
            environment.leave_to_parent()

    def _forget_threads(self) -> None:
        self.lock = threading.RLock()
        self.readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._held.clear()


_open_files = _OpenFiles()
os.register_at_fork(
    before=_open_files.hold,
    after_in_parent=_open_files.release,
    after_in_child=_open_files.leave_to_parent,
)


def share_environment(folder: DataFolder, relative: str, size: int) -> Environment:
    """Return the environment of a checked file, the one that there is already if so.

    Raises:
        CorruptShardError: The file changed its size.
    """
    environment = Environment(folder, relative, size)
    with _open_files.lock:
        return _open_files.environments.setdefault(environment.key, environment)
