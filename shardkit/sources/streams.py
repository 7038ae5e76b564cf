"""Reads exact runs of bytes from a file of a source, plain or compressed, forwards.

Nothing is allocated on the word of a header: what is asked for is read in pieces, as far as it is there.
"""

import bz2
import gzip
import os
import zlib
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any
from zipfile import BadZipFile

from shardkit.errors import SourceError

PIECE_BYTES = 2**20
"""Most bytes that are asked of the system, or of a decompressor, at once."""

OPENERS: dict[str, Callable[[str], Any]] = {"gz": gzip.open, "bz2": bz2.open}
"""Compression -> what opens such a file for reading; the others need libraries that Python does not bring."""


class StreamFault(Exception):
    """Why the bytes cannot be had, as one plain sentence that names the position."""


class StreamCut(StreamFault):
    """There are fewer bytes than there should be; those before are sound, as far as the format can tell."""


class Stream:
    """Bytes that are read forwards; a context manager that closes the file.

    Attributes:
        size: Bytes of the content, or None where it is compressed and nobody can know.
        position: Byte of the content that is read next.
    """

    def __init__(self, file: IO[bytes], size: int | None) -> None:
        """Take a file that stands at its beginning, and the size of its content."""
        self._file = file
        self.size = size
        self.position = 0

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def seek(self, position: int) -> None:
        """Go to a byte of the content; in a compressed file all that is before it is decompressed.

        Raises:
            StreamFault: The content ends before, or is damaged.
        """
        if self.size is None:
            self._skip(position - self.position)
            return
        if position > self.size:
            raise StreamCut(f"the file ends at byte {self.size}, before byte {position}")
        self._guard(lambda: self._file.seek(position))
        self.position = position

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes.

        Raises:
            StreamFault: There are fewer, or they are damaged.
        """
        start = self.position
        if self.size is not None and count > self.size - start:
            raise StreamFault(f"the file ends at byte {self.size}; {count} bytes should follow byte {start}")
        data = self.read_some(count)
        if len(data) < count:
            raise StreamCut(
                f"the content ends at byte {start + len(data)}; {count} bytes should follow byte {start}"
            )
        return data

    def read_some(self, count: int) -> bytes:
        """Return `count` bytes, or those that are left.

        Raises:
            StreamFault: They are damaged.
        """
        if count <= PIECE_BYTES:
            data: bytes = self._guard(lambda: self._file.read(count))
            self.position += len(data)
            return data
        pieces = bytearray()
        while count > len(pieces) and (piece := self.read_some(min(PIECE_BYTES, count - len(pieces)))):
            pieces += piece
        return bytes(pieces)

    def _skip(self, count: int) -> None:
        while count:
            count -= len(self.read(min(PIECE_BYTES, count)))

    def _guard(self, act: Callable[[], Any]) -> Any:
        """Carry out one call of the file, whose errors depend on the compression."""
        try:
            return act()
        except EOFError as error:
            raise StreamCut(
                f"the compressed file is cut short after byte {self.position} of its content"
            ) from error
        except BadZipFile as error:
            raise StreamFault(f"the archive is damaged: {error}") from error
        except zlib.error as error:
            raise StreamFault(
                f"the compressed data is damaged after byte {self.position} of its content"
            ) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise StreamFault(f"cannot read after byte {self.position}: {why}") from error


def open_stream(path: str, compression: str | None = None) -> Stream:
    """Open a regular file.

    Args:
        path: The file.
        compression: A key of `OPENERS`, or None for a plain file.

    Raises:
        SourceError: It cannot be opened, or is no regular file.
    """
    try:
        if not os.path.isfile(path):  # a pipe would block, and cannot be read twice
            found = "not a regular file" if os.path.lexists(path) else "there is no such file"
            raise SourceError(f"{path}: {found}")
        size = os.path.getsize(path) if compression is None else None
        file = open(path, "rb") if compression is None else OPENERS[compression](path)  # noqa: SIM115 - Stream closes it
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror}") from error
    return Stream(file, size)
