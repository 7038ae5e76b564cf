"""JPEG headers: a walk over the segments before the first scan, quick enough for every read. Decodes nothing.

What follows the first scan (more scans, the end, what stands behind it) is in ``jpeg_scans.py``.
Sources: ITU-T T.81, B.1 and B.2 (markers); CIPA DC-007 (MPF).
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from shardkit.contract.field import Violation
from shardkit.contract.images.exif import orientation
from shardkit.contract.images.facts import Facts, bad_header, truncated
from shardkit.contract.reasons import Reason, Warned

SOI, EOI, SOS = 0xD8, 0xD9, 0xDA
_DHT, _JPG, _DAC = 0xC4, 0xC8, 0xCC
_APP1, _APP2 = 0xE1, 0xE2
_STANDALONE = frozenset({0x01, SOI, *range(0xD0, 0xD8)})
_WITHOUT_LENGTH = _STANDALONE | {0x00, 0xFF, EOI}
_FRAMES = frozenset(range(0xC0, 0xD0)) - {_DHT, _JPG, _DAC}
_SUPPORTED_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA})
SEQUENTIAL_FRAMES = frozenset({0xC0, 0xC1, 0xC9})
PROGRESSIVE_FRAMES = frozenset({0xC2, 0xCA})
DCT_FRAMES = SEQUENTIAL_FRAMES | PROGRESSIVE_FRAMES
_ARITHMETIC_FRAMES = frozenset({0xC9, 0xCA})
_FRAME_NAMES = {
    5: "hierarchical",
    6: "hierarchical",
    7: "hierarchical",
    11: "lossless arithmetic",
}
_LABELS = {1: "L", 3: "RGB", 4: "CMYK"}
_TURBO_SAMPLINGS = frozenset({
    ((1, 1), (1, 1), (1, 1)), ((1, 2), (1, 2), (1, 2)), ((2, 1), (2, 1), (2, 1)),
    ((1, 3), (1, 3), (1, 3)), ((3, 1), (3, 1), (3, 1)),
    ((2, 1), (1, 1), (1, 1)), ((2, 2), (1, 2), (1, 2)),
    ((1, 2), (1, 1), (1, 1)), ((2, 2), (2, 1), (2, 1)),
    ((2, 2), (1, 1), (1, 1)), ((4, 1), (1, 1), (1, 1)),
    ((1, 1), (1, 1), (1, 1), (1, 1)), ((2, 1), (1, 1), (1, 1), (2, 1)), ((2, 2), (1, 1), (1, 1), (2, 2)),
})  # fmt: skip
"""Sampling factors (across, down) of each component that libjpeg-turbo's TurboJPEG interface, so simplejpeg,
knows by name, and for which it gives the pixels that Pillow gives."""
_read_marker = struct.Struct(">BBH").unpack_from
_PIXELS_PER_BYTE = 1024
"""A Huffman-coded block of 64 pixels takes a bit at least; two components may share the full resolution."""


class Segment(NamedTuple):
    """A marker segment before the first scan: ``data[start:end]``, its marker bytes included."""

    marker: int
    start: int
    end: int


@dataclass(slots=True)
class JpegFacts(Facts):
    """Facts of a JPEG.

    Attributes:
        frame: Low byte of the SOF marker: 0xC0 baseline, 0xC2 progressive, ...
        components: Id and sampling factors (across, down) of each.
        is_turbo: Whether simplejpeg decodes it (Pillow otherwise). A matter of the header alone, so that
            ingest and reading cannot disagree.
        has_junk: Bytes that belong to no segment were passed over.
        has_mpf: An index of further pictures (CIPA DC-007) stands there.
        segments: All segments before the first scan.
        scan: Where the first SOS marker stands.
    """

    frame: int = 0
    components: list[tuple[int, int, int]] = field(default_factory=list)
    is_turbo: bool = False
    has_junk: bool = False
    has_mpf: bool = False
    segments: list[Segment] = field(default_factory=list)
    scan: int = 0

    @property
    def is_arithmetic(self) -> bool:
        """Whether the scans are arithmetic-coded, which leaves nothing in them that could be out of place."""
        return self.frame in _ARITHMETIC_FRAMES


def inspect(data: bytes, *, complete: bool) -> JpegFacts:
    """Return the header facts of a JPEG, reading up to its first scan.

    Args:
        data: The file.
        complete: Unused: the rest of a JPEG is walked only where the decoder complains or scans must be
            counted.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    facts = JpegFacts("jpeg", 0, 0)
    _walk(data, facts)
    app1: list[bytes] = []
    for segment in facts.segments:
        marker = segment.marker
        if marker in _FRAMES:
            _read_frame(data, segment, facts)
        elif marker == _APP1:
            app1.append(data[segment.start + 4 : segment.end])
        elif marker == _APP2 and data.startswith(b"MPF\0", segment.start + 4):
            facts.has_mpf = True
    if not facts.frame:
        raise bad_header("the JPEG has no frame header before its first scan")
    if app1:
        _read_orientation(app1, facts)
    return facts


def _read_orientation(app1: list[bytes], facts: JpegFacts) -> None:
    exif = next((body for body in app1 if body.startswith(b"Exif\0\0")), None)
    xmp = next((body for body in app1 if body.startswith(b"http://ns.adobe.com/xap/1.0/\0")), None)
    facts.orientation, exif_is_bad = orientation(exif, xmp)
    if exif_is_bad:
        facts.warnings = (Warned.BAD_METADATA,)


def _walk(data: bytes, facts: JpegFacts) -> None:
    """List the segments up to the first SOS."""
    at, size = 2, len(data)
    append = facts.segments.append
    while at + 4 <= size:  # every read of a JPEG comes through here: plain numbers, and the common case first
        filler, marker, length = _read_marker(data, at)
        if filler != 0xFF:
            at = data.find(b"\xff", at)
            if at < 0:
                break
            facts.has_junk = True
        elif marker in _WITHOUT_LENGTH:
            if marker == EOI:
                raise Violation(
                    Reason.DECODE_ERROR, "the JPEG ends before its first scan, so it holds no picture"
                )
            facts.has_junk |= marker == 0x00
            at += 1 if marker == 0xFF else 2
        else:
            # libjpeg takes a length under 2 for an empty segment; so do all decoders built on it.
            end = at + 2 + (length if length > 2 else 2)  # max() would take longer
            if end > size:
                break
            append(Segment(marker, at, end))
            if marker == SOS:
                facts.scan = at
                return
            at = end
    raise truncated(f"the JPEG ends after {size} bytes, before its first scan")


def _read_frame(data: bytes, segment: Segment, facts: JpegFacts) -> None:
    if facts.frame:
        raise bad_header("the JPEG has two frame headers")
    if segment.end - segment.start < 10:
        raise bad_header("the JPEG frame header is too short")
    precision, height, width, count = struct.unpack_from(">BHHB", data, segment.start + 4)
    if segment.end - segment.start < 10 + 3 * count or not count:
        raise bad_header(f"the JPEG frame header is too short for its {count} components")
    body = data[segment.start + 10 : segment.start + 10 + 3 * count]
    facts.frame, facts.width, facts.height, facts.depth = segment.marker, width, height, precision
    facts.components = [(body[at], body[at + 1] >> 4, body[at + 1] & 15) for at in range(0, 3 * count, 3)]
    facts.mode = _LABELS.get(count, f"{count} components")
    facts.unsupported = _why_unsupported(facts)
    if not width or not (height or facts.unsupported):
        raise bad_header(f"the JPEG header declares {width}x{height} pixels")
    if segment.marker not in _ARITHMETIC_FRAMES:
        facts.least_bytes = width * height // _PIXELS_PER_BYTE
    samplings = tuple((across, down) for _, across, down in facts.components)
    facts.is_turbo = count == 1 or samplings in _TURBO_SAMPLINGS


def _why_unsupported(facts: JpegFacts) -> str:
    if facts.frame not in _SUPPORTED_FRAMES:
        kind = _FRAME_NAMES.get(facts.frame & 15, "differential arithmetic")
        return f"a {kind} JPEG (SOF{facts.frame & 15}), which no decoder here reads"
    if facts.depth != 8:
        return f"a JPEG of {facts.depth} bits a sample; the decoders here read 8"
    if len(facts.components) not in _LABELS:
        return f"a JPEG of {len(facts.components)} components; the decoders here read 1, 3 or 4"
    if not facts.height:
        return "a JPEG whose height is given only after its first scan (DNL), which no decoder here reads"
    return ""
