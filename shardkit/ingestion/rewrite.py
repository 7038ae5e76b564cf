"""Copies rows of finished shards into new shards: in another order, without some, or in shards of another size.

Nothing is decoded. Each payload is held against its checksum on the way, so that no damage is copied in silence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.errors import CorruptShardError
from shardkit.ingestion.journal import Done, Journal
from shardkit.ingestion.outcome import ShardOutcome
from shardkit.permutation import Permutation
from shardkit.store import (
    BACKENDS,
    Column,
    DataFolder,
    ShardEntry,
    ShardReader,
    create_shard,
    record_checksums,
    seal_shard,
)

Rows = npt.NDArray[np.int64]
_OPEN_SHARDS = 256  # kept open in a process: opening walks through an lmdb shard


@dataclass(frozen=True)
class RewriteTask:
    """Everything it takes to write one shard out of the rows of others.

    Attributes:
        root: The data set's folder.
        shards: The shards that the rows count over, one after the other.
        rows: ``int64[count]``, count at least 1: which rows, in the order in which they are to stand.
        number: The new shard's number.
        backend: Name of the new shard's backend.
        columns: The stored columns.
        journal: Where finished tasks are noted, or None.
    """

    root: Path
    shards: tuple[ShardEntry, ...]
    rows: Rows
    number: int
    backend: str
    columns: tuple[Column, ...]
    journal: Journal | None = None

    def describe(self) -> str:
        """Name the task for a message."""
        return f"writing shard {self.number} from {len(self.rows)} stored records"


def rewrite_shard(task: RewriteTask) -> ShardOutcome:
    """Write the shard of a task, or return what was noted if an earlier run wrote it.

    Raises:
        CorruptShardError: A shard that is read is damaged; names it, the row and the id.
        OutputError: The system refused.
    """
    if task.journal is None:
        return _carry_out(task)
    given = _digest_of_input(task)
    done = task.journal.find(task.number, task.backend, task.columns)
    if done is not None and done.input == given:
        return done.outcome
    task.journal.require_open()
    outcome = _carry_out(task)
    task.journal.write(task.number, Done(given, (), outcome))
    return outcome


def rewrite_tasks(
    root: Path,
    shards: Sequence[ShardEntry],
    columns: Sequence[Column],
    *,
    backend: str,
    size: int,
    seed: int | None,
    first_shard: int,
    journal: Journal | None,
) -> Iterator[RewriteTask]:
    """Yield the tasks that write all rows of `shards` anew, `size` to a shard; shuffled if there is a seed."""
    count = sum(shard.count for shard in shards)
    permutation = None if seed is None else Permutation(count, f"stored order\0{seed}")
    for offset, begin in enumerate(range(0, count, size)):
        rows = np.arange(begin, min(begin + size, count), dtype=np.int64)
        yield RewriteTask(
            root=root,
            shards=tuple(shards),
            rows=rows if permutation is None else permutation.apply(rows),
            number=first_shard + offset,
            backend=backend,
            columns=tuple(columns),
            journal=journal,
        )


def forget_open_shards() -> None:
    """Let go of the shards that this process has opened."""
    _open_shard.cache_clear()


def _digest_of_input(task: RewriteTask) -> str:
    digest = xxhash.xxh3_128()
    for shard in task.shards:
        for file in shard.files:
            digest.update(file.digest.encode())
    digest.update(task.rows.astype("<i8").tobytes())
    return digest.hexdigest()


def _carry_out(task: RewriteTask) -> ShardOutcome:
    writer = create_shard(task.root, task.number, task.backend, task.columns)
    try:
        starts = np.array([0, *accumulate(shard.count for shard in task.shards)], dtype=np.int64)
        positions = np.searchsorted(starts, task.rows, side="right") - 1
        for position, row in zip(positions.tolist(), (task.rows - starts[positions]).tolist(), strict=True):
            shard = task.shards[position]
            reader = _open_shard(task.root, shard, task.columns)
            record_id = reader.read_id(row)
            payloads = reader.payloads(row, range(len(task.columns)))
            checksums = record_checksums(record_id, payloads)
            for column, checksum in enumerate(checksums):
                if checksum != reader.checksum(row, column):
                    raise _altered(task, shard, row, record_id, column)
            writer.append(record_id, payloads, checksums, reader.source_digest(row))
        digests = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return ShardOutcome(
        seal_shard(task.root, task.number, task.backend, task.columns, len(task.rows), digests),
        records=len(task.rows),
    )


def _altered(
    task: RewriteTask, shard: ShardEntry, row: int, record_id: str, column: int
) -> CorruptShardError:
    path = task.root / BACKENDS[shard.backend].shard_path(shard.number)
    return CorruptShardError(
        f"{path}: row {row} (id {record_id!r}), field {task.columns[column].name!r}: differs from its checksum; it "
        "was altered: restore the shard, or delete the record"
    )


@lru_cache(maxsize=_OPEN_SHARDS)
def _open_shard(root: Path, shard: ShardEntry, columns: tuple[Column, ...]) -> ShardReader:
    folder = DataFolder(root)
    backend = BACKENDS[shard.backend]
    backend.check_files(folder, shard, columns)
    return backend.open(folder, shard, columns)
