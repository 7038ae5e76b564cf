"""Proof against the raw input: nothing missing, nothing extra, every value equal, every rejection listed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import Field, FileContent, ImageField, Payload, Rejection, Violation
from shardkit.errors import CorruptShardError, RecordNotFoundError
from shardkit.ingestion import SeenIds, mark_repeats
from shardkit.sources import Part, RawRecord, Source
from shardkit.store import Store
from shardkit.verification.opened import DataSet
from shardkit.verification.report import Problem, VerifyReport

RECORDS_PER_CHECK = 512


@dataclass(frozen=True)
class SourceCheck:
    """A part of the source to be held against the data set.

    Attributes:
        data: The data set.
        source: The raw input.
        part: Which of its records.
        rejected: Ids of the part that the data set lists as rejected.
    """

    data: DataSet
    source: Source
    part: Part
    rejected: frozenset[str]

    def describe(self) -> str:
        """Name the part for a message."""
        last = self.part.first + len(self.part.ids) - 1
        return f"records {self.part.first} to {last} of {self.source.name}"


@dataclass(frozen=True)
class SourceFound:
    """What one check found.

    Attributes:
        rows: Rows of the data set that the part accounts for.
        report: The problems.
        records: Records looked at.
    """

    rows: tuple[int, ...]
    report: VerifyReport
    records: int


def plan_source_checks(store: Store, source: Source) -> Iterator[SourceCheck]:
    """Yield one check a part of the source."""
    rejected = _rejected_ids(store)
    seen = SeenIds()
    for part in source.parts(RECORDS_PER_CHECK):
        marked = mark_repeats(part, seen, source)
        yield SourceCheck(DataSet.of(store), source, marked, rejected.intersection(part.ids))


def _rejected_ids(store: Store) -> frozenset[str]:
    """Return the ids listed as rejected; none if the list is damaged, which the check of what is stored reports."""
    try:
        return frozenset(str(rejection.get("id")) for rejection in store.rejected())
    except CorruptShardError:
        return frozenset()


def check_source_part(check: SourceCheck) -> SourceFound:
    """Hold each record of a part against what is stored under its id."""
    report = VerifyReport()
    rows = []
    store = check.data.open()
    for record_id, raw in zip(check.part.ids, check.source.read(check.part, store.contract), strict=True):
        report.checked["source records"] += 1
        is_rejected = record_id in check.rejected
        try:
            row = store.row_of(record_id)
        except (RecordNotFoundError, CorruptShardError):
            if is_rejected:
                report.checked["of them rejected at ingest"] += 1
            else:
                sentence = f"{raw.source}: is in the source, but neither stored nor listed as rejected"
                report.found(Problem("missing", sentence, record_id))
            continue
        rows.append(row)
        if not (
            is_rejected and isinstance(raw, Rejection)
        ):  # such a one repeats the id of the record that is stored
            _compare(store, row, raw, report)
    return SourceFound(tuple(rows), report, len(check.part.ids))


def find_extra(store: Store, accounted: npt.NDArray[np.bool_]) -> VerifyReport:
    """Report rows that no record of the source accounts for.

    Args:
        store: The data set.
        accounted: ``bool[rows]``, whether a source record led to the row.
    """
    report = VerifyReport()
    for row in np.flatnonzero(~accounted):
        try:
            record_id = store.id_of(int(row))
        except CorruptShardError:
            record_id = None
        report.found(Problem("extra", f"row {row}: is stored, but not in the source", record_id))
    return report


def _compare(store: Store, row: int, raw: RawRecord | Rejection, report: VerifyReport) -> None:
    if isinstance(raw, Rejection):
        sentence = f"{raw.source}: is stored, but cannot be read from the source now: {raw.sentence}"
        report.found(Problem("changed", sentence, raw.id))
        return
    for column, (name, spec) in enumerate(store.contract.fields.items()):
        try:
            stored = store.payload(row, column)
        except CorruptShardError as error:
            report.found(Problem("record", str(error), raw.id))
            return
        fault = _difference(spec, raw.values.get(name), stored)
        if fault is not None:
            kind = "label" if spec.kind == "label" else "changed"
            report.found(Problem(kind, f"{raw.source}: field {name!r} {fault}", raw.id))


def _difference(spec: Field, value: Any, stored: Payload) -> str | None:  # Any: a raw value may be anything
    """Return how a raw value and what is stored of it differ, or None.

    An image stored untouched is compared as it is, which spares decoding it again; all else is judged anew.
    """
    if isinstance(spec, ImageField) and spec.store == "original" and isinstance(value, FileContent | bytes):
        expected: Payload = value.data if isinstance(value, FileContent) else value
    elif spec.is_missing(value):
        return "has no value in the source now"
    else:
        try:
            expected = spec.check(value).payload
        except Violation as violation:
            return f"would be rejected now: {violation.sentence}"
    return None if bytes(expected) == bytes(stored) else "differs between the source and the data set"
