"""The epoch of a data set, known in every process: the parent sets it, its workers ask."""

from multiprocessing.context import get_spawning_popen
from typing import Any, SupportsIndex

import torch

from shardkit.reading.integer import require_integer
from shardkit.reading.shared import SharedTensor

_MAX = 2**63 - 1  # what an int64 holds


class Epoch:
    """A number that a process shares with the DataLoader workers it starts; a copy has one of its own.

    Args:
        number: The epoch at first.
    """

    def __init__(self, number: int = 0) -> None:
        self._shared = SharedTensor(torch.tensor([number]))

    def get(self) -> int:
        """Return the epoch."""
        return int(self._shared.tensor[0])

    def set(self, number: SupportsIndex) -> None:
        """Change the epoch, in this process and its workers.

        Raises:
            TypeError: `number` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        epoch = require_integer("epoch", number)
        if not 0 <= epoch <= _MAX:
            raise ValueError(f"epoch must lie in [0, 2**63), not {epoch}")
        self._shared.tensor[0] = epoch

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return (Epoch, (self.get(),))
        return (_share, (self._shared,))


def _share(shared: SharedTensor) -> Epoch:
    epoch = Epoch.__new__(Epoch)
    epoch._shared = shared
    return epoch
