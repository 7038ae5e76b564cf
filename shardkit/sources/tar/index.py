"""Which members of one tar file make up which record, found by one pass over its headers.

Kept as arrays: 28 bytes a member, and the key and 24 bytes a record, so that a tar of a million members takes
some 60 MB however it was put together.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardkit.contract import Reason
from shardkit.errors import SourceError
from shardkit.sources.files import MAX_FILE_BYTES
from shardkit.sources.tar.bytes import TarBytes
from shardkit.sources.tar.headers import FILE, FOLDER, LINK, SPARSE, Member, TarDamage, walk
from shardkit.sources.tar.names import find_ignored, split_name

MAX_EXTENSIONS = 256
_DIGEST_BYTES = 16
_READ_BYTES = 1 << 20
_IGNORED = {FOLDER: "folder in a tar", LINK: "link in a tar"}

_Numbers = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """One member of a record: its extension, and where its data lies in the tar."""

    extension: str
    data: int
    size: int


class _Keys:
    """Keys, one behind the other."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q")

    def append(self, key: bytes) -> None:
        self._bytes += key
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        return bytes(self._bytes[self._ends[number - 1] if number else 0 : self._ends[number]])


@dataclass(frozen=True)
class TarIndex:
    """The records of one tar, in the order of their first members.

    Attributes:
        extensions: Every extension, in order of first appearance.
        together: Extension -> those that stand beside it in some record.
        ignored: What was passed over, counted.
        damage: Why records may be lost, or None.
        faults: Record -> why it cannot be had: a code and one plain sentence.
        headers: Record -> byte of its first header.
        is_open: Record -> whether it may have lost members to the damage.
    """

    extensions: tuple[str, ...]
    together: dict[str, frozenset[str]]
    ignored: Counter[str]
    damage: TarDamage | None
    faults: dict[int, tuple[Reason, str]]
    headers: _Numbers
    is_open: npt.NDArray[np.bool_]
    _keys: _Keys
    _runs: _Numbers  # record -> run that bears its key
    _starts: _Numbers  # record -> its first place in the arrays below; one more than records
    _extension: npt.NDArray[np.uint16]
    _data: _Numbers
    _size: _Numbers

    def __len__(self) -> int:
        return len(self.headers)

    def key(self, record: int) -> str:
        """Return the key of a record; bytes that are not UTF-8 as surrogate escapes."""
        return self._keys[int(self._runs[record])].decode("utf-8", "surrogateescape")

    def pieces(self, record: int) -> list[Piece]:
        """Return the members of a record, in the order of the tar."""
        return [self._piece(place) for place in range(self._starts[record], self._starts[record + 1])]

    def in_file_order(self) -> Iterator[tuple[int, Piece]]:
        """Yield every member with its record, in the order of the tar."""
        records = np.searchsorted(self._starts, np.arange(len(self._data)), "right") - 1
        for place in np.argsort(self._data, kind="stable"):
            yield int(records[place]), self._piece(int(place))

    def _piece(self, place: int) -> Piece:
        extension = self.extensions[self._extension[place]]
        return Piece(extension, int(self._data[place]), int(self._size[place]))


@dataclass
class _Scan:
    """What the pass over the headers collects. A run is a row of members with the same key."""

    keys: _Keys = field(default_factory=_Keys)
    digests: bytearray = field(default_factory=bytearray)
    numbers: dict[str, int] = field(default_factory=dict)
    run: "array[int]" = field(default_factory=lambda: array("q"))
    header: "array[int]" = field(default_factory=lambda: array("q"))
    extension: "array[int]" = field(default_factory=lambda: array("H"))
    data: "array[int]" = field(default_factory=lambda: array("q"))
    size: "array[int]" = field(default_factory=lambda: array("q"))
    refused: dict[int, tuple[Reason, str]] = field(default_factory=dict)
    last_key: str | None = None

    def add(self, member: Member, name: str) -> None:
        """Add a member that may be data."""
        split = split_name(member.name)
        if split is None:
            return
        key, extension = split
        if key != self.last_key:
            encoded = key.encode("utf-8", "surrogateescape")
            self.keys.append(encoded)
            self.digests += hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).digest()
            self.last_key = key
        fault = _find_fault(member)
        if fault is not None:
            self.refused[len(self.run)] = fault
        self.run.append(len(self.keys) - 1)
        self.header.append(member.header)
        self.extension.append(self._number(extension, member, name))
        self.data.append(member.data)
        self.size.append(member.size)

    def _number(self, extension: str, member: Member, name: str) -> int:
        if extension not in self.numbers and len(self.numbers) == MAX_EXTENSIONS:
            raise SourceError(
                f"{name}: its members have over {MAX_EXTENSIONS} different extensions, the last {extension!r} of "
                f"{member.name!r}; an extension begins at the first dot of a name, so put other signs for the dots "
                f"before it"
            )
        return self.numbers.setdefault(extension, len(self.numbers))


def index_tar(stream: TarBytes, name: str) -> TarIndex:
    """Return the records of one tar.

    Of a damaged gzip file there are none, since no checksum vouches for them; see `_is_vouched_for`.

    Args:
        stream: At its beginning; it is read to the end.
        name: What messages call the tar.

    Raises:
        SourceError: The names of the members have dots in so many places that they make no columns.
    """
    scan = _Scan()
    ignored: Counter[str] = Counter()
    damage = None
    try:
        for member in walk(stream):
            kind = _find_ignored(member)
            if kind is not None:
                ignored[kind] += 1
            else:
                scan.add(member, name)
    except TarDamage as error:
        damage = error
    if not _is_vouched_for(stream, damage):
        offset = damage.offset if damage is not None else stream.position
        sentence = f"{stream.fault}; any record of it may be wrong, so none is taken"
        damage, scan = TarDamage(offset, sentence), _Scan()
    return _assemble(scan, ignored, damage)


def _is_vouched_for(stream: TarBytes, damage: TarDamage | None) -> bool:
    """Go on to the end, where the checksum of gzip data stands, and return whether the records so far can be trusted.

    Gzip data that is cut has no checksum: what it gave is taken if the tar in it was sound up to the cut.
    """
    while stream.skip(_READ_BYTES):
        pass
    return stream.is_sound and (stream.fault is None or (damage is not None and damage.is_cut))


def _find_ignored(member: Member) -> str | None:
    if member.kind in (FILE, SPARSE):
        return find_ignored(member.name)
    return _IGNORED.get(member.kind, "special member in a tar")


def _find_fault(member: Member) -> tuple[Reason, str] | None:
    if member.kind == SPARSE:
        sentence = f"the member {member.name!r} is stored sparse, which is not read; pack it without --sparse"
        return Reason.UNSUPPORTED, sentence
    if member.size > MAX_FILE_BYTES:
        sentence = f"the member {member.name!r} has {member.size} bytes; at most {MAX_FILE_BYTES} are read"
        return Reason.TOO_LONG, sentence
    return None


def _assemble(scan: _Scan, ignored: Counter[str], damage: TarDamage | None) -> TarIndex:
    """Sort the members by record."""
    record_of_run, run_of_record = _group(np.frombuffer(scan.digests, "<u8").reshape(-1, 2))
    record = record_of_run[np.frombuffer(scan.run, np.int64)]
    faults = {int(record[member]): fault for member, fault in scan.refused.items()}
    columns = [
        np.frombuffer(column, column.typecode)
        for column in (scan.header, scan.extension, scan.data, scan.size)
    ]
    if len(record_of_run) > len(run_of_record):  # else they are in order, as nearly always
        order = np.argsort(record, kind="stable")
        record, *columns = (column[order] for column in (record, *columns))
    header, extension, data, size = columns
    starts = np.searchsorted(record, np.arange(len(run_of_record) + 1))
    is_open = np.zeros(len(run_of_record), bool)
    if damage is not None:
        is_open = _find_open(scan, np.diff(starts), damage)
    names = tuple(scan.numbers)
    together, repeats = _compare_within_records(record, extension, names)
    index = TarIndex(
        extensions=names,
        together=together,
        ignored=ignored,
        damage=damage,
        faults=faults,
        headers=header[starts[:-1]],
        is_open=is_open,
        _keys=scan.keys,
        _runs=run_of_record,
        _starts=starts,
        _extension=extension,
        _data=data,
        _size=size,
    )
    for first, second in repeats:
        name = f"{index.key(record[first])}.{names[extension[first]]}"
        sentence = (
            f"two members are called {name!r}, at bytes {header[first]} and {header[second]} of the tar"
        )
        faults[int(record[first])] = (Reason.BAD_ROW, sentence)
    return index


def _group(digests: npt.NDArray[Any]) -> tuple[_Numbers, _Numbers]:
    """Return the record of each run, numbered by first appearance, and the first run of each record."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equal keys, the first run stays first
    in_order = digests[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (in_order[1:] != in_order[:-1]).any(axis=1)
    first_runs = order[is_new]
    by_appearance = np.argsort(first_runs)
    number = np.empty(len(first_runs), np.int64)
    number[by_appearance] = np.arange(len(first_runs))
    record_of_run = np.empty(len(order), np.int64)
    record_of_run[order] = number[np.cumsum(is_new) - 1]
    return record_of_run, first_runs[by_appearance]


def _find_open(scan: _Scan, members: _Numbers, damage: TarDamage) -> npt.NDArray[np.bool_]:
    """Return which records of a damaged tar may have lost members to the damage.

    Where the members of each record stand together, that is the last one at most, and none if the damage is in a
    member of another record. Where they do not, or there is nothing to tell by, it is all of them.

    Args:
        scan: What was found before the damage.
        members: Record -> number of its members.
        damage: The damage.
    """
    is_open = np.zeros(len(members), bool)
    if len(scan.keys) > len(members) or not (members > 1).any():
        is_open[:] = True
    else:
        split = split_name(damage.member or "")
        is_open[-1:] = split is None or split[0] == scan.last_key
    return is_open


def _compare_within_records(
    record: _Numbers, extension: npt.NDArray[np.uint16], names: tuple[str, ...]
) -> tuple[dict[str, frozenset[str]], list[tuple[int, int]]]:
    """Return which extensions stand beside which in some record, and the places of two members of one name.

    Of any members of a record, one more than there are extensions, two have the same: no need to look farther.
    """
    beside: dict[str, set[str]] = {name: set() for name in names}
    repeats: dict[int, tuple[int, int]] = {}
    for distance in range(1, MAX_EXTENSIONS + 1):
        first = np.flatnonzero(record[distance:] == record[: max(0, len(record) - distance)])
        if not first.size:
            break
        here, there = extension[first].astype(np.int64), extension[first + distance]
        repeats |= {int(record[place]): (int(place), int(place) + distance) for place in first[here == there]}
        for code in np.unique(here * MAX_EXTENSIONS + there):
            one, other = divmod(int(code), MAX_EXTENSIONS)
            beside[names[one]].add(names[other])
            beside[names[other]].add(names[one])
    return {name: frozenset(others - {name}) for name, others in beside.items()}, list(repeats.values())
