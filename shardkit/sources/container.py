"""The protocol of a container: files that hold rows of named columns, whatever their format.

A container knows nothing of ids, fields or contracts: :class:`~shardkit.sources.row_source.RowSource` makes a source of
it. Small, picklable, and without an open handle between calls. Adding a format: one file with a class of this shape,
and one line in ``shardkit/sources/__init__.py``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from shardkit.contract import Reason


class Row(NamedTuple):
    """One row.

    Attributes:
        mark: A number that rises from row to row, by which `Container.place` names the row later.
        locator: What `Container.read` needs to start at this row: a byte offset, a row number, ….
        values: Column to value: what the format gives for it, None where it has nothing. A value that is the content
            of a file with a name is a :class:`~shardkit.contract.FileContent`. What could be had if there is a fault.
        fault: Why the row cannot be had, as one plain sentence, or None.
        reason: The code that `fault` is reported under; ``incomplete-source`` where damage hides further rows.
        name: What the row is called where no column names it: ``FILE-STEM/ROW``, a key, …. None in a format whose
            rows must name themselves (tables: a row put in above would rename all below). It names faulty rows too.
        size: Bytes that the row takes in its file, or 0 where that shows only once it is decoded.
    """

    mark: int
    locator: Any  # Any: private to each container; picklable
    values: Mapping[str, Any]
    fault: str | None = None
    reason: Reason = Reason.BAD_ROW
    name: str | None = None
    size: int = 0


class Container(Protocol):
    """One or more files that hold rows."""

    @property
    def name(self) -> str:
        """What messages call it: its path as the user gave it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def path_columns(self) -> tuple[str, ...]:
        """Columns whose values may be text, which names a file if it is meant for a field that takes one."""

    def count(self) -> int | None:
        """Return the number of rows, at less cost than a scan where the format can; None where it takes one.

        A faulty row counts as one.
        """

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every row in order, with at least the values of `columns`; count what is passed over in `ignored`.

        Raises:
            SourceError: A file cannot be read; names it and where in it.
        """

    def read(self, locator: Any, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows with these marks, which follow one another; the first is found by `locator`.

        Faulty rows come again. Fewer rows than marks say that the files changed, which the caller reports.

        Raises:
            SourceError: A file cannot be read, or changed since it was scanned.
        """

    def place(self, mark: int) -> str:
        """Return where a row stands, for people: ``train.parquet row 7``."""

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the files that decide what the rows with these marks are; any other may change without them."""


@runtime_checkable
class OpenEnded(Protocol):
    """A container of a format that lists its columns nowhere, so that `columns` are those of some first rows only."""

    def complete(self) -> Container:
        """Return the container with the columns of all rows, after one pass over them.

        Raises:
            SourceError: A file cannot be read.
        """
