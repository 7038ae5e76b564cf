"""Splits TFRecord files into the records they frame, holding each against its checksums.

A record is: uint64 length; uint32 masked CRC-32C of the length; the data; uint32 masked CRC-32C of the data; all
little-endian (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details). Since the length has a
checksum of its own, damage to data costs one record; damage to a length hides all that follow.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shardkit.sources.streams import Stream, StreamFault, open_stream

try:
    import google_crc32c
except ImportError:
    google_crc32c = None  # type: ignore[assignment]  # an extra: without it, only what needs it is refused

IS_INSTALLED = google_crc32c is not None
MAX_RECORD_BYTES = 2**31 - 1
"""Protocol buffers hold no more (https://protobuf.dev/programming-guides/proto-limits/)."""
_HEAD = struct.Struct("<QI")
_GZIP = b"\x1f\x8b"


class Frame(NamedTuple):
    """One record of a file.

    Attributes:
        offset: Byte of the content at which it starts.
        data: What it holds; empty if there is a fault.
        fault: What is wrong with it, as one plain sentence, or None.
        is_last: Whether nothing behind it can be found, for it gives no place to go on from.
    """

    offset: int
    data: bytes
    fault: str | None = None
    is_last: bool = False


def find_compression(path: str) -> str | None:
    """Return ``"gz"`` if a file is compressed, whatever its name, else None.

    Raises:
        SourceError: It cannot be opened.
    """
    with open_stream(path) as stream:
        try:
            head = stream.read_some(_HEAD.size)
        except StreamFault:  # reading the records says why
            return None
    is_framed = len(head) == _HEAD.size and _is_intact(head)
    return "gz" if head.startswith(_GZIP) and not is_framed else None


def read_frames(stream: Stream) -> Iterator[Frame]:
    """Yield the records from where the stream stands to its end."""
    while True:
        start = stream.position
        try:
            head = stream.read_some(_HEAD.size)
            if not head:
                return
            if len(head) < _HEAD.size:
                raise StreamFault(f"the file ends {len(head)} bytes into the head of a record")
            length = _HEAD.unpack(head)[0]
            if not _is_intact(head):
                raise StreamFault("the length of a record fails its checksum")
            if length > MAX_RECORD_BYTES:
                raise StreamFault(f"a record says it has {length} bytes; at most {MAX_RECORD_BYTES} are read")
            body = stream.read(length + 4)
        except StreamFault as fault:
            yield Frame(
                start, b"", f"{fault}; all records from here to the end of the file are lost", is_last=True
            )
            return
        data = body[:length]
        is_sound = _mask(google_crc32c.value(data)) == int.from_bytes(body[length:], "little")
        yield (
            Frame(start, data)
            if is_sound
            else Frame(start, b"", "the data of the record fail their checksum")
        )


def _is_intact(head: bytes) -> bool:
    return bool(_mask(google_crc32c.value(head[:8])) == _HEAD.unpack(head)[1])


def _mask(crc: int) -> int:
    """Return a checksum as TFRecord stores it, so that a checksum over data that holds one is not weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF
