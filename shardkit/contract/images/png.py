"""PNG: a walk over the chunks, their checksums, and what the header says. Decodes nothing.

Source: Portable Network Graphics (third edition), https://www.w3.org/TR/png-3/.
"""

import struct
import zlib
from dataclasses import dataclass, field

from shardkit.contract.field import Violation
from shardkit.contract.images.exif import orientation
from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Reason, Warned

_SIGNATURE_BYTES = 8
_IEND = b"\0\0\0\0IEND\xaeB`\x82"
_PIXEL_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_LABELS = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_CHANNELS_OF = {
    "1": 1, "L": 1, "I;16": 1, "P": 1, "LA": 2, "LA;16": 2,
    "RGB": 3, "RGB;16": 3, "RGBA": 4, "RGBA;16": 4,
}  # fmt: skip
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_INFLATED_AT_ONCE = 1 << 20
_DEFLATE_RATIO = 1032
"""Deflate never shrinks more than this: 258 bytes by 2 bits (https://zlib.net/zlib_tech.html)."""
_TEXT_LIMIT = 1 << 20
"""Bytes that a compressed text may inflate to, as in Pillow and Chromium: nothing honest is larger."""


@dataclass(slots=True)
class _Chunk:
    kind: bytes
    start: int  # of the length field
    body: int
    end: int  # after the checksum


@dataclass(slots=True)
class PngFacts(Facts):
    """Facts of a PNG.

    Attributes:
        is_interlaced: Rows come in the seven passes of Adam7.
        pixel_ranges: Where the bodies of the IDAT chunks lie.
    """

    is_interlaced: bool = False
    pixel_ranges: list[tuple[int, int]] = field(default_factory=list)


def inspect(data: bytes, *, complete: bool) -> PngFacts:
    """Return the header facts of a PNG.

    Args:
        data: The file.
        complete: Check every chunk's checksum and every text as well, as at ingest.

    Raises:
        Violation: ``bad-header``, ``truncated``, ``checksum`` or ``decode-error``.
    """
    chunks = _walk(data, complete=complete)
    facts = _header(data, chunks)
    by_kind: dict[bytes, list[_Chunk]] = {}
    for chunk in chunks:
        by_kind.setdefault(chunk.kind, []).append(chunk)
    _require_pixels(by_kind, facts)
    if complete:
        _refuse_text_bombs(data, chunks)
    warnings = _read_metadata(data, by_kind, facts)
    if chunks[-1].end < len(data):
        warnings.append(Warned.TRAILING_BYTES)
    facts.warnings = tuple(warnings)
    if not _PIXEL_CHUNKS.issuperset(by_kind):
        # Metadata never reaches the decoder, so that damage in it can neither warn nor fail when training
        # reads.
        kept = [data[chunk.start : chunk.end] for chunk in chunks if chunk.kind in _PIXEL_CHUNKS]
        facts.pixel_data = data[:_SIGNATURE_BYTES] + b"".join(kept)
    return facts


def require_rows(data: bytes, facts: PngFacts) -> None:
    """Check that the pixel data inflates to every row. Pillow leaves black, in silence, what has not come.

    Raises:
        Violation: ``truncated``, ``checksum`` or ``decode-error``.
    """
    wanted, found = _row_bytes(facts), 0
    stream = zlib.decompressobj()
    try:
        for start, end in facts.pixel_ranges:
            piece = data[start:end]
            while piece and found <= wanted:
                found += len(stream.decompress(piece, _INFLATED_AT_ONCE))
                piece = stream.unconsumed_tail
    except zlib.error as error:
        if found >= wanted or "data check" in str(error):
            raise Violation(
                Reason.CHECKSUM, "the checksum of the PNG's inflated pixel data is wrong"
            ) from error
        raise Violation(Reason.DECODE_ERROR, f"the PNG's pixel data cannot be inflated ({error})") from error
    if found < wanted:
        raise truncated(
            f"the PNG's pixel data inflates to {found} bytes, its {facts.height} rows need {wanted}"
        )


def _walk(data: bytes, *, complete: bool) -> list[_Chunk]:
    if len(data) >= 16 and data[12:16] != b"CgBI" and data[8:16] != b"\0\0\0\rIHDR":
        raise bad_header("the PNG does not begin with a header of 13 bytes")
    chunks: list[_Chunk] = []
    at = _SIGNATURE_BYTES
    while not chunks or chunks[-1].kind != b"IEND":
        if at + 12 > len(data):
            raise truncated(f"the PNG ends after {len(data)} bytes, before its IEND chunk")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if not kind.isalpha() or end > len(data):
            raise _broken_structure(data, at, end)
        chunks.append(_Chunk(kind, at, at + 8, end))
        if complete:
            _check_sum(data, chunks[-1])
        at = end
    return chunks


def _broken_structure(data: bytes, at: int, end: int) -> Violation:
    if _IEND in data[at:]:
        return Violation(Reason.DECODE_ERROR, f"the PNG's chunk structure is broken at byte {at}")
    return truncated(f"a PNG chunk at byte {at} should end at byte {end}, the file ends at {len(data)}")


def _check_sum(data: bytes, chunk: _Chunk) -> None:
    stored = int.from_bytes(data[chunk.end - 4 : chunk.end], "big")
    found = zlib.crc32(memoryview(data)[chunk.body - 4 : chunk.end - 4])
    if stored == found:
        return
    if chunk.kind == b"IHDR":
        raise bad_header("the checksum of the PNG header is wrong")
    name = chunk.kind.decode("ascii")
    raise Violation(
        Reason.CHECKSUM,
        f"the checksum of PNG chunk {name} at byte {chunk.start} is {found:08x}, the file says {stored:08x}",
    )


def _header(data: bytes, chunks: list[_Chunk]) -> PngFacts:
    first = chunks[0]
    if first.kind == b"CgBI":
        return PngFacts("png", 1, 1, unsupported="a PNG in Apple's CgBI variant, which no decoder here reads")
    width, height, depth, colour, compression, filtering, interlace = struct.unpack_from(
        ">IIBBBBB", data, first.body
    )
    require_size("PNG", width, height)
    if depth not in _DEPTHS.get(colour, ()):
        raise bad_header(
            f"the PNG header declares colour type {colour} with {depth} bits, which do not exist together"
        )
    if compression or filtering or interlace > 1:
        raise bad_header(
            f"the PNG header declares compression {compression}, filter {filtering}, interlace {interlace}"
        )
    facts = PngFacts("png", width, height, depth=depth, mode=_label(colour, depth))
    facts.is_interlaced = interlace == 1
    facts.pixel_ranges = [(chunk.body, chunk.end - 4) for chunk in chunks if chunk.kind == b"IDAT"]
    facts.least_bytes = height * ((width * depth * _CHANNELS[colour] + 7) // 8) // _DEFLATE_RATIO
    if colour == 2 and depth == 16 and any(chunk.kind == b"tRNS" for chunk in chunks):
        facts.unsupported = (
            "a 16-bit RGB PNG with a transparent colour: the decoder cuts samples before comparing them"
        )
    return facts


def _label(colour: int, depth: int) -> str:
    if depth == 1 and colour == 0:
        return "1"
    if depth == 16:
        return "I;16" if colour == 0 else _LABELS[colour] + ";16"
    return _LABELS[colour]


def _require_pixels(by_kind: dict[bytes, list[_Chunk]], facts: Facts) -> None:
    if b"IDAT" not in by_kind:
        raise Violation(Reason.DECODE_ERROR, "the PNG holds no IDAT chunk, so no picture")
    if facts.mode == "P" and b"PLTE" not in by_kind:
        raise bad_header("the PNG declares a palette and holds none")


def _row_bytes(facts: PngFacts) -> int:
    """Return the bytes of all rows and their filter bytes (PNG, 7.2 and 8.1)."""
    total = 0
    for left, top, across, down in _ADAM7 if facts.is_interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(facts.width - left) // across), -(-(facts.height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * facts.depth * _CHANNELS_OF[facts.mode] + 7) // 8)
    return total


def _refuse_text_bombs(data: bytes, chunks: list[_Chunk]) -> None:
    for chunk in chunks:
        stream = _compressed_text(chunk.kind, data[chunk.body : chunk.end - 4])
        if stream is None:
            continue
        try:
            size = len(zlib.decompressobj().decompress(stream, _TEXT_LIMIT + 1))
        except zlib.error:
            continue  # unreadable text is no one's loss: it is never given to the decoder
        if size > _TEXT_LIMIT:
            name = chunk.kind.decode("ascii")
            raise Violation(
                Reason.DECODE_ERROR,
                f"PNG chunk {name} of {len(stream)} bytes inflates to over {_TEXT_LIMIT}: a bomb",
            )


def _compressed_text(kind: bytes, body: bytes) -> bytes | None:
    _, _, rest = body.partition(b"\0")
    if kind in (b"zTXt", b"iCCP"):
        return rest[1:]
    if kind == b"iTXt" and rest[:1] == b"\1":
        return rest[2:].split(b"\0", 2)[-1]
    return None


def _read_metadata(data: bytes, by_kind: dict[bytes, list[_Chunk]], facts: Facts) -> list[Warned]:
    """Fill in orientation and frames; return what was odd about them."""
    warnings: list[Warned] = []
    exif = by_kind.get(b"eXIf")
    facts.orientation, exif_is_bad = orientation(
        data[exif[0].body : exif[0].end - 4] if exif else None, _xmp(data, by_kind)
    )
    if exif_is_bad:
        warnings.append(Warned.BAD_METADATA)
    control = by_kind.get(b"acTL", [])
    if control:
        frames = int.from_bytes(data[control[0].body : control[0].body + 4], "big")
        if len(control) == 1 and control[0].start < by_kind[b"IDAT"][0].start and frames:
            facts.frames = frames
        else:
            warnings.append(Warned.RECOVERED)  # no valid animation: the still image is the picture
    return warnings


def _xmp(data: bytes, by_kind: dict[bytes, list[_Chunk]]) -> bytes | None:
    for chunk in by_kind.get(b"iTXt", ()):
        if data.startswith(b"XML:com.adobe.xmp\0", chunk.body):
            return data[chunk.body : chunk.end - 4]
    return None
