"""How the benchmarks measure: interleaved repetitions, medians and spread, and the machine they ran on.

Knows nothing of what is measured. Speeds and ratios are of wall time. The CPU time of this process and of the
children it waited for is shown beside them: it tells what the work costs where other programs disturb the clock.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

PACKAGES = ("numpy", "torch", "pillow", "simplejpeg", "lmdb", "msgpack", "datasets", "shardkit")

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Attributes:
        name: What the table calls it.
        run: Does the whole work once, and is what is timed. It is given the number of the repetition, so that
            all contenders can take the same order of records; warm-ups have negative ones.
        note: What differs from the others, such as what a read returns.
        prepare: Called before each run, untimed.
    """

    name: str
    run: Callable[[int], None]
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
        cpu, wall = _cpu_seconds(), time.perf_counter()
        contender.run(repetition)
        return Taken(time.perf_counter() - wall, _cpu_seconds() - cpu)
    finally:
        gc.enable()


def _cpu_seconds() -> float:
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


def machine_facts(folder: Path) -> dict[str, Any]:
    """Return what the figures depend on; `folder` is where the data lies."""
    return {
        "cpu": _cpu_name(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "file_system": _file_system(folder),
        "load_average": round(os.getloadavg()[0], 2),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def machine_line(facts: Mapping[str, Any]) -> str:
    """Return the facts on one line."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"machine: {facts['cpu']}, {facts['usable_cpus']} CPUs; {facts['system']}; Python {facts['python']}; "
        f"{packages}; {facts['file_system']}; load average {facts['load_average']} at the start"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown CPU")


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds `folder`, from /proc/mounts."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    real = folder.resolve()
    holding = [(len(mount[1]), mount[2]) for mount in mounts if real.is_relative_to(mount[1])]
    return max(holding)[1] if holding else "unknown file system"


def read_arguments(question: str, defaults: Settings) -> tuple[Settings, Path | None, Path | None]:
    """Return settings, folder to work in and file for the results, as the command line says.

    Args:
        question: The docstring of the benchmark; its first line tells what it answers.
        defaults: A dataclass of whole numbers; each field is an option.
    """
    parser = argparse.ArgumentParser(description=question.split("\n", 1)[0])
    values = asdict(defaults)  # type: ignore[call-overload]  # any dataclass will do
    for key, value in values.items():
        parser.add_argument(f"--{key}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--folder", type=Path, help="where to make the data (default: the temporary folder)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = vars(parser.parse_args())
    settings = type(defaults)(**{key: arguments[key] for key in values})
    return settings, arguments["folder"], arguments["json"]


def save_json(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write `report` to `path`, if there is one."""
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n")
