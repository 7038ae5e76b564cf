"""The iterable data set: whole batches, shared out among ranks and workers by itself."""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from shardkit.reading.collate import Batch, collate
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.epoch import Epoch
from shardkit.reading.guard import Transform
from shardkit.reading.integer import require_integer
from shardkit.reading.order import Order, Shuffle, epoch_order
from shardkit.reading.partition import Partition, Tail, worker_steps

_ORDERED_AT_ONCE = 16384
"""Positions whose rows are computed in one go: for a few dozen, the calls would cost more than the work."""


class ShardIterableDataset(IterableDataset[Batch]):
    """The batches of one rank, each record of an epoch in exactly one batch of one rank.

    It yields whole batches, so the DataLoader must not batch again. The sequence of batches that a rank
    sees is the same for any number of workers. A batch is what `collate` makes of its samples; with
    ``tail="pad"`` it also has ``"is_pad"`` (``bool[B]``), which marks repeats that only fill the last
    batch: leave those out of metrics.

    The epoch stays what `set_epoch` last made it; call it between epochs, before the loader is iterated. It
    reaches the workers of a loader with ``persistent_workers=True``. Copies, and ranks that are started with
    one data set object, have each an epoch of their own.

    Example:
        >>> data = ShardIterableDataset("out/", batch_size=64)
        >>> loader = DataLoader(data, batch_size=None, num_workers=2)
        >>> for epoch in range(90):
        ...     data.set_epoch(epoch)
        ...     for batch in loader:
        ...         step(batch["image"], batch["label"])

    Args:
        path: The folder that ingestion made.
        batch_size: Samples of one batch of one rank.
        shuffle: ``"global"``, any row anywhere; ``"block"``, blocks of neighbouring rows mixed in a window,
            which is kind to cold disks and networks; False, as stored.
        seed: Decides the orders, together with data set and epoch. The same on every rank.
        tail: What becomes of the records that fill no batch on every rank. ``"pad"``: all ranks make
            equally many steps, repeats are marked; ``"drop"``: equally many steps, those records are not
            delivered this epoch; ``"exact"``: each record once, ranks may differ by one step.
        rank: This rank; by default that of torch.distributed, or 0 where that is not initialised.
        world_size: Number of ranks; given exactly if `rank` is.
        transform: As for `ShardDataset`, and so are all that follow.
        fields: Names of the fields to read.
        verify_checksums: Which checksums are checked.
        may_reshape: Whether the transform may change shapes.
        may_filter: Whether the transform may leave samples out; batches then are smaller, their number is
            not.

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
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        self.dataset = ShardDataset(path, transform, fields, verify_checksums, may_reshape, may_filter)
        self._batch_size = require_integer("batch_size", batch_size)
        self._shuffle = shuffle
        self._seed = require_integer("seed", seed)
        self._tail = tail
        self._placement = (
            None
            if rank is None or world_size is None
            else (require_integer("rank", rank), require_integer("world_size", world_size))
        )
        self._epoch = Epoch()
        self._partition()
        self._order(0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dataset.describe()}>"

    def __len__(self) -> int:
        """Number of batches of this rank in one epoch, over all its workers."""
        return len(self._partition())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration, in this process and in persistent workers.

        Raises:
            TypeError: `epoch` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        self._epoch.set(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._epoch.get()

    @property
    def filtered(self) -> list[str]:
        """Ids of the samples that the transform has left out; see `ShardDataset.filtered`."""
        return self.dataset.filtered

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        partition = self._partition()
        steps = (
            worker_steps(len(partition), worker.id, worker.num_workers) if worker else range(len(partition))
        )
        return self._batches(self._order(self.epoch), partition, steps)

    def __getstate__(self) -> dict[str, Any]:
        """Settle the rank where it is known: a spawned worker knows nothing of the parent's torch.distributed.

        Where torch.distributed is not initialised it stays open: what is spawned may be a rank, which does so
        itself.
        """
        return self.__dict__ | {"_placement": self._known_placement()}

    def _batches(self, order: Order, partition: Partition, steps: range) -> Iterator[Batch]:
        stride = max(1, _ORDERED_AT_ONCE // self._batch_size)
        for begin in range(0, len(steps), stride):
            some = steps[begin : begin + stride]
            positions = [partition.positions(step) for step in some]
            rows = order.rows(np.concatenate(positions))
            ends = np.cumsum([len(each) for each in positions])
            for step, batch_rows in zip(some, np.split(rows, ends[:-1]), strict=True):
                yield self._batch(batch_rows.tolist(), torch.from_numpy(partition.pads(step)))

    def _batch(self, rows: list[int], is_pad: torch.Tensor) -> Batch:
        samples = self.dataset.read_batch(rows)
        batch = collate(samples)
        if self._tail == "pad":
            batch["is_pad"] = is_pad[torch.tensor([sample is not None for sample in samples])]
        return batch

    def _partition(self) -> Partition:
        rank, world_size = self._known_placement() or (0, 1)
        return Partition(len(self.dataset), rank, world_size, self._batch_size, self._tail)

    def _order(self, epoch: int) -> Order:
        data = self.dataset
        return epoch_order(self._shuffle, len(data), dataset_id=data.dataset_id, seed=self._seed, epoch=epoch)

    def _known_placement(self) -> tuple[int, int] | None:
        """Return rank and world size, or None where neither the caller nor torch.distributed has told them."""
        if self._placement is not None:
            return self._placement
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return None
