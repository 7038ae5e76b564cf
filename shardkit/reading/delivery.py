"""From the rows of a batch to the batch itself."""

import torch

from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import Batch, collate
from shardkit.reading.dataset import ShardDataset


def read_rows(dataset: ShardDataset, rows: BatchRows) -> Batch:
    """Return the batch of some rows, with ``"is_pad"`` (``bool[B]``) if the tail is padded.

    Raises:
        ShardkitError: As for `ShardDataset.read_batch`.
    """
    batch = collate([sample for sample in dataset.read_batch(rows) if sample is not None])
    if rows.is_pad is not None:
        batch.setdefault("is_pad", torch.zeros(0, dtype=torch.bool))  # all of it was filtered
    return batch
