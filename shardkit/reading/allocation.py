"""Where batches lie in memory.

In a DataLoader's worker that is shared with the parent, where a device wants it pinned, and in a `ShardLoader`
where a batch lay that nobody holds any more. Fresh pages cost: the system clears each when it is first written, which
for small photos takes a tenth of the time of decoding them.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate, get_worker_info

from shardkit.reading.lent_memory import MOST_INLINE, shared_storage, worker_memory

Shape = tuple[int, ...]
Allocate = Callable[[Shape, "np.dtype[Any]"], torch.Tensor]
"""Returns a contiguous tensor of a shape and dtype, whose content is yet to be written."""


def allocate_private(shape: Shape, dtype: "np.dtype[Any]") -> torch.Tensor:
    """Return memory of this process."""
    return torch.empty(shape, dtype=_torch_dtype(dtype), device="cpu")


def allocate(shape: Shape, dtype: "np.dtype[Any]") -> torch.Tensor:
    """Return memory that can leave this process without a copy if it is a DataLoader's worker."""
    return _allocate(shape, _torch_dtype(dtype))


def stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors of one shape and dtype stacked on a new first axis, in memory as `allocate` gives it."""
    first = tensors[0]
    if type(first) is not torch.Tensor or first.layout != torch.strided or first.device.type != "cpu":
        return cast(torch.Tensor, default_collate(list(tensors)))
    if first.requires_grad or get_worker_info() is None:
        return torch.stack(list(tensors))
    return torch.stack(list(tensors), out=_allocate((len(tensors), *first.shape), first.dtype))


def allocate_pinned(shape: Shape, dtype: "np.dtype[Any]") -> torch.Tensor:
    """Return page-locked memory, which torch itself uses again once a device has read it."""
    return torch.empty(shape, dtype=_torch_dtype(dtype), pin_memory=True, device="cpu")


class RecycledMemory:
    """Gives out memory that it gave out before, once no tensor refers to it. For one thread.

    Args:
        most: Blocks that are kept; should be as many as are in use at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._blocks: list[tuple[npt.NDArray[np.uint8], weakref.ref[npt.NDArray[Any]]]] = []

    def allocate(self, shape: Shape, dtype: "np.dtype[Any]") -> torch.Tensor:
        """Return memory in the sense of `Allocate`."""
        nbytes = math.prod(shape) * dtype.itemsize
        block = self._take(nbytes)
        array = block[:nbytes].view(dtype).reshape(shape)
        # The tensor's storage refers to this very array, and so does whatever is made of the tensor: when it dies,
        # nobody can see the block any more.
        self._blocks.append((block, weakref.ref(array)))
        return torch.from_numpy(array)

    def _take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        for number, (block, user) in enumerate(self._blocks):
            if user() is None and block.nbytes >= nbytes:
                del self._blocks[number]
                return block
        while len(self._blocks) >= self._most:
            del self._blocks[0]
        return np.empty(nbytes, dtype=np.uint8)


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is ``[C,H,W]`` by shape and ``[H,W,C]``, without gaps, in memory."""
    return tensor.dim() == 3 and not tensor.is_contiguous() and tensor.permute(1, 2, 0).is_contiguous()


def _allocate(shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    nbytes = math.prod(shape) * dtype.itemsize
    if get_worker_info() is None or nbytes <= MOST_INLINE:
        return torch.empty(shape, dtype=dtype, device="cpu")
    lent = worker_memory.allocate(shape, dtype)
    if lent is not None:
        return lent
    return torch.empty(0, dtype=dtype, device="cpu").set_(shared_storage(nbytes)).view(shape)


def _torch_dtype(dtype: "np.dtype[Any]") -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
