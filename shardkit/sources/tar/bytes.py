"""The bytes of a tar file from front to end, plain or decompressed, without trusting what either promises.

Decompression goes through `zlib` itself rather than `gzip.GzipFile`, which drops what it had decoded when it meets
damage. The frame is RFC 1952; several gzip members may follow one another, and zeros may pad the last.
"""

import zlib
from typing import BinaryIO, Protocol

GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # wbits: a gzip frame, with the checksum at its end verified
_INPUT_BYTES = 1 << 16
_OUTPUT_BYTES = 1 << 20


class TarBytes(Protocol):
    """Bytes that are read once, from front to end.

    Attributes:
        position: How many were read or skipped.
        fault: Why they end early, as one plain sentence, or None.
        is_sound: Whether the bytes before the end can be trusted; False once a checksum over them fails.
    """

    position: int
    fault: str | None
    is_sound: bool

    def read(self, size: int) -> bytes:
        """Return the next bytes: `size` of them, or fewer at the end."""

    def skip(self, size: int) -> int:
        """Pass over bytes, and return how many: `size`, or fewer at the end."""


class PlainBytes:
    """The bytes of a file as they are; passing over some reads nothing."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Take a file at its beginning, and its size."""
        self.position = 0
        self.fault: str | None = None
        self.is_sound = True
        self._file = file
        self._size = size

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        data = self._file.read(min(size, self._size - self.position))
        self.position += len(data)
        return data

    def skip(self, size: int) -> int:
        """Pass over bytes."""
        skipped = min(size, self._size - self.position)
        self.position += skipped
        self._file.seek(self.position)
        return skipped


class GzipBytes:
    """The decompressed bytes of a gzip file. Memory stays bounded whatever the file makes of itself."""

    def __init__(self, file: BinaryIO) -> None:
        """Take a file at its beginning."""
        self.position = 0
        self.fault: str | None = None
        self.is_sound = True
        self._file = file
        self._engine = zlib.decompressobj(_GZIP)
        self._input = b""
        self._output = memoryview(b"")
        self._has_ended = False

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        pieces = []
        while size and (piece := self._take(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> int:
        """Pass over bytes."""
        skipped = 0
        while skipped < size and (piece := self._take(size - skipped)):
            skipped += len(piece)
        return skipped

    def _take(self, size: int) -> memoryview:
        """Return between 1 and `size` of the next bytes; none at the end."""
        while not self._output and not self._has_ended:
            self._output = memoryview(self._decompress())
        piece, self._output = self._output[:size], self._output[size:]
        self.position += len(piece)
        return piece

    def _decompress(self) -> bytes:
        """Return some more bytes, perhaps none; sees to the end, and to what is wrong there."""
        if self._engine.eof:
            return self._begin_next()
        data = self._input or self._file.read(_INPUT_BYTES)
        if not data:
            return self._end("its gzip data is cut short")
        try:
            output = self._engine.decompress(data, _OUTPUT_BYTES)
        except zlib.error as error:
            self.is_sound = False
            return self._end(f"its gzip data is damaged ({error})")
        self._input = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
        return output

    def _begin_next(self) -> bytes:
        """Begin the gzip member that follows, if one does."""
        data = self._input.lstrip(b"\0") or self._file.read(_INPUT_BYTES).lstrip(b"\0")
        if not data:
            return self._end_unless_zeros()
        data += self._file.read(1) if len(data) == 1 else b""
        if not data.startswith(GZIP_MAGIC):
            return self._end("there are further bytes behind the end of its gzip data")
        self._engine, self._input = zlib.decompressobj(_GZIP), data
        return b""

    def _end_unless_zeros(self) -> bytes:
        self._input = self._file.read(_INPUT_BYTES)
        return b"" if self._input else self._end(None)

    def _end(self, fault: str | None) -> bytes:
        self.fault = fault
        self._has_ended = True
        return b""
