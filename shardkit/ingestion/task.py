"""One shard task: reads a part of the source, judges each record, and writes what fits into one shard.

A task is a pure function of its own picklable description, writes nothing but its shard, its entry in the journal and
quarantined originals, and returns the shard's manifest entry with what it rejected; so any executor may run it, in any
order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shardkit.contract import CheckedRecord, Contract, Rejection
from shardkit.errors import SourceError
from shardkit.ingestion.identity import digest_input, digest_part
from shardkit.ingestion.journal import Done, Journal
from shardkit.ingestion.outcome import ShardOutcome
from shardkit.ingestion.quarantine import Quarantine
from shardkit.ingestion.tally import Tally
from shardkit.sources import NO_DIGEST, Part, Source, source_digest
from shardkit.store import Column, ShardEntry, ShardWriter, create_shard, record_checksums, seal_shard


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
        journal: Where finished tasks are noted, or None to judge the records and write nothing.
        quarantine: Where originals of rejected records are copied to, or None.
        repeats: Position in the part -> why the record, whose id an earlier one has, is rejected.
    """

    source: Source
    part: Part
    contract: Contract
    root: Path
    number: int
    backend: str
    columns: tuple[Column, ...]
    journal: Journal | None
    quarantine: Quarantine | None = None
    repeats: dict[int, Rejection] = field(default_factory=dict)

    def describe(self) -> str:
        """Name the input of the task for a message."""
        ids = self.part.ids
        first = self.part.first
        return f"records {first} to {first + len(ids) - 1} of {self.source.name} ({ids[0]!r} … {ids[-1]!r})"


def run_task(task: ShardTask) -> ShardOutcome:
    """Carry out one shard task, or return what it did when the run that this one continues carried it out.

    Raises:
        SourceError: The source changed or became unreadable since it was scanned, or since the task was carried out.
        OutputError: The system refused a write; nothing of the shard is left then.
    """
    if task.journal is None:
        return _carry_out(task)
    stamps = tuple(stamp.changed for stamp in task.source.stamps(task.part, task.contract))
    given = digest_part(task.part)
    done = task.journal.find(task.number, task.backend, task.columns)
    if done is not None:
        _require_unchanged(task, done, given, stamps)
        outcome = done.outcome
    else:
        task.journal.require_open()
        outcome = _carry_out(task)
        if not (outcome.rejections and task.contract.records.on_bad == "abort"):
            task.journal.write(task.number, Done(given, stamps, outcome))
        # else the run ends here, and may be continued once the bad record is mended
    return replace(outcome, input=digest_input(given, stamps))


def _require_unchanged(task: ShardTask, done: Done, given: str, stamps: Sequence[int]) -> None:
    advice = "changed since the ingest that was interrupted; start over without --resume"
    if done.input != given or len(done.stamps) != len(stamps):
        raise SourceError(f"{task.describe()}: which records there are {advice}")
    changed = next((place for place, stamp in enumerate(stamps) if done.stamps[place] != stamp), None)
    if changed is not None:
        where = task.source.place(task.part.marks[changed])
        raise SourceError(f"{where}: the raw input of record {task.part.ids[changed]!r} {advice}")


def _carry_out(task: ShardTask) -> ShardOutcome:
    """Judge the records, and write those that fit unless there is no journal to note it in."""
    rejections: list[Rejection] = []
    tally = Tally()
    shard = _Shard(task)
    try:
        for verdict, digest in _judge(task):
            if isinstance(verdict, Rejection):
                rejections.append(verdict)
                tally.reject(verdict)
                continue
            tally.count(task.contract, verdict)
            if task.journal is not None:
                shard.append(verdict, digest)
        entry = shard.finish()
    except BaseException:
        shard.abort()
        raise
    return ShardOutcome(entry, rejections, tally, len(task.part.ids))


class _Shard:
    """The shard of a task, which is begun with the first record that fits."""

    def __init__(self, task: ShardTask) -> None:
        self._task = task
        self._writer: ShardWriter | None = None
        self._count = 0

    def append(self, record: CheckedRecord, digest: bytes) -> None:
        task = self._task
        if self._writer is None:
            self._writer = create_shard(task.root, task.number, task.backend, task.columns)
        payloads = [checked.payload for checked in record.values]
        self._writer.append(record.id, payloads, record_checksums(record.id, payloads), digest)
        self._count += 1

    def finish(self) -> ShardEntry | None:
        """Make the shard durable and return its entry; None if nothing was appended."""
        if self._writer is None:
            return None
        digests = self._writer.finish()
        task = self._task
        return seal_shard(task.root, task.number, task.backend, task.columns, self._count, digests)

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def _judge(task: ShardTask) -> Iterator[tuple[CheckedRecord | Rejection, bytes]]:
    """Yield the verdict on each record of the part and the digest of its raw input; set aside rejected originals."""
    for position, raw in enumerate(task.source.read(task.part, task.contract)):
        if isinstance(raw, Rejection):
            yield raw, NO_DIGEST
            continue
        digest = source_digest(raw.values, task.contract.fields)
        verdict: CheckedRecord | Rejection | None = task.repeats.get(position)
        if verdict is None:
            verdict = task.contract.judge(raw.id, raw.source, raw.values)
        if isinstance(verdict, Rejection):
            if digest != NO_DIGEST:
                verdict = replace(verdict, digest=digest.hex())
            if task.quarantine is not None:
                verdict = replace(verdict, copies=task.quarantine.set_aside(task.part.first + position, raw))
        yield verdict, digest
