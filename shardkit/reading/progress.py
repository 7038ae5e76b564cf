"""How far a run has come: the epoch, and where in it a resumed one begins. Known to a process and to its workers."""

from multiprocessing.context import get_spawning_popen
from typing import Any, SupportsIndex

import torch

from shardkit.reading.integer import require_integer
from shardkit.reading.shared import SharedTensor

_MAX = 2**63 - 1  # what an int64 holds
_MOST_WORKERS = 1024
_EPOCH, _RESUMED, _START, _LOADS, _BEGUN = range(5)
_FIXED = 5


class Progress:
    """The epoch, which a process shares with the DataLoader workers it starts; a copy has one of its own.

    A state that was loaded counts for the next iteration of the epoch it speaks of, in each worker once; any other
    iteration begins at the beginning. So a loop that sets every epoch anew goes on where it was, and one that never
    sets an epoch does not skip the same samples over and over.

    Args:
        epoch: The epoch at first.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._shared = SharedTensor(torch.zeros(_FIXED + 1 + _MOST_WORKERS, dtype=torch.int64))
        self._shared.tensor[_EPOCH] = epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return int(self._shared.tensor[_EPOCH])

    def set_epoch(self, number: SupportsIndex) -> None:
        """Change the epoch, in this process and its workers.

        Raises:
            TypeError: `number` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        epoch = require_integer("epoch", number)
        if not 0 <= epoch <= _MAX:
            raise ValueError(f"epoch must lie in [0, 2**63), not {epoch}")
        self._shared.tensor[_EPOCH] = epoch

    def resume(self, epoch: int, start: int) -> None:
        """Begin the next iteration of an epoch at a position, in this process and its workers."""
        shared = self._shared.tensor
        shared[_EPOCH] = shared[_RESUMED] = epoch
        shared[_START] = start
        shared[_LOADS] += 1
        shared[_BEGUN] = 0

    def pending(self, worker: int | None = None) -> int:
        """Return the position at which the next iteration begins, in this process or in one of its workers."""
        shared = self._shared.tensor
        is_resumed = shared[_RESUMED] == shared[_EPOCH] and shared[_place(worker)] < shared[_LOADS]
        return int(shared[_START]) if is_resumed else 0

    def use_up(self, worker: int | None = None) -> None:
        """Note that an iteration gave out its first batch: a state that was loaded does not count for the next one."""
        shared = self._shared.tensor
        shared[_place(worker)] = shared[_LOADS]
        if worker is not None:
            shared[_BEGUN] = 1

    @property
    def is_begun_in_workers(self) -> bool:
        """Whether a worker has begun to iterate since a state was last loaded."""
        return bool(self._shared.tensor[_BEGUN])

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return (Progress, (self.epoch,))
        return (_share, (self._shared,))


def _place(worker: int | None) -> int:
    return _FIXED + (0 if worker is None else 1 + worker % _MOST_WORKERS)


def _share(shared: SharedTensor) -> Progress:
    progress = Progress.__new__(Progress)
    progress._shared = shared
    return progress
