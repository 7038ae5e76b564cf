"""How fast do loaders deliver the same data to the training loop, each in its own fastest documented way?

The workloads, of which ``--workload`` chooses one:

- ``photos``: JPEG of 500x400 pixels (quality 90, 4:2:0) to shuffled batches ``uint8[64, 3, 224, 224]``: the centre
  square of 0.875 times the shorter side, resized. ``photos256``: stored at shorter side 256, so nothing is resized.
- ``arrays``: 50,000 of ``uint8[32, 32, 3]`` to shuffled batches of 256.

Single raw records, read at random, are what random_reads.py measures.

Each contender is a program in ``peers/``, whose text says how it is driven, run by the Python that ``--python
PEER=PATH`` names; shardkit and what is written by hand need none. It makes its store from the very same files and
stays: in each repetition all read an epoch in turn, while the others are idle. So compiling and starting cost nothing
here, and neither does the disk: the page cache is warm. An epoch is timed from its beginning to its last batch.

Nothing is timed before the right thing came. In a first epoch, and in each that is timed, each record must come
exactly once, as its label tells: record n has label n. And the pixels of some must be near what Pillow makes of the
file (arrays: equal). A peer that falls short of it, or does not start, is listed as not measured.

Where a peer leaves decoding to its user, one row has it as its documentation shows it, and another, named after
simplejpeg, with the very functions that ``bare`` calls: the loader alone is what differs there. The second table has
the first batch apart; ``mixing`` is how far the shuffle carries records, 1 where any order is as likely.

Run it with ``python benchmarks/compare.py --python ffcv=... --python mds=...``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): decoding and resizing take most of the time of all, so a loader wins by
what it does best of the two, and by keeping every core at it.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from command_line import run_benchmark
from loaders import OWN_PEERS, PEERS, SHARD_LOADER, SHARDKIT, Loader
from measure import Comparison, Contender, Missing, Taken, table
from peer_process import PeerError, PeerProcess, parse_pythons
from peers.reading import ARRAYS
from plot import plot_results
from workloads import WORKLOADS, Pixels, Sizes, Workload

MOST_DIFFERENCE = 6.0  # of 255, on average over a record; a crop one pixel off makes 11 on the sharpest photo


@dataclass(frozen=True)
class Settings(Sizes):
    """What is measured.

    Attributes:
        workload: One of `WORKLOADS`, or ``all``.
        repetitions: Timed runs of each contender.
        peer: Which peers beside shardkit; all, if none is given.
        python: ``PEER=PATH`` of a Python that has the peer.
        plot: A file for a picture of the results; needs matplotlib.
    """

    workload: str = "all"
    repetitions: int = 7
    peer: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    plot: str = ""


def main() -> None:
    """Measure, and print a table a workload."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    if settings.workload not in (*WORKLOADS, "all"):
        raise SystemExit(f"--workload {settings.workload}: want one of {', '.join((*WORKLOADS, 'all'))}")
    if unknown := set(settings.peer) - set(PEERS):
        raise SystemExit(f"--peer {unknown.pop()}: want one of {', '.join(PEERS)}")
    pythons = dict.fromkeys(OWN_PEERS, sys.executable) | parse_pythons(settings.python, PEERS)
    reports = {}
    for name in WORKLOADS if settings.workload == "all" else (settings.workload,):
        (folder / name).mkdir()
        reports[name] = _compare(WORKLOADS[name](settings, folder / name), settings, pythons)
    if settings.plot:
        plot_results({name: report["results"] for name, report in reports.items()}, Path(settings.plot))
    return {"workloads": reports}


class Reading:
    """A contender at work."""

    def __init__(self, loader: Loader, python: str, workload: Workload) -> None:
        self.loader = loader
        self._workload = workload
        self._first_batches: list[float] = []
        self._checked: Mapping[str, Any] = {}
        self._difference = 0.0
        folder = Path(workload.job.out, f"{loader.peer}-{loader.how}")
        self._process = PeerProcess(
            python, loader.peer, replace(workload.job, out=str(folder), how=loader.how)
        )
        self.close = self._process.close

    def start(self) -> None:
        """Wait until it has its store, let it read one epoch, and look at what comes.

        Raises:
            PeerError: It did not start, or delivers something else.
        """
        self._process.start()
        self._checked = self._read([0], self._workload.witnesses)
        with np.load(self._checked["pixels"]) as pixels:
            self._difference = max(self._differ(int(label), pixels[label]) for label in pixels)
        most = 0.0 if self._workload.job.kind == ARRAYS else MOST_DIFFERENCE
        if self._difference > most:
            raise PeerError(
                f"other pixels: they differ by {self._difference:.1f} on average, {most:g} at most is allowed"
            )

    def contender(self) -> Contender:
        """Return it as what is measured."""
        return Contender(self.loader.name, self._run, self.loader.note)

    def facts(self) -> dict[str, Any]:
        """Return what the table of times does not hold."""
        return {
            "name": self.loader.name,
            "pixels_differ": self._difference,
            "mixing": self._checked["mixing"],
            "first_batch_ever": self._checked["first_batch"][0],
            "first_batch": statistics.median(self._first_batches),
            "versions": self._process.versions,
        }

    def _run(self, repetition: int) -> Taken:
        passes = self._workload.passes
        first = 1 + (repetition + 1) * passes  # the warm-up is repetition -1
        try:
            answer = self._read(range(first, first + passes), [])
        except PeerError as error:
            raise SystemExit(f"{self.loader.name}: {error}") from error
        if repetition >= 0:
            self._first_batches += answer["first_batch"]
        return Taken(answer["wall"], answer["cpu"])

    def _read(self, epochs: Sequence[int], keep: Sequence[int]) -> Mapping[str, Any]:
        answer = self._process.ask(epochs=list(epochs), keep=keep)
        if answer["wrong"]:
            raise PeerError(f"not each record once an epoch: {answer['wrong']} too many or too few")
        return answer

    def _differ(self, label: int, pixels: Pixels) -> float:
        expected = self._workload.expected(self.loader, label)
        if pixels.shape != expected.shape or pixels.dtype != expected.dtype:
            raise PeerError(
                f"delivers {pixels.dtype}{list(pixels.shape)}, not {expected.dtype}{list(expected.shape)}"
            )
        return float(np.abs(pixels.astype(np.int16) - expected).mean())


def _compare(workload: Workload, settings: Settings, pythons: Mapping[str, str]) -> dict[str, Any]:
    peers = (*settings.peer, SHARDKIT) if settings.peer else PEERS
    wanted = [loader for loader in workload.loaders if loader.peer in peers]
    print(
        f"\n{workload.title}; batches of {workload.job.batch}, {workload.job.threads} threads or workers, "
        f"{settings.repetitions} repetitions; page cache warm\n"
    )
    with ExitStack() as stack:
        readings, missing = _start(wanted, pythons, workload, stack)
        report = Comparison(
            [reading.contender() for reading in readings],
            SHARD_LOADER,
            settings.repetitions,
            workload.job.records * workload.passes,
            workload.total_bytes * workload.passes,
            workload.targets,
            missing,
        ).run()
        facts = [reading.facts() for reading in readings]
    print("\n" + _facts_table(facts))
    return report | {"delivered": facts}


def _start(
    loaders: Sequence[Loader], pythons: Mapping[str, str], workload: Workload, stack: ExitStack
) -> tuple[list[Reading], list[Missing]]:
    """Return the contenders that deliver what they should, and the others."""
    missing = [
        Missing(loader.name, f"give --python {loader.peer}=PATH of a Python that has it")
        for loader in loaders
        if loader.peer not in pythons
    ]
    begun = []
    for loader in loaders:
        if loader.peer in pythons:
            begun.append(Reading(loader, pythons[loader.peer], workload))
            stack.callback(begun[-1].close)
    readings = []
    for reading in begun:
        try:
            reading.start()
            readings.append(reading)
        except PeerError as error:
            if reading.loader.name == SHARD_LOADER:
                raise SystemExit(f"{SHARD_LOADER}: {error}; nothing was measured") from error
            missing.append(Missing(reading.loader.name, str(error)))
    return readings, missing


def _facts_table(facts: Sequence[Mapping[str, Any]]) -> str:
    rows = [["", "first batch ms", "first ever s", "pixels differ by", "mixing", ""]]
    rows += [
        [
            fact["name"],
            f"{fact['first_batch'] * 1000:.1f}",
            f"{fact['first_batch_ever']:.2f}",
            f"{fact['pixels_differ']:.2f}",
            f"{fact['mixing']:.2f}",
            ", ".join(f"{name} {version}" for name, version in fact["versions"].items()),
        ]
        for fact in facts
    ]
    return table(rows)


if __name__ == "__main__":
    main()
