"""Sources of formats that know few types: text comes as bytes, a list of one as its value, and names hold slashes.

What a column is meant for shows in the contract only, so values take their form here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    Field,
    ImageField,
    JsonField,
    LabelField,
    ScalarField,
    TokensField,
)
from shardkit.sources.columns import ID, KEY, LABEL_COLUMNS, PATH, Columns, choose_columns
from shardkit.sources.container import Container, Row
from shardkit.sources.proposal import propose_contract
from shardkit.sources.row_source import RowSource

ARRAY = "array"
"""Column of a file that holds one array without a name."""
_FILE = "encoded"
"""What TensorFlow's data sets call the file of an image: ``image/encoded``."""


class UntypedContainer(Container, Protocol):
    """A container that tells of some columns what field they make."""

    @property
    def known(self) -> Mapping[str, Field]:
        """Column -> field, where the format alone says as much."""


class UntypedSource(RowSource):
    """The rows of a container, each value in the form that its field wants.

    A column ``image/class/label`` serves a field of its last component, ``label``, if no other column ends so, or one
    called ``image_class_label``; ``image/encoded`` serves a field ``image`` as well. The only column of a file that
    names none serves the only field. UTF-8 bytes serve as an id, a label or a number; bytes in an array of uint8 as an
    image or bytes; and a single number as an array of one.
    """

    def __init__(self, container: UntypedContainer) -> None:
        """Take a container.

        Raises:
            SourceError: It cannot be read, or has no rows.
        """
        super().__init__(container)
        self._known = container.known

    def _is_settled(self, name: str, spec: Field, column: str) -> bool:
        """Look for a better column only where a default could hide it: everything would be read once more."""
        return spec.default is None or column == name

    def propose(self) -> Contract:
        """Return the contract that the columns suggest; see `RowSource.propose`. Bytes that are text count as such."""
        names = {name: column for column, name in _short_names(self._container.columns).items()}
        known = {name: self._known[column] for name, column in names.items() if column in self._known}
        contract, remarks = propose_contract(_Renamed(self._container, names), self._folder(), known)
        self.remarks = {name if name in contract.fields else names[name]: remarks[name] for name in remarks}
        self.require(contract)
        return contract

    def _choose(self, contract: Contract) -> Columns:
        columns = self._container.columns
        names = {column: column for column in columns}
        wanted = {*contract.fields, contract.records.id, *LABEL_COLUMNS}
        names |= {name: column for name, column in _all_names(columns).items() if name in wanted}
        if columns == (ARRAY,) and len(contract.fields) == 1:
            names = dict.fromkeys(contract.fields, ARRAY)
        chosen = choose_columns(contract, _Renamed(self._container, names), self._has_names)
        fields = {field: names[column] for field, column in chosen.fields.items()}
        return Columns(None if chosen.id is None else names[chosen.id], fields)

    def _id_of(self, row: Row) -> Any:
        value = None if self._id_column is None else row.values.get(self._id_column)
        if isinstance(value, bytes):
            return _text_of(value)
        return super()._id_of(row)

    def _convert(self, spec: Field, value: Any) -> Any:
        if isinstance(value, bytes) and isinstance(spec, LabelField | ScalarField):
            return _text_of(value)
        if isinstance(value, np.ndarray) and isinstance(spec, ImageField | BytesField):
            return value.tobytes() if value.dtype == np.uint8 and value.ndim == 1 else value
        if isinstance(value, int | float) and isinstance(spec, ArrayField | TokensField):
            return [value]
        if isinstance(value, list) and isinstance(spec, JsonField):
            return [_text_of(item) if isinstance(item, bytes) else item for item in value]
        return value


class _Renamed:
    """A container whose columns go by other names, and whose bytes are text where they can be; for proposals."""

    def __init__(self, container: Container, names: Mapping[str, str]) -> None:
        self.name = container.name
        self.columns = tuple(names)
        self.path_columns = tuple(name for name, column in names.items() if column in container.path_columns)
        self._container = container
        self._names = names

    def count(self) -> int | None:
        return self._container.count()

    def place(self, mark: int) -> str:
        return self._container.place(mark)

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        return self._container.paths_of(marks)

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        return self._rename(self._container.scan([self._names[name] for name in columns], ignored), columns)

    def read(self, locator: Any, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        rows = self._container.read(locator, marks, [self._names[name] for name in columns])
        return self._rename(rows, columns)

    def _rename(self, rows: Iterator[Row], columns: Sequence[str]) -> Iterator[Row]:
        for row in rows:
            values = {name: _plain(row.values.get(self._names[name])) for name in columns}
            yield row._replace(values=values)


def _all_names(columns: Sequence[str]) -> dict[str, str]:
    """Return every name that a field may have -> column: first the columns' own, which others must not hide."""
    names = {column: column for column in columns}
    short = Counter(name for column in columns for name in _last_names(column))
    for column in columns:
        for name in (column.replace("/", "_"), *_last_names(column)):
            if name not in (ID, KEY, PATH) and short[name] <= 1:
                names.setdefault(name, column)
    return names


def _short_names(columns: Sequence[str]) -> dict[str, str]:
    """Return column -> the best name for a field of it."""
    names = _all_names(columns)
    best = {}
    for column in columns:
        candidates = [*reversed(_last_names(column)), column.replace("/", "_")]
        best[column] = next((name for name in candidates if names.get(name) == column), column)
    return best


def _last_names(column: str) -> list[str]:
    """Return the last component of a name with slashes; of ``image/encoded`` also ``image``."""
    parts = column.split("/")
    if len(parts) == 1:
        return []
    return [parts[-1], parts[-2]] if parts[-1] == _FILE else [parts[-1]]


def _plain(value: Any) -> Any:
    """Return text for bytes that are some, and an array for a list of numbers."""
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        return np.array(value)
    if not isinstance(value, bytes):
        return value
    text = _text_of(value)
    is_shown = isinstance(text, str) and all(sign.isprintable() or sign in "\t\n\r" for sign in text)
    return text if is_shown else value


def _text_of(value: bytes) -> str | bytes:
    """Return the text that bytes are in UTF-8, or the bytes."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value
