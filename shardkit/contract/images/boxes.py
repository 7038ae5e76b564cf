"""The boxes of an ISO base media file (AVIF) or a JP2 file: kind, and where the body lies.

Sources: ISO/IEC 14496-12, 4.2; ITU-T T.800, I.4.
"""

from collections.abc import Iterator
from typing import NamedTuple

from shardkit.contract.images.facts import bad_header, truncated


class Box(NamedTuple):
    """One box: its four-byte kind and ``data[start:end]`` as its body."""

    kind: bytes
    start: int
    end: int


def boxes(data: bytes, start: int, end: int, name: str) -> Iterator[Box]:
    """Yield the boxes in ``data[start:end]``.

    Raises:
        Violation: A box reaches beyond `end` (``truncated`` where that is the end of the file), or is shorter
            than its own header (``bad-header``).
    """
    at = start
    while at + 8 <= end:
        length, header = int.from_bytes(data[at : at + 4], "big"), 8
        kind = data[at + 4 : at + 8]
        if length == 1:
            length, header = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        elif length == 0:
            length = end - at
        if length < header:
            raise bad_header(f"the {name} holds a box at byte {at} that is shorter than its own header")
        if at + length > end:
            sentence = (
                f"the {name} holds a box at byte {at} that should end at byte {at + length}, not at {end}"
            )
            raise truncated(sentence) if end == len(data) else bad_header(sentence)
        yield Box(kind, at + header, at + length)
        at += length
