"""The batch sampler: the same batches as the iterable data set, for a DataLoader over a map-style one."""

from torch.utils.data import Sampler

from shardkit.reading.batches import BatchIterator
from shardkit.reading.rank_batches import RankBatches


class ShardSampler(RankBatches, Sampler[list[int]]):
    """The rows of each batch of one rank: give it to a DataLoader as ``batch_sampler``.

    The sequence is that of a `ShardIterableDataset` with the same arguments. With ``tail="pad"`` each sample gets
    ``"is_pad"``, which marks repeats that only fill the last batch. The arguments are those of `RankBatches`;
    `dataset` is the one that the DataLoader reads.

    Example:
        >>> sampler = ShardSampler(data, batch_size=64)
        >>> loader = DataLoader(data, batch_sampler=sampler, num_workers=2, collate_fn=collate)
        >>> for epoch in range(90):
        ...     sampler.set_epoch(epoch)
        ...     for step, batch in enumerate(loader, start=1):
        ...         train(batch)
        ...         checkpoint = sampler.state_dict(step)
    """

    def __iter__(self) -> BatchIterator:
        return self._begin()
