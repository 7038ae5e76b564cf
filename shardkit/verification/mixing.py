"""How well the classes mix in batches: as by chance, better (stratified), or in clumps.

Follows from the order and the label column alone: no record is read, no loader run.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.reading import ShardDataset, Shuffle, epoch_order

_ROWS_DRAWN = 1_000_000
"""Rows that are looked at, of one epoch or of several, whatever the size of the data set."""
_MOST_EPOCHS = 100
_CLUMPED = 1.5
_MIXED: tuple[Shuffle, ...] = ("global", "block")


@dataclass(frozen=True)
class Mixing:
    """How the classes of one label field mix in the batches of one kind of order.

    Attributes:
        field: The label field.
        shuffle: ``"global"``, ``"block"`` or False.
        batch_size: Samples of a batch.
        batches: Batches looked at.
        ratio: Mean over batches and classes of ``(n - E)**2 / V``, where n samples of a batch are of the class, and E
            and V are mean and variance of n if the batch is drawn at random without replacement (the hypergeometric
            distribution): 1 is as by chance, 0 is each class in exact proportion in each batch, and about `batch_size`
            is batches of one class each. None where nothing can differ: a single class, or no more than one batch.
    """

    field: str
    shuffle: Shuffle
    batch_size: int
    batches: int
    ratio: float | None

    @property
    def is_clumped(self) -> bool:
        """Whether classes stick together noticeably more than by chance."""
        return self.ratio is not None and self.ratio > _CLUMPED

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object: the attributes, and ``is_clumped``."""
        return self.__dict__ | {"is_clumped": self.is_clumped}


def measure_all(dataset: ShardDataset, batch_sizes: Sequence[int], seed: int = 0) -> tuple[Mixing, ...]:
    """Return how classes mix, for each label field, batch size, and kind of shuffling."""
    labels = [name for name, field in dataset.contract.fields.items() if field.kind == "label"]
    return tuple(
        measure_mixing(dataset, label, shuffle, batch_size, seed)
        for label, batch_size, shuffle in itertools.product(labels, batch_sizes, _MIXED)
    )


def measure_mixing(
    dataset: ShardDataset, field: str, shuffle: Shuffle, batch_size: int, seed: int = 0
) -> Mixing:
    """Look at the batches of one rank, over all rows of the data set.

    A data set of over a million rows is sampled, batch by batch from all over the epoch; of a small one several
    epochs are averaged, or the number would be mostly chance itself.

    Args:
        dataset: The data set.
        field: Name of a label field.
        shuffle: Kind of order.
        batch_size: Samples of a batch, 1 or more.
        seed: Decides the orders.

    Raises:
        LookupError: There is no such field.
    """
    labels = dataset.column(field)
    batches, ratios = 0, []
    for epoch in range(min(_MOST_EPOCHS, max(1, _ROWS_DRAWN // max(1, len(dataset))))):
        order = epoch_order(shuffle, len(dataset), dataset_id=dataset.dataset_id, seed=seed, epoch=epoch)
        classes = labels[order.rows(_choose_positions(len(dataset), batch_size))]
        ratio = class_ratio(classes, batch_size)
        if ratio is not None:
            batches += len(classes) // batch_size
            ratios.append(ratio)
        if shuffle is False:
            break  # every epoch is the same
    return Mixing(field, shuffle, batch_size, batches, float(np.mean(ratios)) if ratios else None)


def class_ratio(classes: npt.NDArray[Any], batch_size: int) -> float | None:
    """Return the mean of ``(n - E)**2 / V`` over batches and classes; see `Mixing`.

    E and V are those of dealing out the given samples alone, so that the mean over all their orders is 1 exactly.

    Args:
        classes: ``int64[k]``, the class of each sample, batch after batch; a short batch at the end counts towards
            E and V only.
        batch_size: Samples of a batch, 1 or more.
    """
    total, batches = len(classes), len(classes) // batch_size
    _, class_of, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    if len(sizes) < 2 or batch_size >= total:
        return None
    share = sizes / total
    mean = batch_size * share
    variance = mean * (1 - share) * (total - batch_size) / (total - 1)
    whole = batches * batch_size
    cells, found = np.unique(
        np.arange(whole) // batch_size * len(sizes) + class_of[:whole], return_counts=True
    )
    cell_class = cells % len(sizes)
    # (n - E)**2 is E**2 where a class is absent, so that absent ones (nearly all, of many classes) need no listing
    present = (found**2 - 2 * found * mean[cell_class]) / variance[cell_class]
    return float((batches * (mean**2 / variance).sum() + present.sum()) / (batches * len(sizes)))


def _choose_positions(length: int, batch_size: int) -> npt.NDArray[np.int64]:
    """Return all positions of an epoch, or those of some whole batches from all over it."""
    if length <= _ROWS_DRAWN:
        return np.arange(length, dtype=np.int64)
    batches = length // batch_size
    count = min(batches, max(2, _ROWS_DRAWN // batch_size))
    chosen = np.arange(count, dtype=np.int64) * batches // count
    return (chosen[:, None] * batch_size + np.arange(batch_size, dtype=np.int64)).ravel()
