"""A table as a source: each row is a record, with paths of files, labels and plain values in its columns."""

import json
import os
from typing import Any, ClassVar

from shardkit.contract import Field, JsonField
from shardkit.sources.container import Row
from shardkit.sources.row_source import RowSource
from shardkit.sources.source import Stamp
from shardkit.sources.stamps import stamp_value
from shardkit.sources.tables.rows import CsvTable, JsonTable

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class TableSource(RowSource):
    """A .csv, .tsv or .jsonl file with a column ``id`` or ``path``, and one a field.

    Relative paths start at the table's folder and must not leave it; an absolute path in a path column is
    opened wherever it leads. Every row that is not blank is a record.
    """

    kind: ClassVar[str] = "table"
    opens_absolute_paths: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        """Take a table file.

        Raises:
            SourceError: It cannot be read, has no header, or has no rows.
        """
        self._is_json = path.lower().endswith(".jsonl")
        delimiter = _DELIMITERS.get(os.path.splitext(path)[1].lower(), ",")
        super().__init__(JsonTable.open(path) if self._is_json else CsvTable.open(path, delimiter))

    def _stamp_row(self, row: Row, whole: int) -> Stamp:
        """Return the stamp of a row's values: rows added to the table, or a copy of it, change no other row."""
        return stamp_value([row.values, row.fault])

    def _stamped_columns(self) -> tuple[str, ...]:
        return self._container.columns

    def _convert(self, spec: Field, value: Any) -> Any:
        """Make JSON text of a str that .jsonl holds for a json field: it is the string itself, no JSON text yet."""
        if self._is_json and isinstance(spec, JsonField) and isinstance(value, str):
            return json.dumps(value)
        return value
