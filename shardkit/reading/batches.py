"""The batches of one rank, epoch after epoch: what the sampler, the iterable data set and the loader have in common.

Everything that decides which rows make up which batch meets here; nothing here reads a record.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info

from shardkit.errors import StateError
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.integer import require_integer
from shardkit.reading.order import Order, Shuffle
from shardkit.reading.partition import Partition, Tail, worker_steps
from shardkit.reading.placement import Placement
from shardkit.reading.progress import Progress
from shardkit.reading.sampling import Sampling, WeightedRows, Weights, make_sampling
from shardkit.reading.state import State

_ORDERED_AT_ONCE = 16384
"""Positions whose rows are computed in one go: for a few dozen, the calls would cost more than the work."""


class BatchRows(list[int]):
    """The rows of one batch, in order.

    Attributes:
        is_pad: ``bool[len(self)]``: which rows are repeats that only fill the batch; None unless the tail is padded.
        end: Positions of the epoch that all ranks together have delivered when each has delivered this step.
    """

    __slots__ = ("end", "is_pad")

    def __init__(self, rows: list[int], is_pad: npt.NDArray[np.bool_] | None, end: int) -> None:
        super().__init__(rows)
        self.is_pad = is_pad
        self.end = end

    def __reduce__(self) -> tuple[Any, ...]:
        return (BatchRows, (list(self), self.is_pad, self.end))


class BatchIterator(Iterator[BatchRows]):
    """The batches of one rank, or of one of its workers, in one epoch.

    It can be saved and loaded on its own, as torchdata's StatefulDataLoader does with the iterators in its workers.

    Args:
        order: The rows of the epoch.
        partition: The steps of the rank.
        epoch: Which epoch.
        on_first: Called when the first batch is asked for.
        worker: Which of the rank's workers.
        num_workers: How many there are.

    Attributes:
        epoch: Which epoch.
    """

    def __init__(
        self,
        order: Order,
        partition: Partition,
        epoch: int,
        on_first: Callable[[], None],
        worker: int = 0,
        num_workers: int = 1,
    ) -> None:
        self.epoch = epoch
        self._on_first: Callable[[], None] | None = on_first
        self._order = order
        self._partition = partition
        self._worker = worker
        self._num_workers = num_workers
        self._taken = 0
        self._batches = self._make()

    @property
    def position(self) -> int:
        """Positions that all ranks have delivered when each has delivered what this rank has."""
        return self._partition.end(self._taken)

    def __next__(self) -> BatchRows:
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        batch = next(self._batches)
        self._taken += 1
        return batch

    def state_dict(self) -> dict[str, int]:
        """Return where the iterator is."""
        return {"start": self._partition.start, "taken": self._taken, "num_workers": self._num_workers}

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
        self._batches = self._make()

    def _make(self) -> Iterator[BatchRows]:
        partition = self._partition
        steps = worker_steps(len(partition), self._worker, self._num_workers)[self._taken :]
        stride = max(1, _ORDERED_AT_ONCE // partition.batch_size)
        is_padded = partition.tail == "pad"
        for begin in range(0, len(steps), stride):
            some = steps[begin : begin + stride]
            positions = [partition.positions(step) for step in some]
            rows = self._order.rows(np.concatenate(positions))
            ends = np.cumsum([len(each) for each in positions])
            for step, batch in zip(some, np.split(rows, ends[:-1]), strict=True):
                is_pad = partition.pads(step) if is_padded else None
                yield BatchRows(batch.tolist(), is_pad, partition.end(step + 1))


class BatchPlan:
    """Which rows make up which batch of one rank, in every epoch.

    Args:
        dataset: The data set.
        batch_size: Samples of one batch of one rank.
        shuffle: Kind of order.
        seed: Decides the orders, together with data set and epoch.
        tail: What becomes of the positions that fill no batch on every rank.
        rank: This rank; by default that of torch.distributed, or 0 where that is not initialised.
        world_size: Number of ranks; given exactly if `rank` is.
        rows: Rows to sample from; None for all.
        weights: Draw with replacement by these weights.
        num_samples: Draws in an epoch.
        stratify: Name of the label field whose classes each batch is to hold in proportion.

    Raises:
        TypeError: A number is not an integer; names it.
        ValueError: An argument is out of its range; names it and what is allowed.
        LookupError: `stratify` names no label field.
    """

    def __init__(
        self,
        dataset: ShardDataset,
        batch_size: SupportsIndex,
        shuffle: Shuffle,
        seed: SupportsIndex,
        tail: Tail,
        rank: SupportsIndex | None = None,
        world_size: SupportsIndex | None = None,
        rows: npt.ArrayLike | None = None,
        weights: Weights | None = None,
        num_samples: SupportsIndex | None = None,
        stratify: str | None = None,
    ) -> None:
        count = None if num_samples is None else require_integer("num_samples", num_samples)
        self._dataset = dataset
        self._batch_size = require_integer("batch_size", batch_size)
        self._shuffle = shuffle
        self._seed = require_integer("seed", seed)
        self._tail = tail
        self._given = Placement.given(rank, world_size)
        self._sampling: Sampling = make_sampling(dataset, rows, weights, count, stratify)
        self._progress = Progress()
        self._latest: BatchIterator | None = None
        self._handed_over: tuple[int, int] | None = None
        self._partition(0)
        self._order(0)

    def __len__(self) -> int:
        """Number of batches of this rank in the next iteration."""
        return len(self._partition(self._progress.pending()))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._progress.epoch

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Choose the epoch of the next iteration, in this process and in persistent workers.

        Raises:
            TypeError: `epoch` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        if require_integer("epoch", epoch) != self.epoch:
            self._latest = None
        self._progress.set_epoch(epoch)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some records by id, for the epochs that begin from now on.

        Raises:
            ValueError: There are no weights, or one is negative or not finite, or all are 0 then.
            RecordNotFoundError: No record has one of the ids.
        """
        if not isinstance(self._sampling, WeightedRows):
            raise ValueError("there are no weights to change: open the data with weights=...")
        self._sampling.change({self._dataset.row_of(record_id): each for record_id, each in weights.items()})

    def begin(self, worker: int | None = None, num_workers: int = 1) -> BatchIterator:
        """Return the batches of an iteration that begins now, in this process or as one of its workers."""
        epoch, start = self._handed_over or (self.epoch, self._progress.pending(worker))

        def use_up() -> None:  # with the first batch, for torch's loader makes two iterators and uses one
            self._handed_over = None
            self._progress.use_up(worker)

        iterator = BatchIterator(
            self._order(epoch), self._partition(start), epoch, use_up, worker or 0, num_workers
        )
        self._latest = iterator
        return iterator

    def state_dict(self, step: SupportsIndex | None = None) -> dict[str, Any]:
        """Return the state as plain values.

        Args:
            step: Batches of this rank's current iteration that were taken; None asks the iteration in this process.

        Raises:
            StateError: `step` is None, and the iteration is in worker processes, which run ahead of what was taken.
            ValueError: `step` is out of its range.
        """
        return self.at(self._position(step))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration where the state says; takes its epoch and seed.

        Raises:
            StateError: The state is of another data set, generation or sampling, or is none.
        """
        loaded = State.from_dict(state)
        loaded.require_same(self._state(0), str(self._dataset.path))
        self._seed = loaded.seed
        self._latest = None
        if get_worker_info() is None:
            self._progress.resume(loaded.epoch, loaded.position)
        else:  # a loader hands each worker a state of its own; what is shared is for the parent to say
            self._handed_over = loaded.epoch, loaded.position

    def at(self, position: int) -> dict[str, Any]:
        """Return the state at a position of the epoch of the latest iteration."""
        return self._state(position).to_dict()

    def __getstate__(self) -> dict[str, Any]:
        """Settle the rank where it is known: a spawned worker knows nothing of the parent's torch.distributed.

        Where torch.distributed is not initialised it stays open: what is spawned may be a rank, which does so itself.
        """
        return self.__dict__ | {"_latest": None, "_given": self._given or Placement.known()}

    def _position(self, step: SupportsIndex | None) -> int:
        latest = self._latest
        if step is None:
            if latest is None and self._progress.is_begun_in_workers:
                raise StateError(
                    "batches are made in worker processes, which run ahead of what was taken: say how many batches "
                    "of this iteration were, state_dict(step=...), or use torchdata's StatefulDataLoader"
                )
            return self._progress.pending() if latest is None else latest.position
        number = require_integer("step", step)
        partition = self._partition(self._begun_at())
        if not 0 <= number <= len(partition):
            raise ValueError(f"step must lie in [0, {len(partition)}], not {number}")
        return partition.end(number)

    def _begun_at(self) -> int:
        if self._latest is not None:
            return self._latest.state_dict()["start"]
        return self._progress.pending()

    def _state(self, position: int) -> State:
        return State(
            dataset_id=self._dataset.dataset_id,
            generation=self._dataset.generation,
            seed=self._seed,
            shuffle=str(self._shuffle),
            sampling=self._sampling.digest(),
            length=len(self._sampling),
            epoch=self.epoch if self._latest is None else self._latest.epoch,
            position=position,
        )

    def _partition(self, start: int) -> Partition:
        placement = self._given or Placement.known() or Placement(0, 1)
        return Partition(
            len(self._sampling), placement.rank, placement.world_size, self._batch_size, self._tail, start
        )

    def _order(self, epoch: int) -> Order:
        return self._sampling.order(self._shuffle, self._dataset.dataset_id, self._seed, epoch)
