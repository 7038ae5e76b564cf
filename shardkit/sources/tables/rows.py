"""The containers of tables: splits .csv, .tsv and .jsonl files into rows, each with the byte and the line it starts at.

A reader that starts at the byte of any row yields the same rows from there on, which is how workers get at their part
of a table without reading what is before it.
"""

import codecs
import csv
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO

from shardkit.contract.strict_json import parse_json
from shardkit.errors import SourceError
from shardkit.sources.columns import gather_columns
from shardkit.sources.container import Row

MAX_FIELD_CHARACTERS = (
    16 * 2**20
)  # csv's own limit, 131,072, is below what a caption or an embedding may need
MAX_LINE_BYTES = 64 * 2**20  # a file without line ends must not fill the memory
_LOOKED_AT = 100  # rows of a .jsonl that its columns are taken from at first


class LineFeed:
    """Yields the lines of an open file as text, line ends kept, and counts bytes and lines."""

    def __init__(self, file: BinaryIO, name: str, offset: int, line: int) -> None:
        self._file = file
        self._name = name
        self.offset = offset
        """Byte at which the next line starts."""
        self.line = line
        """Number of the next line."""

    def __iter__(self) -> "LineFeed":
        return self

    def __next__(self) -> str:
        """Return the next line.

        Raises:
            SourceError: It cannot be read, is too long, or is not UTF-8.
        """
        try:
            raw = self._file.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise SourceError(f"{self._name} line {self.line}: cannot read: {error.strerror}") from error
        if not raw:
            raise StopIteration
        if len(raw) > MAX_LINE_BYTES:
            raise SourceError(f"{self._name} line {self.line}: the line has over {MAX_LINE_BYTES} bytes")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self._name} line {self.line}: not UTF-8 (byte 0x{raw[error.start]:02x} at position "
                f"{error.start + 1}); save the table as UTF-8"
            ) from error
        self.offset += len(raw)
        self.line += 1
        return text


@dataclass(frozen=True)
class Table(ABC):
    """A file of lines as a container; a row's mark is the line it starts at, its locator the byte.

    Attributes:
        name: The path as given.
        columns: Names of the columns.
        start: Byte and line at which the rows start; lines count from 1, the header included.
    """

    name: str
    columns: tuple[str, ...]
    start: tuple[int, int]

    @property
    def path_columns(self) -> tuple[str, ...]:
        """All columns: any cell may hold a path."""
        return self.columns

    def count(self) -> int | None:
        """Return None: rows are only known by reading them."""
        return None

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row; blank lines are counted.

        Raises:
            SourceError: The file cannot be read, is not UTF-8, or a quote never closes; names the line.
        """
        for row in self._rows(*self.start, columns):
            if row is None:
                ignored["blank line"] += 1
            else:
                yield row

    def read(self, locator: int, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield as many rows as there are marks, from the byte `locator` on.

        Raises:
            SourceError: As for `scan`.
        """
        rows = (row for row in self._rows(locator, marks[0], columns) if row is not None)
        return islice(rows, len(marks))

    def place(self, mark: int) -> str:
        """Return the table and the line, such as ``labels.csv line 7``; the header is line 1."""
        return f"{self.name} line {mark}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the one file."""
        return (self.name,)

    @abstractmethod
    def _rows(self, offset: int, line: int, columns: Sequence[str]) -> Iterator[Row | None]:
        """Yield the rows from a byte on, where a row starts on line `line`. None stands for a blank line."""


@dataclass(frozen=True)
class CsvTable(Table):
    """A table with a header line and a delimiter, quoted as RFC 4180 says.

    A row with more or fewer cells than the header, or text behind a closing quote, is a faulty row.
    """

    delimiter: str

    @classmethod
    def open(cls, path: str, delimiter: str) -> "CsvTable":
        """Read the header.

        Raises:
            SourceError: There is none, or it names a column twice.
        """
        with _open(path, 0) as file:
            feed = LineFeed(file, path, *_after_bom(file, path))
            try:
                header = next(_split(feed, delimiter, path), None)
            except csv.Error as error:
                raise SourceError(f"{path} line 1: the header cannot be split: {_plain(error)}") from error
        if not header:
            raise SourceError(
                f"{path} line 1: the table is empty; expected is a header that names the columns"
            )
        named = [name for name in header if name]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise SourceError(f"{path} line 1: two columns are named {twice!r}; names must be distinct")
        return cls(path, tuple(header), (feed.offset, feed.line), delimiter)

    def _rows(self, offset: int, line: int, columns: Sequence[str]) -> Iterator[Row | None]:
        wanted = [(name, place) for place, name in enumerate(self.columns) if name in columns]
        with _open(self.name, offset) as file:
            feed = LineFeed(file, self.name, offset, line)
            rows = _split(feed, self.delimiter, self.name)
            while True:
                offset, line = feed.offset, feed.line
                try:
                    cells = next(rows)
                except StopIteration:
                    return
                except csv.Error as error:
                    rows = _split(feed, self.delimiter, self.name)
                    yield Row(line, offset, {}, _describe(error, line, feed.line - 1))
                    continue
                if len(cells) == len(self.columns):
                    yield Row(line, offset, {name: cells[place] for name, place in wanted})
                else:
                    yield self._ragged(line, offset, cells) if cells else None

    def _ragged(self, line: int, offset: int, cells: list[str]) -> Row:
        """Return a row with too few or too many cells; the first ones still name it."""
        found = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        fault = f"the row has {found}; the header has {len(self.columns)} columns"
        return Row(line, offset, dict(zip(self.columns, cells, strict=False)), fault)


@dataclass(frozen=True)
class JsonTable(Table):
    """A table of one JSON object a line."""

    @classmethod
    def open(cls, path: str) -> "JsonTable":
        """Look at the first 100 rows for the columns there are.

        Raises:
            SourceError: The file cannot be read.
        """
        with _open(path, 0) as file:
            start = _after_bom(file, path)
        return cls(path, (), start)._with_columns_of(_LOOKED_AT)

    def complete(self) -> "JsonTable":
        """Return the table with the columns of all rows.

        Raises:
            SourceError: The file cannot be read.
        """
        return self._with_columns_of(None)

    def _with_columns_of(self, rows: int | None) -> "JsonTable":
        values = (row.values for row in islice(self.scan((), Counter()), rows))
        return replace(self, columns=gather_columns(values, self.name))

    def _rows(self, offset: int, line: int, columns: Sequence[str]) -> Iterator[Row | None]:
        with _open(self.name, offset) as file:
            feed = LineFeed(file, self.name, offset, line)
            for text in feed:
                start, offset = offset, feed.offset
                yield _parse_row(feed.line - 1, start, text) if text.strip() else None


def _parse_row(line: int, offset: int, text: str) -> Row:
    try:
        values = parse_json(text)
    except ValueError as error:
        return Row(line, offset, {}, f"the line cannot be taken as JSON: {error}")
    if not isinstance(values, dict):
        return Row(line, offset, {}, f"the line holds a JSON {type(values).__name__}; expected is an object")
    return Row(line, offset, values)


def _describe(error: csv.Error, line: int, last: int) -> str:
    span = f"line {line}" if line == last else f"lines {line} to {last}"
    return f"{span} cannot be split into cells: {_plain(error)}"


def _plain(error: csv.Error) -> str:
    """Return what csv complains of in words that need no Python."""
    if "new-line character" in str(error):
        return "a carriage return stands alone; save the table with line ends LF or CRLF"
    return str(error)


def _open(path: str, offset: int) -> BinaryIO:
    try:
        if not os.path.isfile(path):  # a pipe would block, and cannot be read twice
            raise SourceError(f"{path}: not a regular file")
        file = open(path, "rb")  # noqa: SIM115 - the caller closes it
        file.seek(offset)
    except OSError as error:
        raise SourceError(f"{path}: cannot read the table: {error.strerror}") from error
    return file


def _after_bom(file: BinaryIO, path: str) -> tuple[int, int]:
    """Return the byte and line at which the text starts, and leave the file there."""
    head = file.read(3)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(f"{path} line 1: the table is UTF-16; save it as UTF-8")
    start = 3 if head == codecs.BOM_UTF8 else 0
    file.seek(start)
    return start, 1


def _split(feed: LineFeed, delimiter: str, path: str) -> Iterator[list[str]]:
    """Yield the cells of each row.

    The limit of csv is a setting of the whole process, so it is raised around each single row only.
    """
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        line = feed.line
        before = csv.field_size_limit(MAX_FIELD_CHARACTERS)
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "field limit" in str(error):
                fault = f"a cell has over {MAX_FIELD_CHARACTERS} characters; is a quote not closed?"
                raise SourceError(f"{path} line {line}: {fault}") from error
            if "unexpected end" in str(error):
                raise SourceError(
                    f"{path} line {line}: a quote opens in this row and never closes"
                ) from error
            raise
        finally:
            csv.field_size_limit(before)
        yield cells
