"""A trial: delivers what a setting asks for with the real loaders, and checks what comes."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from shardkit.errors import ShardkitError, WorkerError
from shardkit.reading import (
    Partition,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    Tail,
    collate,
    epoch_order,
)
from shardkit.reading.selection import Rows
from shardkit.verification.delivered_batch import read_batch
from shardkit.verification.delivery import MOST_TIMES
from shardkit.verification.ledger import Ledger, StoredValues
from shardkit.verification.proof import SettingResult
from shardkit.verification.setting import Setting

SEED = 1

Source = ShardIterableDataset | ShardLoader | ShardSampler


def carry_out(stored: StoredValues, rows: Rows | None, settings: Sequence[Setting]) -> list[SettingResult]:
    """Deliver some settings, which differ in their epoch alone, by one loader on each rank.

    Ranks deliver one after the other.

    Args:
        stored: The values of the data set, with the data set.
        rows: The rows to deliver; None for all.
        settings: One that is resumed, or any number of others.

    Raises:
        ShardkitError: A loader failed; names the setting.
    """
    try:
        if settings[0].course == "resumed":
            return [_resume(stored, rows, settings[0])]
        return _deliver(stored, rows, settings)
    except (ShardkitError, RuntimeError) as error:  # RuntimeError is how torch tells of a worker that died
        kind = type(error) if isinstance(error, ShardkitError) else WorkerError
        raise kind(f"{settings[0].describe()}: {_last_line(error)}") from error


def _deliver(stored: StoredValues, rows: Rows | None, settings: Sequence[Setting]) -> list[SettingResult]:
    checks = [_Check(stored, rows, setting) for setting in settings]
    for part in checks[0].parts:
        loader, source = _open(stored, rows, settings[0], part)
        for check in checks:
            source.set_epoch(check.setting.epoch)
            check.follow(loader, part, len(part), len(source))
    return [check.result() for check in checks]


def _resume(stored: StoredValues, rows: Rows | None, setting: Setting) -> SettingResult:
    """Stop every rank in the middle, and go on from their states with other ranks and another batch size."""
    check = _Check(stored, rows, setting)
    states = []
    for part in check.parts:
        loader, source = _open(stored, rows, setting, part)
        check.follow(itertools.islice(loader, check.step), part, check.step, check.step)
        states.append(
            source.state_dict() if isinstance(source, ShardLoader) else source.state_dict(check.step)
        )
    for part, state in zip(check.rest, itertools.cycle(states), strict=False):
        loader, source = _open(stored, rows, setting, part)
        source.load_state_dict(state)
        check.follow(loader, part, len(part), len(source))
    return check.result()


def _open(
    stored: StoredValues, rows: Rows | None, setting: Setting, part: Partition
) -> tuple[Iterable[Any], Source]:
    """Return the loader of one rank, and what knows of its epoch and state."""
    path, fields = stored.dataset.path, stored.fields
    common: dict[str, Any] = {
        "batch_size": part.batch_size,
        "shuffle": setting.shuffle,
        "seed": SEED,
        "tail": part.tail,
        "rank": part.rank,
        "world_size": part.world_size,
        "rows": rows,
    }
    source: Source
    if setting.loader == "threads":
        source = ShardLoader(path, threads=max(1, setting.workers), fields=fields, **common)
        loader: Iterable[Any] = source
    elif setting.loader == "iterable":
        source = ShardIterableDataset(path, fields=fields, **common)
        loader = DataLoader(source, batch_size=None, **_workers(setting))
    else:
        data = ShardDataset(path, fields=fields)
        source = ShardSampler(data, **common)
        loader = DataLoader(data, batch_sampler=source, collate_fn=collate, **_workers(setting))
    source.set_epoch(setting.epoch)
    return loader, source


def _workers(setting: Setting) -> dict[str, Any]:
    """Return the DataLoader's arguments that start workers."""
    if not setting.has_processes:
        return {}
    return {
        "num_workers": setting.workers,
        "multiprocessing_context": setting.start_method,
        "persistent_workers": setting.course == "persistent",
    }


class _Check:
    """Holds what the ranks of one setting deliver against what seed and epoch ask for, by no loader.

    Attributes:
        setting: The setting.
        parts: What each rank has to deliver.
        step: The step at which all ranks are stopped, if they are.
        rest: What each of other ranks, with another batch size, has to deliver from there.
    """

    def __init__(self, stored: StoredValues, rows: Rows | None, setting: Setting) -> None:
        data = stored.dataset
        chosen = np.arange(len(data), dtype=np.int64) if rows is None else rows
        order = epoch_order(
            setting.shuffle, len(chosen), dataset_id=data.dataset_id, seed=SEED, epoch=setting.epoch
        )
        self.setting = setting
        self.parts = _partitions(len(chosen), setting.ranks, setting.batch_size, setting.tail)
        self.step = len(self.parts[0]) // 2
        world, batch_size = setting.ranks % 3 + 1, setting.batch_size // 2 or 2
        self.rest = _partitions(len(chosen), world, batch_size, setting.tail, self.parts[0].end(self.step))
        last = self.rest if setting.course == "resumed" else self.parts
        self._dropped = last[0].remainder if setting.tail == "drop" else 0
        self._stored = stored
        self._sequence = chosen[order.rows(np.arange(len(chosen), dtype=np.int64))]
        self._ledger = Ledger(stored, self._sequence[: len(chosen) - self._dropped])
        self._order_fault = self._steps_fault = ""

    def follow(self, batches: Iterable[Any], part: Partition, steps: int, promised: int) -> None:
        """Take what one rank delivers.

        Args:
            batches: The batches.
            part: What the rank has to deliver.
            steps: How many steps of it.
            promised: How many its loader says it will take.
        """
        came = 0
        for batch in itertools.islice(
            batches, MOST_TIMES * (steps + 1)
        ):  # a loader without end is a fault as well
            delivered = read_batch(batch, came, self._stored.fields)
            rows = self._ledger.take(delivered)
            if came < steps and not self._order_fault:
                self._order_fault = self._compare(part, came, rows, delivered.ids)
            came += 1
        if not came == steps == promised and not self._steps_fault:
            self._steps_fault = (
                f"rank {part.rank} of {part.world_size} took {came} steps, its length says {promised}, "
                f"due are {steps}"
            )

    def result(self) -> SettingResult:
        """Return what all ranks together delivered."""
        report = self._ledger.report()
        return SettingResult(self.setting, report, self._dropped, self._order_fault, self._steps_fault)

    def _compare(self, part: Partition, step: int, rows: Rows, ids: Sequence[Any]) -> str:
        """Return where a step first differs from what is due, or nothing."""
        due = self._sequence[part.positions(step)]
        if np.array_equal(rows, due):
            return ""
        count = min(len(rows), len(due))
        place = next(iter(np.flatnonzero(rows[:count] != due[:count]).tolist()), count)
        came = f"{ids[place]}" if place < len(rows) else "no more"
        expected = self._stored.dataset.ids[int(due[place])] if place < len(due) else "no more"
        return (
            f"order: rank {part.rank} of {part.world_size}, batch {step}, sample {place} is {came}, "
            f"due is {expected}"
        )


def _partitions(length: int, ranks: int, batch_size: int, tail: Tail, start: int = 0) -> list[Partition]:
    return [Partition(length, rank, ranks, batch_size, tail, start) for rank in range(ranks)]


def _last_line(error: Exception) -> str:
    """Return what an error says, without the traceback that torch puts before an error of a worker."""
    line = str(error).rstrip().rsplit("\n", 1)[-1]
    return line.removeprefix(f"{type(error).__module__}.{type(error).__qualname__}: ")
