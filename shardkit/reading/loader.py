"""The thread loader: batches made by threads of the training process, handed out in order, a few of them ahead."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike
from typing import Any

import numpy.typing as npt

from shardkit.errors import ShardkitError
from shardkit.reading.allocation import Allocate, RecycledMemory, allocate_pinned
from shardkit.reading.batches import BatchIterator
from shardkit.reading.collate import Batch
from shardkit.reading.dataset import OnError, ShardDataset
from shardkit.reading.delivery import begin_run, read_run
from shardkit.reading.integer import require_integer
from shardkit.reading.order import Shuffle
from shardkit.reading.partition import Tail
from shardkit.reading.rank_batches import RankBatches
from shardkit.reading.sampling import Weights
from shardkit.reading.threads import BatchThreads, ThreadedRun
from shardkit.transforms.compose import Transform

_AHEAD = 2  # runs made or in the making beside the one handed out, as long as each keeps all threads busy
_MOST_AHEAD = 16  # further ones for threads that share no run: more of them only wait for memory


class ShardLoader(RankBatches):
    """The batches of one rank, made by threads in this process: nothing is sent between processes.

    The sequence is that of a `ShardIterableDataset` with the same arguments, for any number of threads. An exception
    is raised at the batch it belongs to, and ends the iteration. Leaving the loop early leaves no thread behind. The
    memory of batches made ahead is kept between iterations, for those of the next.

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
        pin_memory: Put batches in page-locked memory, from where a device takes them at once.
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
        preload: Whether the fields are held in memory.
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
        pin_memory: bool = False,
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
        preload: bool = False,
        rows: npt.ArrayLike | None = None,
        weights: Weights | None = None,
        num_samples: int | None = None,
        stratify: str | None = None,
    ) -> None:
        data = ShardDataset(
            path, transform, fields, verify_checksums, may_reshape, may_filter, on_error, preload
        )
        which = (batch_size, shuffle, seed, tail, rank, world_size, rows, weights, num_samples, stratify)
        super().__init__(data, *which)
        self._threads = _usable_cpus() if threads is None else require_integer("threads", threads)
        if self._threads < 1:
            raise ValueError(f"threads must be 1 or more, not {self._threads}")
        self._pin_memory = pin_memory
        self._spare: list[RecycledMemory] = []

    def __iter__(self) -> Iterator[Batch]:
        return self._deliver(self._begin())

    def _deliver(self, batches: BatchIterator) -> Iterator[Batch]:
        """Yield the batches in order; the threads end with the iteration, however it ends."""
        threads = BatchThreads(self._threads)
        # pinned memory is used again when a device has read the tensor that torch made of it, and no other
        at_once = 1 if self._pin_memory else self.dataset.batches_at_once(self.batch_size)
        most = (_AHEAD + _MOST_AHEAD + 2) * len(self.dataset.contract.fields)
        recycled = self._spare.pop() if self._spare else RecycledMemory(most)
        memory: Allocate = allocate_pinned if self._pin_memory else recycled.allocate
        coming: deque[ThreadedRun] = deque()
        try:
            length = 1  # runs grow, so that the first batch is there soon
            while run := list(islice(batches.ahead(), length)):
                length = min(2 * length, at_once)
                made = ThreadedRun(run, begin_run(self.dataset, run, memory))
                threads.start(made)
                coming.append(made)
                if len(coming) > _AHEAD + min(self._threads // len(made.parts), _MOST_AHEAD):
                    yield from self._take(coming.popleft(), batches, memory)
            while coming:
                yield from self._take(coming.popleft(), batches, memory)
            batches.finish()
        finally:
            threads.close()
            self._spare.append(recycled)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the memory of batches out, which is for this process."""
        return super().__getstate__() | {"_spare": []}

    def _take(self, made: ThreadedRun, batches: BatchIterator, memory: Allocate) -> Iterator[Batch]:
        """Yield the batches of a run, once they are finished.

        Raises:
            BaseException: What making the next one raised.
        """
        results: deque[Batch] = deque()
        try:
            results.extend(made.results())
        except ShardkitError:
            if len(made.run) == 1:
                raise
        for rows in made.run:
            if not results:  # what was raised belongs to one of them
                results.extend(read_run(self.dataset, [rows], memory))
            batches.hand_out(rows)
            yield results.popleft()


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
