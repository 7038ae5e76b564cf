"""How the benchmarks measure: interleaved repetitions, medians and spread.

Knows nothing of what is measured. Speeds and ratios are of wall time. The CPU time of this process and of the
children it waited for is shown beside them: it tells what the work costs where other programs disturb the clock.
"""

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Attributes:
        name: What the table calls it.
        run: Does the whole work once, and is what is timed. It is given the number of the repetition, so that
            all contenders can take the same order of records; warm-ups have negative ones. Where the work is done
            by a program that takes its own time, it returns what that took.
        note: What differs from the others, such as what a read returns.
        prepare: Called before each run, untimed.
    """

    name: str
    run: Callable[[int], "Taken | None"]
    note: str = ""
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Missing:
    """A way to do the work that could not be measured here."""

    name: str
    why: str


@dataclass(frozen=True)
class Taken:
    """What one run took.

    Attributes:
        wall: Seconds by the clock.
        cpu: Seconds of CPU time, user and system, of this process and the children it waited for.
    """

    wall: float
    cpu: float


Runs = Mapping[str, Sequence[Taken]]
"""Name of a contender -> its runs, one a repetition."""


def interleave(contenders: Sequence[Contender], repetitions: int, warm_ups: int = 1) -> Runs:
    """Run every contender once in each repetition, and return what each run took.

    Noise that lasts longer than one repetition so hits all alike, and the ratio of two within one repetition
    says more than their medians do. The order rotates, so that nobody always runs behind the same other.

    Args:
        contenders: At least one.
        repetitions: Timed runs of each.
        warm_ups: Runs before those, untimed.
    """
    runs: dict[str, list[Taken]] = {contender.name: [] for contender in contenders}
    for repetition in range(-warm_ups, repetitions):
        start = repetition % len(contenders)
        for contender in (*contenders[start:], *contenders[:start]):
            contender.prepare()
            taken = _time(contender, repetition)
            if repetition >= 0:
                runs[contender.name].append(taken)
    return runs


def _time(contender: Contender, repetition: int) -> Taken:
    gc.collect()
    gc.disable()  # one contender's garbage must not be collected on another's time
    try:
        cpu, wall = cpu_seconds(), time.perf_counter()
        own = contender.run(repetition)
        return own or Taken(time.perf_counter() - wall, cpu_seconds() - cpu)
    finally:
        gc.enable()


def cpu_seconds() -> float:
    """Return the CPU time so far, user and system, of this process and the children it waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


@dataclass(frozen=True)
class Result:
    """What one contender showed.

    Attributes:
        name: Of the contender.
        note: Of the contender.
        records_per_second: Median over repetitions.
        slowest, fastest: Records per second of the worst and the best repetition.
        bytes_per_second: At the median.
        ratio: Median over repetitions of its speed as a multiple of the reference's in the same repetition.
        least_ratio, greatest_ratio: The ends of that.
        cpu_microseconds: CPU time a record, median.
        cpu_ratio: The reference's CPU time as a multiple of its own, median: what `ratio` would be if nothing
            ever waited.
    """

    name: str
    note: str
    records_per_second: float
    slowest: float
    fastest: float
    bytes_per_second: float
    ratio: float
    least_ratio: float
    greatest_ratio: float
    cpu_microseconds: float
    cpu_ratio: float


def summarize(
    contenders: Sequence[Contender],
    runs: Runs,
    reference: str,
    records: int,
    total_bytes: int,
) -> list[Result]:
    """Return one result a contender.

    Args:
        contenders: In the order of the table.
        runs: As `interleave` returned them.
        reference: Name of the contender that the others are held against.
        records: Records that one run handles.
        total_bytes: Bytes of those records.
    """
    results = []
    for contender in contenders:
        own, theirs = runs[contender.name], runs[reference]
        wall = [taken.wall for taken in own]
        ratios = ratios_of(runs, contender.name, reference)
        cpu_ratios = [their.cpu / mine.cpu for mine, their in zip(own, theirs, strict=True)]
        results.append(
            Result(
                name=contender.name,
                note=contender.note,
                records_per_second=records / statistics.median(wall),
                slowest=records / max(wall),
                fastest=records / min(wall),
                bytes_per_second=total_bytes / statistics.median(wall),
                ratio=statistics.median(ratios),
                least_ratio=min(ratios),
                greatest_ratio=max(ratios),
                cpu_microseconds=statistics.median(taken.cpu for taken in own) / records * 1e6,
                cpu_ratio=statistics.median(cpu_ratios),
            )
        )
    return results


def ratios_of(runs: Runs, name: str, reference: str) -> list[float]:
    """Return in each repetition how many times as fast `name` was as `reference`, by the clock."""
    return [their.wall / own.wall for own, their in zip(runs[name], runs[reference], strict=True)]


@dataclass(frozen=True)
class Target:
    """A promised speed: the median ratio of one contender to another, and the least it must be."""

    name: str
    reference: str
    least: float

    def judge(self, runs: Runs) -> dict[str, Any]:
        """Return the target with what was found."""
        found = statistics.median(ratios_of(runs, self.name, self.reference))
        return {
            "name": self.name,
            "reference": self.reference,
            "least": self.least,
            "found": found,
            "met": found >= self.least,
        }


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text in columns, the first row underlined; all but the first and last columns to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def results_table(results: Sequence[Result], missing: Sequence[Missing], reference: str) -> str:
    """Return the results as a table: medians, and the slowest and fastest repetition in brackets.

    CPU time is a record's; ``x CPU`` is `Result.cpu_ratio`.
    """
    rows = [
        [
            "",
            "records/s",
            "[slowest, fastest]",
            "MB/s",
            f"x {reference}",
            "[least, greatest]",
            "CPU us",
            "x CPU",
            "",
        ]
    ]
    rows += [
        [
            result.name,
            f"{result.records_per_second:,.0f}",
            f"[{result.slowest:,.0f}, {result.fastest:,.0f}]",
            f"{result.bytes_per_second / 1e6:,.0f}",
            f"{result.ratio:.2f}",
            f"[{result.least_ratio:.2f}, {result.greatest_ratio:.2f}]",
            f"{result.cpu_microseconds:,.1f}",
            f"{result.cpu_ratio:.2f}",
            result.note,
        ]
        for result in results
    ]
    rows += [[each.name, "-", "", "-", "-", "", "-", "-", f"not measured: {each.why}"] for each in missing]
    return table(rows)


def targets_text(judged: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a target."""
    return "\n".join(
        f"target: {each['name']} at least {each['least']:g} x {each['reference']}: {each['found']:.2f}, "
        f"{'met' if each['met'] else 'MISSED'}"
        for each in judged
    )


@dataclass(frozen=True)
class Comparison:
    """Several ways to do the same work, held against one of them.

    Attributes:
        contenders: In the order of the table.
        reference: Name of the one that the others are held against.
        repetitions: Timed runs of each.
        records: Records that one run handles.
        total_bytes: Bytes of those records.
        targets: What is promised. Those about a contender that is missing are left out.
        missing: Ways that cannot be measured here.
    """

    contenders: Sequence[Contender]
    reference: str
    repetitions: int
    records: int
    total_bytes: int
    targets: Sequence[Target] = ()
    missing: Sequence[Missing] = ()

    def run(self) -> dict[str, Any]:
        """Measure, print the table and what became of the targets, and return all of it for the report."""
        runs = interleave(self.contenders, self.repetitions)
        results = summarize(self.contenders, runs, self.reference, self.records, self.total_bytes)
        judged = [
            target.judge(runs) for target in self.targets if {target.name, target.reference} <= runs.keys()
        ]
        print(results_table(results, self.missing, self.reference))
        print("\n" + targets_text(judged))
        return {
            "record_bytes": self.total_bytes // self.records,
            "results": [asdict(result) for result in results],
            "not_measured": [asdict(each) for each in self.missing],
            "targets": judged,
            "runs": {name: [asdict(taken) for taken in each] for name, each in runs.items()},
        }


def spread_table(rows: Mapping[str, Sequence[float]]) -> str:
    """Return one line a quantity: its median, least and most."""
    lines = [
        [name, *(f"{each:,.2f}" for each in (statistics.median(values), min(values), max(values))), ""]
        for name, values in rows.items()
    ]
    return table([["", "median", "least", "most", ""], *lines])
