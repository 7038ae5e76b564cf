"""How far a run has come: the epoch, and where in it a resumed one begins. Known to a process and to its workers."""

import os
import time
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple, SupportsIndex

import torch

from shardkit.reading.integer import require_integer
from shardkit.reading.shared import SharedTensor

_MAX = 2**63 - 1  # what an int64 holds
_MOST_WORKERS = 1024


class Iteration(NamedTuple):
    """What tells one iteration of a DataLoader from others, the same in all of its workers.

    Attributes:
        seed: The loader's base seed, which it draws when it starts workers.
        number: How many iterations those workers have begun.
    """

    seed: int
    number: int


# Places in the shared tensor. Those of iterations take two numbers.
_EPOCH, _IS_SET = 0, 1
_LOADS, _RESUMED_EPOCH, _START = 2, 3, 4
_CLAIMED, _CLAIM_SEED = 5, 6
_IS_BEGUN, _LATEST_SEED, _LATEST_START = 8, 9, 11
_STALE_SEED = 12
_SEED, _LOADED_AT = 14, 15
_WORKERS = 16


class Progress:
    """The epoch, which a process shares with the DataLoader workers it starts; a copy has one of its own.

    A state that was loaded counts for the next iteration of the epoch it speaks of: the first iteration that gives out
    a batch claims it, for all of its workers, and any other begins at the beginning. So a loop that sets every epoch
    anew goes on where it was, and one that never sets an epoch does not skip the same samples over and over.

    Args:
        seed: The seed at first, in ``[-2**63, 2**63)``.
        epoch: The epoch at first.
        start: Where the next iteration of it begins.
    """

    def __init__(self, seed: int, epoch: int = 0, start: int = 0) -> None:
        self._started_at: int | None = None
        self._shared = SharedTensor(torch.zeros(_WORKERS + _MOST_WORKERS, dtype=torch.int64, device="cpu"))
        self._shared.tensor[_SEED], self._shared.tensor[_EPOCH] = seed, epoch
        if start:
            self.resume(seed, epoch, start, is_over=False)

    def take_seed(self, seed: int) -> None:
        """Take the seed of a state, in this process, its workers and, from a worker, its parent."""
        self._shared.tensor[_SEED] = seed

    @property
    def seed(self) -> int:
        """The seed of the orders."""
        return int(self._shared.tensor[_SEED])

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
        shared = self._shared.tensor
        if epoch != shared[_EPOCH]:
            shared[_IS_BEGUN] = 0
        shared[_EPOCH] = epoch
        shared[_IS_SET] = 1

    def resume(self, seed: int, epoch: int, start: int, *, is_over: bool) -> None:
        """Take a seed, and begin the next iteration of an epoch at a position, in this process and its workers.

        Of an epoch that is over nothing is left to deliver: where another one was set, that one stays. So it is with
        torchdata's loader, which hands on a state when it is iterated, after the loop has set the next epoch.
        """
        shared = self._shared.tensor
        if not (is_over and shared[_IS_SET]):
            shared[_EPOCH] = epoch
        shared[_IS_SET] = 0
        shared[_SEED] = seed
        shared[_RESUMED_EPOCH], shared[_START] = epoch, start
        shared[_LOADS] += 1
        # a worker that is late may still begin the iteration that was going on: the state is not for that one
        shared[_LOADED_AT] = time.monotonic_ns()
        shared[_STALE_SEED : _STALE_SEED + 2] = shared[_LATEST_SEED : _LATEST_SEED + 2]
        shared[_IS_BEGUN] = 0

    def pending(self) -> int:
        """Return the position at which the next iteration begins."""
        shared = self._shared.tensor
        return int(shared[_START]) if self._is_resumed() and shared[_CLAIMED] < shared[_LOADS] else 0

    def pending_in(self, worker: int, iteration: Iteration) -> int:
        """Return the position at which an iteration begins in one of its workers."""
        shared = self._shared.tensor
        has_begun_with_it = shared[_WORKERS + worker % _MOST_WORKERS] == shared[_LOADS]
        if not self._is_resumed() or has_begun_with_it or self._is_stale(iteration):
            return 0
        is_claimed = shared[_CLAIMED] == shared[_LOADS]
        is_ours = self._is(iteration, _CLAIM_SEED)
        return int(shared[_START]) if is_ours or not is_claimed else 0

    def claim(self) -> None:
        """Note that an iteration of this process gave out its first batch."""
        shared = self._shared.tensor
        shared[_CLAIMED] = shared[_LOADS]
        shared[_IS_BEGUN] = 0

    def claim_in(self, worker: int, iteration: Iteration, start: int) -> None:
        """Note that an iteration gave out the first batch of one of its workers, having begun at a position."""
        shared = self._shared.tensor
        if self._is_stale(iteration):
            return
        shared[_WORKERS + worker % _MOST_WORKERS] = shared[_LOADS]
        if shared[_CLAIMED] < shared[_LOADS]:
            shared[_CLAIM_SEED : _CLAIM_SEED + 2] = torch.tensor(iteration, device="cpu")
            shared[_CLAIMED] = shared[_LOADS]
        shared[_LATEST_SEED : _LATEST_SEED + 2] = torch.tensor(iteration, device="cpu")
        shared[_LATEST_START] = start
        shared[_IS_BEGUN] = 1

    @property
    def is_set(self) -> bool:
        """Whether an epoch was set since a state was last loaded."""
        return bool(self._shared.tensor[_IS_SET])

    @property
    def is_begun_in_workers(self) -> bool:
        """Whether the latest iteration is one in workers, begun since a state was loaded or another epoch was set."""
        return bool(self._shared.tensor[_IS_BEGUN])

    @property
    def latest_start(self) -> int:
        """The position at which the latest iteration in workers began, or the next one begins."""
        return int(self._shared.tensor[_LATEST_START]) if self.is_begun_in_workers else self.pending()

    def _is_stale(self, iteration: Iteration) -> bool:
        """Whether an iteration of these workers was begun, elsewhere, before the state was loaded.

        Seeds alone do not tell: a training loop may set torch's seed anew, and draw the same again.
        """
        started_at = _start_of_process.at if self._started_at is None else self._started_at
        if started_at > int(self._shared.tensor[_LOADED_AT]):
            return False
        return iteration.number == 1 or self._is(iteration, _STALE_SEED)

    def _is(self, iteration: Iteration, place: int) -> bool:
        return tuple(self._shared.tensor[place : place + 2].tolist()) == iteration

    def _is_resumed(self) -> bool:
        shared = self._shared.tensor
        return bool(shared[_LOADS] > 0 and shared[_RESUMED_EPOCH] == shared[_EPOCH])

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return (Progress, (self.seed, self.epoch, self.pending()))
        return (_share, (self._shared, time.monotonic_ns()))


def _share(shared: SharedTensor, started_at: int) -> Progress:
    progress = Progress.__new__(Progress)
    progress._shared = shared
    progress._started_at = started_at
    return progress


class _StartOfProcess:
    """When this process was forked, by the clock that all processes of a machine share, taken in the parent."""

    def __init__(self) -> None:
        self.at = 0

    def note(self) -> None:
        """Take the time, for the process that is forked next."""
        self.at = time.monotonic_ns()


_start_of_process = _StartOfProcess()
os.register_at_fork(before=_start_of_process.note)
