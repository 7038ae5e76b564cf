"""How the store touches the file system: durable writes on one side, distrustful opening on the other.

Nothing here knows what the files hold. Implements docs/format.md, "Publishing" (the order of fsync and
rename) and "Paths" (what a relative path may look like, and that it may not lead out of the data set).
"""

import errno
import mmap
import os
import re
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from shardkit.errors import CorruptShardError, OutputError, ShardkitError

PARTIAL = ".partial"
"""Ending of a file or folder that is still being written."""

_COMPONENT = re.compile(r"[A-Za-z0-9._-]{1,255}")
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""How an untrusted path is opened: no link is followed, and a pipe without a writer does not hang us."""


def is_safe_path(path: str) -> bool:
    """Whether `path` is relative, stays inside, and is made of ``[A-Za-z0-9._-]`` components alone."""
    return all(_COMPONENT.fullmatch(part) and part not in (".", "..") for part in path.split("/"))


class DataFolder:
    """The folder of a data set, through which its files are opened.

    Attributes:
        path: The folder, absolute.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._real = os.path.realpath(self.path)
        self._real_parents: dict[str, str] = {}

    def resolve(self, relative: str) -> str:
        """Return the real path of a file of the data set; the file itself may not be a symbolic link.

        Raises:
            CorruptShardError: The path leads out of the data set.
        """
        parent, _, name = relative.rpartition("/")
        real = self._real_parents.get(parent)
        if real is None:
            real = os.path.realpath(os.path.join(self._real, parent))
            self._real_parents[parent] = real
        if not is_safe_path(relative) or os.path.commonpath([real, self._real]) != self._real:
            raise CorruptShardError(
                f"{self.path / relative}: leads out of the data set; it will not be opened"
            )
        return os.path.join(real, name)

    def open(self, relative: str, size: int) -> int:
        """Open a file for reading, after making sure that it is what the manifest says.

        Returns:
            A file descriptor, which the caller closes.

        Raises:
            CorruptShardError: It is missing, a link, not a regular file, or not exactly `size` bytes long.
        """
        path = self.path / relative
        try:
            descriptor = os.open(self.resolve(relative), OPEN_FLAGS)
        except OSError as error:
            raise _unopened(path, error) from error
        status = os.fstat(descriptor)
        problem = None
        if not stat.S_ISREG(status.st_mode):
            problem = "is not a regular file"
        elif status.st_size != size:
            problem = f"is {status.st_size} bytes long, the manifest says {size}: it was cut or altered"
        if problem:
            os.close(descriptor)
            raise CorruptShardError(f"{path}: {problem}; restore it, or ingest again")
        return descriptor

    def map(self, relative: str, size: int) -> memoryview:
        """Memory-map a file read-only. The mapping lives as long as the view, or any view made from it.

        Raises:
            CorruptShardError: As `open`.
        """
        descriptor = self.open(relative, size)
        try:
            if size == 0:  # the system maps no empty file
                return memoryview(b"")
            return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
        except OSError as error:
            raise _unopened(self.path / relative, error) from error
        finally:
            os.close(descriptor)


def _unopened(path: Path, error: OSError) -> ShardkitError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ShardkitError(
            f"{path}: too many open files (limit {soft}, at most {hard}); raise it with `ulimit -n`, "
            "or ingest into fewer, larger shards"
        )
    if error.errno == errno.ELOOP:
        return CorruptShardError(f"{path}: is a symbolic link; it will not be followed")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return CorruptShardError(
            f"{path}: is missing, although the manifest names it; restore it, or ingest again"
        )
    return CorruptShardError(f"{path}: cannot be opened: {error.strerror or error}")


def allow_open_files(count: int) -> None:
    """Raise this process's soft limit of open files so that `count` more fit, if the hard limit allows it.

    A memory map and an LMDB environment each hold a descriptor, and the usual soft limit of 1024 would not do
    for a thousand shards. Where the hard limit is too low, opening fails later with an error that says so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 1024  # what the rest of a program usually has open
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def refusals(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system says against a write into an OutputError that names `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from error


def sync_file(path: str | os.PathLike[str]) -> None:
    """Fsync a file or folder. A failure is final: the kernel may have dropped the pages, so none is retried.

    Raises:
        OutputError: The system refused.
    """
    with refusals(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_stream(stream: IO[bytes]) -> None:
    """Flush and fsync a file that was written, through the handle that wrote it.

    Raises:
        OSError: The system refused; as final as in `sync_file`.
    """
    stream.flush()
    os.fsync(stream.fileno())


def make_folder(path: Path) -> None:
    """Make a folder and its parents where they are missing, and fsync the parent of each new one.

    Raises:
        OutputError: The system refused.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    with refusals(path):
        path.mkdir(exist_ok=True)
    sync_file(path.parent)


def publish(partial: Path, final: Path) -> None:
    """Give what is complete and fsynced its own name, replacing what had it, and fsync the folder.

    Raises:
        OutputError: The system refused.
    """
    with refusals(final):
        if partial.is_dir() and final.is_dir():
            shutil.rmtree(final)  # a folder can only be replaced by way of removing it
        os.replace(partial, final)
    sync_file(final.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that after a power cut either the old content is there, or all of the new.

    Raises:
        OutputError: The system refused.
    """
    partial = path.with_name(path.name + PARTIAL)
    with refusals(path), partial.open("wb") as stream:
        stream.write(data)
        sync_stream(stream)
    publish(partial, path)


def remove(path: Path) -> None:
    """Remove a file or a folder with what is in it, if it is there.

    Raises:
        OutputError: The system refused.
    """
    with refusals(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
