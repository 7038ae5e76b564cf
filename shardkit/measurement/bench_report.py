"""What a measurement found: every pass, one row a setting, and what may be concluded from it."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from shardkit.measurement.timed_pass import TimedPass


@dataclass(frozen=True)
class Spread:
    """A quantity over repetitions: its median, least and most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of one or more values."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class BenchConditions:
    """Under which conditions it was measured.

    Attributes:
        dataset_id: Of the data set.
        generation: Of the data set.
        records: Records of the data set.
        samples: How many of them each pass delivers: all, or a choice from all over the data set.
        batch_size: Samples of a batch.
        shuffle: The order.
        transform: Its name.
        step_ms: Milliseconds slept after each batch in place of a model's step.
        warm_ups: Passes of each setting before those that count.
        repetitions: Passes of each setting that count; the settings take turns.
        page_cache: Its state, in words.
        start_method: How worker processes are started.
        cpus: Those that this process may use.
        torch_threads: Threads that torch shares one operation among in this process, so where there are no workers.
        versions: Of Python, torch, shardkit and the system.
        preload: Whether the fields were held in memory.
    """

    dataset_id: str
    generation: int
    records: int
    samples: int
    batch_size: int
    shuffle: str
    transform: str
    step_ms: float
    warm_ups: int
    repetitions: int
    page_cache: str
    start_method: str
    cpus: int
    torch_threads: int
    versions: dict[str, str]
    preload: bool = False


@dataclass(frozen=True)
class BenchRow:
    """One epoch of one setting, over all repetitions.

    Attributes:
        name: The setting.
        passes: Those that count, one a repetition.
        wrong: In what its data, of any pass, differ from what they should be; empty if they do not.
        conclusion: In a few words.
    """

    name: str
    passes: tuple[TimedPass, ...]
    wrong: str
    conclusion: str

    @property
    def verified(self) -> bool:
        """Whether each pass delivered all samples, with the ids, labels and scalars of the first row."""
        return not self.wrong

    @property
    def samples(self) -> int:
        """Samples of one pass: the least of them, should they differ."""
        return min(each.samples for each in self.passes)

    @property
    def samples_per_second(self) -> Spread:
        """Samples really delivered, divided by all seconds of the pass."""
        return Spread.of([each.rate for each in self.passes])

    @property
    def seconds(self) -> Spread:
        """Seconds of a pass."""
        return Spread.of([each.seconds for each in self.passes])

    @property
    def first_batch_seconds(self) -> Spread | None:
        """Seconds to the first batch; None if none came."""
        return _spread([each.first_batch_seconds for each in self.passes])

    @property
    def pixels_per_second(self) -> Spread | None:
        """Pixels of delivered images; None if there are no image fields."""
        return _spread([_per_second(each.pixels, each) for each in self.passes])

    @property
    def tokens_per_second(self) -> Spread | None:
        """Delivered tokens; None if there are no token fields."""
        return _spread([_per_second(each.tokens, each) for each in self.passes])

    @property
    def waiting_share(self) -> Spread:
        """Share of the seconds in which the loop waited for data."""
        return Spread.of([each.waiting_seconds / each.seconds for each in self.passes])

    @property
    def peak_pss(self) -> int | None:
        """The most memory of all processes in any of the passes, in bytes; None where it is not measured."""
        return max((each.memory.pss for each in self.passes if each.memory), default=None)

    @property
    def peak_mapped(self) -> int | None:
        """How much of their memory was mapped files, at most, in bytes; None where it is not measured."""
        return max((each.memory.files for each in self.passes if each.memory), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object; its passes are listed in the report."""
        spreads = {
            "first_batch_seconds": self.first_batch_seconds,
            "seconds": self.seconds,
            "samples_per_second": self.samples_per_second,
            "pixels_per_second": self.pixels_per_second,
            "tokens_per_second": self.tokens_per_second,
            "waiting_share": self.waiting_share,
        }
        return {
            "setting": self.name,
            "samples": self.samples,
            "verified": self.verified,
            **{name: None if spread is None else asdict(spread) for name, spread in spreads.items()},
            "peak_pss": self.peak_pss,
            "peak_mapped": self.peak_mapped,
            "conclusion": self.conclusion,
        }


@dataclass(frozen=True)
class BenchReport:
    """The result of a measurement.

    Attributes:
        out: The data set.
        conditions: Under which it was measured.
        rows: One for each setting and epoch.
        passes: Every pass in the order in which they were made, warm-ups among them.
    """

    out: Path
    conditions: BenchConditions
    rows: tuple[BenchRow, ...]
    passes: tuple[TimedPass, ...]

    def __repr__(self) -> str:
        """Show the verdict; the passes are dozens."""
        return f"<{type(self).__name__} {self.out}: {self.describe()}>"

    def describe(self) -> str:
        """Say in one line which setting is the fastest, or how many are wrong."""
        wrong = sum(not row.verified for row in self.rows)
        if wrong:
            return f"{wrong} of {len(self.rows)} settings deliver WRONG data"
        fastest = max(self.rows, key=lambda row: row.samples_per_second.median)
        return f"{fastest.name}: {fastest.samples_per_second.median:,.0f} samples/s, all data equal"

    @property
    def ok(self) -> bool:
        """Whether every setting delivered the right data."""
        return all(row.verified for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "ok": self.ok,
            "out": str(self.out),
            "conditions": asdict(self.conditions),
            "rows": [row.to_dict() for row in self.rows],
            "passes": [each.to_dict() for each in self.passes],
        }


def make_rows(passes: Sequence[TimedPass], expected: int) -> tuple[BenchRow, ...]:
    """Return one row for each setting and epoch, in the order in which they first came.

    Args:
        passes: All of them, warm-ups among them; at least one of each setting counts.
        expected: Samples that each should deliver.
    """
    groups: dict[str, list[TimedPass]] = {}
    for each in passes:
        groups.setdefault(each.setting.describe(each.epoch), []).append(each)
    reference = passes[0].digest
    wrongs = {name: _find_wrong(group, expected, reference) for name, group in groups.items()}
    counted = {name: tuple(each for each in group if not each.is_warm_up) for name, group in groups.items()}
    fastest = _fastest([counted[name] for name in groups if not wrongs[name]])
    return tuple(
        BenchRow(
            name, counted[name], wrong, f"WRONG: {wrong}" if wrong else _conclude(counted[name], fastest)
        )
        for name, wrong in wrongs.items()
    )


def _find_wrong(passes: Sequence[TimedPass], expected: int, reference: str) -> str:
    for each in passes:
        if each.samples != expected:
            return f"{each.samples} samples came instead of {expected}"
        if each.digest != reference:
            return "its ids or labels are not those of the first row"
    return ""


def _fastest(groups: Sequence[Sequence[TimedPass]]) -> Sequence[TimedPass]:
    return max(groups, key=lambda group: statistics.median(each.rate for each in group), default=())


def _conclude(passes: Sequence[TimedPass], fastest: Sequence[TimedPass]) -> str:
    """Say how fast a setting is, each repetition compared with the fastest setting's same one."""
    if not passes[0].samples:
        return "nothing to deliver"
    if passes is fastest:
        return "fastest"
    shares = [own.rate / other.rate for own, other in zip(passes, fastest, strict=True)]
    is_level = max(shares) >= 1
    return f"{statistics.median(shares):.0%} of the fastest" + (", or level with it" if is_level else "")


def _per_second(count: int | None, each: TimedPass) -> float | None:
    return None if count is None else count / each.seconds


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None
