"""Bytes and integers of a file that is read piece by piece, for files of which mapping would take too much memory.

A page of a mapped file counts as this process's memory once it was touched, and the system maps its neighbours with
it: a few thousand look-ups in a large index would make all of it resident. These views keep nothing.
"""

import os
import weakref
from pathlib import Path

from shardkit.errors import CorruptShardError
from shardkit.store.folder import DataFolder


class FileBytes:
    """The bytes ``[start, size)`` of a file. ``view[begin:end]`` takes a range that lies inside, without a step."""

    def __init__(self, folder: DataFolder, relative: str, size: int, start: int = 0) -> None:
        """Open the file.

        Raises:
            CorruptShardError: It is not what the manifest says.
        """
        self._descriptor = folder.open(relative, size)
        weakref.finalize(self, os.close, self._descriptor)
        self._shown: Path = folder.path / relative
        self._start = start
        self._size = size - start

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, piece: slice) -> bytes:
        return self.read(piece.start, piece.stop)

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes ``[begin, end)``.

        Raises:
            CorruptShardError: The file was cut since it was opened.
        """
        data = os.pread(self._descriptor, end - begin, self._start + begin)
        if len(data) != end - begin:
            raise CorruptShardError(f"{self._shown}: was cut while in use; restore it, or ingest again")
        return data


class FileIntegers:
    """The `count` uint64 at the end of a file, as a sequence fit for bisection."""

    def __init__(self, folder: DataFolder, relative: str, size: int, count: int) -> None:
        """Open the file.

        Raises:
            CorruptShardError: It is not what the manifest says.
        """
        self._bytes = FileBytes(folder, relative, size, size - 8 * count)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> int:
        return int.from_bytes(self._bytes.read(8 * position, 8 * position + 8), "little")
