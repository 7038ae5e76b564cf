"""Proof against the raw input: nothing missing, nothing extra, labels and bytes equal, every rejection listed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardkit.contract import Contract, Field, FileContent, ImageField, Rejection, Violation
from shardkit.errors import CorruptShardError, RecordNotFoundError
from shardkit.sources import Part, RawRecord, Source
from shardkit.store import Store
from shardkit.verification.report import Problem, VerifyReport

RECORDS_PER_CHECK = 512


@dataclass(frozen=True)
class SourceCheck:
    """A part of the source to be held against the data set.

    Attributes:
        root: The data set's folder.
        source: The raw input.
        part: Which of its records.
        rejected: Ids of the part that the data set lists as rejected.
    """

    root: Path
    source: Source
    part: Part
    rejected: frozenset[str]

    def describe(self) -> str:
        """Name the part for a message."""
        return (
            f"records {self.part.first} to {self.part.first + len(self.part.ids) - 1} of {self.source.name}"
        )


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
    rejected = frozenset(str(rejection.get("id")) for rejection in store.rejected())
    for part in source.parts(RECORDS_PER_CHECK):
        yield SourceCheck(store.path, source, part, rejected.intersection(part.ids))


def check_source_part(check: SourceCheck) -> SourceFound:
    """Hold each record of a part against what is stored under its id."""
    report = VerifyReport()
    rows = []
    with Store.open(check.root) as store:
        contract = store.contract
        for position, raw in enumerate(check.source.read(check.part, contract)):
            report.checked["source records"] += 1
            record_id = check.part.ids[position]
            try:
                row = store.row_of(record_id)
            except (RecordNotFoundError, CorruptShardError):
                if record_id not in check.rejected:
                    place = check.source.place(check.part.marks[position])
                    sentence = f"{place}: is in the source, but neither stored nor listed as rejected"
                    report.found(Problem("missing", sentence, record_id))
                continue
            rows.append(row)
            if (
                record_id not in check.rejected
            ):  # else the id came twice, and this may be the one that was refused
                _compare(store, contract, row, raw, report)
    return SourceFound(tuple(rows), report, len(check.part.ids))


def find_extra(store: Store, accounted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> VerifyReport:
    """Report rows that no record of the source accounts for.

    Args:
        store: The data set.
        accounted: ``bool[rows]``, whether a source record led to the row.
    """
    report = VerifyReport()
    for row in np.flatnonzero(~accounted):
        record_id = store.id_of(int(row))
        report.found(Problem("extra", f"row {row}: is stored, but not in the source", record_id))
    return report


def _compare(
    store: Store, contract: Contract, row: int, raw: RawRecord | Rejection, report: VerifyReport
) -> None:
    if isinstance(raw, Rejection):
        sentence = f"{raw.source}: is stored, but cannot be read from the source now: {raw.sentence}"
        report.found(Problem("changed", sentence, raw.id))
        return
    for column, (name, spec) in enumerate(contract.fields.items()):
        expected = _expected_payload(spec, raw.values.get(name))
        if expected is not None and bytes(store.payload(row, column)) != expected:
            kind = "label" if spec.kind == "label" else "changed"
            sentence = f"{raw.source}: field {name!r} differs between the source and the data set"
            report.found(Problem(kind, sentence, raw.id))


def _expected_payload(spec: Field, value: object) -> bytes | None:
    """Return what ingestion would store for a raw value, or None where telling would mean decoding it anew."""
    if isinstance(spec, ImageField):
        return value.data if spec.store == "original" and isinstance(value, FileContent) else None
    try:
        return bytes(spec.check(value).payload)
    except Violation:
        return b""  # it would be rejected now: surely not what is stored
