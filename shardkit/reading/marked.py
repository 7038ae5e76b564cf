"""Which rows were left out, known in every process: the parent asks, workers answer."""

from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shardkit.reading.shared import SharedTensor


class MarkedRows:
    """One mark a row, one byte each, in memory that DataLoader workers share with their parent.

    Workers started by fork inherit the memory; to those started by spawn or forkserver it is handed over as
    they start. A pickle made for any other purpose carries no marks and stays small. Marks only ever go
    from 0 to 1, so processes need no lock.

    Args:
        count: Rows of the data set.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._marks = SharedTensor(torch.zeros(count, dtype=torch.uint8, device="cpu"))

    def mark(self, row: int) -> None:
        """Note that the sample in `row` was left out."""
        self._marks.tensor[row] = 1

    def rows(self) -> npt.NDArray[np.int64]:
        """Return the marked rows, ascending: ``int64[k]``."""
        return np.flatnonzero(self._marks.tensor.numpy()).astype(np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return (MarkedRows, (self._count,))
        return (_share, (self._count, self._marks))


def _share(count: int, marks: SharedTensor) -> MarkedRows:
    marked = MarkedRows.__new__(MarkedRows)
    marked._count = count
    marked._marks = marks
    return marked
