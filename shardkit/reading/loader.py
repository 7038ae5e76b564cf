"""The thread loader: batches made by threads of the training process, handed out in order, a few of them ahead."""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike
from typing import Any, SupportsIndex

import numpy.typing as npt

from shardkit.reading.batches import BatchIterator, BatchPlan
from shardkit.reading.collate import Batch
from shardkit.reading.dataset import OnError, ShardDataset
from shardkit.reading.delivery import read_rows
from shardkit.reading.guard import Transform
from shardkit.reading.integer import require_integer
from shardkit.reading.order import Shuffle
from shardkit.reading.partition import Tail
from shardkit.reading.sampling import Weights

_AHEAD = 2  # batches made or in the making for each thread, beyond the one handed out


class ShardLoader:
    """The batches of one rank, made by threads in this process: nothing is sent between processes.

    The sequence is that of a `ShardIterableDataset` with the same arguments, for any number of threads. An exception
    is raised at the batch it belongs to, and ends the iteration. Leaving the loop early leaves no thread behind.

    Example:
        >>> loader = ShardLoader("out/", batch_size=64, threads=2)
        >>> for epoch in range(90):
        ...     loader.set_epoch(epoch)
        ...     for batch in loader:
        ...         train(batch)
        ...         checkpoint = loader.state_dict()

    Args:
        path: The folder that ingestion made.
        batch_size: Samples of one batch of one rank.
        threads: Threads that read and decode; None takes one a usable CPU.
        shuffle: This and all that follow are as for `ShardIterableDataset`.
        seed: Decides the orders, together with data set and epoch.
        tail: ``"pad"``, ``"drop"`` or ``"exact"``.
        rank: This rank.
        world_size: Number of ranks.
        transform: Applied to each sample, in the threads.
        fields: Names of the fields to read.
        verify_checksums: Which checksums are checked.
        may_reshape: Whether the transform may change shapes.
        may_filter: Whether the transform may leave samples out.
        on_error: Whether a damaged record is raised or skipped.
        rows: Rows to sample from.
        weights: Draw with replacement by these weights.
        num_samples: Draws in an epoch.
        stratify: Name of the label field whose classes each batch is to hold in proportion.

    Raises:
        TypeError: A number is not an integer; names it.
        ValueError: An argument is out of its range; names it and what is allowed.
        DatasetNotFoundError, FormatError: As for `ShardDataset`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        batch_size: int = 64,
        threads: int | None = None,
        shuffle: Shuffle = "global",
        seed: int = 0,
        tail: Tail = "pad",
        rank: int | None = None,
        world_size: int | None = None,
        transform: Transform | None = None,
        fields: Sequence[str] | None = None,
        verify_checksums: bool | None = None,
        may_reshape: bool = False,
        may_filter: bool = False,
        on_error: OnError = "raise",
        rows: npt.ArrayLike | None = None,
        weights: Weights | None = None,
        num_samples: int | None = None,
        stratify: str | None = None,
    ) -> None:
        self.dataset = ShardDataset(
            path, transform, fields, verify_checksums, may_reshape, may_filter, on_error
        )
        self._threads = _usable_cpus() if threads is None else require_integer("threads", threads)
        if self._threads < 1:
            raise ValueError(f"threads must be 1 or more, not {self._threads}")
        self._plan = BatchPlan(
            self.dataset,
            batch_size,
            shuffle,
            seed,
            tail,
            rank,
            world_size,
            rows,
            weights,
            num_samples,
            stratify,
        )
        self._position: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dataset.describe()}>"

    def __len__(self) -> int:
        """Number of batches of this rank in the next iteration."""
        return len(self._plan)

    def __iter__(self) -> Iterator[Batch]:
        batches = self._plan.begin()
        self._position = batches.position
        return self._deliver(batches)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._plan.epoch

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Choose the epoch of the next iteration.

        Raises:
            TypeError: `epoch` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        if require_integer("epoch", epoch) != self.epoch:
            self._position = None
        self._plan.set_epoch(epoch)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some records by id, for the epochs that begin from now on.

        Raises:
            ValueError: There are no weights, or one is negative or not finite, or all are 0 then.
            RecordNotFoundError: No record has one of the ids.
        """
        self._plan.set_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """Return what was delivered as of the last batch handed out, as a few plain values for a checkpoint."""
        return self._plan.state_dict() if self._position is None else self._plan.at(self._position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration of its epoch delivers what was not delivered yet, exactly once.

        Ranks, threads and batch size may be others than when it was saved.

        Raises:
            StateError: It was saved with another data set, generation or sampling.
        """
        self._position = None
        self._plan.load_state_dict(state)

    @property
    def filtered(self) -> list[str]:
        """Ids of the samples that the transform has left out; see `ShardDataset.filtered`."""
        return self.dataset.filtered

    @property
    def skipped(self) -> list[str]:
        """Ids of the damaged records that were left out; see `ShardDataset.skipped`."""
        return self.dataset.skipped

    def _deliver(self, batches: BatchIterator) -> Iterator[Batch]:
        """Yield the batches in order; the threads end with the iteration, however it ends."""
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="shardkit")
        coming: deque[tuple[int, Future[Batch]]] = deque()
        try:
            for rows in batches:
                coming.append((rows.end, pool.submit(read_rows, self.dataset, rows)))
                if len(coming) > _AHEAD * self._threads:
                    yield self._take(coming)
            while coming:
                yield self._take(coming)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _take(self, coming: "deque[tuple[int, Future[Batch]]]") -> Batch:
        end, batch = coming.popleft()
        made = batch.result()
        self._position = end
        return made


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
