"""A HDF5 file as a container: data sets whose first axes count the same rows are its columns.

The file is untrusted. What leads out of it (external links, external storage, virtual data sets) is refused, and so
are data sets of which chunks were never written, since reading them would give made-up values. Rows are read a few
megabytes at a time, through the library's own cache of chunks. libhdf5 finds most damage and reports it; damage to the
heap of values of varying length, though, can make it crash or loop, which in a worker process ends as a `WorkerError`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from shardkit.contract import Field, LabelField
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
from shardkit.sources.container import Row
from shardkit.sources.streams import open_stream

try:
    import h5py
except ImportError:
    h5py = None  # an extra: without it, only what needs it is refused

MAX_CHUNK_BYTES = 2**30
"""The library holds a chunk in memory whole."""
_CACHE_BYTES = 2**25  # of chunks of one data set: one that is larger is decompressed again for each batch
_VARYING_ROW_BYTES = 2**18  # taken for a row of varying length: its size shows only once it is read
_MAX_DEPTH = 100
_WIDEST = 8  # bytes of the widest number that a contract knows
_FAULTS = (OSError, RuntimeError, ValueError, TypeError, KeyError)  # all that h5py raises for a damaged file


@dataclass(frozen=True)
class _DataSet:
    """One data set of the file.

    Attributes:
        path: Its name from the root group on.
        rows: Size of its first axis.
        row_bytes: Bytes of one row, guessed where they vary.
        columns: The columns that it makes.
        known: Column -> field, for those of numbers.
        names: Number -> name of an enumeration's values, or None.
    """

    path: str
    rows: int
    row_bytes: int
    columns: tuple[ArrayColumn, ...]
    known: Mapping[str, Field] = field(default_factory=dict, hash=False)
    names: Mapping[int, str] | None = field(default=None, hash=False)


class Hdf5Container:
    """The rows of one HDF5 file, called ``FILE-STEM/ROW``.

    Columns are called by the path of their data set, ``group/name``; a member of a compound one ``group/name/member``.
    Of several lengths of the first axis the one that most data sets have counts; the others are passed over. Values of
    an enumeration come as their names. Soft links are not followed: what they lead to is there under its own name.

    Attributes:
        name: The path as given.
        columns: Names of the columns.
        path_columns: Those of text.
    """

    def __init__(self, path: str) -> None:
        """Take a HDF5 file.

        Raises:
            SourceError: h5py is missing; the file is damaged, incomplete, leads out of itself, or holds no columns.
        """
        if h5py is None:
            raise SourceError(f'{path}: reading it takes h5py: pip install "shardkit[hdf5]"')
        self.name = path
        self._stem = PurePath(path).stem
        self._passed_over: Counter[str] = Counter()
        with self._open() as file:
            found = [self._describe(data_set) for data_set in self._walk(file)]
        self._rows = self._choose_length([data_set for data_set in found if data_set is not None])
        self._columns: dict[str, tuple[_DataSet, ArrayColumn]] = {}
        for data_set in found:
            if data_set is not None and data_set.rows == self._rows:
                self._columns |= {column.name: (data_set, column) for column in data_set.columns}
            elif data_set is not None:
                self._passed_over[f"data set {data_set.path!r} with another number of rows"] += 1
        self.columns = tuple(self._columns)
        self.path_columns = tuple(name for name, (_, column) in self._columns.items() if column.is_text)

    @property
    def known(self) -> Mapping[str, Field]:
        """What the types of the data sets say."""
        return {name: spec for data_set, _ in self._columns.values() for name, spec in data_set.known.items()}

    def count(self) -> int:
        """Return the size of the first axis."""
        return self._rows

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row in order."""
        ignored.update(self._passed_over)
        return self.read(None, range(self._rows), columns)

    def read(self, locator: None, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows with these marks, which are their numbers. A damaged chunk makes faulty rows."""
        if not columns:
            for number in marks:
                yield self._row(number, {}, None)
            return
        needed = list(dict.fromkeys(self._columns[name][0] for name in columns))
        size = min(batch_rows(data_set.row_bytes) for data_set in needed)
        with self._open() as file:
            for first in range(0, len(marks), size):
                run = marks[first : first + size]
                batches = {data_set.path: self._read_rows(file, data_set.path, run) for data_set in needed}
                for place, number in enumerate(run):
                    rows = {path: batch[place] for path, batch in batches.items()}
                    yield self._row(number, *self._values(rows, columns))

    def place(self, mark: int) -> str:
        """Return the file and the row, counting from 0: ``train.h5 row 7``."""
        return f"{self.name} row {mark}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the one file."""
        return (self.name,)

    def _row(self, number: int, values: dict[str, Any], fault: str | None) -> Row:
        return Row(number, None, values, fault, name=f"{self._stem}/{number}")

    @contextmanager
    def _open(self) -> Iterator[Any]:
        open_stream(self.name).close()  # says in plain words what is no file
        try:
            file = h5py.File(self.name, "r", locking="best-effort", rdcc_nbytes=_CACHE_BYTES)
        except _FAULTS as error:
            raise SourceError(
                f"{self.name}: no HDF5 file, damaged or cut short: {_one_line(error)}"
            ) from error
        with file:
            yield file

    def _walk(self, file: Any) -> Iterator[Any]:
        """Yield every data set once, group by group in the order of names."""
        seen = set()
        pending = [(file, 0)]
        while pending:
            group, depth = pending.pop()
            with self._blaming(group.name):
                identity = h5py.h5o.get_info(group.id).addr
                below = list(self._list(group)) if identity not in seen and depth < _MAX_DEPTH else []
            seen.add(identity)
            for child in below:
                if isinstance(child, h5py.Group):
                    pending.append((child, depth + 1))
                elif isinstance(child, h5py.Dataset):
                    yield child

    def _list(self, group: Any) -> Iterator[Any]:
        for name in sorted(group):
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise SourceError(
                    f"{self.name}: {group.name.rstrip('/')}/{name} is a link into the file {link.filename!r}; "
                    f"copy the data into this one"
                )
            if isinstance(link, h5py.HardLink):
                yield group[name]

    def _describe(self, data_set: Any) -> _DataSet | None:
        """Return what a data set holds; None, and count it as passed over, where it holds no rows that can be had."""
        path = data_set.name.lstrip("/")
        with self._blaming(path):
            self._require_own(data_set, path)
            dtype, shape = data_set.dtype, data_set.shape
            if not shape:
                self._passed_over[f"data set {path!r} without rows"] += 1
                return None
            self._require_written(data_set, path)
            kind = _kind_of(dtype)
        if kind is None:
            self._passed_over[f"data set {path!r} of {_describe_type(dtype)}, which no field takes"] += 1
            return None
        if kind == "varying":
            text = h5py.check_string_dtype(dtype) is not None
            size = _VARYING_ROW_BYTES * max(1, math.prod(shape[1:]))
            return _DataSet(path, shape[0], size, (ArrayColumn(path, (), text),))
        row_bytes = check_rows(path, dtype, shape, self.name)
        if kind == "text":
            return _DataSet(path, shape[0], row_bytes, (ArrayColumn(path, (), True),))
        found = tuple(split_columns(path, dtype, self.name))
        members = h5py.check_enum_dtype(dtype)
        if members is not None:
            names = {int(value): name for name, value in members.items()}
            known: dict[str, Field] = {
                path: LabelField(classes=tuple(names[value] for value in sorted(names)))
            }
            return _DataSet(path, shape[0], row_bytes, found, {} if shape[1:] else known, names)
        known = known_fields((column, dtype, shape[1:]) for column in found)
        return _DataSet(path, shape[0], row_bytes, found, known)

    def _require_own(self, data_set: Any, path: str) -> None:
        """Refuse values that lie in other files."""
        if data_set.is_virtual or data_set.external:
            kind = "is assembled from other data sets" if data_set.is_virtual else "lies in other files"
            raise SourceError(f"{self.name}: data set {path!r} {kind}; copy the data into this one")

    def _require_written(self, data_set: Any, path: str) -> None:
        """Refuse a data set whose values are not all there, so that no fill value is taken for one."""
        size = math.prod(data_set.shape)
        if not size:
            return
        if data_set.chunks is None:
            missing, whole = (
                (0 if data_set.id.get_storage_size() >= size * data_set.id.get_type().get_size() else 1),
                1,
            )
        else:
            chunk_bytes = math.prod(data_set.chunks) * data_set.id.get_type().get_size()
            if chunk_bytes > MAX_CHUNK_BYTES:
                raise SourceError(
                    f"{self.name}: data set {path!r} has chunks of {chunk_bytes} bytes; at most "
                    f"{MAX_CHUNK_BYTES} are read"
                )
            whole = math.prod(
                -(-axis // chunk) for axis, chunk in zip(data_set.shape, data_set.chunks, strict=True)
            )
            missing = whole - data_set.id.get_num_chunks()
        if missing > 0:
            raise SourceError(
                f"{self.name}: of data set {path!r}, {missing} of {whole} chunks were never written, so its "
                f"values would be made up; write it again, or resize it to what is there"
            )

    def _choose_length(self, data_sets: Sequence[_DataSet]) -> int:
        """Return the number of rows: that of most data sets.

        Raises:
            SourceError: There are no data sets, or as many of one length as of another.
        """
        lengths = Counter(data_set.rows for data_set in data_sets).most_common(2)
        if not lengths:
            found = f"; passed over: {', '.join(self._passed_over)}" if self._passed_over else ""
            raise SourceError(f"{self.name}: the file holds no data sets with rows{found}")
        if len(lengths) == 2 and lengths[0][1] == lengths[1][1]:
            shown = ", ".join(f"{data_set.path!r} {data_set.rows}" for data_set in data_sets[:10])
            raise SourceError(
                f"{self.name}: the data sets differ in their number of rows ({shown}); save those of one split in "
                f"a file of their own"
            )
        return lengths[0][0]

    def _read_rows(self, file: Any, path: str, marks: Sequence[int]) -> list[tuple[Array, int] | str]:
        """Return, for each row, a batch and the row's place in it, or why it cannot be had."""
        try:
            rows = file[path][marks[0] : marks[-1] + 1]
            return [(rows, place) for place in range(len(marks))]
        except _FAULTS as error:
            if len(marks) == 1:
                return [f"data set {path!r} cannot be read: {_one_line(error)}"]
        return [found for mark in marks for found in self._read_rows(file, path, [mark])]

    def _values(
        self, rows: Mapping[str, tuple[Array, int] | str], columns: Sequence[str]
    ) -> tuple[dict[str, Any], str | None]:
        """Return the values of one row, and what is wrong with the first data set that cannot be read."""
        values: dict[str, Any] = {}
        fault = None
        for name in columns:
            data_set, column = self._columns[name]
            found = rows[data_set.path]
            if isinstance(found, str):
                fault = fault or found
                continue
            value = value_of(*found, column.members)
            if data_set.names is not None:
                value = _name_values(value, data_set.names)
            values[name] = _decode(value) if column.is_text else value
        return values, fault

    @contextmanager
    def _blaming(self, path: str) -> Iterator[None]:
        """Turn what h5py raises into one line that names the file and the data set."""
        try:
            yield
        except _FAULTS as error:
            raise SourceError(f"{self.name}: {path!r} cannot be read: {_one_line(error)}") from error


def _kind_of(dtype: np.dtype[Any]) -> str | None:
    """Return how values of a dtype are taken: ``"plain"``, ``"text"``, ``"varying"``, or None if they are not."""
    text = h5py.check_string_dtype(dtype)
    if text is not None:
        return "varying" if text.length is None else "text"
    inner = h5py.check_vlen_dtype(dtype)
    if inner is not None:
        return "varying" if np.dtype(inner).kind in "biuf" else None
    if dtype.hasobject:
        return None
    if dtype.names is not None:
        is_plain = all(_kind_of(dtype[name].base) is not None for name in dtype.names)
    else:
        is_plain = dtype.base.kind == "V" or (dtype.base.kind in "biuf" and dtype.base.itemsize <= _WIDEST)
    return "plain" if is_plain else None


def _describe_type(dtype: np.dtype[Any]) -> str:
    if h5py.check_ref_dtype(dtype) is not None:
        return "references into the file"
    return f"type {dtype}"


def _name_values(value: Any, names: Mapping[int, str]) -> Any:
    """Return the name of an enumeration's value, or a list of them; a value without a name stays a number."""
    if isinstance(value, np.ndarray):
        return [_name_values(item, names) for item in value.tolist()]
    if isinstance(value, list):
        return [_name_values(item, names) for item in value]
    return names.get(value, value)


def _decode(value: Any) -> Any:
    """Return text for bytes that a data set calls text; bytes that are not UTF-8 stay what they are."""
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
