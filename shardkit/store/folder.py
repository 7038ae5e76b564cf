"""Opens files with distrust: nothing outside the data set, no link, no pipe, and only of the size that is due.

Nothing here knows what the files hold. Implements docs/format.md, "Paths".
"""

import errno
import mmap
import os
import re
import stat
from pathlib import Path

from shardkit.errors import CorruptShardError, ShardkitError
from shardkit.store.open_files import describe_limit

_COMPONENT = r"(?!\.\.?(?:/|\Z))[A-Za-z0-9._-]{1,255}"
_SAFE_PATH = re.compile(f"{_COMPONENT}(?:/{_COMPONENT})*")
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe must not make us wait


def is_safe_path(path: str) -> bool:
    """Whether `path` is relative, stays inside, and is made of ``[A-Za-z0-9._-]`` components alone."""
    return _SAFE_PATH.fullmatch(path) is not None


def open_regular(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Open a file for reading if it is one: no link is followed, and a pipe without a writer does not hang us.

    Returns:
        A file descriptor, which the caller closes, and the size.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, _OPEN_FLAGS)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
    return descriptor, status.st_size


class DataFolder:
    """The folder of a data set, through which its files are opened.

    Attributes:
        path: The folder, absolute.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._real = os.path.realpath(self.path)
        self._real_folders: dict[str, str | None] = {"": self._real}

    def resolve(self, relative: str) -> str:
        """Return the real path of a file of the data set; the file itself may not be a symbolic link.

        Raises:
            CorruptShardError: The path leads out of the data set.
        """
        parent, _, name = relative.rpartition("/")
        real = self._real_folder(parent)
        if real is None or not is_safe_path(name):
            raise CorruptShardError(
                f"{self.path / relative}: leads out of the data set; it will not be opened"
            )
        return f"{real}/{name}"

    def _real_folder(self, relative: str) -> str | None:
        """Return the real path of a folder of the data set, or None if it is not inside; asked once a folder."""
        if relative not in self._real_folders:
            self._real_folders[relative] = self._find_folder(relative)
        return self._real_folders[relative]

    def _find_folder(self, relative: str) -> str | None:
        parent = self._real_folder(relative.rpartition("/")[0]) if is_safe_path(relative) else None
        if parent is None:
            return None
        path = os.path.join(parent, os.path.basename(relative))
        if not os.path.islink(path):
            return path
        real = os.path.realpath(path)
        return real if os.path.commonpath([real, self._real]) == self._real else None

    def open(self, relative: str, size: int) -> int:
        """Open a file for reading, after making sure that it is what the manifest says.

        Returns:
            A file descriptor, which the caller closes.

        Raises:
            CorruptShardError: It is missing, a link, not a regular file, or not exactly `size` bytes long.
        """
        try:
            descriptor, found = open_regular(self.resolve(relative))
        except OSError as error:
            raise _unreadable(self.path / relative, error) from error
        if found != size:
            os.close(descriptor)
            raise CorruptShardError(
                f"{self.path / relative}: is {found} bytes long, the manifest says {size}: it was cut or "
                "altered; restore it, or ingest again"
            )
        return descriptor

    def read(self, relative: str, size: int, *ranges: tuple[int, int]) -> list[bytes]:
        """Return the bytes ``[begin, end)`` of each range of a file, less where they pass its end.

        Raises:
            CorruptShardError: As `open`.
        """
        descriptor = self.open(relative, size)
        try:
            return [os.pread(descriptor, end - begin, begin) for begin, end in ranges]
        except OSError as error:
            raise _unreadable(self.path / relative, error) from error
        finally:
            os.close(descriptor)

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
            raise _unreadable(self.path / relative, error) from error
        finally:
            os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> ShardkitError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ShardkitError(
            f"{path}: too many open files ({describe_limit()}); raise it with `ulimit -n`, "
            "or ingest into fewer, larger shards"
        )
    if error.errno == errno.ELOOP:
        return CorruptShardError(f"{path}: is a symbolic link; it will not be followed")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return CorruptShardError(
            f"{path}: is missing, although the manifest names it; restore it, or ingest again"
        )
    return CorruptShardError(
        f"{path}: cannot be read: {error.strerror or error}; restore it, or ingest again"
    )
