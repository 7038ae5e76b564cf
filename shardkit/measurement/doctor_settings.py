"""Short measured runs of a few settings, which take turns, and the simplest of them that is about as fast as any."""

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from shardkit.ingestion import usable_cpus
from shardkit.measurement.doctor_steps import Announce, Step
from shardkit.measurement.setting import EpochCounter, Setting, Work
from shardkit.permutation import Permutation
from shardkit.reading import Batch
from shardkit.transforms import Transform

_PASS_SECONDS = 0.5
"""What a pass should take: long beside starting an epoch, and short enough for all of them to take ten seconds."""
_FEWEST, _MOST = 4, 65536  # samples of a pass for each process or thread that makes batches
_TRIED = 64  # samples by which it is found how many that are, at most
_BATCH_SIZE = 64
_BATCHES = 8  # of a pass at least, for each process or thread
_ROUNDS, _MOST_ROUNDS = 3, 15
_TELL_SECONDS = 0.1  # between two signs of life: a message takes as long as a batch of small arrays
_NEAR_BEST = 0.95


@dataclass(frozen=True)
class MeasuredSetting:
    """How fast a setting was.

    Attributes:
        setting: The setting.
        rates: Samples a second, of its pass in each round.
    """

    setting: Setting
    rates: tuple[float, ...]

    @property
    def samples_per_second(self) -> float:
        """The median of its passes."""
        return statistics.median(self.rates)

    def share_of(self, other: Self) -> float:
        """Return how fast it is beside another, by the median of the rounds.

        What slows the machine down for a while slows down all passes of a round.
        """
        return statistics.median(self._shares_of(other))

    def is_level_with(self, other: Self) -> bool:
        """Whether it was ahead of another in one round and behind in one, so that neither is proven the faster."""
        shares = self._shares_of(other)
        return min(shares) < 1 < max(shares)

    def _shares_of(self, other: Self) -> list[float]:
        return [own / its for own, its in zip(self.rates, other.rates, strict=True)]


def simplest_first() -> list[Setting]:
    """Return the settings that are measured: this process alone, then threads, then processes, and few before many."""
    counts = sorted({1, usable_cpus()})
    threads = [Setting("threads", count) for count in counts]
    return [Setting("workers", 0), *threads, *(Setting("workers", count) for count in counts)]


def choose_setting(measured: Sequence[MeasuredSetting]) -> MeasuredSetting:
    """Return the first of some settings, simplest first, that is within 5 % of the fastest, round by round."""
    best = max(measured, key=lambda each: each.samples_per_second)
    return next(each for each in measured if each.share_of(best) >= _NEAR_BEST)


def measure_settings(
    path: Path, records: int, transform: Transform | None, sample_seconds: float, announce: Announce
) -> list[MeasuredSetting]:
    """Measure each setting in a few passes over random records, all warmed up before.

    Args:
        path: The data set.
        records: How many it has, at least 1.
        transform: As for the loaders.
        sample_seconds: What a sample takes, at most.
        announce: Is told of each setting before it begins, and that it goes on.

    Raises:
        ShardkitError: As for the loaders.
    """
    plan = _Plan(path, records, transform, announce)
    tried = plan.open(Setting("workers", 0), min(_TRIED, _samples_of(1 / sample_seconds)))
    tried.run(0)  # opens files and sets up libraries
    rate = tried.run(1)
    samples = min(records, _samples_of(rate))
    loops = [plan.open(setting, samples * max(1, setting.count)) for setting in simplest_first()]
    for loop in loops:
        loop.run(0)
    rounds = range(1, 1 + _rounds_of(samples / rate))
    rates = [[loop.run(epoch) for loop in loops] for epoch in rounds]
    return [
        MeasuredSetting(loop.setting, each)
        for loop, each in zip(loops, zip(*rates, strict=True), strict=True)
    ]


def _samples_of(rate: float) -> int:
    """Return how many samples a pass should have where one process makes so many a second."""
    return min(_MOST, max(_FEWEST, int(_PASS_SECONDS * rate)))


def _rounds_of(seconds: float) -> int:
    """Return how often passes of a duration are made: short ones often, for they scatter."""
    return 1 if seconds > 2 * _PASS_SECONDS else min(_MOST_ROUNDS, max(_ROUNDS, int(_PASS_SECONDS / seconds)))


@dataclass(frozen=True)
class _Plan:
    """What all settings have in common."""

    path: Path
    records: int
    transform: Transform | None
    announce: Announce

    def open(self, setting: Setting, samples: int) -> "_Loop":
        """Return a setting's loop over some random records, or all if there are no more."""
        rows = _random_rows(self.records, samples)
        batch_size = min(_BATCH_SIZE, max(1, len(rows) // (_BATCHES * max(1, setting.count))))
        counter, loader = Work(self.path, batch_size, "global", self.transform, rows, may_filter=True).open(
            setting
        )
        return _Loop(setting, len(rows), counter, loader, self.announce)


@dataclass(frozen=True)
class _Loop:
    """A loader that is iterated again and again; its workers live as long."""

    setting: Setting
    samples: int
    counter: EpochCounter
    loader: Iterable[Batch]
    announce: Announce

    def run(self, epoch: int) -> float:
        """Return the samples a second of an epoch, those that a transform leaves out among them."""
        step = Step("load", detail=self.setting.describe())
        self.counter.set_epoch(epoch)
        self.announce(step)
        began = told = time.perf_counter()
        for _ in self.loader:
            now = time.perf_counter()
            if now - told > _TELL_SECONDS:
                self.announce(step)
                told = now
        return self.samples / (time.perf_counter() - began)


def _random_rows(records: int, samples: int) -> npt.NDArray[np.int64]:
    numbers = np.arange(min(records, samples), dtype=np.int64)
    return np.sort(Permutation(records, "settings of doctor").apply(numbers))
