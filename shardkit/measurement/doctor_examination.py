"""The examination as a child process carries it out: open, choose, take through the stages, measure settings.

Each thing that it finds is sent at once, and each step before it is begun, so that nothing is lost with the process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from shardkit.errors import ShardkitError
from shardkit.measurement.doctor_choice import Choice, choose_records
from shardkit.measurement.doctor_settings import MeasuredSetting, measure_settings
from shardkit.measurement.doctor_steps import Failure, Located, Step, locate
from shardkit.measurement.doctor_watch import Send
from shardkit.measurement.named_transform import choose_transform, is_imported
from shardkit.measurement.stages import Findings, Stages
from shardkit.store import Store
from shardkit.transforms import Transform

_BATCH_SIZE = 8  # so that the largest records are no more at once than in training


@dataclass(frozen=True)
class Opened:
    """The data set could be opened.

    Attributes:
        records: How many it has.
        backends: The kinds of its shards.
    """

    records: int
    backends: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """Which records are taken.

    Attributes:
        records: In row order.
        reasons: Why, for each.
    """

    records: tuple[Located, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    """What was asked for cannot be done: wrong use.

    Attributes:
        sentence: Why.
    """

    sentence: str


@dataclass(frozen=True)
class Measured:
    """How fast the settings are.

    Attributes:
        settings: Simplest first.
    """

    settings: tuple[MeasuredSetting, ...]


@dataclass(frozen=True)
class Examination:
    """What is to be done; called, it does it.

    Its messages are a `Step` before each, a `Failure` for each that raises, `Opened`, `Chosen`, `Findings`, `Measured`,
    `Refused`, and the `ShardkitError` of a data set that cannot be opened.

    Attributes:
        path: The data set.
        transform: A transform, or its name.
        samples: Records to take, about.
        with_settings: Whether settings are measured, where nothing fails.
    """

    path: Path
    transform: Transform | str | None
    samples: int
    with_settings: bool

    def __call__(self, send: Send) -> None:
        """Do it, and send what is found."""
        # As in workers. And what was forked must not look for the threads that torch had in its parent.
        torch.set_num_threads(1)
        try:
            send(Step("open"))
            store = Store(self.path)
            send(Opened(len(store), tuple(sorted({shard.backend for shard in store.manifest.shards}))))
            if isinstance(self.transform, str) and is_imported(self.transform):
                send(Step("import", detail=self.transform))
            transform = choose_transform(self.transform, store.contract).transform
            stages = Stages(store, transform, send)
        except ShardkitError as error:
            send(error)
        except ValueError as error:
            send(Refused(str(error)))
        else:
            is_healthy = _take_samples(store, stages, self.samples, send)
            send(stages.findings)
            if is_healthy and self.with_settings and len(store):
                self._measure(len(store), transform, stages.findings, send)

    def _measure(self, records: int, transform: Transform | None, findings: Findings, send: Send) -> None:
        told = [Step("load")]

        def announce(step: Step) -> None:
            told.append(step)
            del told[0]
            send(step)

        try:
            sample_seconds = sum(findings.medians.values())
            measured = measure_settings(self.path, records, transform, sample_seconds, announce)
        except Exception as error:  # of a record that was not among the samples, or of a user's transform
            send(Failure.of(told[-1], error))
        else:
            send(Measured(tuple(measured)))


def _take_samples(store: Store, stages: Stages, samples: int, send: Send) -> bool:
    """Take some records through the stages; return whether none failed."""
    is_healthy = True
    records = _locate_all(store, choose_records(store, samples, send), send)
    for begin in range(0, len(records), _BATCH_SIZE):
        for failure in stages.take(records[begin : begin + _BATCH_SIZE]):
            is_healthy = False
            send(failure)
    return is_healthy


def _locate_all(store: Store, choices: Sequence[Choice], send: Send) -> list[Located]:
    """Return where the chosen records are; of those whose id cannot be had, send that."""
    located: dict[Located, str] = {}
    for choice in choices:
        try:
            located[locate(store, choice.row)] = ", ".join(choice.reasons)
        except ShardkitError as error:
            send(Failure.of(Step("choose", detail=f"row {choice.row}"), error))
    send(Chosen(tuple(located), tuple(located.values())))
    return list(located)
