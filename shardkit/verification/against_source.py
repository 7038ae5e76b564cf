"""Proof against the raw input: nothing missing, nothing extra, every value equal, every rejection listed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardkit.contract import Field, FileContent, Payload, Reason, Rejection, Violation
from shardkit.errors import CorruptShardError, RecordNotFoundError
from shardkit.ingestion import SeenIds, find_repeats
from shardkit.sources import Part, RawRecord, Source, source_digest
from shardkit.store import Store
from shardkit.verification.opened import DataSet
from shardkit.verification.report import Problem, VerifyReport

RECORDS_PER_CHECK = 512


class Listed(NamedTuple):
    """A record that the data set lists as not stored.

    Attributes:
        digest: Of its raw input, if it is known.
        is_deleted: Whether it was stored once, rather than rejected.
    """

    digest: str | None
    is_deleted: bool


@dataclass(frozen=True)
class SourceCheck:
    """A part of the source to be held against the data set.

    Attributes:
        data: The data set.
        source: The raw input.
        part: Which of its records.
        rejected: Those of the part that the data set lists as not stored, by id.
        repeats: Positions in the part of records whose id an earlier one has.
    """

    data: DataSet
    source: Source
    part: Part
    rejected: Mapping[str, Listed]
    repeats: frozenset[int]

    def describe(self) -> str:
        """Name the part for a message."""
        last = self.part.first + len(self.part.ids) - 1
        return f"records {self.part.first} to {last} of {self.source.name}"


@dataclass(frozen=True)
class SourceFound:
    """What one check found.

    Attributes:
        rows: Rows of the data set that hold what a record of the part does.
        differing: Rows that hold something else than the record of their id.
        rejected: Ids listed as rejected that the part accounts for.
        report: The problems.
        records: Records looked at.
    """

    rows: tuple[int, ...]
    differing: tuple[int, ...]
    rejected: frozenset[str]
    report: VerifyReport
    records: int


def plan_source_checks(
    store: Store, sources: Iterable[Source], rejected: Mapping[str, Listed]
) -> Iterator[SourceCheck]:
    """Yield one check a part of each source; an id that comes again, in any of them, is a repeat."""
    for source in sources:
        seen = SeenIds()
        for part in source.parts(RECORDS_PER_CHECK):
            repeats = frozenset(find_repeats(part, seen, source))
            known = {record_id: rejected[record_id] for record_id in part.ids if record_id in rejected}
            yield SourceCheck(DataSet.of(store), source, part, known, repeats)


def rejected_ids(store: Store) -> dict[str, Listed]:
    """Return all that is listed as not stored, by id.

    Empty if the list is damaged, which the check of what is stored reports.
    """
    try:
        return {
            str(rejection.get("id")): Listed(
                rejection.get("digest"), rejection.get("reason") == Reason.DELETED
            )
            for rejection in store.rejected()
        }
    except CorruptShardError:
        return {}


def check_source_part(check: SourceCheck) -> SourceFound:
    """Hold each record of a part against what is stored under its id."""
    report = VerifyReport()
    rows: list[int] = []
    differing: list[int] = []
    rejected: list[str] = []
    store = check.data.open()
    raws = check.source.read(check.part, store.contract)
    for position, (record_id, raw) in enumerate(zip(check.part.ids, raws, strict=True)):
        report.checked["source records"] += 1
        row = None if position in check.repeats else _find(store, record_id)
        if record_id in check.rejected:
            rejected.append(record_id)
        if record_id in check.rejected and (row is None or isinstance(raw, Rejection)):
            report.checked["of them rejected or deleted"] += 1
            _compare_rejected(check, record_id, raw, report)
        elif row is not None:
            problems = sum(report.counts.values())
            _compare(store, row, raw, report)
            (rows if sum(report.counts.values()) == problems else differing).append(row)
        else:
            sentence = f"{raw.source}: is in the source, but neither stored nor listed as rejected"
            report.found(Problem("missing", sentence, record_id))
    return SourceFound(tuple(rows), tuple(differing), frozenset(rejected), report, len(check.part.ids))


def _find(store: Store, record_id: str) -> int | None:
    try:
        return store.row_of(record_id)
    except (RecordNotFoundError, CorruptShardError):
        return None


def find_unlisted(rejected: Mapping[str, Listed], accounted: Collection[str]) -> VerifyReport:
    """Report records that were rejected at ingest and are not in the source any more."""
    report = VerifyReport()
    for record_id, listed in rejected.items():
        if not listed.is_deleted and record_id not in accounted:
            sentence = f"{record_id!r}: was rejected at ingest, and is not in the source any more"
            report.found(Problem("changed", sentence, record_id))
    return report


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
        named = "" if record_id is None else f" (id {record_id[:200]!r})"
        report.found(Problem("extra", f"row {row}{named}: is stored, but not in the source", record_id))
    return report


def _compare_rejected(
    check: SourceCheck, record_id: str, raw: RawRecord | Rejection, report: VerifyReport
) -> None:
    listed = check.rejected[record_id].digest
    if listed is None or isinstance(raw, Rejection):
        return
    found = source_digest(raw.values, check.data.open().contract.fields).hex()
    if found != listed:
        sentence = f"{raw.source}: was rejected at ingest, and its bytes changed since"
        report.found(Problem("changed", sentence, record_id))


def _compare(store: Store, row: int, raw: RawRecord | Rejection, report: VerifyReport) -> None:
    if isinstance(raw, Rejection):
        sentence = f"{raw.source}: is stored, but cannot be read from the source now: {raw.sentence}"
        report.found(Problem("changed", sentence, raw.id))
        return
    try:
        listed = store.source_digest(row)
        stored = store.payloads(row, range(len(store.columns)))
    except CorruptShardError as error:
        report.found(Problem("record", str(error), raw.id))
        return
    is_same = source_digest(raw.values, store.contract.fields) == listed
    if not is_same:
        sentence = f"{raw.source}: its bytes changed since ingest"
        report.found(Problem("changed", sentence, raw.id))
    for (name, spec), payload in zip(store.contract.fields.items(), stored, strict=True):
        value = raw.values.get(name)
        if isinstance(value, FileContent | bytes):
            continue  # the digest vouches for it, and spares making its payload anew
        fault = _difference(spec, value, payload)
        if fault is not None:
            kind = "label" if spec.kind == "label" else "changed"
            report.found(Problem(kind, f"{raw.source}: field {name!r} {fault}", raw.id))


def _difference(spec: Field, value: Any, stored: Payload) -> str | None:  # Any: a raw value may be anything
    """Return how a raw value and what is stored of it differ, or None."""
    if spec.is_missing(value):
        if spec.fallback is None:
            return "has no value in the source now"
        expected: Payload = spec.fallback.payload
    else:
        try:
            expected = spec.check(value).payload
        except Violation as violation:
            return f"would be rejected now: {violation.sentence}"
    return None if bytes(expected) == bytes(stored) else "differs between the source and the data set"
