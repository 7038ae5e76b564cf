"""How a batch goes from a DataLoader's worker to the training process: in blocks, small tensors by value.

In a worker a batch is a `WorkerBatch`; what arrives is a plain dict. That holds for what is sent between processes:
whoever copies or pickles a batch gets copies of its tensors.
"""

import os
import weakref
from collections.abc import Iterable
from itertools import accumulate
from multiprocessing import active_children
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree
from torch.utils.data import get_worker_info

from shardkit.errors import ShardkitError
from shardkit.reading.allocation import allocate, is_channels_last
from shardkit.reading.lent_memory import MOST_INLINE, Owner, Shape, Token, bytes_of, worker_memory
from shardkit.transforms.encoded import EncodedImage, EncodedImages

_ALIGNMENT = 64
"""Of tensors that share a block: a multiple of the size of every element."""
_TENSORS = (torch.Tensor, EncodedImage)
_LISTS = (list, EncodedImages)


class WorkerBatch(dict[str, Any]):
    """A batch in the worker that made it."""

    __slots__ = ()


def _flatten(batch: WorkerBatch) -> tuple[list[Any], list[str]]:
    return list(batch.values()), list(batch)


def _unflatten(values: Iterable[Any], names: list[str]) -> WorkerBatch:
    return WorkerBatch(zip(names, values, strict=True))


# Tools that take trees apart see a dict, though the type is another. There is no public way to say so yet.
pytree.register_pytree_node(WorkerBatch, _flatten, _unflatten)


def as_made_here(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch so that it can leave this process, if that is a worker."""
    return batch if get_worker_info() is None else WorkerBatch(batch)


class _PackedBlock(NamedTuple):
    """A block on its way.

    Attributes:
        token: Names it.
        storage: The memory, unless the training process has it already.
    """

    token: Token
    storage: torch.UntypedStorage | None


class _PackedTensor(NamedTuple):
    """A tensor on its way: the memory, by its number or by value, and what `Tensor.set_` takes."""

    memory: int | bytes
    dtype: torch.dtype
    offset: int
    shape: Shape
    stride: Shape


class _PackedList(NamedTuple):
    """Tensors of varying shape on their way, and the type of list that they were."""

    kind: type[list[torch.Tensor]]
    tensors: list[_PackedTensor]


class _Parcel:
    """What a batch is made up of.

    Attributes:
        memories: Tensors whose memory goes with it.
    """

    def __init__(self) -> None:
        self.memories: list[torch.Tensor] = []

    def pack(self, value: Any) -> Any:
        """Return what travels in place of a value."""
        if type(value) in _LISTS and value and all(map(_is_plain, value)):
            return _PackedList(type(value), self._pack_together(value))
        if not _is_plain(value):
            return value
        if worker_memory.block_of(value.untyped_storage()) is not None:
            return _packed(self._add(value), value, value.storage_offset())
        if value.untyped_storage().nbytes() <= MOST_INLINE:
            return _packed(bytes_of(value.untyped_storage()).tobytes(), value, value.storage_offset())
        return value

    def _pack_together(self, tensors: list[torch.Tensor]) -> list[_PackedTensor]:
        dense = [_dense(tensor) for tensor in tensors]
        ends = list(accumulate(-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in dense))
        if ends[-1] <= MOST_INLINE:
            return [_packed(bytes_of(tensor.untyped_storage()).tobytes(), tensor, 0) for tensor in dense]
        together = allocate((ends[-1],), np.dtype(np.uint8))
        number, room = self._add(together), together.numpy()
        packed = []
        for tensor, begin in zip(dense, [0, *ends], strict=False):
            room[begin : begin + tensor.nbytes] = bytes_of(tensor.untyped_storage())
            packed.append(_packed(number, tensor, begin // tensor.itemsize))
        return packed

    def _add(self, tensor: torch.Tensor) -> int:
        address = tensor.untyped_storage().data_ptr()
        for number, known in enumerate(self.memories):
            if known.untyped_storage().data_ptr() == address:
                return number
        self.memories.append(tensor)
        return len(self.memories) - 1


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor that is no more than numbers in memory of this process."""
    return (
        type(value) in _TENSORS
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not (value.is_quantized or value.is_conj() or value.is_neg())
        and not (value.requires_grad or value.is_shared())
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its elements, each once, and nothing else; the same one if it is so."""
    is_whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    is_dense = tensor.is_contiguous() or is_channels_last(tensor)
    return tensor if is_whole and is_dense else tensor.clone(memory_format=torch.contiguous_format)


def _packed(memory: int | bytes, tensor: torch.Tensor, offset: int | torch.SymInt) -> _PackedTensor:
    return _PackedTensor(memory, tensor.dtype, int(offset), tuple(tensor.shape), tuple(tensor.stride()))


def _packed_memory(tensor: torch.Tensor) -> _PackedBlock | torch.UntypedStorage:
    storage = tensor.untyped_storage()
    block = worker_memory.block_of(storage)
    if block is None:
        return storage
    worker_memory.send(block)
    return _PackedBlock(block.token, None if block.is_known else block.storage)


def _reduce(batch: WorkerBatch) -> tuple[Any, ...]:
    parcel = _Parcel()
    values = {name: parcel.pack(value) for name, value in batch.items()}
    return _unpack, (list(map(_packed_memory, parcel.memories)), values, worker_memory.abandoned())


ForkingPickler.register(WorkerBatch, _reduce)


def _unpack(
    packed: list[_PackedBlock | torch.UntypedStorage], values: dict[str, Any], abandoned: list[Token]
) -> dict[str, Any]:
    memories = [_receive(each) if isinstance(each, _PackedBlock) else each for each in packed]
    for token in abandoned:  # and not before: a block may be sent for the last time
        _known.pop(token, None)
    return {name: _unpacked(value, memories) for name, value in values.items()}


def _unpacked(value: Any, memories: list[torch.UntypedStorage]) -> Any:
    if type(value) is _PackedList:
        return value.kind([_unpacked(each, memories) for each in value.tensors])
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
        lent = _known.get(block.token)
        if lent is None:
            raise ShardkitError(
                "a batch of a DataLoader's worker can be received only by the process that started the worker"
            )
    else:
        lent = bytes_of(block.storage)
        _remember(block.token, lent)
    array = np.ndarray(len(lent) - 1, np.uint8, lent)
    receipt = _Receipt(block.token, lent, os.getpid())
    _receipts.add(receipt)
    weakref.finalize(array, receipt.give_back).atexit = False
    return torch.from_numpy(array).untyped_storage()


_known: dict[Token, npt.NDArray[np.uint8]] = {}
"""The blocks of living workers of this process."""


def _remember(token: Token, lent: npt.NDArray[np.uint8]) -> None:
    """Keep a block as long as the worker that lends it, if that is one of this process."""
    worker = next((process for process in active_children() if process.pid == token[0]), None)
    if worker is not None:
        _known[token] = lent
        weakref.finalize(worker, _known.pop, token, None).atexit = False


class _Receipt:
    """That a process has a block.

    Args:
        token: Names it.
        lent: Its memory.
        process: Who has it.

    Attributes:
        is_inherited: Whether a forked child may have it too: then it is not given back at all.
    """

    def __init__(self, token: Token, lent: npt.NDArray[np.uint8], process: int) -> None:
        self._token = token
        self._lent = lent
        self._process = process
        self.is_inherited = False

    def give_back(self) -> None:
        """Let the worker use the block again."""
        _receipts.discard(self)
        if self._process == os.getpid() and not self.is_inherited:
            is_kept = _known.get(self._token) is self._lent
            self._lent[-1] = Owner.RETURNED if is_kept else Owner.FREE


_receipts: set[_Receipt] = set()
"""Those of batches that somebody has."""


def _before_fork() -> None:
    for receipt in list(_receipts):
        receipt.is_inherited = True


os.register_at_fork(before=_before_fork, after_in_child=_known.clear)
