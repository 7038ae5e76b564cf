"""From the rows of a batch to the batch itself, in parts that threads can share."""

from typing import Protocol

import torch

from shardkit.reading.allocation import Allocate, allocate
from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import Batch, Sample, collate
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.row_batch import DECODED_AT_ONCE


class BatchInTheMaking(Protocol):
    """A batch that is filled part by part, in any order and by any thread, and then handed out."""

    @property
    def part_size(self) -> int:
        """Places that one call of `fill` should take."""

    def fill(self, begin: int, end: int) -> None:
        """Read the samples at the places from `begin` to `end`.

        Raises:
            ShardkitError: As for `ShardDataset`.
        """

    def batch(self) -> Batch:
        """Return the batch, once all its places are filled."""


class TransformedBatch:
    """A batch of samples that go through a transform, one by one.

    Args:
        dataset: Has a transform.
        rows: Of the batch.
    """

    part_size = DECODED_AT_ONCE

    def __init__(self, dataset: ShardDataset, rows: BatchRows) -> None:
        self._dataset = dataset
        self._rows = rows
        self._samples: list[Sample | None] = [None] * len(rows)

    def fill(self, begin: int, end: int) -> None:
        """Read and transform the samples at the places from `begin` to `end`."""
        self._samples[begin:end] = self._dataset.read_batch(self._rows.part(begin, end))

    def batch(self) -> Batch:
        """Return what `collate` makes of the samples."""
        batch = collate(self._samples)
        if self._rows.is_pad is not None:
            batch.setdefault(
                "is_pad", torch.zeros(0, dtype=torch.bool, device="cpu")
            )  # all of it was filtered
        return batch


def begin_batch(dataset: ShardDataset, rows: BatchRows, memory: Allocate) -> BatchInTheMaking:
    """Return the batch of some rows, yet to be filled; it has ``"is_pad"`` (``bool[B]``) if the tail is padded."""
    return TransformedBatch(dataset, rows) if dataset.has_transform else dataset.begin_batch(rows, memory)


def read_rows(dataset: ShardDataset, rows: BatchRows) -> Batch:
    """Return the batch of some rows.

    Raises:
        ShardkitError: As for `ShardDataset`.
    """
    making = begin_batch(dataset, rows, allocate)
    making.fill(0, len(rows))
    return making.batch()
