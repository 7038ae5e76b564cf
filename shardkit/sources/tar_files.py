"""The tar files of a source: one, or all of a folder that holds nothing else."""

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from shardkit.contract import show_id
from shardkit.errors import SourceError
from shardkit.sources.files import find_junk
from shardkit.sources.tar_bytes import GZIP_MAGIC

_SUFFIXES = (b".tar", b".tar.gz", b".tgz")


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


def is_tar_folder(path: str) -> bool:
    """Whether a folder holds tar files and, save what operating systems leave behind, nothing else."""
    found = False
    for entry in _walk(os.fsencode(path)):
        if not entry.name.lower().endswith(_SUFFIXES):
            return False
        found = True
    return found


def list_tar_files(path: str) -> list[TarFile]:
    """Return the tar file at a path, or all of a folder in the order of the bytes of their relative paths.

    Raises:
        SourceError: One cannot be read, or is a link that leads out of the folder.
    """
    if not os.path.isdir(path):
        return [take_tar_file(path)]
    root = os.path.realpath(path)
    names = sorted(os.path.relpath(entry.path, os.fsencode(path)) for entry in _walk(os.fsencode(path)))
    files = []
    for name in names:
        shard = os.path.join(path, os.fsdecode(name))
        if os.path.commonpath((root, os.path.realpath(shard))) != root:
            raise SourceError(
                f"{show_id(shard)}: the link leads out of the folder; copy the file here, or give its own path"
            )
        files.append(take_tar_file(shard))
    return files


def _walk(folder: bytes) -> "Iterator[os.DirEntry[bytes]]":
    """Yield every file below a folder but leftovers; links to folders are not followed, and count as files."""
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError as error:
        shown = show_id(os.fsdecode(folder))
        raise SourceError(f"{shown}: cannot list the folder: {error.strerror}") from error
    for entry in inside:
        is_folder = entry.is_dir(follow_symlinks=False)
        if find_junk(entry.name, is_folder) is not None:
            continue
        if is_folder:
            yield from _walk(entry.path)
        else:
            yield entry


def _open_regular(path: str) -> BinaryIO:
    shown = show_id(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would block, and cannot be read twice
            raise SourceError(f"{shown}: not a regular file")
        return open(path, "rb")  # the caller closes it
    except OSError as error:
        raise SourceError(f"{shown}: cannot read the tar: {error.strerror}") from error
