"""The settings that are measured: ways to have the same batches made, by the public loaders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader

from shardkit.reading import Batch, ShardIterableDataset, ShardLoader, Shuffle
from shardkit.transforms import Transform

Kind = Literal["workers", "threads"]


@dataclass(frozen=True)
class Setting:
    """One way to have batches made.

    Attributes:
        kind: ``"workers"``: torch's DataLoader over a `ShardIterableDataset`; ``"threads"``: a `ShardLoader`.
        count: Worker processes, or threads.
    """

    kind: Kind
    count: int

    @property
    def epochs(self) -> int:
        """Epochs that are measured: the second finds the workers of the first still there."""
        return 2 if self.kind == "workers" and self.count else 1

    def describe(self, epoch: int = 0) -> str:
        """Name one epoch of the setting in a few words."""
        loader = "DataLoader" if self.kind == "workers" else "ShardLoader"
        unit = self.kind if self.count != 1 else self.kind[:-1]
        return f"{loader}, {self.count} {unit}" + (", second epoch" if epoch else "")


class EpochCounter(Protocol):
    """What is told the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""


@dataclass(frozen=True)
class Work:
    """What every setting delivers.

    Attributes:
        path: The data set.
        batch_size: Samples of a batch.
        shuffle: The order.
        transform: Applied to each sample, or None.
        rows: ``int64[k]``, those delivered, or None for all.
        may_filter: Whether the transform may leave samples out.
        preload: Whether the fields are held in memory.
    """

    path: Path
    batch_size: int
    shuffle: Shuffle
    transform: Transform | None
    rows: npt.NDArray[np.int64] | None
    may_filter: bool = False
    preload: bool = False

    def open(self, setting: Setting) -> tuple[EpochCounter, Iterable[Batch]]:
        """Return a loader, and what to tell the epoch. Workers live until both are let go of.

        Raises:
            ValueError, TypeError, ShardkitError: As for `ShardLoader`.
        """
        asked: dict[str, Any] = {
            "shuffle": self.shuffle,
            "tail": "exact",
            "rank": 0,
            "world_size": 1,
            "transform": self.transform,
            "may_reshape": True,
            "may_filter": self.may_filter,
            "preload": self.preload,
            "rows": self.rows,
        }
        if setting.kind == "threads":
            threaded = ShardLoader(self.path, self.batch_size, setting.count, **asked)
            return threaded, threaded
        batches = ShardIterableDataset(self.path, self.batch_size, **asked)
        loader = DataLoader(
            batches,
            batch_size=None,
            num_workers=setting.count,
            persistent_workers=setting.count > 0,
        )
        return batches, loader


def plan_settings(workers: Sequence[int], threads: Sequence[int]) -> list[Setting]:
    """Return the settings in the order of the table: numbers of workers, then numbers of threads.

    Raises:
        ValueError: A number is out of its range, or there is none at all.
    """
    for name, least, counts in (("workers", 0, workers), ("threads", 1, threads)):
        wrong = [count for count in counts if type(count) is not int or count < least]
        if wrong:
            raise ValueError(f"{name} must be whole numbers of {least} or more, not {wrong[0]!r}")
    settings = [Setting("workers", count) for count in dict.fromkeys(workers)]
    settings += [Setting("threads", count) for count in dict.fromkeys(threads)]
    if not settings:
        raise ValueError("there is nothing to measure: give a number of workers, or of threads")
    return settings
