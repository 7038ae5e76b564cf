"""Parquet as a source: one file, or a folder of them, as Hugging Face's hub and Spark lay them out.

Pages are read through pyarrow, a few thousand rows at a time, and only the columns wanted. Checksums of pages are
verified where the writer made any.
"""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardkit.errors import SourceError
from shardkit.sources.arrow.values import (
    ArrowSource,
    blaming,
    check_columns,
    features_of,
    file_columns,
    known_fields,
    require_pyarrow,
    rows_of,
    text_columns,
)
from shardkit.sources.container import Row
from shardkit.sources.container_folder import find_files
from shardkit.sources.recognition import is_parquet

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    pa = None

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 4096
_LOOKED_AT = 64  # rows at a time, in search of one with bytes
_READ_BYTES = 1 << 20  # read ahead of a column, so that a row group need not be in memory
_DAMAGED = "cannot be read as Parquet; it is damaged, cut short or no Parquet file"


class ParquetSource(ArrowSource):
    """A .parquet file, or a folder with .parquet files at any depth, in the order of their paths' bytes.

    Rows are named by column ``id``, by the path of the file that they name, or else by their file and number:
    ``data/train-00000-of-00002/17``, counting from 0 in each file.
    """

    def __init__(self, path: str) -> None:
        """Take a file or a folder.

        Raises:
            SourceError: pyarrow is missing, a file is damaged, two files differ in their columns, or there are no rows.
        """
        require_pyarrow(path)
        container, schema = ParquetFiles.open(path)
        super().__init__(container, known_fields(schema, features_of(schema)))


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files of the same columns as a container; a row's mark is its number over all files.

    Attributes:
        name: The path as given.
        columns: Names of the columns.
        path_columns: Those of text, or of files of which only the path is stored.
        files: Paths below `name`; one empty path if `name` is the file.
        starts: Number of the first row of each file, and behind them the number of all rows.
        passed_over: Files beside them.
    """

    name: str
    columns: tuple[str, ...]
    path_columns: tuple[str, ...]
    files: tuple[str, ...]
    starts: tuple[int, ...]
    passed_over: tuple[tuple[str, int], ...] = ()

    @classmethod
    def open(cls, path: str) -> "tuple[ParquetFiles, Any]":
        """Read all footers, and return the container and the `pyarrow.Schema` of the first file.

        Raises:
            SourceError: A file is damaged, or two files differ in their columns.
        """
        passed_over: Counter[str] = Counter()
        files = find_files(path, is_parquet, passed_over) if os.path.isdir(path) else [""]
        starts = [0]
        first = None
        named: set[str] = set()
        for number, file in enumerate(files):
            full = os.path.join(path, file) if file else path
            with blaming(full, _DAMAGED), _open(full) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
                first = schema if first is None else _merge(first, schema, files[0] or path, full)
                candidates = named if number else file_columns(schema)
                named = {column for column in candidates if _is_named_only(opened, column)}
            starts.append(starts[-1] + metadata.num_rows)
        columns = check_columns(first, path)
        path_columns = tuple(column for column in columns if column in named or column in text_columns(first))
        return cls(
            path, columns, path_columns, tuple(files), tuple(starts), tuple(passed_over.items())
        ), first

    def count(self) -> int:
        """Return the number of rows, which the footers hold."""
        return self.starts[-1]

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row.

        Raises:
            SourceError: A page is damaged; names the file.
        """
        ignored.update(dict(self.passed_over))
        return self._rows(0, self.starts[-1], columns)

    def read(self, locator: int, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows from number `locator` on; those before it in its row group are passed over.

        Raises:
            SourceError: A page is damaged, or a file has another number of rows than it had.
        """
        return self._rows(locator, locator + len(marks), columns)

    def place(self, mark: int) -> str:
        """Return the file and the row in it, counting from 0: ``train.parquet row 7``."""
        number = self._file_of(mark)
        return f"{self._path(number)} row {mark - self.starts[number]}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the files that hold these rows."""
        return [self._path(number) for number in dict.fromkeys(map(self._file_of, marks))]

    def _path(self, number: int) -> str:
        return os.path.join(self.name, self.files[number]) if self.files[number] else self.name

    def _file_of(self, row: int) -> int:
        return bisect_right(self.starts, row) - 1

    def _rows(self, begin: int, end: int, columns: Sequence[str]) -> Iterator[Row]:
        while begin < end:
            number = self._file_of(begin)
            start, stop = self.starts[number], min(end, self.starts[number + 1])
            stem = os.path.splitext(self.files[number] or os.path.basename(self.name))[0]
            row = begin
            for values in self._values(number, begin - start, stop - start, columns):
                yield Row(row, row, values, name=f"{stem}/{row - start}")
                row += 1
            begin = stop

    def _values(self, number: int, begin: int, end: int, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of rows ``[begin, end)`` of one file."""
        path = self._path(number)
        with _open(path) as file:
            expected = self.starts[number + 1] - self.starts[number]
            if file.metadata.num_rows != expected:
                found = file.metadata.num_rows
                raise SourceError(
                    f"{path}: has {found} rows now, and had {expected}; it changed; start again"
                )
            wanted = [name for name in columns if name in file.schema_arrow.names]
            if not wanted:
                yield from ({} for _ in range(begin, end))
                return
            yield from self._wanted_values(file, path, begin, end, wanted)

    def _wanted_values(
        self, file: Any, path: str, begin: int, end: int, wanted: list[str]
    ) -> Iterator[dict[str, Any]]:
        with blaming(path, _DAMAGED):
            groups, at = _groups(file.metadata, begin, end)
            batches = file.iter_batches(_batch_rows(file.metadata), groups, wanted, use_threads=False)
        while at < end:
            with blaming(path, _DAMAGED):
                batch = next(batches, None)
            if batch is None:
                raise SourceError(f"{path}: ends before row {at}, though its footer promises it")
            yield from rows_of(batch.slice(max(0, begin - at), end - max(at, begin)), wanted, path)
            at += batch.num_rows


def _open(path: str) -> Any:
    """Open a Parquet file; a context manager."""
    if not os.path.isfile(path):  # a pipe would block
        raise SourceError(f"{path}: not a regular file")
    with blaming(path, _DAMAGED):
        return pq.ParquetFile(
            path, buffer_size=_READ_BYTES, pre_buffer=False, page_checksum_verification=True
        )


def _merge(first: Any, other: Any, first_path: str, path: str) -> Any:
    """Return the columns of two files, which must agree; a column that is all null agrees with any type.

    Raises:
        SourceError: They do not; names both files and the column.
    """
    merged = []
    for name in dict.fromkeys([*first.names, *other.names]):
        kinds = [schema.field(name).type if name in schema.names else None for schema in (first, other)]
        known = [kind for kind in kinds if kind is None or not pa.types.is_null(kind)]
        if any(kind is None for kind in kinds) or (len(known) == 2 and known[0] != known[1]):
            shown = ["missing" if kind is None else str(kind) for kind in kinds]
            raise SourceError(
                f"{first_path} and {path} differ: column {name!r} is {shown[0]} in the first and {shown[1]} in the "
                f"second; ingest them apart, or write them anew with the same columns"
            )
        merged.append(pa.field(name, (known or kinds)[0]))
    return pa.schema(merged, metadata=first.metadata)


def _is_named_only(file: Any, column: str) -> bool:
    """Whether no row of a file column holds bytes.

    The footer's counts of nulls would say so, but pyarrow ends the process on some damaged ones.
    """
    for batch in file.iter_batches(_LOOKED_AT, columns=[f"{column}.bytes"], use_threads=False):
        data = batch.column(column).field("bytes")
        if data.null_count < len(data):
            return False
    return True


def _groups(metadata: Any, begin: int, end: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows ``[begin, end)``, and the number of the first row of them."""
    groups: list[int] = []
    at = first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if at < end and begin < at + rows:
            first = first if groups else at
            groups.append(group)
        at += rows
    return groups, first


def _batch_rows(metadata: Any) -> int:
    """Return how many rows make a batch of bounded size, going by the widest row group."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, widest)))
