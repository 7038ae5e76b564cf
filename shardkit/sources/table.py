"""A table as a source: each row is a record, with paths of files, labels and plain values in its columns."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from shardkit.contract import Contract, JsonField, Reason, Rejection, find_id_fault, show_id
from shardkit.contract.numerals import is_bool
from shardkit.errors import SourceError
from shardkit.sources.columns import (
    ID,
    IMAGE,
    LABEL,
    PATH,
    Columns,
    Guess,
    choose_columns,
    propose_contract,
)
from shardkit.sources.files import FileFault, FileReader
from shardkit.sources.rows import CsvRows, JsonRows, Row, Rows
from shardkit.sources.source import Part, RawRecord

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class TableSource:
    """A .csv, .tsv or .jsonl file with a column ``id`` or ``path``, and one a field.

    Relative paths start at the table's folder and must not leave it; an absolute path in a path column is
    opened wherever it leads. Every row that is not blank is a record.

    Attributes:
        name: The path as given.
        ignored: Blank lines passed over.
    """

    def __init__(self, path: str) -> None:
        """Take a table file.

        Raises:
            SourceError: It cannot be read, has no header, or has no rows.
        """
        self.name = path
        self.ignored: Counter[str] = Counter()
        self._folder = os.path.dirname(path) or "."
        self._is_json = path.lower().endswith(".jsonl")
        delimiter = _DELIMITERS.get(os.path.splitext(path)[1].lower(), ",")
        self._rows: Rows = JsonRows.open(path) if self._is_json else CsvRows.open(path, delimiter)
        self._id_column = next((column for column in (ID, PATH, IMAGE) if column in self._rows.columns), ID)
        if next(self._read_rows(*self._rows.start, Counter()), None) is None:
            raise SourceError(f"{path}: the table has no rows")

    def require(self, contract: Contract) -> None:
        """Check that there is a column for the id and for every field, and settle which one holds the id.

        Raises:
            SourceError: There is not; names the columns found.
        """
        self._id_column = choose_columns(contract, self._rows.columns, self.name).id

    def propose(self) -> Contract:
        """Return the contract that the columns suggest, after one pass over all rows.

        ``path``, ``image``, or an ``id`` that names a file becomes an image; ``label`` a label: numbered if
        all its values are whole numbers from 0, else with its distinct names as classes; any other column a
        scalar if all its values are numbers, else a text (in .jsonl: json). Columns whose name cannot name a
        field are left out.
        """
        columns = self._rows.columns
        image = self._find_image_column()
        guesses = {column: Guess() for column in columns if column not in (ID, image)}
        for row in self._read_rows(*self._rows.start, Counter()):
            if row.fault is None:
                for column, guess in guesses.items():
                    guess.add(row.values.get(column), is_label=column == LABEL)
        return propose_contract(columns, guesses, image, self.name)

    def count(self) -> int:
        """Return the number of rows, by reading the table once."""
        return sum(1 for _ in self._read_rows(*self._rows.start, Counter()))

    def parts(self, size: int) -> Iterator[Part]:
        """Yield the rows in order; only one part is in memory at a time.

        Raises:
            SourceError: The table cannot be read; names the line.
        """
        self.ignored.clear()
        rows = self._read_rows(*self._rows.start, self.ignored)
        first = 0
        while run := list(islice(rows, size)):
            ids, bad = [], {}
            for position, row in enumerate(run):
                record_id, rejection = self._judge_row(row)
                ids.append(record_id)
                if rejection is not None:
                    bad[position] = rejection
            yield Part(first, ids, [row.line for row in run], run[0].offset, bad)
            first += len(run)

    def place(self, mark: int) -> str:
        """Return the table and the line, such as ``labels.csv line 7``; the header is line 1."""
        return f"{self.name} line {mark}"

    def read(self, part: Part, contract: Contract) -> Iterator[RawRecord | Rejection]:
        """Yield the records of a part, with the files that they name.

        Raises:
            SourceError: The table changed since it was scanned.
        """
        columns = choose_columns(contract, self._rows.columns, self.name)
        files = FileReader(self._folder)
        rows = self._read_rows(part.locator, part.marks[0], Counter())
        for position, expected in enumerate(part.ids):
            row = next(rows, None)
            if row is None or self._judge_row(row)[0] != expected:
                raise SourceError(
                    f"{self.place(part.marks[position])}: expected the row of {expected!r}; the table changed "
                    f"while it was ingested; start again"
                )
            if position in part.bad:
                yield part.bad[position]
            else:
                yield self._record(row, expected, contract, columns, files)

    def _find_image_column(self) -> str | None:
        """Return the column that names image files, or None; ids do if the first of them is a file's path."""
        for column in (PATH, IMAGE):
            if column in self._rows.columns:
                return column
        first = next(self._read_rows(*self._rows.start, Counter()))
        path = self._id_of(first)
        is_file = isinstance(path, str) and find_id_fault(path) is None
        return ID if is_file and os.path.isfile(os.path.join(self._folder, str(path))) else None

    def _read_rows(self, offset: int, line: int, ignored: Counter[str]) -> Iterator[Row]:
        for row in self._rows.read(offset, line):
            if row is None:
                ignored["blank line"] += 1
            else:
                yield row

    def _judge_row(self, row: Row) -> tuple[str, Rejection | None]:
        """Return the id of a row, or the best name it has and why it cannot be tried."""
        place = self.place(row.line)
        record_id = self._id_of(row)
        fault = find_id_fault(record_id)
        if row.fault is not None:
            name = place if fault else str(record_id)
            return name, Rejection(name, place, Reason.BAD_ROW, row.fault)
        if fault is not None:
            name = show_id(record_id) if isinstance(record_id, str) and record_id.strip() else place
            return name, Rejection(name, place, Reason.BAD_ID, fault)
        return str(record_id), None

    def _id_of(self, row: Row) -> Any:
        """Return the raw id; a whole number in .jsonl stands for its digits, as it does in .csv."""
        value = row.values.get(self._id_column)
        return str(value) if isinstance(value, int) and not is_bool(value) else value

    def _record(
        self, row: Row, record_id: str, contract: Contract, columns: Columns, files: FileReader
    ) -> RawRecord | Rejection:
        place = self.place(row.line)
        values: dict[str, Any] = {}
        for name, spec in contract.fields.items():
            column = columns.fields[name]
            value = row.values.get(column)
            try:
                if spec.takes_file and isinstance(value, str) and value:
                    value = files.read(value, may_be_absolute=column != ID)
                elif self._is_json and isinstance(spec, JsonField) and isinstance(value, str):
                    value = json.dumps(value)  # it is the string itself; the field would read it as JSON text
            except FileFault as fault:
                return Rejection(record_id, place, fault.reason, fault.sentence, name)
            values[name] = value
        return RawRecord(record_id, place, values)
