"""The iterable data set: whole batches, shared out among ranks and workers by itself."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from os import PathLike
from typing import Any

import numpy.typing as npt
from torch.utils.data import IterableDataset, get_worker_info

from shardkit.errors import ShardkitError
from shardkit.reading.allocation import RecycledMemory
from shardkit.reading.batches import BatchIterator, BatchRows
from shardkit.reading.collate import Batch
from shardkit.reading.dataset import OnError, ShardDataset
from shardkit.reading.delivery import read_rows, read_run
from shardkit.reading.order import Shuffle
from shardkit.reading.partition import Tail
from shardkit.reading.rank_batches import RankBatches
from shardkit.reading.sampling import Weights
from shardkit.transforms.compose import Transform


class ShardIterableDataset(RankBatches, IterableDataset[Batch]):
    """The batches of one rank, each record of an epoch in exactly one batch of one rank.

    It yields whole batches, so the DataLoader must not batch again. The sequence of batches that a rank
    sees is the same for any number of workers. A batch is what `collate` makes of its samples; with
    ``tail="pad"`` it also has ``"is_pad"`` (``bool[B]``), which marks repeats that only fill the last
    batch: leave those out of metrics.

    Example:
        >>> data = ShardIterableDataset("out/", batch_size=64)
        >>> loader = DataLoader(data, batch_size=None, num_workers=2)
        >>> for epoch in range(90):
        ...     data.set_epoch(epoch)
        ...     for batch in loader:
        ...         step(batch["image"], batch["label"])

    Args:
        path: The folder that ingestion made.
        batch_size: Samples of one batch of one rank. This and all that is not explained here: see `RankBatches`.
        shuffle: ``"global"``, ``"block"`` or False.
        seed: Decides the orders, together with data set and epoch. The same on every rank.
        tail: ``"pad"``, ``"drop"`` or ``"exact"``.
        rank: This rank; by default that of torch.distributed.
        world_size: Number of ranks; given exactly if `rank` is.
        transform: As for `ShardDataset`, and so are the next six.
        fields: Names of the fields to read.
        verify_checksums: Which checksums are checked.
        may_reshape: Whether the transform may change shapes.
        may_filter: Whether the transform may leave samples out; batches then are smaller, their number is
            not.
        on_error: Whether a damaged record is raised or skipped.
        preload: Whether the fields are held in memory.
        rows: Rows to sample from.
        weights: Draw records with replacement by these weights.
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

    def __iter__(self) -> "SampleBatches":
        at_once = self.dataset.batches_at_once(self.batch_size) if get_worker_info() is None else 1
        return SampleBatches(self.dataset, self._begin(), at_once)


class SampleBatches(Iterator[Batch]):
    """Reads one batch after the other. Can be saved and loaded, as StatefulDataLoader does in its workers.

    Args:
        dataset: What is read.
        batches: Their rows.
        at_once: Batches that are made at one go.
    """

    def __init__(self, dataset: ShardDataset, batches: BatchIterator, at_once: int) -> None:
        self._dataset = dataset
        self._batches = batches
        self._at_once = at_once
        self._memory = RecycledMemory(3 * len(dataset.contract.fields))
        self._lock = threading.Lock()
        self._coming: deque[tuple[BatchRows, Batch | None]] = deque()

    def __next__(self) -> Batch:
        with self._lock:  # or threads that share the iterator would get some batches twice
            if not self._coming:
                self._coming.extend(self._next_run())
            rows, batch = self._coming.popleft()
            if batch is None:
                batch = read_rows(self._dataset, rows)
            self._batches.hand_out(rows)  # and not before: one that failed was not delivered
            return batch

    def _next_run(self) -> list[tuple[BatchRows, Batch | None]]:
        """Return the next batches, or None in their place if they are to be read one by one."""
        run = list(islice(self._batches.ahead(), self._at_once))
        if not run:
            self._batches.finish()
            raise StopIteration
        if len(run) > 1:
            with suppress(ShardkitError):  # it belongs to one of them, and comes again with that one
                return list(zip(run, read_run(self._dataset, run, self._memory.allocate), strict=True))
        return [(rows, None) for rows in run]

    def state_dict(self) -> dict[str, int]:
        """Return where the iterator is."""
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another iterator of the same worker was.

        Raises:
            StateError: It had another number of workers.
        """
        self._batches.load_state_dict(state)
        self._coming.clear()
