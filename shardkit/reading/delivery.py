"""From the rows of batches to the batches themselves, in parts that threads can share."""

from collections.abc import Sequence
from typing import Protocol

import torch

from shardkit.reading.allocation import Allocate, allocate
from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import Batch, Sample, collate
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.row_batch import DECODED_AT_ONCE


class Making(Protocol):
    """Batches that are filled part by part, in any order and by any thread, and then handed out."""

    @property
    def part_size(self) -> int:
        """Places that one call of `fill` should take."""

    def fill(self, begin: int, end: int) -> None:
        """Read the samples at the places from `begin` to `end`.

        Raises:
            ShardkitError: As for `ShardDataset`.
        """

    def batches(self) -> list[Batch]:
        """Return the batches, once all places are filled."""


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

    def batches(self) -> list[Batch]:
        """Return what `collate` makes of the samples."""
        batch = collate(self._samples)
        if self._rows.is_pad is not None:
            batch.setdefault(
                "is_pad", torch.zeros(0, dtype=torch.bool, device="cpu")
            )  # all of it was filtered
        return [batch]


def begin_run(dataset: ShardDataset, run: Sequence[BatchRows], memory: Allocate) -> Making:
    """Return the batches of a run, yet to be filled; they have ``"is_pad"`` (``bool[B]``) if the tail is padded."""
    if len(run) > 1:
        return dataset.begin_batches(run, memory)
    return TransformedBatch(dataset, run[0]) if dataset.has_transform else dataset.begin_batch(run[0], memory)


def read_rows(dataset: ShardDataset, rows: BatchRows) -> Batch:
    """Return the batch of some rows.

    Raises:
        ShardkitError: As for `ShardDataset`.
    """
    (batch,) = read_run(dataset, [rows], allocate)
    return batch


def read_run(dataset: ShardDataset, run: Sequence[BatchRows], memory: Allocate) -> list[Batch]:
    """Return the batches of a run.

    Raises:
        ShardkitError: As for `ShardDataset`, of any of them.
    """
    making = begin_run(dataset, run, memory)
    making.fill(0, sum(map(len, run)))
    return making.batches()
