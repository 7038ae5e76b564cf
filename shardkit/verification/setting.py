"""The settings of a proof of delivery: which ways to deliver an epoch are tried."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from shardkit.reading import Tail

Kind = Literal["iterable", "sampler", "threads"]
Course = Literal["whole", "resumed", "persistent"]
StartMethod = Literal["fork", "spawn", "forkserver"]


@dataclass(frozen=True)
class Setting:
    """One way to deliver an epoch.

    Attributes:
        loader: ``"iterable"`` and ``"sampler"`` go through torch's DataLoader, ``"threads"`` is `ShardLoader`.
        ranks: Number of ranks, each with a loader of its own.
        workers: Worker processes of each loader, or its threads; 0 threads is one.
        tail: What becomes of the positions that fill no batch on every rank.
        batch_size: Samples of one batch of one rank.
        epoch: Which epoch.
        start_method: How worker processes are started.
        shuffle: Kind of order.
        course: ``"whole"`` is by a new loader; ``"persistent"`` by one whose workers have delivered all epochs before
            this one; ``"resumed"`` is stopped in the middle, and another loader goes on from the saved state, with
            another number of ranks and another batch size.
    """

    loader: Kind
    ranks: int
    workers: int
    tail: Tail
    batch_size: int
    epoch: int = 0
    start_method: StartMethod = "fork"
    shuffle: Literal["global", "block"] = "global"
    course: Course = "whole"

    @property
    def has_processes(self) -> bool:
        """Whether worker processes take part."""
        return self.workers > 0 and self.loader != "threads"

    def describe(self) -> str:
        """Name the setting in a few words."""
        unit = "thread" if self.loader == "threads" else "worker"
        start = f" ({self.start_method})" if self.has_processes else ""
        special = [each for each in (self.shuffle, self.course) if each not in ("global", "whole")]
        return ", ".join(
            [
                self.loader,
                _count(self.ranks, "rank"),
                _count(self.workers, unit) + start,
                f"batch {self.batch_size}",
                self.tail,
                f"epoch {self.epoch}",
                *special,
            ]
        )


def plan_settings(
    length: int,
    ranks: Sequence[int],
    workers: Sequence[int],
    epochs: int,
    batch_sizes: Sequence[int],
    start_methods: Sequence[str],
) -> list[tuple[Setting, ...]]:
    """Return the settings to try; those that one loader delivers in turn stand together.

    They are all combinations of loader, ranks, workers, tail, batch size and epoch, and each of them in epoch 0
    resumed, in batches small enough to stop between two of them (without two rows for each rank there are none). The
    rest is tried with one tail and batch size and the most workers: persistent workers over all epochs for each loader
    and number of ranks; start methods other than the first, in which these and resuming are what matters, as a start
    can take seconds; and the block order for each loader.

    Args:
        length: Rows to deliver.
        ranks: Numbers of ranks, each 1 or more.
        workers: Numbers of workers or threads of a loader, each 0 or more.
        epochs: Epochs of each setting, 1 or more.
        batch_sizes: Each 1 or more.
        start_methods: Of `StartMethod`.

    Raises:
        ValueError: A number or a start method is out of its range, or there is none; names it.
    """
    _require_numbers("ranks", ranks, 1)
    _require_numbers("workers", workers, 0)
    _require_numbers("epochs", [epochs], 1)
    _require_numbers("batch_sizes", batch_sizes, 1)
    methods = _require_methods(start_methods)
    tails: tuple[Tail, ...] = get_args(Tail)
    plan: list[tuple[Setting, ...]] = []
    for loader in get_args(Kind):
        for world, worker, tail, batch_size in itertools.product(ranks, workers, tails, batch_sizes):
            setting = Setting(loader, world, worker, tail, batch_size, start_method=methods[0])
            plan += [(replace(setting, epoch=epoch),) for epoch in range(epochs)]
            plan += _resume(setting, length)
        single = Setting(loader, 1, max(workers), tails[0], batch_sizes[0], start_method=methods[0])
        for world, method in itertools.product(ranks, methods if single.has_processes else methods[:1]):
            setting = replace(single, ranks=world, start_method=method)
            plan.append(tuple(replace(setting, epoch=each, course="persistent") for each in range(epochs)))
            if method != methods[0]:
                plan += _resume(setting, length)
        plan.append((replace(single, ranks=max(ranks), shuffle="block"),))
    return list(dict.fromkeys(plan))  # resumed, two batch sizes may have become the same


def _resume(setting: Setting, length: int) -> list[tuple[Setting, ...]]:
    """Return a setting resumed, in batches that leave every rank two steps or more; nothing if no batches do."""
    most = length // (2 * setting.ranks)
    if most < 1:
        return []
    return [(replace(setting, course="resumed", batch_size=min(setting.batch_size, most)),)]


def _require_numbers(name: str, numbers: Sequence[int], least: int) -> None:
    wrong = next((number for number in numbers if number < least), None)
    if wrong is not None or not numbers:
        raise ValueError(f"{name} must be {least} or more, not {'none' if wrong is None else wrong}")


def _require_methods(names: Sequence[str]) -> list[StartMethod]:
    known: dict[str, StartMethod] = {method: method for method in get_args(StartMethod)}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not names:
        raise ValueError(f"start methods are {', '.join(known)}, not {unknown or 'none'!r}")
    return [known[name] for name in names]


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
