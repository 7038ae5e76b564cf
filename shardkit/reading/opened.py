"""What is open of a data set: the store, and what reads samples, from files or from memory.

It is opened once in each process that uses it, when that first does, whichever of its threads comes first.
"""

import os
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from shardkit.reading.marked import MarkedRows
from shardkit.reading.preloaded import Preloaded, PreloadedRecords, preload_fields
from shardkit.reading.samples import SampleReader
from shardkit.store import Store
from shardkit.transforms.image_ops import ImageOp


class _Open(NamedTuple):
    store: Store
    reader: SampleReader


class OpenedData:
    """The store and the reader of a data set. Any number of threads may ask for them, and forked children.

    Pickles small, without what is open. A process that is being started shares what was preloaded; whoever unpickles
    it for anything else reads that again, but for DataLoader workers, which then read the files: with memory of its
    own, each would hold a copy.

    Args:
        store: The data set, open.
        names: Fields to read, in the order of the sample.
        verify_checksums: As for `SampleReader`; what is preloaded is checked as it is read, unless this is False.
        ops: Name of an image field -> what becomes of it as it is decoded.
        preload: Whether to hold the fields in memory.
        skipped: Where damaged records are noted that preloading leaves out; None raises the damage.

    Attributes:
        path: The folder, absolute.
        dataset_id: What names the content.
        generation: The counter of commits.

    Raises:
        CorruptShardError: A record to be preloaded is damaged, and damage is not skipped.
        ValueError: There is not the memory to preload.
    """

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        verify_checksums: bool | None,
        ops: dict[str, list[ImageOp]],
        preload: bool,
        skipped: MarkedRows | None,
    ) -> None:
        self.path = store.path
        self.dataset_id: str = store.manifest.dataset_id
        self.generation: int = store.manifest.generation
        self._names = names
        self._verify_checksums = verify_checksums
        self._ops = ops
        self._preload = preload
        self._skipped = skipped
        self._preloaded: Preloaded | None = None
        self._renew_lock()
        _living.add(self)
        self._open: _Open | None = _Open(store, self._make_reader(store))

    @property
    def store(self) -> Store:
        """The data set.

        Raises:
            DatasetNotFoundError, FormatError: It is opened now, and is not there any more.
            CorruptShardError, ValueError: It is preloaded now, and cannot be.
        """
        return (self._open or self._open_once()).store

    @property
    def reader(self) -> SampleReader:
        """What reads its samples.

        Raises:
            DatasetNotFoundError, FormatError, CorruptShardError, ValueError: As for `store`.
        """
        return (self._open or self._open_once()).reader

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what is open, and with what was preloaded only for a process being started."""
        state = self.__dict__ | {"_open": None}
        del state["_lock"]
        if get_spawning_popen() is None:
            state["_preloaded"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew_lock()
        _living.add(self)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def _open_once(self) -> _Open:
        with self._lock:
            if self._open is None:
                store = Store(self.path, self.generation, self.dataset_id)
                self._open = _Open(store, self._make_reader(store))
            return self._open

    def _make_reader(self, store: Store) -> SampleReader:
        if not self._preload or (self._preloaded is None and get_worker_info() is not None):
            return SampleReader(store, self._names, self._verify_checksums, self._ops)
        if self._preloaded is None:
            is_checked = self._verify_checksums is not False
            self._preloaded = preload_fields(store, self._names, is_checked, self._skipped)
        records = PreloadedRecords(store, self._preloaded)
        return SampleReader(records, self._names, verify_checksums=False, ops=self._ops)


_living: "weakref.WeakSet[OpenedData]" = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a thread of the parent, which is not here, may hold one."""
    for opened in list(_living):
        opened._renew_lock()


os.register_at_fork(after_in_child=_renew_locks)
