"""The batch sampler: the same batches as the iterable data set, for a DataLoader over a map-style one."""

from collections.abc import Mapping
from typing import Any, SupportsIndex

import numpy.typing as npt
from torch.utils.data import Sampler

from shardkit.reading.batches import BatchIterator, BatchPlan
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.order import Shuffle
from shardkit.reading.partition import Tail
from shardkit.reading.sampling import Weights


class ShardSampler(Sampler[list[int]]):
    """The rows of each batch of one rank: give it to a DataLoader as ``batch_sampler``.

    The sequence is that of a `ShardIterableDataset` with the same arguments. With ``tail="pad"`` each sample gets
    ``"is_pad"``, which marks repeats that only fill the last batch.

    Example:
        >>> sampler = ShardSampler(data, batch_size=64)
        >>> loader = DataLoader(data, batch_sampler=sampler, num_workers=2, collate_fn=collate)
        >>> for epoch in range(90):
        ...     sampler.set_epoch(epoch)
        ...     for step, batch in enumerate(loader, start=1):
        ...         train(batch)
        ...         checkpoint = sampler.state_dict(step)

    Args:
        dataset: The data set that the DataLoader reads.
        batch_size: Samples of one batch of one rank; all that follow are as for `ShardIterableDataset`.
        shuffle: ``"global"``, ``"block"`` or False.
        seed: Decides the orders, together with data set and epoch.
        tail: ``"pad"``, ``"drop"`` or ``"exact"``.
        rank: This rank.
        world_size: Number of ranks.
        rows: Rows to sample from.
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
        batch_size: int = 64,
        shuffle: Shuffle = "global",
        seed: int = 0,
        tail: Tail = "pad",
        rank: int | None = None,
        world_size: int | None = None,
        rows: npt.ArrayLike | None = None,
        weights: Weights | None = None,
        num_samples: int | None = None,
        stratify: str | None = None,
    ) -> None:
        self._plan = BatchPlan(
            dataset,
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

    def __len__(self) -> int:
        """Number of batches of this rank in the next iteration."""
        return len(self._plan)

    def __iter__(self) -> BatchIterator:
        return self._plan.begin()

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
        self._plan.set_epoch(epoch)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some records by id, for the epochs that begin from now on.

        Raises:
            ValueError: There are no weights, or one is negative or not finite, or all are 0 then.
            RecordNotFoundError: No record has one of the ids.
        """
        self._plan.set_weights(weights)

    def state_dict(self, step: SupportsIndex | None = None) -> dict[str, Any]:
        """Return what was delivered, as a few plain values for a checkpoint.

        Args:
            step: Batches of the current epoch, since it was begun or resumed, that the training loop has taken. None
                takes those that this sampler gave out, which are more if the DataLoader has workers.

        Raises:
            ValueError: `step` is out of its range.
        """
        return self._plan.state_dict(step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration of its epoch delivers what was not delivered yet, exactly once.

        Raises:
            StateError: It was saved with another data set, generation or sampling.
        """
        self._plan.load_state_dict(state)
