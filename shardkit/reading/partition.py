"""The partition: which positions of an epoch's order a rank delivers at each step, and each of its workers.

Pure arithmetic on a few integers. An epoch is cut into global steps of ``world_size * batch_size``
positions, so that all ranks move through the order together: what is left after any step is one run of
positions up to the end, which another number of ranks, workers or another batch size can go on with.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Tail = Literal["pad", "drop", "exact"]


@dataclass(frozen=True)
class Partition:
    """The steps of one rank in one epoch.

    Full step s gives rank r the positions ``[start + (s * R + r) * B, ... + B)``. What remains at the end
    is fewer than ``R * B`` positions, m of them; by `tail`:

    - ``"pad"``: one more step, ``ceil(m / R)`` positions for every rank, in contiguous slices; the last
      slices are filled with repeats from the beginning of the epoch's order (position 0, 1, ...), which are
      marked.
    - ``"exact"``: contiguous slices whose sizes differ by at most 1; a rank whose slice is empty has one
      step fewer.
    - ``"drop"``: they are not delivered.

    Attributes:
        length: Positions in the epoch, ``>= 0``.
        rank: This rank, in ``[0, world_size)``.
        world_size: Number of ranks R, ``>= 1``.
        batch_size: Positions of one rank in one full step B, ``>= 1``.
        tail: What happens to the remainder.
        start: Positions delivered before, by all ranks together, in ``[0, length]``.

    Raises:
        ValueError: A number is out of its range, or `tail` is none of the three.
    """

    length: int
    rank: int = 0
    world_size: int = 1
    batch_size: int = 1
    tail: Tail = "pad"
    start: int = 0

    def __post_init__(self) -> None:
        _require(self.length >= 0, f"length must be 0 or more, not {self.length}")
        _require(self.world_size >= 1, f"world_size must be 1 or more, not {self.world_size}")
        _require(
            0 <= self.rank < self.world_size, f"rank must lie in [0, {self.world_size}), not {self.rank}"
        )
        _require(self.batch_size >= 1, f"batch_size must be 1 or more, not {self.batch_size}")
        _require(self.tail in get_args(Tail), f"tail must be one of {get_args(Tail)}, not {self.tail!r}")
        _require(0 <= self.start <= self.length, f"start must lie in [0, {self.length}], not {self.start}")

    def __len__(self) -> int:
        """Number of steps of this rank."""
        return self.full_steps + (self._last_size > 0)

    @property
    def full_steps(self) -> int:
        """Steps in which every rank delivers a whole batch of its own positions."""
        return (self.length - self.start) // (self.world_size * self.batch_size)

    @property
    def remainder(self) -> int:
        """Positions m that fill no full step."""
        return (self.length - self.start) % (self.world_size * self.batch_size)

    def end(self, taken: int) -> int:
        """Return the positions that all ranks together have delivered once each has made `taken` steps.

        What the tail drops counts as delivered with the last step.
        """
        is_over = self.tail == "drop" and 0 < self.full_steps <= taken
        if taken <= self.full_steps and not is_over:
            return self.start + taken * self.world_size * self.batch_size
        return self.length

    def starting_at(self, start: int) -> "Partition":
        """Return the partition of the same ranks and epoch that begins at another position."""
        return replace(self, start=start)

    def positions(self, step: int) -> npt.NDArray[np.int64]:
        """Return the positions of one step, ``int64[B]`` (fewer in the last step).

        Raises:
            IndexError: `step` is not in ``[0, len(self))``.
        """
        self._require_step(step)
        if step < self.full_steps:
            first = self.start + (step * self.world_size + self.rank) * self.batch_size
            return np.arange(first, first + self.batch_size, dtype=np.int64)
        offsets = np.arange(self._last_first, self._last_first + self._last_size, dtype=np.int64)
        own = self.length - self.remainder + offsets
        repeats = (offsets - self.remainder) % self.length
        return np.where(offsets < self.remainder, own, repeats)

    def pads(self, step: int) -> npt.NDArray[np.bool_]:
        """Return, for each position of a step, whether it is a repeat that only fills the batch: ``bool[B]``.

        Raises:
            IndexError: `step` is not in ``[0, len(self))``.
        """
        self._require_step(step)
        if step < self.full_steps:
            return np.zeros(self.batch_size, dtype=np.bool_)
        offsets = np.arange(self._last_first, self._last_first + self._last_size, dtype=np.int64)
        return offsets >= self.remainder

    def _require_step(self, step: int) -> None:
        if not 0 <= step < len(self):
            raise IndexError(f"step must lie in [0, {len(self)}), not {step}")

    @property
    def _last_size(self) -> int:
        """Positions of this rank in the step after the full ones, repeats included; 0 without such a step."""
        if self.tail == "drop":
            return 0
        if self.tail == "pad":
            return -(-self.remainder // self.world_size)
        share, larger = divmod(self.remainder, self.world_size)
        return share + (self.rank < larger)

    @property
    def _last_first(self) -> int:
        """Offset of this rank's slice within the remainder (past its end if the slice is all repeats)."""
        if self.tail == "pad":
            return self.rank * self._last_size
        share, larger = divmod(self.remainder, self.world_size)
        return self.rank * share + min(self.rank, larger)


def worker_steps(num_steps: int, worker: int, num_workers: int) -> range:
    """Return the steps that one worker of a rank makes: ``worker, worker + num_workers, ...``.

    A torch DataLoader asks its workers in turn and hands their batches out in that turn, so the rank sees
    its steps in order whatever the number of workers.
    """
    return range(worker, num_steps, num_workers)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
