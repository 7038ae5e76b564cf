"""A .npy file as a container: each element of the array's first axis is a row.

The array is mapped, not read: only the rows that are asked for come into memory.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

import numpy as np

from shardkit.contract import Field
from shardkit.errors import SourceError
from shardkit.sources.arrays.columns import ArrayColumn, check_rows, known_fields, split_columns, value_of
from shardkit.sources.arrays.layout import NpyLayout, read_layout
from shardkit.sources.container import Row
from shardkit.sources.streams import open_stream
from shardkit.sources.untyped import ARRAY


class NpyContainer:
    """The rows of one .npy file, called ``FILE-STEM/ROW``.

    An array with a structured dtype has a column for each member, any other the one column ``array``.

    Attributes:
        name: The path as given.
        columns: Names of the columns.
        path_columns: Those of text.
    """

    def __init__(self, path: str) -> None:
        """Take a .npy file.

        Raises:
            SourceError: It is none, is shorter or longer than it says, or holds what no field takes.
        """
        self.name = path
        self._stem = PurePath(path).stem
        self._layout = self._read_layout()
        dtype = self._layout.dtype
        self._row_bytes = check_rows(ARRAY, dtype, self._layout.shape, path)
        found = split_columns("" if dtype.names else ARRAY, dtype, path)
        self._columns: dict[str, ArrayColumn] = {column.name: column for column in found}
        self.columns = tuple(self._columns)
        self.path_columns = tuple(name for name, column in self._columns.items() if column.is_text)

    @property
    def known(self) -> Mapping[str, Field]:
        """What the dtypes of the columns say."""
        shape = self._layout.shape[1:]
        return known_fields((column, self._layout.dtype, shape) for column in self._columns.values())

    def count(self) -> int:
        """Return the size of the first axis."""
        return self._layout.shape[0]

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row in order."""
        return self.read(None, range(self.count()), columns)

    def read(self, locator: None, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows with these marks, which are their numbers."""
        if self._read_layout() != self._layout:
            raise SourceError(f"{self.name}: the file changed while it was ingested; start again")
        rows = self._layout.map(self.name) if columns else np.empty(0)
        for number in marks:
            values = {name: value_of(rows, number, self._columns[name].members) for name in columns}
            yield Row(number, None, values, name=f"{self._stem}/{number}", size=self._row_bytes)

    def place(self, mark: int) -> str:
        """Return the file and the row, counting from 0: ``train.npy row 7``."""
        return f"{self.name} row {mark}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the one file."""
        return (self.name,)

    def _read_layout(self) -> NpyLayout:
        with open_stream(self.name) as stream:
            return read_layout(stream, int(stream.size or 0), self.name)
