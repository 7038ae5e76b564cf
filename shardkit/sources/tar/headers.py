"""Walks a tar file header by header and stops with a reason where Python's `tarfile` stops in silence.

`tarfile` decodes each single header. Its own iteration is not used: it takes a damaged header, a lone block of zeros
or a cut for the end of the archive, and follows sizes and chains of headers wherever they lead. The layout is that of
POSIX.1-2001 (pax, ``pax`` utility) and of GNU tar (its manual, "Basic Tar Format" and "GNU Extensions").
"""

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shardkit.sources.tar.bytes import TarBytes

BLOCK = 512
FILE, SPARSE, FOLDER, LINK, DEVICE, OTHER = "file", "sparse", "folder", "link", "device", "other"

_ZEROS = bytes(BLOCK)
_MAX_EXTENDED_BYTES = 1 << 20  # a long name or a pax header; an id has 65,535 bytes at most
_MAX_ZEROS = 1 << 20  # behind the end marker; GNU tar pads to 10 KiB unless told otherwise
_READ_BYTES = 1 << 20
_SHOWN = 100  # characters of a name that a sentence repeats
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,9}) ([^=\n]+)=")
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX_TYPES = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_KINDS = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, FILE),
    tarfile.GNUTYPE_SPARSE: SPARSE,
    tarfile.DIRTYPE: FOLDER,
    tarfile.SYMTYPE: LINK,
    tarfile.LNKTYPE: LINK,
    tarfile.CHRTYPE: DEVICE,
    tarfile.BLKTYPE: DEVICE,
    tarfile.FIFOTYPE: DEVICE,
}
_GOES_ON_IN_HEADER, _GOES_ON_IN_MAP = (
    482,
    504,
)  # "isextended" in struct oldgnu_header and struct sparse_header
_WITH_DATA = (FILE, SPARSE, OTHER)


class Member(NamedTuple):
    """One member, whose data the file holds in full.

    Attributes:
        name: As it stands there; bytes that are not UTF-8 as surrogate escapes.
        kind: One of `FILE`, `SPARSE`, `FOLDER`, `LINK`, `DEVICE` and `OTHER`.
        header: Byte at which its first header begins.
        data: Byte at which its data begins.
        size: Bytes of data.
    """

    name: str
    kind: str
    header: int
    data: int
    size: int


class TarDamage(Exception):
    """Where the rest of a tar file is lost.

    Attributes:
        offset: Byte of the header, or of what should be one.
        sentence: Why, as the end of a sentence that begins with the path.
        is_cut: Whether the bytes simply end there.
        member: Name of the member that is cut, if its header can be read.
    """

    def __init__(
        self, offset: int, sentence: str, *, is_cut: bool = False, member: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.offset = offset
        self.sentence = sentence
        self.is_cut = is_cut
        self.member = member


class _Header(NamedTuple):
    """One header block; `goes_on` says, of a sparse member, whether further blocks of its map follow."""

    info: tarfile.TarInfo
    offset: int
    goes_on: bool


@dataclass
class _Extended:
    """What extended headers say of the member that follows them."""

    start: int | None = None
    name: str | None = None
    pax: dict[str, str] = field(default_factory=dict)


def walk(stream: TarBytes) -> Iterator[Member]:
    """Yield the members of a tar file, each once its data was passed over.

    Raises:
        TarDamage: Members may be lost: the file is cut, a header is damaged, or there is data behind the end.
    """
    shared: dict[str, str] = {}
    extended = _Extended()
    while (header := _read_header(stream, extended)) is not None:
        info, at = header.info, header.offset
        if extended.start is None:
            extended.start = at
        if info.size < 0:
            raise TarDamage(at, f"the header at byte {at} is damaged: it gives a size below 0")
        if info.type in _LONG_NAMES:
            name = _read_extension(stream, at, info.size).partition(b"\0")[0]
            if info.type == tarfile.GNUTYPE_LONGNAME:
                extended.name = name.decode("utf-8", "surrogateescape")
        elif info.type in _PAX_TYPES:
            found = _parse_pax(_read_extension(stream, at, info.size), at)
            (shared if info.type == tarfile.XGLTYPE else extended.pax).update(found)
        else:
            yield _pass_member(stream, header, extended.start, extended.name, shared | extended.pax)
            extended = _Extended()


def _read_header(stream: TarBytes, extended: _Extended) -> _Header | None:
    """Return the next header, or None at a sound end of the file."""
    at = stream.position
    block = stream.read(BLOCK)
    if len(block) < BLOCK:
        raise _cut(stream, at, "in a header" if block else "before its end marker, two blocks of zeros")
    if block == _ZEROS:
        _check_end(stream, at)
        if extended.start is not None:
            raise TarDamage(at, f"it ends at byte {at}, where the member of an extended header should stand")
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        what = "is damaged, or this is no tar file" if at == 0 else "is damaged"
        raise TarDamage(at, f"the header at byte {at} {what}: {error}") from error
    return _Header(info, at, block[_GOES_ON_IN_HEADER] != 0)


def _cut(stream: TarBytes, at: int, where: str, member: str | None = None) -> TarDamage:
    sentence = f"it is cut at byte {stream.position}, {where}"
    if stream.fault is not None:
        sentence = f"{stream.fault}, at byte {stream.position} of the tar in it, {where}"
    return TarDamage(at, sentence, is_cut=True, member=member)


def _check_end(stream: TarBytes, at: int) -> None:
    """Make sure that only padding follows the block of zeros at `at`; a hole in the file looks like an end."""
    while data := stream.read(_READ_BYTES):
        rest = data.lstrip(b"\0")
        if rest:
            found = stream.position - len(rest)
            raise TarDamage(at, f"it seems to end at byte {at}, yet there is data at byte {found}")
    if stream.fault is not None:
        raise _cut(stream, at, "behind its end marker")
    if stream.position - at > _MAX_ZEROS:
        zeros = stream.position - at
        raise TarDamage(
            at, f"from byte {at} on it holds {zeros} zeros, as a download that was cut short does"
        )


def _read_extension(stream: TarBytes, at: int, size: int) -> bytes:
    """Return the data of an extended header."""
    if size > _MAX_EXTENDED_BYTES:
        raise TarDamage(at, f"the extended header at byte {at} claims {size} bytes, which none has")
    data = stream.read(size)
    stream.skip(-size % BLOCK)
    if len(data) < size:
        raise _cut(stream, at, "in an extended header")
    return data


def _parse_pax(data: bytes, at: int) -> dict[str, str]:
    """Return the records of a pax header: ``LENGTH KEY=VALUE`` and a line feed each."""
    records = {}
    position = 0
    while position < len(data):
        match = _PAX_RECORD.match(data, position)
        end = position + int(match.group(1)) if match is not None else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise TarDamage(at, f"the pax header at byte {at} is damaged")
        key, value = match.group(2), data[match.end() : end - 1]
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        position = end
    return records


def _pass_member(
    stream: TarBytes, header: _Header, start: int, long_name: str | None, pax: Mapping[str, str]
) -> Member:
    """Return a member, and leave the stream at the next header."""
    info, at = header.info, header.offset
    kind = _KINDS.get(info.type, OTHER)
    if kind == SPARSE:
        _pass_sparse_map(stream, header)
    if any(key.startswith("GNU.sparse.") for key in pax):
        kind = SPARSE
    name = pax.get("GNU.sparse.name") or pax.get("path") or long_name or info.name
    size = _size_of(info, pax, at) if kind in _WITH_DATA else 0
    data = stream.position
    if stream.skip(size) < size:
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        raise _cut(stream, at, f"in the member {shown!r} at byte {at}, which claims {size} bytes", name)
    stream.skip(-size % BLOCK)
    return Member(name, kind, start, data, size)


def _size_of(info: tarfile.TarInfo, pax: Mapping[str, str], at: int) -> int:
    size = pax.get("size")
    if size is None:
        return info.size
    if not re.fullmatch(r"[0-9]{1,19}", size, re.ASCII):
        raise TarDamage(at, f"the pax header of the member at byte {at} gives no size that can be")
    return int(size)


def _pass_sparse_map(stream: TarBytes, header: _Header) -> None:
    """Pass over the blocks that continue the map of an old GNU sparse member, to where its data begins."""
    goes_on = header.goes_on
    while goes_on:
        block = stream.read(BLOCK)
        if len(block) < BLOCK:
            raise _cut(stream, header.offset, "in the map of a sparse member")
        goes_on = block[_GOES_ON_IN_MAP] != 0
