"""A folder made by Hugging Face's ``Dataset.save_to_disk`` as a source, read by pyarrow alone.

The folder holds ``state.json``, which lists the .arrow files, ``dataset_info.json``, which describes the columns, and
the files: each an Arrow IPC stream (https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format).
"""

import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shardkit.errors import SourceError
from shardkit.sources.arrow.values import (
    ArrowSource,
    blaming,
    check_columns,
    file_columns,
    known_fields,
    require_pyarrow,
    row_bytes,
    rows_of,
    text_columns,
)
from shardkit.sources.container import Row

try:
    import pyarrow as pa
except ImportError:
    pa = None

_END = b"\xff\xff\xff\xff\0\0\0\0"
"""What ends every stream; without it, a stream that was cut between two batches would look whole."""
_MAX_JSON_BYTES = 64 << 20
_BATCH_ROWS = 256  # rows made plain at a time; a batch on disk may hold any number
_DAMAGED = "cannot be read as an Arrow stream; it is damaged or cut short"


class HfDatasetSource(ArrowSource):
    """A Hugging Face `datasets` folder; a ClassLabel's names are classes, an Image's bytes an image.

    Rows are named by column ``id``, by the path of the file that they name, or else by their file and number:
    ``data-00000-of-00002/17``, counting from 0 in each file.
    """

    def __init__(self, path: str) -> None:
        """Take a folder.

        Raises:
            SourceError: pyarrow is missing; the folder holds several splits, or rows that an indices mapping reorders;
                a file is missing or damaged; or there are no rows.
        """
        require_pyarrow(path)
        container, schema = ArrowFiles.open(path)
        info = _read_json(path, "dataset_info.json")
        super().__init__(container, known_fields(schema, info.get("features")))


@dataclass(frozen=True)
class ArrowFiles:
    """Arrow streams of the same columns as a container; a row's mark is its number over all files.

    Attributes:
        name: The path as given.
        columns: Names of the columns.
        path_columns: Those of text, or of files of which only the path is stored.
        files: Names in the folder.
        starts: Number of the first row of each file, and behind them the number of all rows.
    """

    name: str
    columns: tuple[str, ...]
    path_columns: tuple[str, ...]
    files: tuple[str, ...]
    starts: tuple[int, ...]

    @classmethod
    def open(cls, path: str) -> "tuple[ArrowFiles, Any]":
        """Count the rows of every file, and return the container and the `pyarrow.Schema` of the first.

        Raises:
            SourceError: The folder is no single data set, or a file is missing, damaged or differs in its columns.
        """
        files = _list_files(path)
        starts = [0]
        first: Any = None
        named: set[str] = set()
        for number, file in enumerate(files):
            full = os.path.join(path, file)
            _check_end(full)
            rows = 0
            with _batches(full) as (schema, batches):
                if first is None:
                    first, named = schema, set(file_columns(schema))
                elif schema != first:
                    raise SourceError(
                        f"{os.path.join(path, files[0])} and {full} differ in their columns; save the data set again"
                    )
                for batch in batches:
                    rows += batch.num_rows
                    named -= {name for name in named if not _is_named_only(batch.column(name))}
            starts.append(starts[number] + rows)
        columns = check_columns(first, path)
        path_columns = tuple(column for column in columns if column in named or column in text_columns(first))
        return cls(path, columns, path_columns, tuple(files), tuple(starts)), first

    def count(self) -> int:
        """Return the number of rows, counted when the folder was opened."""
        return self.starts[-1]

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row.

        Raises:
            SourceError: A batch is damaged; names the file.
        """
        return self._rows(0, self.starts[-1], columns)

    def read(self, locator: int, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows from number `locator` on; batches before it are passed over unread.

        Raises:
            SourceError: A batch is damaged, or a file has another number of rows than it had.
        """
        return self._rows(locator, locator + len(marks), columns)

    def place(self, mark: int) -> str:
        """Return the file and the row in it, counting from 0: ``raw/data-00000-of-00001.arrow row 7``."""
        number = self._file_of(mark)
        return f"{os.path.join(self.name, self.files[number])} row {mark - self.starts[number]}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the two descriptions, and the files that hold these rows."""
        files = (self.files[number] for number in dict.fromkeys(map(self._file_of, marks)))
        return [os.path.join(self.name, file) for file in ("state.json", "dataset_info.json", *files)]

    def _file_of(self, row: int) -> int:
        return bisect_right(self.starts, row) - 1

    def _rows(self, begin: int, end: int, columns: Sequence[str]) -> Iterator[Row]:
        while begin < end:
            number = self._file_of(begin)
            start, stop = self.starts[number], min(end, self.starts[number + 1])
            path = os.path.join(self.name, self.files[number])
            stem = os.path.splitext(self.files[number])[0]
            row = begin
            for values, size in _values(path, begin - start, stop - start, columns):
                yield Row(row, row, values, name=f"{stem}/{row - start}", size=size)
                row += 1
            if row < stop:
                raise SourceError(
                    f"{path}: ends before row {stop - start}, which it had; it changed; start again"
                )
            begin = stop


def _values(path: str, begin: int, end: int, columns: Sequence[str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the values and the bytes of rows ``[begin, end)`` of one file, fewer if it ends before."""
    at = 0
    with _batches(path) as (_, batches):
        for batch in batches:
            for start in range(max(0, begin - at), min(batch.num_rows, end - at), _BATCH_ROWS):
                rows = batch.slice(start, min(_BATCH_ROWS, batch.num_rows - start, end - at - start))
                yield from zip(rows_of(rows, columns, path), row_bytes(rows), strict=True)
            at += batch.num_rows
            if at >= end:
                return


@contextmanager
def _batches(path: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Open a stream, and deliver its schema and its record batches, which are views of the mapped file.

    Raises:
        SourceError: It is damaged.
    """
    with blaming(path, _DAMAGED), pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
        reader.schema.names  # noqa: B018 - decodes the names, which damage may keep from being text
        yield reader.schema, _sound(reader)


def _sound(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches whose buffers are as long as they say: touching others may end the process."""
    for batch in batches:
        batch.validate()
        yield batch


def _is_named_only(column: Any) -> bool:
    """Whether no row of a file column holds bytes."""
    data = column.field("bytes")
    return bool(data.null_count == len(data))


def _check_end(path: str) -> None:
    """Check that a file is there, and ends as a stream does.

    Raises:
        SourceError: It is not, or does not.
    """
    if not os.path.isfile(path):
        raise SourceError(f"{path}: the file, which state.json lists, is missing")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_END)))
            end = file.read()
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror}") from error
    if end != _END:
        raise SourceError(f"{path}: does not end as an Arrow stream does; it was cut short, or is none")


def _list_files(path: str) -> list[str]:
    """Return the names of the .arrow files that state.json lists.

    Raises:
        SourceError: The folder holds several splits, has an indices mapping, or lists a file elsewhere.
    """
    if os.path.isfile(os.path.join(path, "dataset_dict.json")):
        splits = _read_json(path, "dataset_dict.json").get("splits")
        named = splits if isinstance(splits, list) else []
        shown = [os.path.join(path, split) for split in named if isinstance(split, str)]
        raise SourceError(
            f"{path}: holds several splits; ingest one of them: {', '.join(shown[:20]) or 'none is named'}"
        )
    state = _read_json(path, "state.json")
    if any(key.startswith("_indices") and value for key, value in state.items()):
        raise SourceError(
            f"{path}: its rows are reordered by an indices mapping, which early versions of datasets saved; "
            f"load it with datasets, call flatten_indices() and save it again"
        )
    listed = state.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    files: list[Any] = [file.get("filename") if isinstance(file, Mapping) else file for file in entries]
    wrong = [name for name in files if not isinstance(name, str) or os.path.basename(name) != name]
    if not files or wrong:
        found = f"{wrong[0]!r}, which is no name of a file in this folder" if wrong else "no files"
        raise SourceError(f"{os.path.join(path, 'state.json')}: lists {found}; save the data set again")
    return files


def _read_json(path: str, name: str) -> dict[str, Any]:
    """Return the JSON object in a small file of the folder.

    Raises:
        SourceError: It cannot be read, or holds something else.
    """
    full = os.path.join(path, name)
    try:
        with open(full, "rb") as file:
            found = json.loads(file.read(_MAX_JSON_BYTES))
    except OSError as error:
        raise SourceError(f"{full}: cannot read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{full}: holds no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{full}: holds a JSON {type(found).__name__}; expected is an object")
    return found
