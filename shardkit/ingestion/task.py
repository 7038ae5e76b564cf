"""One shard task: reads a part of the source, judges each record, and writes what fits into one shard.

A task is a pure function of its own picklable description, writes nothing but its shard (and quarantined originals),
and returns the shard's manifest entry with what it rejected; so any executor may run it, in any order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shardkit.contract import CheckedRecord, Contract, FileContent, Rejection
from shardkit.errors import OutputError
from shardkit.ingestion.tally import Tally
from shardkit.sources import Part, RawRecord, Source
from shardkit.store import Column, ShardEntry, ShardWriter, create_shard, record_checksums, seal_shard

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LIMIT = 100  # characters kept of a quarantined file's own name; every file system takes 255 bytes


@dataclass(frozen=True)
class ShardTask:
    """Everything one shard task needs.

    Attributes:
        source: Where the records come from.
        part: Which of them.
        contract: What they must be.
        root: The data set's folder.
        number: The shard's number.
        backend: Name of the shard backend.
        columns: The stored columns.
        quarantine: Folder that originals of rejected records are copied to, or None.
    """

    source: Source
    part: Part
    contract: Contract
    root: Path
    number: int
    backend: str
    columns: tuple[Column, ...]
    quarantine: Path | None = None

    def describe(self) -> str:
        """Name the input of the task for a message."""
        ids = self.part.ids
        first = self.part.first
        return f"records {first} to {first + len(ids) - 1} of {self.source.name} ({ids[0]!r} … {ids[-1]!r})"


@dataclass(frozen=True)
class ShardOutcome:
    """What a shard task did.

    Attributes:
        entry: The shard's manifest entry, or None if no record was stored.
        rejections: Rejected records, in source order.
        tally: The counts.
        records: Records looked at: stored and rejected.
    """

    entry: ShardEntry | None
    rejections: list[Rejection] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    records: int = 0


def run_task(task: ShardTask) -> ShardOutcome:
    """Carry out one shard task.

    Raises:
        SourceError: The source changed or became unreadable since it was scanned.
        OutputError: The system refused a write; nothing of the shard is left then.
    """
    rejections: list[Rejection] = []
    tally = Tally()
    writer: ShardWriter | None = None
    try:
        for verdict in _judge(task):
            if isinstance(verdict, Rejection):
                rejections.append(verdict)
                tally.reject(verdict)
                continue
            tally.count(task.contract, verdict)
            writer = writer or create_shard(task.root, task.number, task.backend, task.columns)
            payloads = [checked.payload for checked in verdict.values]
            writer.append(verdict.id, payloads, record_checksums(verdict.id, payloads))
        if writer is not None:
            writer.finish()
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    entry = None
    if writer is not None:
        entry = seal_shard(task.root, task.number, task.backend, task.columns, tally.accepted)
    return ShardOutcome(entry, rejections, tally, len(task.part.ids))


def _judge(task: ShardTask) -> Iterator[CheckedRecord | Rejection]:
    """Yield the verdict on each record of the part; copy the originals of rejected ones aside if asked."""
    for position, raw in enumerate(task.source.read(task.part, task.contract)):
        if isinstance(raw, Rejection):
            yield raw
            continue
        verdict = task.contract.judge(raw.id, raw.source, raw.values)
        if isinstance(verdict, Rejection) and task.quarantine is not None:
            _set_aside(task.quarantine, task.part.first + position, raw)
        yield verdict


def _set_aside(folder: Path, number: int, raw: RawRecord) -> None:
    """Copy the files (and bytes) of a rejected record aside, under names that start with the record's number."""
    for name, value in raw.values.items():
        content = FileContent(value, "bytes") if isinstance(value, bytes) else value
        if not isinstance(content, FileContent):
            continue
        original = _UNSAFE.sub("_", content.name.rsplit("/", 1)[-1])[-_NAME_LIMIT:]
        target = folder / f"{number:08d}-{name}-{original}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.data)
        except OSError as error:
            raise OutputError(
                f"{target}: cannot copy a rejected record aside: {error.strerror}", path=target
            ) from error
