"""A .npz file as a container: its arrays are the columns, whose first axes count the same rows.

Arrays that are stored as they are get mapped. A compressed one is decompressed piece by piece, again for each part, and
never lies in memory whole, save where the first axis varies fastest.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from shardkit.contract import Field
from shardkit.contract.npy import MAGIC
from shardkit.errors import SourceError
from shardkit.sources.arrays.columns import (
    Array,
    ArrayColumn,
    batch_rows,
    check_rows,
    known_fields,
    split_columns,
    value_of,
)
from shardkit.sources.arrays.layout import NpyLayout, read_layout
from shardkit.sources.container import Row
from shardkit.sources.streams import PIECE_BYTES, Stream, StreamFault, open_stream

MAX_INFLATED = 2**30
"""Bytes of the largest compressed array that is decompressed as a whole, since its rows do not follow one another."""
_SUFFIX = ".npy"
_NO_ARRAY = "member that is no .npy array"
_LOCAL_HEADER = struct.Struct(
    "<4s22xHH"
)  # APPNOTE.TXT 4.3.7: signature; lengths of the name and of the extra field
_ENCRYPTED = 1


@dataclass(frozen=True)
class _Member:
    """One array of the archive.

    Attributes:
        file: Its name there.
        layout: Where its elements lie in the member.
        offset: Byte of the archive at which the member's content starts, or None where it is compressed.
        crc: CRC-32 of the content.
        row_bytes: Bytes of one row.
    """

    file: str
    layout: NpyLayout
    offset: int | None
    crc: int
    row_bytes: int


class NpzContainer:
    """The rows of one .npz file, called ``FILE-STEM/ROW``. Each array is a column; a structured one, one a member.

    The checksum of every array is verified once, when the file is opened first.

    Attributes:
        name: The path as given.
        columns: Names of the columns.
        path_columns: Those of text.
    """

    def __init__(self, path: str) -> None:
        """Take a .npz file.

        Raises:
            SourceError: It is none, is damaged, holds arrays of different lengths, or what no field takes.
        """
        self.name = path
        self._stem = PurePath(path).stem
        self._passed_over: Counter[str] = Counter()
        self._members = self._read_members()
        self._columns = self._split_members()
        self._rows = self._count_rows()
        self.columns = tuple(self._columns)
        self.path_columns = tuple(name for name, (_, column) in self._columns.items() if column.is_text)
        self._verify()

    @property
    def known(self) -> Mapping[str, Field]:
        """What the dtypes of the columns say."""
        layouts = {name: member.layout for name, member in self._members.items()}
        return known_fields(
            (column, layouts[member].dtype, layouts[member].shape[1:])
            for member, column in self._columns.values()
        )

    def count(self) -> int:
        """Return the size of the first axes."""
        return self._rows

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row in order."""
        ignored.update(self._passed_over)
        return self.read(None, range(self._rows), columns)

    def read(self, locator: None, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows with these marks, which are their numbers."""
        if self._read_members() != self._members:
            raise SourceError(f"{self.name}: the file changed while it was ingested; start again")
        needed = dict.fromkeys(self._columns[name][0] for name in columns)
        arrays = {member: self._iterate(self._members[member], marks) for member in needed}
        size = sum(member.row_bytes for member in self._members.values())
        for number in marks:
            rows = {member: next(array) for member, array in arrays.items()}
            values = {
                name: value_of(*rows[self._columns[name][0]], self._columns[name][1].members)
                for name in columns
            }
            yield Row(number, None, values, name=f"{self._stem}/{number}", size=size)

    def place(self, mark: int) -> str:
        """Return the file and the row, counting from 0: ``train.npz row 7``."""
        return f"{self.name} row {mark}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the one file."""
        return (self.name,)

    def _read_members(self) -> dict[str, _Member]:
        """Return the arrays by name; count other members as passed over."""
        members: dict[str, _Member] = {}
        self._passed_over.pop(_NO_ARRAY, None)
        with self._open() as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(_SUFFIX)
                if name == info.filename:
                    self._require_no_array(archive, info)
                    self._passed_over[_NO_ARRAY] += 1
                    continue
                if name in members:
                    raise SourceError(f"{self.name}: two members are named {info.filename!r}")
                members[name] = self._read_member(archive, info)
        return members

    def _require_no_array(self, archive: ZipFile, info: ZipInfo) -> None:
        """Refuse an array whose name was lost: its values would be missing without a word."""
        with self._stream(archive, info) as stream:
            if info.file_size >= len(MAGIC) and stream.read(len(MAGIC)) == MAGIC:
                raise SourceError(
                    f"{self.name}: member {info.filename!r} is an array, but its name does not end in {_SUFFIX}: the "
                    "archive is damaged, or not of numpy's making; save it anew"
                )

    def _read_member(self, archive: ZipFile, info: ZipInfo) -> _Member:
        where = f"{self.name} member {info.filename!r}"
        if info.flag_bits & _ENCRYPTED:
            raise SourceError(f"{where}: encrypted; save it without a password")
        with self._stream(archive, info) as stream:
            layout = read_layout(stream, info.file_size, where)
        row_bytes = check_rows(info.filename, layout.dtype, layout.shape, self.name)
        offset = self._find_content(info, where) if info.compress_type == ZIP_STORED else None
        if offset is None and layout.is_fortran and layout.nbytes > MAX_INFLATED:
            raise SourceError(
                f"{where}: compressed, over {MAX_INFLATED} bytes, and its first axis varies fastest; save it with "
                f"numpy.ascontiguousarray(…), or uncompressed"
            )
        return _Member(info.filename, layout, offset, info.CRC, row_bytes)

    def _find_content(self, info: ZipInfo, where: str) -> int:
        """Return the byte at which a stored member's content starts: behind a header whose length the index lacks."""
        with open_stream(self.name) as stream:
            try:
                stream.seek(info.header_offset)
                signature, name_length, extra_length = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
                offset = stream.position + int(name_length) + int(extra_length)
                stream.seek(offset + info.file_size)
            except StreamFault as fault:
                raise SourceError(f"{where}: {fault}") from fault
        if signature != b"PK\x03\x04" or info.file_size != info.compress_size:
            raise SourceError(f"{where}: the archive is damaged: its headers contradict one another")
        return offset

    def _split_members(self) -> dict[str, tuple[str, ArrayColumn]]:
        """Return column -> array and column, and count the arrays that make none."""
        columns: dict[str, tuple[str, ArrayColumn]] = {}
        refusal = SourceError(f"{self.name}: the archive holds no .npy arrays")
        for name, member in self._members.items():
            try:
                found = list(split_columns(name, member.layout.dtype, self.name))
            except SourceError as error:
                refusal = error
                kind = f"array {name!r} of dtype {member.layout.dtype}, which no field takes"
                self._passed_over[kind] += 1
                continue
            columns |= {column.name: (name, column) for column in found}
        if not columns:
            raise refusal
        return columns

    def _count_rows(self) -> int:
        names = dict.fromkeys(name for name, _ in self._columns.values())
        lengths = {name: self._members[name].layout.shape[0] for name in names}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name!r} {length}" for name, length in list(lengths.items())[:10])
            raise SourceError(
                f"{self.name}: the arrays differ in length ({shown}); save those of one split in a file of their own"
            )
        return next(iter(lengths.values()))

    def _iterate(self, member: _Member, marks: Sequence[int]) -> Iterator[tuple[Array, int]]:
        """Yield, for each mark, a batch of rows and the place of the row in it."""
        if member.offset is not None:
            mapped = member.layout.map(self.name, member.offset)
            yield from ((mapped, number) for number in marks)
            return
        try:
            yield from self._inflate(member, marks)
        except StreamFault as fault:
            raise SourceError(f"{self.name} member {member.file!r}: {fault}") from fault

    def _inflate(self, member: _Member, marks: Sequence[int]) -> Iterator[tuple[Array, int]]:
        layout = member.layout
        with self._open() as archive, self._stream(archive, archive.getinfo(member.file)) as stream:
            stream.seek(layout.start)
            if layout.is_fortran:
                whole = _as_rows(stream.read(layout.nbytes), layout, layout.shape[0])
                yield from ((whole, number) for number in marks)
                return
            stream.seek(layout.start + marks[0] * member.row_bytes)
            size = batch_rows(member.row_bytes)
            for first in range(0, len(marks), size):
                count = min(size, len(marks) - first)
                rows = _as_rows(stream.read(count * member.row_bytes), layout, count)
                yield from ((rows, number) for number in range(count))

    def _verify(self) -> None:
        """Read every array once, which holds it against its checksum."""
        with self._open() as archive:
            for member in self._members.values():
                with self._stream(archive, archive.getinfo(member.file)) as stream:
                    try:
                        while stream.read_some(PIECE_BYTES):
                            pass
                    except StreamFault as fault:
                        raise SourceError(f"{self.name} member {member.file!r}: {fault}") from fault

    def _open(self) -> ZipFile:
        open_stream(self.name).close()  # says in plain words what is no file
        try:
            return ZipFile(self.name)
        except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise SourceError(f"{self.name}: no .npz archive, or damaged: {error}") from error

    def _stream(self, archive: ZipFile, info: ZipInfo) -> Stream:
        try:
            return Stream(archive.open(info), None)
        except (BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
            raise SourceError(f"{self.name} member {info.filename!r}: cannot be read: {error}") from error


def _as_rows(data: bytes, layout: NpyLayout, count: int) -> Array:
    shape = (count, *layout.shape[1:])
    found: np.ndarray[Any, Any] = np.frombuffer(data, layout.dtype)
    return found.reshape(shape, order="F" if layout.is_fortran else "C")
