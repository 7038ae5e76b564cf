"""One pass over a loader, timed: waiting for data apart from the step that stands in for a model."""

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from shardkit.measurement.delivered import Delivered
from shardkit.measurement.memory import MemoryUse, MemoryWatch
from shardkit.measurement.setting import Setting
from shardkit.reading import Batch


@dataclass(frozen=True)
class TimedPass:
    """What one pass delivered, and how long it took.

    Attributes:
        setting: How the batches were made.
        epoch: 0, or 1 for the second epoch of the same workers.
        repetition: From 0; warm-ups have negative ones.
        samples: Samples delivered.
        batches: In how many batches.
        pixels: Pixels of the images as delivered; None if there are no image fields.
        tokens: Tokens delivered, without padding; None if there are no token fields.
        seconds: From asking for an iterator to its end. It holds all that follow.
        first_batch_seconds: From there to the first batch, starting workers included; None if none came.
        waiting_seconds: Time in which the loop waited for the loader, the first batch included.
        step_seconds: Time of the steps that stand in for a model.
        memory: The most that this process and its workers held, or None where it is not measured.
        digest: Of ids, labels and scalars; see `Delivered.digest`.
    """

    setting: Setting
    epoch: int
    repetition: int
    samples: int
    batches: int
    pixels: int | None
    tokens: int | None
    seconds: float
    first_batch_seconds: float | None
    waiting_seconds: float
    step_seconds: float
    memory: MemoryUse | None
    digest: str

    @property
    def is_warm_up(self) -> bool:
        """Whether it counts for nothing but what it delivered."""
        return self.repetition < 0

    @property
    def rate(self) -> float:
        """Samples really delivered, divided by all seconds."""
        return self.samples / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the pass as a JSON object."""
        table = asdict(self) | {"setting": self.setting.describe(self.epoch)}
        return table | {"is_warm_up": self.is_warm_up, "samples_per_second": self.rate}


@dataclass
class _Clock:
    """Where the seconds of a pass went."""

    total: float = 0.0
    first: float | None = None
    waiting: float = 0.0
    step: float = 0.0


def time_pass(
    loader: Iterable[Batch],
    delivered: Delivered,
    setting: Setting,
    epoch: int,
    repetition: int,
    step_seconds: float,
) -> TimedPass:
    """Iterate a loader once.

    Args:
        loader: Yields batches.
        delivered: Counts them.
        setting: How the loader makes them.
        epoch: Which epoch of the loader.
        repetition: Which repetition.
        step_seconds: After each batch, sleep so long in place of a model's step: while an accelerator computes, the
            training process does the same, and leaves the CPUs to the loader.

    Raises:
        ShardkitError: The loader raised it.
    """
    begin = time.perf_counter()
    with _interrupts_held():
        batches = iter(loader)
    with MemoryWatch() as memory:
        clock = _run(batches, delivered, begin, step_seconds)
    return TimedPass(
        setting=setting,
        epoch=epoch,
        repetition=repetition,
        samples=delivered.samples,
        batches=delivered.batches,
        pixels=delivered.pixels,
        tokens=delivered.tokens,
        seconds=clock.total,
        first_batch_seconds=clock.first,
        waiting_seconds=clock.waiting,
        step_seconds=clock.step,
        memory=memory.peak,
        digest=delivered.digest(),
    )


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait, also in processes that are started meanwhile: there for good, as their parent will end them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(batches: Iterable[Batch], delivered: Delivered, begin: float, step_seconds: float) -> _Clock:
    clock = _Clock()
    asked = begin
    for batch in batches:
        came = time.perf_counter()
        clock.waiting += came - asked
        if clock.first is None:
            clock.first = came - begin
        delivered.add(batch)
        if step_seconds:
            clock.step += _step(step_seconds)
        asked = time.perf_counter()
    ended = time.perf_counter()
    clock.waiting += ended - asked
    clock.total = ended - begin
    return clock


def _step(seconds: float) -> float:
    begin = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begin
