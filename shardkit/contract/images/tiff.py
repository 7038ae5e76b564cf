"""TIFF and BigTIFF: the tags of the first page and how many pages follow. Decodes nothing.

Sources: TIFF 6.0 (Adobe, 1992), sections 2, 8 and 19; BigTIFF (libtiff),
https://libtiff.gitlab.io/libtiff/specification/bigtiff.html.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Warned

_SUBFILE, _WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC = 254, 256, 257, 258, 262
_STRIPS, _ORIENTATION, _SAMPLES, _STRIP_BYTES = 273, 274, 277, 279
_TILES, _TILE_BYTES, _SAMPLE_FORMAT = 324, 325, 339
_WHITE_IS_ZERO, _RGB, _SEPARATED, _YCBCR = 0, 2, 5, 6
_WANTED = frozenset({
    _SUBFILE, _WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _STRIPS, _ORIENTATION, _SAMPLES, _STRIP_BYTES, _TILES,
    _TILE_BYTES, _SAMPLE_FORMAT,
})  # fmt: skip
_REDUCED_OR_MASK = 0b101
_TYPE_BYTES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_MOST_VALUES = 1 << 20
_MOST_PAGES = 1_000
_LONGEST_FILE = 1 << 48
_COLOUR_SPACES = {8: "CIE L*a*b*", 9: "ICC L*a*b*", 10: "ITU L*a*b*"}
_UNSUPPORTED_PHOTOMETRIC = {
    4: "a transparency mask",
    32803: "raw sensor data",
    32844: "LogL samples",
    32845: "LogLuv samples",
    34892: "raw sensor data",
}
_SAMPLE_FORMATS = {2: "signed", 3: "floating-point", 5: "complex integer", 6: "complex"}


class _Shape(NamedTuple):
    """Struct formats of a TIFF variant."""

    order: str
    offset: str  # of an offset and of a count of values
    entries: str  # of the number of entries
    entry_bytes: int

    def read(self, data: bytes, code: str, at: int) -> int:
        if at > len(data):  # also keeps 64-bit offsets from overflowing in struct itself
            raise struct.error("offset beyond the end")
        return int(struct.unpack_from(self.order + code, data, at)[0])


@dataclass(slots=True)
class _Page:
    tags: dict[int, tuple[int, ...]]
    next_at: int
    is_cut: bool

    def first(self, tag: int, default: int) -> int:
        values = self.tags.get(tag)
        return values[0] if values else default


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of a TIFF's first page.

    Args:
        data: The file.
        complete: Count the pages that follow as well.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    shape, first_at = _open(data)
    page = _page(data, shape, first_at)
    width, height = page.first(_WIDTH, 0), page.first(_HEIGHT, 0)
    if page.is_cut and not (width and height):
        raise truncated(f"the TIFF ends after {len(data)} bytes, before the values of its tags")
    require_size("TIFF", width, height)
    depths = page.tags.get(_BITS) or (1,)
    facts = Facts("tiff", width, height, depth=max(depths), is_oriented=True)
    facts.orientation = page.first(_ORIENTATION, 1)
    if not 1 <= facts.orientation <= 8:
        facts.orientation, facts.warnings = 1, (Warned.BAD_METADATA,)
    photometric = page.first(_PHOTOMETRIC, 1)
    facts.colour_space = _COLOUR_SPACES.get(photometric, "")
    facts.unsupported = _why_unsupported(page, depths, photometric)
    facts.is_cut = page.is_cut or _reaches_beyond(page, len(data))
    if facts.depth > 8:
        _describe_wide(facts, page, photometric)
    if complete:
        _count_pages(data, shape, page, facts)
    return facts


def _open(data: bytes) -> tuple[_Shape, int]:
    order = "<" if data[:2] == b"II" else ">"
    is_big = 43 in data[2:4]
    shape = _Shape(order, "Q", "Q", 20) if is_big else _Shape(order, "I", "H", 12)
    try:
        return shape, shape.read(data, shape.offset, 8 if is_big else 4)
    except struct.error:
        raise truncated(f"the TIFF ends after {len(data)} bytes, within its header") from None


def _page(data: bytes, shape: _Shape, at: int, wanted: frozenset[int] = _WANTED) -> _Page:
    try:
        count = shape.read(data, shape.entries, at)
        at += struct.calcsize(shape.order + shape.entries)
        if count > 4096:
            raise bad_header(f"the TIFF directory at byte {at} declares {count} tags")
        page = _Page({}, 0, is_cut=False)
        for number in range(count):
            _read_entry(data, shape, at + shape.entry_bytes * number, page, wanted)
        page.next_at = shape.read(data, shape.offset, at + shape.entry_bytes * count)
        return page
    except struct.error:
        if at >= _LONGEST_FILE:
            raise bad_header(f"the TIFF has its directory at byte {at}; no file is that long") from None
        raise truncated(
            f"the TIFF has its directory at byte {at}, beyond its end at byte {len(data)}"
        ) from None


def _read_entry(data: bytes, shape: _Shape, at: int, page: _Page, wanted: frozenset[int]) -> None:
    """Read one tag into `page` if it is wanted, is of integers, and lies in the file."""
    tag, kind = struct.unpack_from(shape.order + "HH", data, at)
    count = shape.read(data, shape.offset, at + 4)
    value_at = at + 4 + struct.calcsize(shape.order + shape.offset)
    size = count * _TYPE_BYTES.get(kind, 1)
    if size > shape.entry_bytes - (value_at - at):
        value_at = shape.read(data, shape.offset, value_at)
    page.is_cut |= value_at + size > len(data)
    is_readable = (
        tag in wanted and kind in _INTEGERS and count <= _MOST_VALUES and value_at + size <= len(data)
    )
    if is_readable:
        page.tags[tag] = struct.unpack_from(f"{shape.order}{count}{_INTEGERS[kind]}", data, value_at)


def _why_unsupported(page: _Page, depths: tuple[int, ...], photometric: int) -> str:
    for sample_format in page.tags.get(_SAMPLE_FORMAT, ()):
        if sample_format in _SAMPLE_FORMATS:
            return f"a TIFF of {_SAMPLE_FORMATS[sample_format]} samples, which no policy turns into 8 bits"
    if photometric in _UNSUPPORTED_PHOTOMETRIC:
        return f"a TIFF of {_UNSUPPORTED_PHOTOMETRIC[photometric]}, which no decoder here reads"
    if max(depths) > 16:
        return f"a TIFF of {max(depths)} bits a sample; 16 are the most that a policy converts"
    return ""


def _describe_wide(facts: Facts, page: _Page, photometric: int) -> None:
    """Label a picture of over 8 bits; say how its samples, which Pillow hands over as they are, become 8."""
    samples = page.first(_SAMPLES, 1)
    facts.shift = facts.depth - 8
    facts.is_inverted = photometric == _WHITE_IS_ZERO
    base = {_RGB: "RGB", _YCBCR: "YCbCr", _SEPARATED: "CMYK"}.get(photometric, "L")
    if base == "RGB" and samples == 4:
        base = "RGBA"
    facts.mode = "I;16" if base == "L" and samples == 1 else f"{base};16"


def _reaches_beyond(page: _Page, size: int) -> bool:
    for offsets, lengths in ((_STRIPS, _STRIP_BYTES), (_TILES, _TILE_BYTES)):
        pairs = zip(page.tags.get(offsets, ()), page.tags.get(lengths, ()), strict=False)
        if any(offset + length > size for offset, length in pairs):
            return True
    return False


def _count_pages(data: bytes, shape: _Shape, page: _Page, facts: Facts) -> None:
    """Count the full pages; reduced ones and masks are embedded images."""
    seen: set[int] = set()
    has_reduced = False
    next_at = page.next_at
    while next_at and next_at not in seen and len(seen) < _MOST_PAGES:
        seen.add(next_at)
        page = _page(data, shape, next_at, frozenset({_SUBFILE}))
        is_reduced = bool(page.first(_SUBFILE, 0) & _REDUCED_OR_MASK)
        has_reduced |= is_reduced
        facts.frames += not is_reduced
        next_at = page.next_at
    if has_reduced:
        facts.warnings += (Warned.EMBEDDED_IMAGES,)
