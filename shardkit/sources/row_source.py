"""Any container as a source: each row is a record, with bytes, paths of files, labels and plain values in its columns.

It decides which column names the records and which serves which field, and fetches the files that path columns name.
How rows are found in files is the container's affair.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from shardkit.contract import Contract, Field, Reason, Rejection, find_id_fault, show_id
from shardkit.contract.numerals import read_whole
from shardkit.errors import SourceError
from shardkit.sources.columns import ID, Columns, choose_columns, find_id_column
from shardkit.sources.container import Container, OpenEnded, Row
from shardkit.sources.files import FileFault, FileReader, find_escape
from shardkit.sources.proposal import propose_contract
from shardkit.sources.source import Part, RawRecord, Stamp
from shardkit.sources.stamps import combine, stamp_file


class RowSource:
    """The rows of a container as records.

    Paths in columns start at the container's folder and must not leave it.

    Attributes:
        name: The path as given.
        ignored: What the container passed over.
        remarks: Column -> what a person should know of it, once a contract was proposed.
    """

    kind: ClassVar[str] = "source"
    """What messages call the input."""
    opens_absolute_paths: ClassVar[bool] = False
    """Whether an absolute path in a column other than ``id`` may lead anywhere: whether people write such input."""

    def __init__(self, container: Container) -> None:
        """Take a container.

        Raises:
            SourceError: It cannot be read, or has no rows.
        """
        self.name = container.name
        self.ignored: Counter[str] = Counter()
        self.remarks: Mapping[str, str] = {}
        self._container = container
        first = next(container.scan((), Counter()), None)
        if first is None:
            raise SourceError(f"{self.name}: the {self.kind} has no rows")
        self._has_names = first.name is not None
        self._id_column = find_id_column(container)
        self._may_be_paths = False
        self._knows_all_columns = not isinstance(container, OpenEnded)

    def require(self, contract: Contract) -> None:
        """Check that there is a column for every field, and a name for every record, and settle which one.

        Where the first rows of an open-ended container lack one, all rows are looked through for it, so that no
        default ever takes the place of a value.

        Raises:
            SourceError: There is not; names the columns found.
        """
        if (
            not self._knows_all_columns
            and self._lacks_columns(contract)
            and isinstance(self._container, OpenEnded)
        ):
            self._container = self._container.complete()
            self._knows_all_columns = True
        columns = self._choose(contract)
        self._id_column = columns.id
        others = [name for name, column in columns.fields.items() if column != ID]
        has_paths_elsewhere = any(contract.fields[name].takes_file for name in others)
        self._may_be_paths = columns.id == ID in self._container.path_columns and not has_paths_elsewhere

    def propose(self) -> Contract:
        """Return the contract that the columns suggest, after one pass over all rows; see `propose_contract`.

        Raises:
            SourceError: No column makes a field, or the label column suggests nothing.
        """
        contract, self.remarks = propose_contract(self._container, self._folder(), self._known_fields())
        self.require(contract)
        return contract

    def count(self) -> int:
        """Return the number of rows, by reading the container once if it takes that."""
        count = self._container.count()
        return count if count is not None else sum(1 for _ in self._container.scan((), Counter()))

    def parts(self, size: int) -> Iterator[Part]:
        """Yield the rows in order; only one part is in memory at a time.

        Raises:
            SourceError: The container cannot be read; names where.
        """
        self.ignored.clear()
        rows = self._container.scan(self._wanted_for_ids(), self.ignored)
        first = 0
        versions: dict[str, int] = {}
        while run := self._take(rows, size):
            ids, bad = [], {}
            for position, row in enumerate(run):
                record_id, rejection = self._judge_row(row)
                ids.append(record_id)
                if rejection is not None:
                    bad[position] = rejection
            marks = [row.mark for row in run]
            current = self._versions_of(marks)
            self._require_same(versions | current, versions)
            versions |= current
            yield Part(first, ids, marks, self._locate(run), bad, current)
            first += len(run)

    def place(self, mark: int) -> str:
        """Return where a row stands, such as ``labels.csv line 7``."""
        return self._container.place(mark)

    def stamps(self, part: Part, contract: Contract) -> list[Stamp]:
        """Return one stamp a row: of the files of the container that hold the part, and of those that the row names.

        Raises:
            SourceError: The container changed since it was scanned.
        """
        columns = self._choose(contract)
        named = [
            columns.fields[name]
            for name, spec in contract.fields.items()
            if spec.takes_file and columns.fields.get(name) in self._container.path_columns
        ]
        files = FileReader(self._folder())
        whole = combine(stamp_file(path) for path in self._container.paths_of(part.marks)).changed
        stamps = []
        for row in self._rows_of(part, [*named, *self._stamped_columns()]):
            beside = [
                files.stamp(path, may_be_absolute=self._may_be_absolute(column))
                for column in named
                if isinstance(path := row.values.get(column), str) and path
            ]
            stamps.append(combine([self._stamp_row(row, whole), *beside]))
        return stamps

    def read(self, part: Part, contract: Contract) -> Iterator[RawRecord | Rejection]:
        """Yield the records of a part, with the files that they name.

        Raises:
            SourceError: The container changed since it was scanned.
        """
        columns = self._choose(contract)
        files = FileReader(self._folder())
        for position, row in enumerate(self._rows_of(part, list(dict.fromkeys(columns.fields.values())))):
            if position in part.bad:
                yield part.bad[position]
            elif row.fault is not None:  # one that shows only once the values are read
                yield Rejection(part.ids[position], self.place(row.mark), row.reason, row.fault)
            else:
                yield self._record(row, part.ids[position], contract, columns, files)
        self._require_same(self._versions_of(part.marks), part.versions)

    def _versions_of(self, marks: Sequence[int]) -> dict[str, int]:
        """Return what the files that hold some rows look like now."""
        return {path: stamp_file(path).changed for path in self._container.paths_of(marks)}

    def _require_same(self, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
        """Make sure that no file was written to, or replaced, between two looks at it."""
        changed = next((path for path, version in expected.items() if found.get(path) != version), None)
        if changed is not None:
            raise SourceError(f"{changed}: the {self.kind} changed while it was ingested; start again")

    def _take(self, rows: Iterator[Row], size: int) -> list[Row]:
        """Return the rows of the next part, `size` at most."""
        return list(islice(rows, size))

    def _locate(self, run: Sequence[Row]) -> Any:  # Any: private to each container; picklable
        """Return what `Container.read` needs to find the rows of a part."""
        return run[0].locator

    def _choose(self, contract: Contract) -> Columns:
        return choose_columns(contract, self._container, self._has_names)

    def _lacks_columns(self, contract: Contract) -> bool:
        """Whether the columns known so far may not be all that a contract is about."""
        try:
            chosen = self._choose(contract).fields
        except SourceError:
            return True
        return any(
            name not in chosen or not self._is_settled(name, spec, chosen[name])
            for name, spec in contract.fields.items()
        )

    def _is_settled(self, name: str, spec: Field, column: str) -> bool:
        """Whether a field keeps its column whatever columns later rows have."""
        return name == column

    def _may_be_absolute(self, column: str) -> bool:
        return self.opens_absolute_paths and column != ID

    def _known_fields(self) -> Mapping[str, Field]:
        """Return the fields that the container's own types stand for, whatever the values."""
        return {}

    def _folder(self) -> str:
        """Return the folder at which relative paths start."""
        return self.name if os.path.isdir(self.name) else os.path.dirname(self.name) or "."

    def _wanted_for_ids(self) -> Sequence[str]:
        return () if self._id_column is None else (self._id_column,)

    def _rows_of(self, part: Part, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows of a part with the values of some columns, each once it has shown the id of the scan."""
        wanted = list(dict.fromkeys([*self._wanted_for_ids(), *columns]))
        rows = self._container.read(part.locator, part.marks, wanted)
        for mark, expected in zip(part.marks, part.ids, strict=True):
            row = next(rows, None)
            if row is None or self._judge_row(row)[0] != expected:
                raise SourceError(
                    f"{self.place(mark)}: expected the row of {expected!r}; the {self.kind} changed "
                    f"while it was ingested; start again"
                )
            yield row

    def _stamped_columns(self) -> Sequence[str]:
        """Return the columns that `_stamp_row` needs."""
        return ()

    def _stamp_row(self, row: Row, whole: int) -> Stamp:
        """Return the stamp of a row itself; `whole` is that of the container's files that hold it."""
        return Stamp(row.size, whole)

    def _judge_row(self, row: Row) -> tuple[str, Rejection | None]:
        """Return the id of a row, or the best name it has and why it cannot be tried."""
        record_id = self._id_of(row)
        fault = find_id_fault(record_id)
        if row.fault is None and fault is None:
            return str(record_id), self._judge_path(str(record_id), row)
        place = self.place(row.mark)
        if row.fault is not None:
            name = (row.name or place) if fault else str(record_id)
            return name, Rejection(name, place, row.reason, row.fault)
        name = show_id(record_id) if isinstance(record_id, str) and record_id.strip() else row.name or place
        return name, Rejection(name, place, Reason.BAD_ID, str(fault))

    def _judge_path(self, record_id: str, row: Row) -> Rejection | None:
        """Refuse an id that may be a path and leads out of the folder: sooner or later something opens it."""
        escape = find_escape(record_id) if self._may_be_paths else None
        if escape is None:
            return None
        return Rejection(record_id, self.place(row.mark), Reason.OUTSIDE_SOURCE, escape)

    def _id_of(self, row: Row) -> Any:
        """Return the raw id; a whole number stands for its digits, as it does in .csv."""
        if self._id_column is None:
            return row.name
        value = row.values.get(self._id_column)
        if isinstance(value, str):
            return value
        whole = read_whole(value)
        return value if whole is None else str(whole)

    def _record(
        self, row: Row, record_id: str, contract: Contract, columns: Columns, files: FileReader
    ) -> RawRecord | Rejection:
        place = self.place(row.mark)
        values: dict[str, Any] = {}
        for name, column in columns.fields.items():
            spec = contract.fields[name]
            value = row.values.get(column)
            try:
                if spec.takes_file and isinstance(value, str) and value:
                    value = files.read(value, may_be_absolute=self._may_be_absolute(column))
            except FileFault as fault:
                return Rejection(record_id, place, fault.reason, fault.sentence, name)
            values[name] = self._convert(spec, value)
        return RawRecord(record_id, place, values)

    def _convert(self, spec: Field, value: Any) -> Any:
        """Return a value as its field is to see it."""
        return value
