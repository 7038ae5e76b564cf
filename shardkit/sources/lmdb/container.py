"""An LMDB as a container: a row is an entry, in the order of the keys.

The environment is open only while a batch of entries is copied out: LMDB must not open a file twice in a process, and
a forked child must not use its parent's environment (http://www.lmdb.tech/doc/, "Caveats").
"""

import pickle
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import lmdb

from shardkit.contract import FileContent, Reason, show_id
from shardkit.errors import SourceError
from shardkit.sources.columns import gather_columns
from shardkit.sources.container import Row
from shardkit.sources.files import MAX_FILE_BYTES
from shardkit.sources.lmdb.file import check_lmdb_file

VALUE = "value"
"""The one column where nothing parses the values."""

Parse = Callable[[bytes, bytes], Mapping[str, Any] | None]
"""Makes the values of a record, and its ``id`` if they have one, of a key and a value; None of what is no record."""

_TRIED = 64  # entries, none of which may give anything, before a function is given up
_BATCH_ENTRIES = 1024
_BATCH_BYTES = 16 << 20
_SHOWN = 200  # characters of an error of `parse` that a sentence repeats


class _Entry(NamedTuple):
    """One entry; no value where none was asked for, or it is too large."""

    key: bytes
    size: int
    value: bytes | None


class LmdbContainer:
    """The main database of one LMDB file.

    Attributes:
        name: The path as given.
        columns: What `parse` gives for any entry; or one, the value.
        path_columns: None.
    """

    path_columns: tuple[str, ...] = ()

    def __init__(self, path: str, parse: Parse | None = None) -> None:
        """Take an LMDB: a file, or a folder with ``data.mdb``. `parse` runs once for each entry.

        Raises:
            SourceError: It is none, is damaged or not read, or `parse` cannot be sent to a worker.
        """
        self.name = path
        self._parse = parse
        self._file = check_lmdb_file(path)
        self.columns: tuple[str, ...] = (VALUE,)
        self._no_records: array[int] = array("q")
        if parse is not None:
            _require_picklable(parse, path)
            self.columns = self._find_columns(parse)

    def count(self) -> int:
        """Return the number of entries, as the header has it and the check found it, less what is no record."""
        return self._file.entries - len(self._no_records)

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every record in key order.

        Raises:
            SourceError: The file changed, or LMDB refuses it.
        """
        if self._no_records:
            ignored["entry that is no record"] += len(self._no_records)
        return self._rows(None, _without(self._file.entries, self._no_records), columns)

    def read(self, locator: bytes, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield entries again, the first with the key `locator`.

        Raises:
            SourceError: The file changed, or LMDB refuses it.
        """
        return self._rows(locator, iter(marks), columns)

    def place(self, mark: int) -> str:
        """Return the number of the entry in key order, counting from 0: ``photos.lmdb entry 7``."""
        return f"{self.name} entry {mark}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the one file."""
        return (self._file.path,)

    def _rows(self, first: bytes | None, marks: Iterator[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the entries with these numbers; `first` is the key of the first one, or None for that of number 0."""
        mark = next(marks, None)
        start = 0 if first is None or mark is None else mark
        for number, entry in enumerate(self._entries(first, bool(columns)), start):
            if mark is None:
                return
            if number == mark:
                yield self._row(mark, entry, columns)
                mark = next(marks, None)

    def _row(self, mark: int, entry: _Entry, columns: Sequence[str]) -> Row:
        name = entry.key.decode("utf-8", "surrogateescape")
        row = Row(mark, entry.key, {}, name=name, size=entry.size)
        if not columns:
            return row
        if entry.value is None:
            sentence = f"the value has {entry.size} bytes; at most {MAX_FILE_BYTES} are read"
            return row._replace(fault=sentence, reason=Reason.TOO_LONG)
        if self._parse is None:
            return row._replace(values={VALUE: FileContent(entry.value, name)})
        try:
            values = _parsed(self._parse, entry.key, entry.value)
        except ValueError as error:
            return row._replace(fault=str(error))
        return row._replace(
            values=values or {},
            fault="parse gives None now, and gave values before" if values is None else None,
        )

    def _find_columns(self, parse: Parse) -> tuple[str, ...]:
        """Return the names of the values of all entries, and note which entries are no records."""
        columns = gather_columns(self._parse_all(parse), self.name)
        if not columns:
            raise SourceError(f"{self.name}: parse gives no values for any entry")
        return columns

    def _parse_all(self, parse: Parse) -> Iterator[Mapping[str, Any]]:
        """Yield what the function gives for each entry that is a record.

        Raises:
            SourceError: It gives nothing but errors for the first entries.
        """
        is_of_use = False
        for number, entry in enumerate(self._entries(None, True)):
            fault = ""
            try:
                values = _parsed(parse, entry.key, entry.value) if entry.value is not None else {}
            except ValueError as error:
                fault = f"{show_id(entry.key.decode('utf-8', 'surrogateescape'))}: {error}"
            else:
                is_of_use = is_of_use or bool(values)
                if values is None:
                    self._no_records.append(number)
                else:
                    yield values
            if fault and not is_of_use and number + 1 >= min(_TRIED, self._file.entries):
                raise SourceError(f"{self.name}: parse gives no values for any of the first entries; {fault}")

    def _entries(self, first: bytes | None, with_values: bool) -> Iterator[_Entry]:
        """Yield the entries from a key on, or all of them."""
        batch = self._copy_batch(first, False, with_values)
        while batch:
            yield from batch
            batch = self._copy_batch(batch[-1].key, True, with_values)

    def _copy_batch(self, start: bytes | None, is_done: bool, with_values: bool) -> list[_Entry]:
        """Return the next entries from `start` on, or behind it if that is done; none at the end."""
        self._file.require_same()
        batch: list[_Entry] = []
        weight = 0
        try:
            with (
                lmdb.open(
                    self._file.path,
                    map_size=self._file.size,
                    subdir=False,
                    readonly=True,
                    lock=False,
                    create=False,
                    max_dbs=0,
                ) as environment,
                environment.begin(buffers=True) as transaction,
                transaction.cursor() as cursor,
            ):
                is_there = cursor.first() if start is None else cursor.set_range(start)
                if is_there and is_done:
                    is_there = cursor.next()
                while is_there and len(batch) < _BATCH_ENTRIES and weight < _BATCH_BYTES:
                    entry = _copy(cursor, with_values)
                    batch.append(entry)
                    weight += entry.size if entry.value is not None else 0
                    is_there = cursor.next()
        except lmdb.Error as error:
            raise SourceError(f"{show_id(self._file.path)}: LMDB refuses it: {error}") from error
        return batch


def _copy(cursor: Any, with_value: bool) -> _Entry:
    """Return the entry at a cursor (the package lmdb is not typed)."""
    value = cursor.value()
    is_wanted = with_value and len(value) <= MAX_FILE_BYTES
    return _Entry(bytes(cursor.key()), len(value), bytes(value) if is_wanted else None)


def _without(entries: int, no_records: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of the entries that are records; those that are not come in order."""
    left = iter(no_records)
    passed_over = next(left, None)
    for number in range(entries):
        if number == passed_over:
            passed_over = next(left, None)
        else:
            yield number


def _parsed(parse: Parse, key: bytes, value: bytes) -> Mapping[str, Any] | None:
    """Return what the caller's function makes of an entry.

    Raises:
        ValueError: It fails, or gives neither a mapping nor None.
    """
    try:
        values = parse(key, value)
    except Exception as error:  # it is code of the caller, which may raise anything
        text = f"parse fails on this entry: {type(error).__name__}: {error}"
        raise ValueError(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…") from error
    if not isinstance(values, Mapping | None):
        raise ValueError(
            f"parse gives a {type(values).__name__} for this entry; expected is a mapping, or None"
        )
    return values


def _require_picklable(parse: Parse, path: str) -> None:
    try:
        pickle.dumps(parse)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SourceError(
            f"{path}: parse cannot be sent to worker processes: {error}; give a function at the top of a module"
        ) from error
