"""Splits .csv, .tsv and .jsonl files into rows, each with the byte and the line it starts at.

Knows nothing of ids, fields or contracts. A reader that starts at the byte of any row yields the same rows
from there on, which is how workers get at their part of a table without reading what is before it.
"""

import codecs
import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, Protocol

from shardkit.contract.strict_json import parse_json
from shardkit.errors import SourceError

MAX_FIELD_CHARACTERS = (
    16 * 2**20
)  # csv's own limit, 131,072, is below what a caption or an embedding may need
MAX_LINE_BYTES = 64 * 2**20  # a file without line ends must not fill the memory


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        offset: Byte at which it starts.
        line: Line at which it starts, from 1, the header included.
        values: Column name to value; text in .csv and .tsv, any JSON value in .jsonl. Empty if it has a
            fault.
        fault: Why the row cannot be split into its columns, or None.
    """

    offset: int
    line: int
    values: dict[str, Any]
    fault: str | None = None


class Rows(Protocol):
    """A table file."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: those of the header, or the keys that the first rows hold."""

    @property
    def start(self) -> tuple[int, int]:
        """Byte and line at which the rows start."""

    def read(self, offset: int, line: int) -> Iterator[Row | None]:
        """Yield the rows from a byte on, where a row starts on line `line`. None stands for a blank line.

        Raises:
            SourceError: The file cannot be read, is not UTF-8, or a quote never closes; names the line.
        """


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
class CsvRows:
    """A table with a header line and a delimiter, quoted as RFC 4180 says.

    A row with more or fewer cells than the header, or text behind a closing quote, is a faulty row.
    """

    path: str
    delimiter: str
    columns: tuple[str, ...]
    start: tuple[int, int]

    @classmethod
    def open(cls, path: str, delimiter: str) -> "CsvRows":
        """Read the header.

        Raises:
            SourceError: There is none, or it names a column twice.
        """
        with _open(path, 0) as file:
            feed = LineFeed(file, path, *_after_bom(file, path))
            try:
                header = next(_split(feed, delimiter, path), None)
            except csv.Error as error:
                raise SourceError(f"{path} line 1: the header cannot be split: {error}") from error
        if not header:
            raise SourceError(
                f"{path} line 1: the table is empty; expected is a header that names the columns"
            )
        named = [name for name in header if name]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise SourceError(f"{path} line 1: two columns are named {twice!r}; names must be distinct")
        return cls(path, delimiter, tuple(header), (feed.offset, feed.line))

    def read(self, offset: int, line: int) -> Iterator[Row | None]:
        """Yield the rows from a byte on; see `Rows`."""
        with _open(self.path, offset) as file:
            feed = LineFeed(file, self.path, offset, line)
            cells = _split(feed, self.delimiter, self.path)
            while True:
                offset, line = feed.offset, feed.line
                try:
                    found = next(cells)
                except StopIteration:
                    return
                except csv.Error as error:
                    cells = _split(feed, self.delimiter, self.path)
                    yield Row(offset, line, {}, self._describe(error, line, feed.line - 1))
                    continue
                yield self._row(offset, line, found) if found else None

    def _row(self, offset: int, line: int, cells: list[str]) -> Row:
        values = dict(zip(self.columns, cells, strict=False))
        if len(cells) == len(self.columns):
            return Row(offset, line, values)
        found = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        fault = f"the row has {found}; the header has {len(self.columns)} columns"
        return Row(offset, line, values, fault)

    def _describe(self, error: csv.Error, line: int, last: int) -> str:
        span = f"line {line}" if line == last else f"lines {line} to {last}"
        return f"{span} cannot be split into cells: {error}"


@dataclass(frozen=True)
class JsonRows:
    """A table of one JSON object a line."""

    path: str
    columns: tuple[str, ...]
    start: tuple[int, int]

    @classmethod
    def open(cls, path: str) -> "JsonRows":
        """Look at the first 100 rows for the columns there are.

        Raises:
            SourceError: The file cannot be read.
        """
        with _open(path, 0) as file:
            start = _after_bom(file, path)
        columns: dict[str, None] = {}
        looked_at = 0
        for row in cls(path, (), start).read(*start):
            columns |= dict.fromkeys(row.values if row else ())
            looked_at += row is not None
            if looked_at == 100:
                break
        return cls(path, tuple(columns), start)

    def read(self, offset: int, line: int) -> Iterator[Row | None]:
        """Yield the rows from a byte on; see `Rows`."""
        with _open(self.path, offset) as file:
            feed = LineFeed(file, self.path, offset, line)
            for text in feed:
                start = offset, feed.line - 1
                offset = feed.offset
                yield _parse_row(*start, text) if text.strip() else None


def _parse_row(offset: int, line: int, text: str) -> Row:
    try:
        values = parse_json(text)
    except ValueError as error:
        return Row(offset, line, {}, f"the line cannot be taken as JSON: {error}")
    if not isinstance(values, dict):
        return Row(offset, line, {}, f"the line holds a JSON {type(values).__name__}; expected is an object")
    return Row(offset, line, values)


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
