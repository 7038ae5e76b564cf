"""JPEG from its first scan on: which scans there are, whether they are all there, where the picture ends.

Also rebuilds a clean stream, which tells harmless faults (junk between segments, no end marker) from damage
in the coded pixels. Sources: ITU-T T.81, B.1.1.2 (markers in scans), B.2.3 (scan header), G.1.1.1
(progressive scans).
"""

import re
from dataclasses import dataclass

import numpy as np

from shardkit.contract.images.jpeg import EOI, PROGRESSIVE_FRAMES, SEQUENTIAL_FRAMES, SOS, JpegFacts, Segment
from shardkit.contract.reasons import Warned

_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""Ends a run of coded data: any marker but a stuffed zero, a fill byte or a restart."""
_APP0, _APP14, _COM = 0xE0, 0xEE, 0xFE
_DHT = 0xC4
_TABLES = frozenset({_DHT, 0xCC, 0xDB, 0xDD})
_JFIF = b"\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
_WINDOW = 1 << 20
"""Bytes looked through at a time, since numpy takes as much memory again."""
_COEFFICIENTS = 64
_AC_COEFFICIENTS = 63
_SAME_BLOCKS = 2
_NOT_SENT = 14
"""More than any point transform (T.81 allows 13): the coefficient has not come at all."""


@dataclass(slots=True)
class Scans:
    """What stands from the first scan on.

    Attributes:
        pieces: Tables, scan headers and coded data in order, as ranges of the file; junk is left out.
        headers: The body of each scan header.
        end: Just after the EOI marker, or None where there is none.
    """

    pieces: list[tuple[int, int]]
    headers: list[bytes]
    end: int | None


def plain_end(data: bytes, facts: JpegFacts) -> int | None:
    """Return where a JPEG of one sequential scan ends (after EOI), or None for any other kind."""
    is_whole_scan = data[facts.scan + 4 : facts.scan + 5] == bytes([len(facts.components)])
    if facts.frame in PROGRESSIVE_FRAMES or not is_whole_scan:
        return None
    found = _MARKER.search(data, _skip_coded(data, facts.segments[-1].end))
    return found.end() if found is not None and data[found.end() - 1] == EOI else None


def _skip_coded(data: bytes, at: int) -> int:
    """Return a place at or after `at`, but not behind the first marker from there on: the quick part of a search.

    By numpy, which takes a third of the time of a regular expression that stops at each stuffed zero.
    """
    coded = np.frombuffer(data, np.uint8, min(len(data) - at, _WINDOW), at)
    is_marker = coded[:-1] == 0xFF
    is_marker &= coded[1:] != 0
    return at + int(is_marker.argmax()) if is_marker.size else at


def walk_scans(data: bytes, facts: JpegFacts) -> Scans:
    """Walk from the first scan to EOI, or to the end of the file."""
    scans = Scans([], [], None)
    at = facts.scan
    while True:
        found = _MARKER.search(data, at)
        if found is None or found.end() + 2 > len(data):
            if found is not None and data[found.end() - 1] == EOI:
                scans.end = found.end()
            return scans
        at, marker = found.start(), data[found.start() + 1]
        if marker == EOI:
            scans.end = at + 2
            return scans
        length = max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
        end = at + 2 + length
        if marker == SOS:
            scans.headers.append(data[at + 4 : end])
            coded = _MARKER.search(data, end)
            after = coded.start() if coded is not None else len(data)
            scans.pieces += [(at, end), (end, after)]
            at = after
        elif marker in _TABLES:
            scans.pieces.append((at, end))
            at = end
        else:
            at = end if marker == _COM or 0xE0 <= marker <= 0xEF else at + 2


def zero_hole(data: bytes, facts: JpegFacts, end: int) -> int | None:
    """Return where coded data holds zeros that no encoder can have written, or None. For one sequential scan.

    A lost disk page reads as zeros, and zeros are valid codes: libjpeg often has no remark. But where the
    code of all zero bits stands for a coefficient, a run of zeros long enough for two blocks says that
    two blocks on end have all 63 coefficients, and all the same: that is no picture.
    """
    shortest = _SAME_BLOCKS * _AC_COEFFICIENTS * 2 // 8
    start = facts.segments[-1].end
    words = np.frombuffer(data, np.uint64, max(0, end - start) // 8, start)
    if words.all():  # so long a run of zeros would hold a whole word of them
        return None
    at = data.find(bytes(shortest), start, end)
    if at < 0 or facts.is_arithmetic:
        return None
    bits = max(
        (_zero_code_bits(data, segment) for segment in facts.segments if segment.marker == _DHT), default=0
    )
    longest = _SAME_BLOCKS * _AC_COEFFICIENTS * bits // 8
    return at if bits and data.find(bytes(longest), at, end) >= 0 else None


def _zero_code_bits(data: bytes, segment: Segment) -> int:
    """Return the most bits of a coefficient coded by zeros alone in the AC tables of a DHT segment, or 0."""
    most, at = 0, segment.start + 4
    while at + 18 <= segment.end:
        counts, symbol = data[at + 1 : at + 17], data[at + 17]
        is_ac, size = data[at] >> 4 == 1, symbol & 15
        if is_ac and size:
            length = next((length for length, count in enumerate(counts, 1) if count), 0)
            most = max(most, length + size)
        at += 17 + sum(counts)
    return most


def missing_scans(facts: JpegFacts, scans: Scans) -> str:
    """Say what a JPEG lacks of its picture; an empty string where every coefficient bit has come."""
    remaining = {identity: [_NOT_SENT] * _COEFFICIENTS for identity, _, _ in facts.components}
    is_progressive = facts.frame in PROGRESSIVE_FRAMES
    for header in scans.headers:
        count = header[0] if header else 0
        if len(header) < 4 + 2 * count:
            return "a scan header is cut short"
        first, last, precision = header[1 + 2 * count : 4 + 2 * count] if is_progressive else (0, 63, 0)
        for identity in header[1 : 1 + 2 * count : 2]:
            bits = remaining.get(identity)
            if bits is not None:
                bits[first : last + 1] = [precision & 15] * (min(last, 63) + 1 - first)
    lacking = sum(bits != [0] * _COEFFICIENTS for bits in remaining.values())
    if not lacking:
        return ""
    return (
        f"the JPEG has {len(scans.headers)} scans and an end marker, yet {lacking} of its "
        f"{len(remaining)} components lack coefficients or bits of them"
    )


def rebuild(data: bytes, facts: JpegFacts, scans: Scans) -> bytes:
    """Return the same coded picture in a clean stream: no junk, no metadata, and an end marker."""
    out = [b"\xff\xd8"]
    for segment in facts.segments[:-1]:
        if segment.marker == _APP0 and data.startswith(b"JFIF", segment.start + 4):
            out.append(_JFIF)
        elif not 0xE0 <= segment.marker <= 0xEF and segment.marker != _COM:
            out.append(data[segment.start : segment.end])
        elif segment.marker == _APP14 and segment.end - segment.start >= 16:
            out.append(b"\xff\xee\x00\x0e" + data[segment.start + 4 : segment.start + 16])
    for start, end in scans.pieces:
        piece = data[start:end]
        is_header = piece.startswith(b"\xff\xda")
        if is_header and facts.frame in SEQUENTIAL_FRAMES:
            piece = piece[:-3] + b"\x00\x3f\x00"  # some writers leave zeros here, which libjpeg remarks upon
        out.append(piece)
    return b"".join([*out, b"\xff\xd9"])


def after_end(data: bytes, end: int, facts: JpegFacts) -> Warned | None:
    """Return what is to be said of the bytes after EOI."""
    rest = data[end:]
    if not rest:
        return None
    is_picture = facts.has_mpf or rest.lstrip(b"\0").startswith(b"\xff\xd8\xff")
    return Warned.EMBEDDED_IMAGES if is_picture else Warned.TRAILING_BYTES
