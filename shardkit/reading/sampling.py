"""Sampling: which rows make up an epoch, and how often each; all rows once unless one asks for something else."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from shardkit.reading.dataset import ShardDataset
from shardkit.reading.order import ChosenOrder, Order, Shuffle, StratifiedOrder, WeightedOrder, epoch_order
from shardkit.reading.selection import Rows, require_rows, the_label_field
from shardkit.reading.shared import SharedTensor

Weights = Mapping[str, float] | Sequence[float] | npt.NDArray[Any]
"""Class name -> weight of each of its records; or one weight a row."""


class Sampling(ABC):
    """The rows of an epoch.

    Attributes:
        is_repeating: Whether an epoch may hold a row more than once.
    """

    is_repeating: ClassVar[bool] = False

    @abstractmethod
    def __len__(self) -> int:
        """Positions in an epoch."""

    @abstractmethod
    def order(self, shuffle: Shuffle, dataset_id: str, seed: int, epoch: int) -> Order:
        """Return the order of one epoch."""

    @abstractmethod
    def digest(self) -> str:
        """Return what tells this sampling from others in a saved state; empty for all rows once."""


class EveryRow(Sampling):
    """Every row of a data set, or of a choice of rows, once.

    Args:
        length: Rows of the data set.
        rows: ``int64[k]``, those chosen, or None for all.
    """

    def __init__(self, length: int, rows: Rows | None) -> None:
        self._rows = rows
        self._length = length if rows is None else len(rows)
        self._rows_digest = "" if rows is None else xxhash.xxh3_64_hexdigest(rows.tobytes())

    def __len__(self) -> int:
        return self._length

    def order(self, shuffle: Shuffle, dataset_id: str, seed: int, epoch: int) -> Order:
        """Return the order that `epoch_order` gives."""
        places = epoch_order(shuffle, self._length, dataset_id=dataset_id, seed=seed, epoch=epoch)
        return places if self._rows is None else ChosenOrder(places, self._rows)

    def digest(self) -> str:
        """Return a digest of the chosen rows."""
        return self._rows_digest


class StratifiedRows(EveryRow):
    """Every row once, so that each batch holds the classes in proportion, or nearly.

    Args:
        classes: ``int64[rows]``, the class of each row of the data set.
        rows: Those chosen, or None for all.
    """

    def __init__(self, classes: npt.NDArray[np.int64], rows: Rows | None) -> None:
        super().__init__(len(classes), rows)
        self._classes = np.asarray(classes if rows is None else classes[rows])
        self._classes_digest = xxhash.xxh3_64_hexdigest(self._classes.tobytes())

    def order(self, shuffle: Shuffle, dataset_id: str, seed: int, epoch: int) -> Order:
        """Return the order, which is shuffled whatever `shuffle` says."""
        order = StratifiedOrder(self._classes, f"{dataset_id}\0{seed}\0{epoch}\0strata")
        return order if self._rows is None else ChosenOrder(order, self._rows)

    def digest(self) -> str:
        """Return a digest of the chosen rows and their classes."""
        return f"strata {super().digest()} {self._classes_digest}"


class WeightedRows(Sampling):
    """Rows drawn with replacement, each in proportion to its weight. Workers see a change of the weights.

    Args:
        weights: ``float64[rows]``, the weight of each row of the data set.
        rows: Those drawn from, or None for all.
        count: Draws in an epoch.
    """

    is_repeating = True

    def __init__(self, weights: npt.NDArray[np.float64], rows: Rows | None, count: int) -> None:
        self._rows = rows
        self._count = count
        self._weights = SharedTensor(torch.from_numpy(_require_weights(weights, rows)))
        self._digest: str | None = None

    def __len__(self) -> int:
        return self._count

    def change(self, changed: Mapping[int, float]) -> None:
        """Change the weights of some rows, for the epochs that begin from now on.

        Raises:
            ValueError: A weight is negative or not finite, or all are 0 then.
        """
        weights = self._weights.tensor.numpy().copy()
        weights[list(changed)] = list(changed.values())
        self._weights.tensor.copy_(torch.from_numpy(_require_weights(weights, self._rows)))
        self._digest = None

    def order(self, shuffle: Shuffle, dataset_id: str, seed: int, epoch: int) -> Order:
        """Return the draws of an epoch; `shuffle` has no say in them."""
        order = WeightedOrder(
            self._count, np.cumsum(self._chosen_weights()), f"{dataset_id}\0{seed}\0{epoch}\0draws"
        )
        return order if self._rows is None else ChosenOrder(order, self._rows)

    def digest(self) -> str:
        """Return a digest of the rows, the weights and the number of draws."""
        if self._digest is None:
            rows = "" if self._rows is None else xxhash.xxh3_64_hexdigest(self._rows.tobytes())
            weights = xxhash.xxh3_64_hexdigest(self._chosen_weights().tobytes())
            self._digest = f"draws {self._count} {rows} {weights}"
        return self._digest

    def _chosen_weights(self) -> npt.NDArray[np.float64]:
        weights: npt.NDArray[np.float64] = self._weights.tensor.numpy()
        return weights if self._rows is None else weights[self._rows]


def make_sampling(
    dataset: ShardDataset,
    rows: npt.ArrayLike | None,
    weights: Weights | None,
    num_samples: int | None,
    stratify: str | None,
) -> Sampling:
    """Return the sampling that a caller describes.

    Args:
        dataset: The data set.
        rows: Rows to sample from, none twice; None for all.
        weights: Draw with replacement by these weights.
        num_samples: Draws in an epoch; by default as many as there are rows to draw from.
        stratify: Name of the label field whose classes each batch is to hold in proportion.

    Raises:
        ValueError: Two of them exclude each other, or one does not fit the data set; names it.
        LookupError: There is no such field; or weights are by class, and there is not one label field.
    """
    chosen = None if rows is None else _require_distinct(require_rows(rows, len(dataset)))
    if weights is None:
        if num_samples is not None:
            raise ValueError("num_samples is for draws: give weights as well")
        if stratify is None:
            return EveryRow(len(dataset), chosen)
        field, _ = the_label_field(dataset, stratify)
        return StratifiedRows(dataset.column(field), chosen)
    if stratify is not None:
        raise ValueError("weights and stratify exclude each other")
    available = len(dataset) if chosen is None else len(chosen)
    count = available if num_samples is None else num_samples
    if not available or count < 1:
        raise ValueError(f"num_samples is {count} of {available} rows; both must be 1 or more")
    return WeightedRows(_row_weights(dataset, weights), chosen, count)


def _require_distinct(rows: Rows) -> Rows:
    if len(np.unique(rows)) != len(rows):
        raise ValueError("rows must not repeat; to see a record more often, give weights")
    return rows


def _row_weights(dataset: ShardDataset, weights: Weights) -> npt.NDArray[np.float64]:
    """Return one weight a row, in an array of their own: torch takes none that runs backwards or is read-only."""
    if isinstance(weights, Mapping):
        return _weights_by_class(dataset, weights)
    given = np.array(weights, dtype=np.float64)
    if given.shape != (len(dataset),):
        raise ValueError(f"weights must be one a row, {len(dataset)} of them, not {list(given.shape)}")
    return given


def _weights_by_class(dataset: ShardDataset, weights: Mapping[str, float]) -> npt.NDArray[np.float64]:
    field, label = the_label_field(dataset)
    classes = label.classes or [str(number) for number in range(label.count)]
    unknown = next((name for name in weights if name not in classes), None)
    missing = next((name for name in classes if name not in weights), None)
    if unknown is not None or missing is not None:
        problem = f"{unknown!r} is no class" if unknown is not None else f"there is none for {missing!r}"
        raise ValueError(f"weights by class: {problem}; the classes are {', '.join(classes[:20])}")
    by_number = np.array([weights[name] for name in classes], dtype=np.float64)
    row_weights: npt.NDArray[np.float64] = by_number[np.asarray(dataset.column(field))]
    return row_weights


def _require_weights(weights: npt.NDArray[np.float64], rows: Rows | None) -> npt.NDArray[np.float64]:
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("weights must be finite numbers of 0 or more, one a row")
    with np.errstate(over="ignore"):
        total = (weights if rows is None else weights[rows]).sum()
    if total == 0:
        raise ValueError("weights are all 0; at least one must be more")
    if not np.isfinite(total):
        raise ValueError("weights must have a finite sum; only their proportions count: divide them all")
    return weights
