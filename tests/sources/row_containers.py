"""A container of rows in memory, and what the tests of row sources read of a source."""

import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardkit.contract import Contract, Rejection
from shardkit.sources import RawRecord, Source
from shardkit.sources.container import Row


@dataclass
class Rows:
    """Rows of a list; `name` may be a path in the folder at which relative paths start."""

    name: str
    rows: Sequence[Mapping[str, Any] | Row]
    columns: tuple[str, ...]
    path_columns: tuple[str, ...] = ()
    stem: str | None = "rows"

    def paths_of(self, marks: Sequence[int]) -> list[str]:
        return [self.name]

    def count(self) -> int | None:
        return None

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        return self.read(0, range(len(self.rows)), columns)

    def read(self, locator: int, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        for mark, row in enumerate(self.rows[locator : locator + len(marks)], locator):
            if isinstance(row, Row):
                yield row
            else:
                values = {name: row.get(name) for name in columns}
                yield Row(
                    mark, mark, values, name=None if self.stem is None else f"{self.stem}/{mark}", size=3
                )

    def place(self, mark: int) -> str:
        return f"{os.path.basename(self.name)} row {mark}"


class OpenEndedRows(Rows):
    """Rows whose columns are those of the first row until they are complete."""

    def complete(self) -> "OpenEndedRows":
        found = dict.fromkeys(column for row in self.rows if isinstance(row, Mapping) for column in row)
        return replace(self, columns=tuple(found))


def records(source: Source, contract: Contract, size: int = 2) -> list[RawRecord | Rejection]:
    """Return all records, read part by part as workers do."""
    source.require(contract)
    found: list[RawRecord | Rejection] = []
    for part in source.parts(size):
        worker = pickle.loads(pickle.dumps(source))
        items = list(worker.read(pickle.loads(pickle.dumps(part)), contract))
        assert len(items) == len(part.ids)
        found += items
    return found
