"""The iterable data set: whole batches, shared out among ranks and workers by itself."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, SupportsIndex

import numpy.typing as npt
from torch.utils.data import IterableDataset, get_worker_info

from shardkit.reading.batches import BatchIterator, BatchPlan
from shardkit.reading.collate import Batch
from shardkit.reading.dataset import OnError, ShardDataset
from shardkit.reading.delivery import read_rows
from shardkit.reading.guard import Transform
from shardkit.reading.order import Shuffle
from shardkit.reading.partition import Tail
from shardkit.reading.sampling import Weights


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
        on_error: Whether a damaged record is raised or skipped.
        rows: Rows to sample from, as `ShardDataset.select` finds them; None for all.
        weights: Draw records with replacement: class name -> weight of each of its records, or one weight a row.
        num_samples: Draws in an epoch; by default as many as there are rows to draw from.
        stratify: Name of a label field: each batch holds its classes in proportion to their sizes, or nearly.

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
        rows: npt.ArrayLike | None = None,
        weights: Weights | None = None,
        num_samples: int | None = None,
        stratify: str | None = None,
    ) -> None:
        self.dataset = ShardDataset(
            path, transform, fields, verify_checksums, may_reshape, may_filter, on_error
        )
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dataset.describe()}>"

    def __len__(self) -> int:
        """Number of batches of this rank in the next iteration, over all its workers."""
        return len(self._plan)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Choose the epoch of the next iteration, in this process and in persistent workers.

        Raises:
            TypeError: `epoch` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        self._plan.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._plan.epoch

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some records by id, for the epochs that begin from now on, in workers too.

        Raises:
            ValueError: There are no weights, or one is negative or not finite, or all are 0 then.
            RecordNotFoundError: No record has one of the ids.
        """
        self._plan.set_weights(weights)

    def state_dict(self, step: SupportsIndex | None = None) -> dict[str, Any]:
        """Return what was delivered, as a few plain values for a checkpoint.

        Args:
            step: Batches of the current epoch, since it was begun or resumed, that the training loop has taken. Needed
                where a DataLoader has workers, as these run ahead; torchdata's StatefulDataLoader keeps count itself.

        Raises:
            StateError: `step` is None, and the batches are made in worker processes.
            ValueError: `step` is out of its range.
        """
        return self._plan.state_dict(step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration of its epoch delivers what was not delivered yet, exactly once.

        Ranks, workers and batch size may be others than when it was saved.

        Raises:
            StateError: It was saved with another data set, generation or sampling.
        """
        self._plan.load_state_dict(state)

    @property
    def filtered(self) -> list[str]:
        """Ids of the samples that the transform has left out; see `ShardDataset.filtered`."""
        return self.dataset.filtered

    @property
    def skipped(self) -> list[str]:
        """Ids of the damaged records that were left out; see `ShardDataset.skipped`."""
        return self.dataset.skipped

    def __iter__(self) -> "SampleBatches":
        worker = get_worker_info()
        batches = self._plan.begin(worker.id, worker.num_workers) if worker else self._plan.begin()
        return SampleBatches(self.dataset, batches)


class SampleBatches(Iterator[Batch]):
    """Reads one batch after the other. Can be saved and loaded, as StatefulDataLoader does in its workers."""

    def __init__(self, dataset: ShardDataset, batches: BatchIterator) -> None:
        self._dataset = dataset
        self._batches = batches

    def __next__(self) -> Batch:
        return read_rows(self._dataset, next(self._batches))

    def state_dict(self) -> dict[str, int]:
        """Return where the iterator is."""
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another iterator of the same worker was.

        Raises:
            StateError: It had another number of workers.
        """
        self._batches.load_state_dict(state)
