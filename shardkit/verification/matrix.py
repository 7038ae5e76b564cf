"""The proof of delivery: the real loaders, in every setting that might break them, on the data set at hand."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader
from tqdm import tqdm

from shardkit.permutation import Permutation
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
from shardkit.verification.delivery import DeliveryReport, verify_loader

Kind = Literal["iterable", "sampler", "threads"]
StartMethod = Literal["fork", "spawn", "forkserver"]

_SAMPLED = 2000
"""Rows that are delivered of a larger data set: each setting then takes a fraction of a second."""
_SEED = 1


@dataclass(frozen=True)
class Setting:
    """One way to deliver an epoch.

    Attributes:
        loader: ``"iterable"`` and ``"sampler"`` go through torch's DataLoader, ``"threads"`` is `ShardLoader`.
        ranks: Number of ranks, each with a loader of its own.
        workers: Worker processes of each loader, or its threads.
        tail: What becomes of the positions that fill no batch on every rank.
        batch_size: Samples of one batch of one rank.
        epoch: Which epoch.
        start_method: How workers are started.
        is_resumed: Whether it is stopped in the middle, and another loader goes on from the saved state, with another
            number of ranks and another batch size.
    """

    loader: Kind
    ranks: int
    workers: int
    tail: Tail
    batch_size: int
    epoch: int
    start_method: StartMethod = "fork"
    is_resumed: bool = False

    def describe(self) -> str:
        """Name the setting in a few words."""
        workers = f"{self.workers} {'threads' if self.loader == 'threads' else 'workers'}"
        start = f" ({self.start_method})" if self.workers and self.loader != "threads" else ""
        resumed = ", stopped and resumed" if self.is_resumed else ""
        return (
            f"{self.loader}, {self.ranks} ranks, {workers}{start}, batch {self.batch_size}, {self.tail}, "
            f"epoch {self.epoch}{resumed}"
        )


@dataclass(frozen=True)
class SettingResult:
    """What one setting delivered.

    Attributes:
        setting: The setting.
        report: All ranks together.
        may_miss: Ids that the tail leaves out by what it promises.
        order_equal: Whether each rank saw the sequence that seed and epoch ask for.
        steps_equal: Whether each rank took the steps that its loader's length said.
    """

    setting: Setting
    report: DeliveryReport
    may_miss: int
    order_equal: bool
    steps_equal: bool

    @property
    def ok(self) -> bool:
        """Whether the setting delivered what it promises."""
        report = self.report
        is_right = not (report.duplicate or report.unknown or report.wrong)
        return is_right and report.missing == self.may_miss and self.order_equal and self.steps_equal

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "setting": dict(self.setting.__dict__),
            "ok": self.ok,
            "may_miss": self.may_miss,
            "order_equal": self.order_equal,
            "steps_equal": self.steps_equal,
            "report": self.report.to_dict(),
        }


@dataclass(frozen=True)
class DeliveryProof:
    """The result of all settings.

    Attributes:
        records: Records of the data set.
        rows: How many of them were delivered in each setting.
        results: One result a setting.
    """

    records: int
    rows: int
    results: tuple[SettingResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every setting delivered what it promises."""
        return all(result.ok for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return the proof as a JSON object."""
        return {
            "ok": self.ok,
            "records": self.records,
            "rows": self.rows,
            "settings": [result.to_dict() for result in self.results],
        }


def verify_delivery(
    out: str | Path,
    *,
    ranks: Sequence[int] = (1, 2, 3),
    workers: Sequence[int] = (0, 2),
    epochs: int = 2,
    batch_sizes: Sequence[int] = (64,),
    start_methods: Sequence[StartMethod] = ("fork",),
    sample: int | None = _SAMPLED,
    progress: bool = False,
) -> DeliveryProof:
    """Deliver epochs of `out` with the real loaders in many settings, and compare each with what it promises.

    Settings are all combinations of loader, ranks, workers, tail, batch size, epoch and start method, and one that is
    stopped in the middle and resumed for each of them in epoch 0. Each compares ids, values of label and scalar fields
    as the shards hold them, the order, and the number of steps.

    Args:
        out: The data set.
        ranks: Numbers of ranks.
        workers: Numbers of worker processes, or threads; 0 threads is one.
        epochs: Epochs of each.
        batch_sizes: Batch sizes.
        start_methods: How workers are started. A spawned worker takes seconds to import torch.
        sample: Rows to deliver of a larger data set, chosen at random; None delivers all.
        progress: Show a progress bar on standard error.

    Raises:
        DatasetNotFoundError, FormatError: `out` cannot be opened.
        ValueError: A setting is out of its range.
    """
    data = ShardDataset(out)
    rows = _choose_rows(len(data), sample)
    settings = list(_settings(ranks, workers, epochs, batch_sizes, start_methods))
    bar = tqdm(settings, unit=" settings", desc="delivery", disable=None if progress else True)
    results = tuple(_Delivery(data, rows, setting).result() for setting in bar)
    return DeliveryProof(len(data), len(rows), results)


def _choose_rows(count: int, sample: int | None) -> npt.NDArray[np.int64]:
    """Return all rows, or some of them from all over the data set, ascending."""
    if sample is None or sample >= count:
        return np.arange(count, dtype=np.int64)
    return np.sort(Permutation(count, "rows to deliver").apply(np.arange(sample, dtype=np.int64)))


def _settings(
    ranks: Sequence[int],
    workers: Sequence[int],
    epochs: int,
    batch_sizes: Sequence[int],
    start_methods: Sequence[StartMethod],
) -> Iterator[Setting]:
    loaders: tuple[Kind, ...] = get_args(Kind)
    tails: tuple[Tail, ...] = get_args(Tail)
    for loader, world, worker, tail, batch_size in itertools.product(
        loaders, ranks, workers, tails, batch_sizes
    ):
        methods = start_methods if worker and loader != "threads" else start_methods[:1]
        for method, epoch in itertools.product(methods, range(epochs)):
            yield Setting(loader, world, worker, tail, batch_size, epoch, method)
        yield Setting(loader, world, worker, tail, batch_size, 0, methods[0], is_resumed=True)


class _Delivery:
    """Carries out one setting."""

    def __init__(self, data: ShardDataset, rows: npt.NDArray[np.int64], setting: Setting) -> None:
        self._data = data
        self._rows = rows
        self._setting = setting
        order = epoch_order("global", len(rows), dataset_id=data.dataset_id, seed=_SEED, epoch=setting.epoch)
        self._expected_rows = rows[order.rows(np.arange(len(rows), dtype=np.int64))]
        self._fields = [
            name for name, field in data.contract.fields.items() if field.kind in ("label", "scalar")
        ]

    def result(self) -> SettingResult:
        """Deliver the epoch with all ranks, one after the other, and compare."""
        setting = self._setting
        parts = [
            Partition(len(self._rows), rank, setting.ranks, setting.batch_size, setting.tail)
            for rank in range(setting.ranks)
        ]
        if setting.is_resumed:
            step = len(parts[0]) // 2
            first = [self._first_part(part, step) for part in parts]
            position = parts[0].end(step)
            world, size = setting.ranks % 3 + 1, max(1, setting.batch_size // 2 + 1)
            rest = [
                Partition(len(self._rows), rank, world, size, setting.tail, position) for rank in range(world)
            ]
            runs = first + [self._run(part, first[0].state) for part in rest]
        else:
            runs = [self._run(part) for part in parts]
            rest = parts
        report = verify_loader(itertools.chain(*(run.batches for run in runs)), self._data, rows=self._rows)
        return SettingResult(
            setting,
            report,
            may_miss=rest[0].remainder if setting.tail == "drop" else 0,
            order_equal=all(run.order_equal for run in runs),
            steps_equal=all(run.steps_equal for run in runs),
        )

    def _first_part(self, part: Partition, step: int) -> "_Run":
        """Deliver the first steps of a rank, and save the state."""
        loader, source = self._loader(part)
        batches = list(itertools.islice(loader, step))
        state = source.state_dict() if isinstance(source, ShardLoader) else source.state_dict(step)
        expected = [self._expected(part, each) for each in range(step)]
        return _Run(batches, _ids(batches) == expected, len(batches) == step, state)

    def _run(self, part: Partition, state: dict[str, Any] | None = None) -> "_Run":
        """Deliver all that a rank has to, from the beginning or from a state."""
        loader, source = self._loader(part)
        if state is not None:
            source.load_state_dict(state)
        promised = len(source)
        batches = list(loader)
        expected = [self._expected(part, step) for step in range(len(part))]
        return _Run(batches, _ids(batches) == expected, len(batches) == promised == len(part))

    def _loader(
        self, part: Partition
    ) -> tuple[Iterable[Any], ShardIterableDataset | ShardLoader | ShardSampler]:
        setting = self._setting
        common: dict[str, Any] = {
            "batch_size": part.batch_size,
            "seed": _SEED,
            "tail": part.tail,
            "rank": part.rank,
            "world_size": part.world_size,
            "rows": self._rows,
        }
        context: dict[str, Any] = {"multiprocessing_context": setting.start_method} if setting.workers else {}
        source: ShardIterableDataset | ShardLoader | ShardSampler
        loader: Iterable[Any]
        if setting.loader == "threads":
            loader = source = ShardLoader(
                self._data.path, threads=max(1, setting.workers), fields=self._fields, **common
            )
        elif setting.loader == "iterable":
            source = ShardIterableDataset(self._data.path, fields=self._fields, **common)
            loader = DataLoader(source, batch_size=None, num_workers=setting.workers, **context)
        else:
            data = ShardDataset(self._data.path, fields=self._fields)
            source = ShardSampler(data, **common)
            loader = DataLoader(
                data, batch_sampler=source, num_workers=setting.workers, collate_fn=collate, **context
            )
        source.set_epoch(setting.epoch)
        return loader, source

    def _expected(self, part: Partition, step: int) -> list[str]:
        """Return the ids of one step as they follow from seed and epoch, by no loader."""
        return [self._data.ids[int(row)] for row in self._expected_rows[part.positions(step)]]


@dataclass(frozen=True)
class _Run:
    """What one rank delivered."""

    batches: list[Any]
    order_equal: bool
    steps_equal: bool
    state: dict[str, Any] | None = None


def _ids(batches: Iterable[Any]) -> list[list[str]]:
    return [list(batch["id"]) for batch in batches]
