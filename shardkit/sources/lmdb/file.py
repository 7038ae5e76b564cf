"""An LMDB file of others, checked before LMDB maps it: one that is cut or altered kills the process with SIGBUS."""

import dataclasses
import mmap
import os
import stat
from typing import BinaryIO, NamedTuple

from shardkit.contract import show_id
from shardkit.errors import SourceError
from shardkit.store.lmdb_header import LmdbFault, LmdbMeta, read_meta
from shardkit.store.lmdb_tree import check_tree_of_any

_DATA = "data.mdb"
_MAX_DEPTH = 32  # CURSOR_STACK in mdb.c


class LmdbFile(NamedTuple):
    """One LMDB file as it was when it was checked.

    Attributes:
        path: Where it is.
        size: Its bytes.
        written: Time of last write, in nanoseconds.
        inode: Its inode.
        entries: Entries of its main database.
    """

    path: str
    size: int
    written: int
    inode: int
    entries: int

    def require_same(self) -> None:
        """Check that the file is the one that was checked.

        Raises:
            SourceError: It is not, or is gone.
        """
        status = _look_at(self.path)
        if (status.st_size, status.st_mtime_ns, status.st_ino) != (self.size, self.written, self.inode):
            raise SourceError(f"{show_id(self.path)}: changed while it was ingested; start again")


def is_lmdb_folder(path: str) -> bool:
    """Whether a folder is an LMDB environment."""
    return os.path.isfile(os.path.join(path, _DATA))


def check_lmdb_file(path: str) -> LmdbFile:
    """Return the LMDB file at a path, or the ``data.mdb`` of a folder, once all of its tree was checked.

    Raises:
        SourceError: It is none, is damaged, or holds what is not read: named databases, or several values a key.
    """
    path = os.path.join(path, _DATA) if os.path.isdir(path) else path
    shown = show_id(path)
    try:
        _look_at(path)
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            meta = _check_meta(read_meta(file.fileno()), status.st_size)
            if meta.entries:
                _check_tree(file, status.st_size, meta)
    except LmdbFault as fault:
        raise SourceError(f"{shown}: {fault}") from fault
    except OSError as error:
        raise SourceError(f"{shown}: cannot read the LMDB: {error.strerror}") from error
    return LmdbFile(path, status.st_size, status.st_mtime_ns, status.st_ino, meta.entries)


def _look_at(path: str) -> os.stat_result:
    try:
        status = os.stat(path)
    except OSError as error:
        raise SourceError(f"{show_id(path)}: cannot read the LMDB: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{show_id(path)}: not a regular file")
    return status


def _check_meta(meta: LmdbMeta, size: int) -> LmdbMeta:
    """Return the meta page with the last page that there really is: the last ones in use may be free, and missing."""
    if meta.flags != 0:
        raise LmdbFault(
            f"its main database has flags {meta.flags:#x}, such as several values a key, and is not read"
        )
    if meta.entries and not (1 <= meta.depth <= _MAX_DEPTH and 2 <= meta.root <= meta.last_page):
        raise LmdbFault("the root of its tree is not sound")
    return dataclasses.replace(meta, last_page=min(meta.last_page, size // meta.page_size - 1))


def _check_tree(file: BinaryIO, size: int, meta: LmdbMeta) -> None:
    try:
        if meta.root > meta.last_page:
            raise LmdbFault("its tree begins behind its end")
        check_tree_of_any(memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)), meta)
    except LmdbFault as fault:
        raise _with_cut(fault, read_meta(file.fileno()), size) from fault


def _with_cut(fault: LmdbFault, meta: LmdbMeta, size: int) -> LmdbFault:
    """Return a fault that says as well if the file is shorter than its header has it."""
    pages = size // meta.page_size
    if pages > meta.last_page:
        return fault
    return LmdbFault(
        f"it is cut: its header speaks of {meta.last_page + 1} pages, and {pages} are there; {fault}"
    )
