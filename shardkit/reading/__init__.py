"""The torch side: which record comes when, how it is decoded, batched and moved to the device."""

from shardkit.reading.collate import Batch, Sample, collate
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.device import DevicePrefetcher
from shardkit.reading.iterable import ShardIterableDataset
from shardkit.reading.loader import ShardLoader
from shardkit.reading.order import Order, Shuffle, epoch_order
from shardkit.reading.partition import Partition, Tail, worker_steps
from shardkit.reading.sampler import ShardSampler

__all__ = [
    "Batch",
    "DevicePrefetcher",
    "Order",
    "Partition",
    "Sample",
    "ShardDataset",
    "ShardIterableDataset",
    "ShardLoader",
    "ShardSampler",
    "Shuffle",
    "Tail",
    "collate",
    "epoch_order",
    "worker_steps",
]
