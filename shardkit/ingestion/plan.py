"""Turns a source into shard tasks: how many records a shard takes, which records repeat an id, which task gets what.

The plan depends on the source and the settings alone, never on the number of workers, so that the shards are the
same bytes however many processes write them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardkit.contract import Contract, Reason, Rejection
from shardkit.ingestion.journal import Journal
from shardkit.ingestion.quarantine import Quarantine
from shardkit.ingestion.seen import SeenIds
from shardkit.ingestion.task import ShardTask
from shardkit.sources import Part, Source
from shardkit.store import Store, columns_of

SHARDS_AIMED_AT = 64  # enough tasks to keep many workers evenly busy
SMALLEST_SHARD = 512  # records; below that, flushing files to disk begins to cost as much as decoding
_MOST_RECORDS = 10**9
COPIED_BYTES = 1 << 28  # of arrays in a shard: a batch of one is copied once, a batch of several twice
LARGEST_COPIED_SHARD = 131072  # records
LARGEST_SHARD = 16384  # records; 82 KB photos make 1.3 GB then, which still copies and verifies in one go


@dataclass(frozen=True)
class IngestSettings:
    """How a run writes.

    Attributes:
        backend: Name of the shard backend: ``"memmap"`` or ``"lmdb"``.
        workers: Processes; 0 does everything in the calling one.
        records_per_shard: Input records a shard, or None to fit it to the source.
        shuffle_seed: Seed of the order in which the records are stored, or None for that of the source.
    """

    backend: str
    workers: int
    records_per_shard: int | None = None
    shuffle_seed: int | None = None


def check_numbers(records_per_shard: int | None, shuffle_seed: int | None) -> None:
    """Check the numbers that a caller gave.

    Raises:
        TypeError: One is no integer.
        ValueError: One is out of its range.
    """
    for name, number in (("records_per_shard", records_per_shard), ("shuffle_seed", shuffle_seed)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise TypeError(f"{name} must be an integer, not {number!r}")
    if records_per_shard is not None and not 1 <= records_per_shard <= _MOST_RECORDS:
        raise ValueError(f"records_per_shard is {records_per_shard}; it must be 1 to {_MOST_RECORDS:,}")


def shard_size(total: int | None, contract: Contract) -> int:
    """Return how many input records a shard takes when nobody says: a power of two that fits `total`, and the contract.

    Arrays of one size go into few shards: they are checked about as quickly as copied, so that one process will do.
    """
    size = SMALLEST_SHARD if total is not None else LARGEST_SHARD // 4
    while total is not None and size < LARGEST_SHARD and size * SHARDS_AIMED_AT < total:
        size *= 2
    layouts = [field.layout for field in contract.fields.values()]
    if all(layout.is_fixed for layout in layouts) and not all(layout.is_single for layout in layouts):
        row_bytes = sum(layout.nbytes for layout in layouts)
        while size < LARGEST_COPIED_SHARD and size * row_bytes < COPIED_BYTES:
            size *= 2
    return size


def plan_tasks(
    source: Source,
    contract: Contract,
    settings: IngestSettings,
    *,
    size: int,
    root: Path,
    first_shard: int,
    journal: Journal | None,
    quarantine: Quarantine | None,
    existing: Store | None,
) -> Iterator[ShardTask]:
    """Yield one task for each part of the source, lazily.

    A record whose id an earlier record had, or one of the data set `existing` has, is to be rejected.
    """
    columns = tuple(columns_of(contract))
    seen = SeenIds()
    for offset, part in enumerate(source.parts(size)):
        repeats = find_repeats(part, seen, source)
        if existing is not None:
            repeats |= _find_clashes(part, existing, source)
        yield ShardTask(
            source=source,
            part=part,
            contract=contract,
            root=root,
            number=first_shard + offset,
            backend=settings.backend,
            columns=columns,
            journal=journal,
            quarantine=quarantine,
            repeats=repeats,
        )


def find_repeats(part: Part, seen: SeenIds, source: Source) -> dict[int, Rejection]:
    """Return, for each record that repeats an earlier id, its position and a rejection that names both places."""
    named = [position for position in range(len(part.ids)) if position not in part.bad]
    found = seen.add([part.ids[position] for position in named], [part.marks[position] for position in named])
    return {
        position: _repeat(
            part, position, source, f"{source.place(first)} has the same id; ids must be unique"
        )
        for position, first in ((named[at], first) for at, first in found.items())
    }


def _find_clashes(part: Part, existing: Store, source: Source) -> dict[int, Rejection]:
    """Return the same for each record whose id the data set has already."""
    clashes = {}
    for position, record_id in enumerate(part.ids):
        if position not in part.bad and record_id in existing.ids:
            sentence = "the data set holds a record of this id already; delete that one first, or rename this"
            clashes[position] = _repeat(part, position, source, sentence)
    return clashes


def _repeat(part: Part, position: int, source: Source, sentence: str) -> Rejection:
    return Rejection(
        id=part.ids[position],
        source=source.place(part.marks[position]),
        reason=Reason.DUPLICATE_ID,
        sentence=sentence,
    )
