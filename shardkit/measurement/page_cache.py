"""Where the bytes of a data set come from while it is measured: the disk, or the page cache of the system."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_FOLDERS = ("index", "shards")


class PageCache:
    """Empties the page cache before passes if that is wanted, and says what was done.

    Pages that a process has mapped stay where they are: only what was let go of before can be emptied.

    Args:
        path: The data set.
        is_dropped: Whether it is wanted.
        warm_ups: Passes over the same records before those that count.
    """

    def __init__(self, path: Path, is_dropped: bool, warm_ups: int) -> None:
        self._path = path
        self._is_dropped = is_dropped
        self._warm_ups = warm_ups
        self._done = ""
        self._kept: float | None = None

    def prepare(self) -> None:
        """Empty it, if that is wanted."""
        if self._is_dropped:
            self._done = _drop(self._path)
            kept = cached_share(self._path)
            self._kept = kept if self._kept is None or kept is None else max(kept, self._kept)

    def describe(self) -> str:
        """Declare its state in words."""
        if not self._is_dropped:
            found = "as it was found" if not self._warm_ups else "warm, as the warm-up passes left it"
            return f"{found}: nothing was dropped"
        if self._kept is None:
            return f"{self._done}; how much of it remained in memory, the system does not tell"
        return f"{self._done}; {self._kept:.0%} of the data set remained in memory"


def _drop(path: Path) -> str:
    """Empty the page cache, of all files where that is allowed, else of the data set's own; return what was done."""
    with suppress(OSError):
        DROP_CACHES.write_text("3")  # page cache, and what is known of folders
        return f"dropped before each loader's first epoch, by {DROP_CACHES}"
    if not hasattr(os, "posix_fadvise"):
        return "NOT dropped, which this system offers no way to"
    drop_files(path)
    return (
        "dropped before each loader's first epoch, by posix_fadvise on the data set's files "
        f"({DROP_CACHES} takes root)"
    )


def drop_files(path: Path) -> None:
    """Empty the page cache of a data set's files alone, as far as they are written and nobody has mapped them."""
    for file in _files(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_share(path: Path) -> float | None:
    """Return which share of the data set's pages is in memory; None where the system does not tell."""
    cached = pages = 0
    for file in _files(path):
        found = _look_up(file)
        if found is None:
            return None
        cached, pages = cached + int(found.sum()), pages + len(found)
    return cached / pages if pages else None


def _look_up(file: Path) -> npt.NDArray[np.uint8] | None:
    """Return for each page of a file whether it is in memory, which does not bring it there."""
    about = file.stat()
    if about.st_uid != os.geteuid() and not os.access(file, os.W_OK):
        return None  # the system tells strangers that all is there
    is_cached = np.zeros(-(-about.st_size // mmap.PAGESIZE), dtype=np.uint8)
    if not about.st_size:
        return is_cached
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        content = np.frombuffer(mapped, dtype=np.uint8)
        begin, length, answer = content.ctypes.data, content.nbytes, is_cached.ctypes.data
        del content  # which would keep the map from being closed
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(begin), ctypes.c_size_t(length), ctypes.c_void_p(answer)
        )
    return None if failed else is_cached & np.uint8(1)


def _files(path: Path) -> Iterator[Path]:
    for folder in _FOLDERS:
        yield from (file for file in sorted((path / folder).rglob("*")) if file.is_file())
