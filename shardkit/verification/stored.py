"""Proof of what is stored: every file's digest, every id both ways, every checksum, every record decoded.

One task a shard, through the same reader that training uses.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shardkit.contract import Field, LabelField, Payload, ScalarField
from shardkit.errors import ShardkitError
from shardkit.store import BACKENDS, FileEntry, Store, dataset_id_of, digest_file
from shardkit.verification.opened import DataSet
from shardkit.verification.report import Problem, VerifyReport


@dataclass(frozen=True)
class ShardCheck:
    """A shard to be checked.

    Attributes:
        data: The data set.
        position: Position of the shard in the manifest.
        first: First row of the shard in the data set.
        count: Rows of the shard.
    """

    data: DataSet
    position: int
    first: int
    count: int

    def describe(self) -> str:
        """Name the shard for a message."""
        return f"rows {self.first} to {self.first + self.count - 1} of {self.data.root}"


def plan_checks(store: Store) -> list[ShardCheck]:
    """Return one check a shard, in row order."""
    checks, first = [], 0
    for position, shard in enumerate(store.manifest.shards):
        checks.append(ShardCheck(DataSet.of(store), position, first, shard.count))
        first += shard.count
    return checks


def check_manifest(store: Store) -> VerifyReport:
    """Check what the manifest says of the whole: the data set id follows from fields and shards, rejections count."""
    report = VerifyReport()
    manifest = store.manifest
    expected = dataset_id_of(manifest.contract, manifest.shards)
    if manifest.dataset_id != expected:
        sentence = (
            f"manifest.json: the data set id is {manifest.dataset_id}, its fields and shards make {expected}; "
            f"it was altered"
        )
        report.found(Problem("manifest", sentence))
    try:
        report.checked["rejections listed"] = sum(1 for _ in store.rejected())
    except ShardkitError as error:
        report.found(Problem("file", str(error)))
    return report


def check_files(root: Path, files: Iterable[FileEntry], shard: str | None = None) -> VerifyReport:
    """Re-read files and hold them against the digests of the manifest (sizes were checked at open)."""
    report = VerifyReport()
    for entry in files:
        report.checked["files"] += 1
        try:
            digest = digest_file(root / entry.path)
        except OSError as error:
            report.found(Problem("file", f"{entry.path}: cannot be read: {error.strerror}", shard=shard))
            continue
        if digest != entry.digest:
            sentence = f"{entry.path}: has digest {digest}, the manifest says {entry.digest}; it was altered"
            report.found(Problem("file", sentence, shard=shard))
    return report


def check_shard(check: ShardCheck) -> VerifyReport:
    """Check all files and all records of one shard. Damage becomes a problem of the report, never an exception."""
    try:
        store = check.data.open()
        entry = store.manifest.shards[check.position]
        name = BACKENDS[entry.backend].shard_path(entry.number)
        report = check_files(store.path, entry.files, name)
        for row in range(check.first, check.first + check.count):
            _check_record(store, row, name, report)
    except ShardkitError as error:
        report = VerifyReport()
        report.found(Problem("file", str(error)))
    return report


def _check_record(store: Store, row: int, shard: str, report: VerifyReport) -> None:
    record_id = _check_id(store, row, shard, report)
    try:
        payloads = store.payloads(row, range(len(store.columns)))
    except ShardkitError as error:
        report.found(Problem("record", str(error), record_id, shard))
        return
    for column, (name, spec) in enumerate(store.contract.fields.items()):
        problem = _check_value(store, row, column, spec, payloads[column])
        if problem is not None:
            kind, sentence = problem
            report.found(Problem(kind, f"field {name!r}: {sentence}", record_id, shard))
    report.checked["records"] += 1


def _check_id(store: Store, row: int, shard: str, report: VerifyReport) -> str | None:
    """Check that the index leads from row to id and back, and that the shard bears the same id."""
    report.checked["ids"] += 1
    try:
        record_id = store.id_of(row)
        found, stored = store.row_of(record_id), store.stored_id(row)
    except ShardkitError as error:
        report.found(Problem("id", f"row {row}: {error}", shard=shard))
        return None
    if found != row:
        report.found(
            Problem("id", f"row {row}: the index leads from the id to row {found}", record_id, shard)
        )
    if stored != record_id:
        report.found(
            Problem(
                "id", f"row {row}: the shard says {stored!r}, the index says {record_id!r}", record_id, shard
            )
        )
    return record_id


def _check_value(
    store: Store, row: int, column: int, spec: Field, payload: Payload
) -> tuple[str, str] | None:
    """Return what is wrong with one stored value, as kind and sentence, or None."""
    try:
        store.check(row, column, payload)
    except ShardkitError as error:
        return "checksum", str(error)
    try:
        value = spec.decode(payload)
    except ShardkitError as error:
        return "decode", str(error)
    if isinstance(spec, LabelField | ScalarField):
        indexed = store.column(store.columns[column].name)[row]
        if indexed.tobytes() != bytes(payload):
            return "index", f"the shard says {value}, the index says {indexed}"
    return None
