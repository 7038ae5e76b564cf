"""Makes a new generation out of a standing one: without some records, or in other shards; and lets go of old ones.

Nothing is changed in place. Readers of the generation before go on unharmed until it is pruned, or until the next
generation but one is committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from shardkit.contract import Reason
from shardkit.errors import OutputError, RecordNotFoundError
from shardkit.ingestion.executor import run_ordered, usable_cpus
from shardkit.ingestion.lock import hold_lock
from shardkit.ingestion.output import Output, claim
from shardkit.ingestion.plan import check_numbers, shard_size
from shardkit.ingestion.rewrite import RewriteTask, forget_open_shards, rewrite_shard, rewrite_tasks
from shardkit.progress_bar import ProgressBar
from shardkit.store import (
    BACKENDS,
    ShardEntry,
    Store,
    commit,
    load_manifest,
    make_manifest,
    remove_unreferenced,
    write_index,
)

_SHOWN_ID = 200  # characters of an id in a message; an id may have 65,535 bytes


@dataclass(frozen=True)
class EditReport:
    """The generation that was made.

    Attributes:
        out: The data set.
        generation: Its generation now.
        records: Records it holds now.
        deleted: Records left out.
        shards_written: Shards written for it; all others are those of the generation before.
    """

    out: Path
    generation: int
    records: int
    deleted: int
    shards_written: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "out": str(self.out),
            "generation": self.generation,
            "records": self.records,
            "deleted": self.deleted,
            "shards_written": self.shards_written,
        }


def delete(
    out: str | Path, ids: Iterable[str], *, workers: int | None = None, progress: bool = False
) -> EditReport:
    """Make a generation of `out` without some records. Only the shards that held them are written anew.

    The bytes of the records are gone from disk once the generation before is pruned.

    Args:
        out: The data set.
        ids: Which records; repeats count once.
        workers: Processes; None takes one a usable CPU, 0 works in this process.
        progress: Show a progress bar on standard error.

    Raises:
        DatasetNotFoundError: There is no data set.
        RecordNotFoundError: It has no record of one of the ids; nothing is deleted then.
        TypeError: `ids` is a single str.
        ValueError: There is no id.
        CorruptShardError: A record that stays is damaged; delete it too, or restore the shard.
        OutputError: The system refused, another run is writing to `out`, or no record would be left.
        WorkerError: A worker process was killed.
    """
    if isinstance(ids, str):
        raise TypeError(f"ids must be a sequence of ids, such as [{ids[:40]!r}], not a str")
    named = list(ids)
    if not named:
        raise ValueError("ids is empty; name at least one")
    with claim(Path(out), "append") as output:
        store = _store(output)
        rows = _rows_of(store, named)
        if len(rows) == len(store):
            raise OutputError(
                f"{output.root}: no record would be left; remove the folder instead", path=output.root
            )
        left_out = [
            {
                "id": store.id_of(int(row)),
                "source": "",
                "reason": Reason.DELETED.value,
                "sentence": f"deleted in generation {output.generation}",
                "field": None,
            }
            for row in rows
        ]
        shards: list[ShardEntry | RewriteTask] = list(_without(output, store, rows))
        return _make_generation(output, store, shards, left_out, workers, progress)


def compact(
    out: str | Path,
    *,
    backend: str | None = None,
    records_per_shard: int | None = None,
    shuffle_seed: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> EditReport:
    """Make a generation of `out` with the same records in evenly filled shards, all of them written anew.

    Args:
        out: The data set.
        backend: ``"memmap"`` or ``"lmdb"``; None keeps that of the first shard.
        records_per_shard: None fits it to the number of records.
        shuffle_seed: Store the records in a shuffled order that this number decides; None keeps their order.
        workers: Processes; None takes one a usable CPU, 0 works in this process.
        progress: Show a progress bar on standard error.

    Raises:
        DatasetNotFoundError: There is no data set.
        ValueError: A setting is not allowed.
        CorruptShardError: A record is damaged; names it.
        OutputError: The system refused, or another run is writing to `out`.
        WorkerError: A worker process was killed.
    """
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; allowed are {', '.join(sorted(BACKENDS))}")
    check_numbers(records_per_shard, shuffle_seed)
    with claim(Path(out), "append") as output:
        store = _store(output)
        entries = store.manifest.shards
        tasks = rewrite_tasks(
            output.root,
            entries,
            store.columns,
            backend=backend or entries[0].backend,
            size=records_per_shard or shard_size(len(store), store.contract),
            seed=shuffle_seed,
            first_shard=output.first_shard,
            journal=None,
        )
        return _make_generation(output, store, list(tasks), (), workers, progress)


def prune(out: str | Path) -> int:
    """Remove what only earlier generations of `out` need, and return how many bytes that freed.

    A reader of an earlier generation keeps what it has open, and fails when it opens more.

    Raises:
        DatasetNotFoundError: There is no data set.
        OutputError: The system refused, or another run is writing to `out`.
    """
    root = Path(out)
    load_manifest(root)  # before a lock is put into what may be no data set
    with hold_lock(root):
        before = _bytes_below(root)
        remove_unreferenced(root, load_manifest(root))
        return before - _bytes_below(root)


def _store(output: Output) -> Store:
    if output.previous is None:
        raise OutputError(f"{output.root}: there is no data set", path=output.root)
    return output.previous


def _rows_of(store: Store, ids: Iterable[str]) -> Sequence[int]:
    """Return the rows of some ids, rising.

    Raises:
        RecordNotFoundError: One is not there; names the first few.
    """
    rows, unknown = set(), []
    for record_id in ids:
        try:
            rows.add(store.row_of(record_id))
        except RecordNotFoundError:
            unknown.append(record_id)
    if unknown:
        shown = ", ".join(
            repr(each if len(each) <= _SHOWN_ID else f"{each[:_SHOWN_ID]}…") for each in unknown[:3]
        ) + (", …" if len(unknown) > 3 else "")
        raise RecordNotFoundError(f"{store.path}: has no record {shown}; nothing was deleted")
    return sorted(rows)


def _without(output: Output, store: Store, rows: Sequence[int]) -> Iterable[ShardEntry | RewriteTask]:
    """Yield, for each shard that keeps a record, the shard itself or the task that writes what it keeps."""
    located = (store.locate(row) for row in rows)
    gone = {
        shard.number: {row for _, row in group} for shard, group in groupby(located, key=lambda each: each[0])
    }
    number = output.first_shard
    for shard in store.manifest.shards:
        dropped = gone.get(shard.number)
        if dropped is None:
            yield shard
        elif len(dropped) < shard.count:
            kept = np.array([row for row in range(shard.count) if row not in dropped], dtype=np.int64)
            yield RewriteTask(output.root, (shard,), kept, number, shard.backend, tuple(store.columns))
            number += 1


def _make_generation(
    output: Output,
    store: Store,
    shards: Sequence[ShardEntry | RewriteTask],
    left_out: Sequence[Mapping[str, Any]],
    workers: int | None,
    progress: bool,
) -> EditReport:
    """Carry out the tasks among `shards`, and commit all of them in their order."""
    tasks = [each for each in shards if isinstance(each, RewriteTask)]
    written = iter(_carry_out(output, tasks, usable_cpus() if workers is None else workers, progress))
    entries = [next(written) if isinstance(each, RewriteTask) else each for each in shards]
    index = write_index(output.root, output.generation, store.contract, entries, left_out, store)
    manifest = make_manifest(
        output.generation,
        store.contract,
        entries,
        index.entry,
        store.manifest.source,
        history=output.history,
        next_shard=output.first_shard,
    )
    commit(output.root, manifest)
    return EditReport(output.root, output.generation, manifest.count, len(left_out), len(tasks))


def _carry_out(
    output: Output, tasks: Sequence[RewriteTask], workers: int, progress: bool
) -> list[ShardEntry]:
    entries = []
    records = sum(len(task.rows) for task in tasks)
    results = run_ordered(rewrite_shard, tasks, min(workers, len(tasks)), RewriteTask.describe, output.lock)
    with ProgressBar(records, "write", is_wanted=progress) as bar, closing(results):
        for outcome in results:
            bar.update(outcome.records)
            entries += [] if outcome.entry is None else [outcome.entry]
    forget_open_shards()
    return entries


def _bytes_below(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
