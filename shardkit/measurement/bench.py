"""The measurement of how fast a data set is delivered here, in several settings that take turns."""

import math
import multiprocessing
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from shardkit import __version__
from shardkit.contract import Contract
from shardkit.ingestion import usable_cpus
from shardkit.measurement.bench_report import BenchConditions, BenchReport, make_rows
from shardkit.measurement.delivered import Delivered
from shardkit.measurement.named_transform import choose_transform
from shardkit.measurement.page_cache import PageCache
from shardkit.measurement.setting import Setting, Work, plan_settings
from shardkit.measurement.timed_pass import TimedPass, time_pass
from shardkit.permutation import Permutation
from shardkit.progress_bar import ProgressBar
from shardkit.reading import Shuffle
from shardkit.reading.integer import require_integer
from shardkit.store import Store
from shardkit.transforms import Transform

_SAMPLES = 2000
"""Samples of a pass by default: photos take a second or two, and all passes of all settings about a minute."""


def bench(
    out: str | Path,
    *,
    batch_size: int = 64,
    workers: Sequence[int] | None = None,
    threads: Sequence[int] | None = None,
    repetitions: int = 3,
    warm_ups: int = 1,
    transform: Transform | str | None = None,
    shuffle: Shuffle = "global",
    samples: int | None = _SAMPLES,
    step_ms: float = 0.0,
    drop_caches: bool = False,
    preload: bool = False,
    progress: bool = False,
) -> BenchReport:
    """Measure how fast `out` is delivered by a DataLoader with workers, in its first and second epoch, and by threads.

    In each repetition every setting makes its passes once, so that noise that lasts hits all alike. Every pass is
    kept, and what it delivered is compared with the first: a setting whose data differ is wrong however fast.

    Args:
        out: The data set.
        batch_size: Samples of a batch.
        workers: Numbers of DataLoader workers; None is 0, and one a usable CPU.
        threads: Numbers of `ShardLoader` threads; None is one a usable CPU.
        repetitions: Passes of each setting that count, 1 or more.
        warm_ups: Passes of each before those, 0 or more.
        transform: A transform, or ``"none"``, ``"center:SIZE"`` (`CenterCrop` with ratio 0.875), ``"random:SIZE"``
            (`RandomResizedCrop`), on every image field; or ``"module:name"``, which is imported. It may change shapes.
        shuffle: The order.
        samples: Samples that a pass delivers of a larger data set, chosen at random; None delivers all.
        step_ms: Sleep so many milliseconds after each batch in place of a model's step; 0 takes no step.
        drop_caches: Empty the page cache before each loader's first epoch, as far as this process may.
        preload: Hold the fields in memory; they are read into it before a pass is timed.
        progress: Show a progress bar on standard error.

    Raises:
        DatasetNotFoundError, FormatError, TransformError: `out` cannot be read.
        ValueError, TypeError: An argument is out of its range.

    Example:
        >>> report = bench("out/", transform="random:224", step_ms=50)
        >>> for row in report.rows:
        ...     print(row.name, row.samples_per_second.median, row.conclusion)
    """
    settings = plan_settings(
        (0, usable_cpus()) if workers is None else workers, (usable_cpus(),) if threads is None else threads
    )
    if drop_caches and preload:
        raise ValueError(
            "drop_caches and preload exclude each other: what is held in memory is not read from the disk"
        )
    subject = _look_at(out)
    chosen = choose_transform(transform, subject.contract)
    rows = _choose_rows(subject.records, samples)
    conditions = BenchConditions(
        dataset_id=subject.dataset_id,
        generation=subject.generation,
        records=subject.records,
        samples=subject.records if rows is None else len(rows),
        batch_size=batch_size,
        shuffle=str(shuffle),
        transform=chosen.name,
        step_ms=_require_milliseconds(step_ms),
        warm_ups=_require_number("warm_ups", warm_ups, 0),
        repetitions=_require_number("repetitions", repetitions, 1),
        page_cache="",
        start_method=_start_method(),
        cpus=usable_cpus(),
        torch_threads=torch.get_num_threads(),
        versions=_versions(),
        preload=preload,
    )
    cache = PageCache(subject.path, drop_caches, warm_ups)
    work = Work(subject.path, batch_size, shuffle, chosen.transform, rows, preload=preload)
    passes = _Run(settings, work, subject.contract, cache, conditions).passes(progress)
    conditions = replace(conditions, page_cache=cache.describe())
    return BenchReport(subject.path, conditions, make_rows(passes, conditions.samples), tuple(passes))


@dataclass(frozen=True)
class _Subject:
    """The data set, closed: what is mapped takes memory, and cannot be dropped from the page cache."""

    path: Path
    dataset_id: str
    generation: int
    records: int
    contract: Contract


def _look_at(out: str | Path) -> _Subject:
    with Store(out) as store:
        manifest = store.manifest
        return _Subject(store.path, manifest.dataset_id, manifest.generation, len(store), store.contract)


@dataclass(frozen=True)
class _Run:
    """All passes that are to be made."""

    settings: Sequence[Setting]
    work: Work
    contract: Contract
    cache: PageCache
    conditions: BenchConditions

    def passes(self, progress: bool) -> list[TimedPass]:
        """Make them: in each repetition every setting has its turn, in an order that rotates."""
        numbers = range(-self.conditions.warm_ups, self.conditions.repetitions)
        total = len(numbers) * sum(setting.epochs for setting in self.settings)
        passes = []
        with ProgressBar(total, "bench", is_wanted=progress, unit="passes") as bar:
            for turn, repetition in enumerate(numbers):
                first = turn % len(self.settings)
                for setting in (*self.settings[first:], *self.settings[:first]):
                    for each in self._passes_of(setting, repetition):
                        passes.append(each)
                        bar.update()
        return passes

    def _passes_of(self, setting: Setting, repetition: int) -> Iterator[TimedPass]:
        """Make those of one setting in one repetition; its workers end with them."""
        self.cache.prepare()
        counter, loader = self.work.open(setting)
        for epoch in range(setting.epochs):
            counter.set_epoch(epoch)
            step_seconds = self.conditions.step_ms / 1000
            yield time_pass(loader, Delivered(self.contract), setting, epoch, repetition, step_seconds)


def _choose_rows(count: int, samples: int | None) -> npt.NDArray[np.int64] | None:
    """Return some rows from all over the data set, ascending, or None for all."""
    if samples is None or _require_number("samples", samples, 1) >= count:
        return None
    return np.sort(Permutation(count, "rows to measure").apply(np.arange(samples, dtype=np.int64)))


def _require_number(name: str, number: int, least: int) -> int:
    if require_integer(name, number) < least:
        raise ValueError(f"{name} must be {least} or more, not {number}")
    return number


def _require_milliseconds(step_ms: float) -> float:
    if not (math.isfinite(step_ms) and step_ms >= 0):
        raise ValueError(f"step_ms must be 0 or more milliseconds, not {step_ms}")
    return step_ms


def _start_method() -> str:
    """Return how worker processes are started, without settling it for the rest of the program."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "shardkit": __version__,
        "system": platform.platform(),
    }
