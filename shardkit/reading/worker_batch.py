"""How a batch goes from a DataLoader's worker to the training process: by blocks that are used again and again.

In a worker a batch is a `WorkerBatch`; what arrives is a plain dict. Only between processes it goes so: whoever
pickles one for anything else gets copies of its tensors.
"""

import os
import weakref
from multiprocessing import active_children
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from shardkit.reading.lent_memory import FREE, MOST_INLINE, RETURNED, Block, Shape, bytes_of, worker_memory

Token = tuple[int, int]


class WorkerBatch(dict[str, Any]):
    """A batch in the worker that made it."""

    __slots__ = ()


def as_made_here(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch so that it can leave this process, if that is a worker."""
    return batch if get_worker_info() is None else WorkerBatch(batch)


class _PackedBlock(NamedTuple):
    """A block on its way.

    Attributes:
        token: Its name.
        storage: The memory, until the training process has it.
    """

    token: Token
    storage: torch.UntypedStorage | None


class _PackedTensor(NamedTuple):
    """A tensor on its way: the memory, as the number of a block or by value, and what `Tensor.set_` takes."""

    memory: int | bytes
    dtype: torch.dtype
    offset: int
    shape: Shape
    stride: Shape


class _Parcel:
    """What a batch is made up of."""

    def __init__(self) -> None:
        self.blocks: dict[Block, int] = {}

    def pack(self, value: Any) -> Any:
        """Return what travels in place of a value."""
        if type(value) is list:
            return [self.pack(each) for each in value]
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.requires_grad:
            return value
        if value.device.type != "cpu" or value.is_shared():  # type: ignore[no-untyped-call]  # by torch
            return value
        storage = value.untyped_storage()
        memory = self._number_of(storage)
        if memory is None and storage.nbytes() <= MOST_INLINE:
            memory = bytes_of(storage).tobytes()
        if memory is None:
            return value
        return _PackedTensor(
            memory, value.dtype, int(value.storage_offset()), tuple(value.shape), tuple(value.stride())
        )

    def _number_of(self, storage: torch.UntypedStorage) -> int | bytes | None:
        block = worker_memory.block_of(storage)
        return None if block is None else self.blocks.setdefault(block, len(self.blocks))


def _reduce(batch: WorkerBatch) -> tuple[Any, ...]:
    parcel = _Parcel()
    values = {name: parcel.pack(value) for name, value in batch.items()}
    blocks = []
    for block in parcel.blocks:
        block.is_sent = True
        blocks.append(_PackedBlock(block.token, None if block.is_known else block.storage))
    return _unpack, (blocks, values)


ForkingPickler.register(WorkerBatch, _reduce)


def _unpack(blocks: list[_PackedBlock], values: dict[str, Any]) -> dict[str, Any]:
    memories = [_receive(block) for block in blocks]
    return {name: _unpacked(value, memories) for name, value in values.items()}


def _unpacked(value: Any, memories: list[torch.UntypedStorage]) -> Any:
    if type(value) is list:
        return [_unpacked(each, memories) for each in value]
    if type(value) is not _PackedTensor:
        return value
    if isinstance(value.memory, bytes):
        storage = torch.from_numpy(np.frombuffer(bytearray(value.memory), np.uint8)).untyped_storage()
    else:
        storage = memories[value.memory]
    empty = torch.empty(0, dtype=value.dtype, device="cpu")
    return empty.set_(storage, value.offset, value.shape, value.stride)


def _receive(block: _PackedBlock) -> torch.UntypedStorage:
    """Return the memory of a block as one that goes back to the worker when no tensor refers to it any more."""
    if block.storage is None:
        lent = _known[block.token]
    else:
        lent = bytes_of(block.storage)
        _remember(block.token, lent)
    array = np.ndarray(len(lent) - 1, np.uint8, lent)
    weakref.finalize(array, _give_back, block.token, lent, os.getpid()).atexit = False
    return torch.from_numpy(array).untyped_storage()


_known: dict[Token, npt.NDArray[np.uint8]] = {}
"""The blocks of living workers of this process."""


def _remember(token: Token, lent: npt.NDArray[np.uint8]) -> None:
    """Keep a block as long as the worker that lends it, if that is one of this process."""
    worker = next((process for process in active_children() if process.pid == token[0]), None)
    if worker is not None:
        _known[token] = lent
        weakref.finalize(worker, _known.pop, token, None).atexit = False


def _give_back(token: Token, lent: npt.NDArray[np.uint8], process: int) -> None:
    if os.getpid() == process:  # and no child that was forked meanwhile
        lent[-1] = RETURNED if _known.get(token) is lent else FREE


os.register_at_fork(after_in_child=_known.clear)
