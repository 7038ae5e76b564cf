"""The tar files of a source: one, or all of a folder that holds nothing else."""

import os
import stat
from collections import Counter
from typing import BinaryIO, NamedTuple

from shardkit.contract import show_id
from shardkit.errors import SourceError
from shardkit.sources.container_folder import find_files
from shardkit.sources.recognition import is_tar
from shardkit.sources.tar.bytes import GZIP_MAGIC


class TarFile(NamedTuple):
    """One tar file as it was when the source was opened.

    Attributes:
        path: Where it is.
        size: Its bytes.
        written: Time of last write, in nanoseconds.
        is_gzip: Whether it begins as gzip data does, whatever its name says.
    """

    path: str
    size: int
    written: int
    is_gzip: bool

    def open(self) -> BinaryIO:
        """Return the file, at its beginning. The caller closes it.

        Raises:
            SourceError: It cannot be read, or is not what it was.
        """
        file = _open_regular(self.path)
        status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self.size, self.written):
            file.close()
            raise SourceError(f"{self.path}: changed while it was ingested; start again")
        return file


def take_tar_file(path: str) -> TarFile:
    """Return a tar file as it is now.

    Raises:
        SourceError: It cannot be read, or is no regular file.
    """
    with _open_regular(path) as file:
        status = os.fstat(file.fileno())
        return TarFile(path, status.st_size, status.st_mtime_ns, file.read(2) == GZIP_MAGIC)


def list_tar_files(path: str, passed_over: Counter[str]) -> list[TarFile]:
    """Return the tar file at a path, or all of a folder in the order of the bytes of their relative paths.

    Args:
        path: The file or the folder.
        passed_over: Kind of file beside the tars -> how many.

    Raises:
        SourceError: One cannot be read, or there is something else in the folder.
    """
    if not os.path.isdir(path):
        return [take_tar_file(path)]
    return [take_tar_file(os.path.join(path, name)) for name in find_files(path, is_tar, passed_over)]


def _open_regular(path: str) -> BinaryIO:
    shown = show_id(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would block, and cannot be read twice
            raise SourceError(f"{shown}: not a regular file")
        return open(path, "rb")  # the caller closes it
    except OSError as error:
        raise SourceError(f"{shown}: cannot read the tar: {error.strerror}") from error
