"""The examination as a child process carries it out: open, choose, take through the stages, measure settings.

Each thing that it finds is sent at once, and each step before it is begun, so that nothing is lost with the process.
"""

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from shardkit.contract import Contract
from shardkit.errors import ShardkitError
from shardkit.measurement.doctor_choice import Choice, choose_records
from shardkit.measurement.doctor_settings import MeasuredSetting, measure_settings
from shardkit.measurement.doctor_steps import Failure, Located, Step, locate
from shardkit.measurement.doctor_watch import Send
from shardkit.measurement.named_transform import choose_transform
from shardkit.measurement.stages import Findings, Stages
from shardkit.store import Store
from shardkit.transforms import Transform

_BATCH_SIZE = 8  # so that the largest records are no more at once than in training
_OWN_NAMES = ("none", "center", "random")


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
            transform = find_transform(self.transform, store.contract, send)
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


def find_transform(given: Transform | str | None, contract: Contract, send: Send) -> Transform | None:
    """Return the transform that is meant.

    Args:
        given: A transform, a name that `choose_transform` knows, or ``"module:name"``, which is imported: from the
            current folder too.
        contract: Of the data set.
        send: Is told of the import before it is begun.

    Raises:
        ValueError: There is no such transform.
    """
    if not isinstance(given, str) or given.partition(":")[0] in _OWN_NAMES:
        return choose_transform(given, contract).transform
    module, _, name = given.partition(":")
    if not module or not name:
        raise ValueError(
            f'transform must be "none", "center:SIZE", "random:SIZE" or "module:name", not "{given}"'
        )
    send(Step("import", detail=given))
    sys.path.insert(0, os.getcwd())  # as `python -m` has it
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:  # importing runs the module, which may raise anything
        raise ValueError(
            f'transform "{given}" cannot be imported: {type(error).__name__}: {error}'
        ) from error
    if not callable(found):
        raise ValueError(f'transform "{given}" is of type {type(found).__name__}, which cannot be called')
    return found


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
