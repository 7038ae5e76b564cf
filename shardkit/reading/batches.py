"""The batches of one rank in one epoch, as rows: an order cut up by a partition. Nothing here reads a record."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.errors import StateError
from shardkit.reading.order import Order
from shardkit.reading.partition import Partition, worker_steps
from shardkit.transforms.randomness import Draws

_ORDERED_AT_ONCE = 16384
"""Positions whose rows are computed in one go: for a few dozen, the calls would cost more than the work."""


class BatchRows(list[int]):
    """The rows of one batch, in order.

    Attributes:
        array: The same as ``int64[B]``.
        is_pad: ``bool[len(self)]``: which rows are repeats that only fill the batch; None unless the tail is padded.
        end: Positions of the epoch that all ranks together have delivered when each has delivered this step.
        draws: Decides the random numbers of the samples.
    """

    __slots__ = ("array", "draws", "end", "is_pad")

    def __init__(
        self, array: npt.NDArray[np.int64], is_pad: npt.NDArray[np.bool_] | None, end: int, draws: Draws
    ) -> None:
        super().__init__(array.tolist())
        self.array = array
        self.is_pad = is_pad
        self.end = end
        self.draws = draws

    def part(self, begin: int, end: int) -> "BatchRows":
        """Return the rows at the places from `begin` to `end`."""
        is_pad = None if self.is_pad is None else self.is_pad[begin:end]
        return BatchRows(self.array[begin:end], is_pad, self.end, self.draws.part(begin, end))

    def __reduce__(self) -> tuple[Any, ...]:
        return (BatchRows, (self.array, self.is_pad, self.end, self.draws))


class BatchIterator(Iterator[BatchRows]):
    """The batches of one rank, or of one of its workers, in one epoch.

    It can be saved and loaded on its own, as torchdata's StatefulDataLoader does with the iterators in its workers.

    Args:
        order: The rows of the epoch.
        partition: The steps of the rank.
        epoch: Which epoch.
        draws_key: Decides the random numbers of the samples; see `Draws`.
        is_repeating: Whether the order may hold a row more than once.
        on_first: Called when the first batch is asked for.
        worker: Which of the rank's workers.
        num_workers: How many there are.

    Attributes:
        epoch: Which epoch.
        position: Positions that all ranks have delivered when each has delivered what was handed out here.
    """

    def __init__(
        self,
        order: Order,
        partition: Partition,
        epoch: int,
        draws_key: int,
        is_repeating: bool,
        on_first: Callable[[], None],
        worker: int = 0,
        num_workers: int = 1,
    ) -> None:
        self.epoch = epoch
        self.position = partition.start
        self._draws_key = draws_key
        self._is_repeating = is_repeating
        self._on_first: Callable[[], None] | None = on_first
        self._order = order
        self._partition = partition
        self._worker = worker
        self._num_workers = num_workers
        self._taken = 0
        self._batches = self._make()

    @property
    def start(self) -> int:
        """The position at which it began."""
        return self._partition.start

    def __next__(self) -> BatchRows:
        batch = next(self.ahead(), None)
        if batch is None:
            self.finish()
            raise StopIteration
        self.hand_out(batch)
        return batch

    def ahead(self) -> Iterator[BatchRows]:
        """Return the batches for a reader that makes some in advance, and tells by `hand_out` when each is taken."""
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        return self._batches

    def hand_out(self, batch: BatchRows) -> None:
        """Note that a batch was taken; in the order in which they were made."""
        self._taken += 1
        self.position = batch.end

    def finish(self) -> None:
        """Note that the epoch is over: a rank may be told so that has no part in the last step, or drops the rest."""
        self.position = self._partition.length

    def state_dict(self) -> dict[str, int]:
        """Return where the iterator is."""
        return {"start": self.start, "taken": self._taken, "num_workers": self._num_workers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another iterator of the same worker was.

        Raises:
            StateError: It had another number of workers.
        """
        if state["num_workers"] != self._num_workers:
            raise StateError(
                f"the state was saved by one of {state['num_workers']} workers, and this is one of "
                f"{self._num_workers}: load it with as many"
            )
        self._partition = self._partition.starting_at(state["start"])
        self._taken = state["taken"]
        self.position = self._partition.end(self._taken)
        self._batches = self._make()

    def _make(self) -> Iterator[BatchRows]:
        partition = self._partition
        steps = worker_steps(len(partition), self._worker, self._num_workers)[self._taken :]
        stride = max(1, _ORDERED_AT_ONCE // partition.batch_size)
        for begin in range(0, len(steps), stride):
            some = steps[begin : begin + stride]
            positions = [partition.positions(step) for step in some]
            rows = self._order.rows(np.concatenate(positions))
            first = 0
            for step, at in zip(some, positions, strict=True):
                is_pad = partition.pads(step) if partition.tail == "pad" else None
                draws = Draws(self._draws_key, at if self._is_repeating else None)
                yield BatchRows(rows[first : first + len(at)], is_pad, partition.end(step + 1), draws)
                first += len(at)
