"""Memory that a DataLoader's worker lends to the training process with a batch, and has back when that is let go.

torch by itself makes new shared memory for each tensor that leaves a worker: pages that the system clears, a file, its
descriptor handed over through a socket, a map of it. For a batch of a megabyte that takes longer than to read it. Here
a block is handed over once; then both have it, and its last byte says whose it is.
"""

import math
import os
import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

FREE, LENT, RETURNED = range(3)
"""What the last byte of a block says: nobody has it; a batch has it; nobody has it, and the training process knows it
by its token."""
MOST_INLINE = 1 << 14
"""Bytes of a tensor that goes by value: as a part of the message, which is quicker than by a block."""
_MOST_BLOCKS = 32
"""Of a worker. Where more are in use, because batches are kept, the others are made for once, as torch does."""
_MOST_UNSENT = 4

Shape = tuple[int, ...]
Token = tuple[int, bytes]


class Block:
    """Shared memory of a worker.

    Args:
        nbytes: Room for values.

    Attributes:
        token: Names it: the process, and chance.
        storage: The memory, with a byte more.
        is_known: Whether the training process has it already.
        is_sent: Whether it is on its way to the training process, or there.
    """

    def __init__(self, nbytes: int) -> None:
        self.token: Token = (os.getpid(), os.urandom(8))  # a process may have the number of one before
        self.storage = shared_storage(nbytes + 1)
        self.is_known = False
        self.is_sent = False
        self._bytes = bytes_of(self.storage)
        self._user: weakref.ref[npt.NDArray[Any]] | None = None

    @property
    def nbytes(self) -> int:
        """Room for values."""
        return len(self._bytes) - 1

    @property
    def is_free(self) -> bool:
        """Whether it can be lent."""
        if self.is_sent:
            return bool(self._bytes[-1] != LENT)
        return self._user is None or self._user() is None

    @property
    def was_dropped(self) -> bool:
        """Whether it was lent, and let go of without being sent."""
        return self._user is not None and not self.is_sent

    def lend(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor in it, whose content is yet to be written."""
        if self.is_sent:
            self.is_known = bool(self._bytes[-1] == RETURNED)
        self.is_sent = False
        self._bytes[-1] = LENT
        array = np.ndarray(math.prod(shape) * dtype.itemsize, np.uint8, self._bytes)
        self._user = weakref.ref(array)  # which the storage holds, and so all that is made of the tensor
        return torch.from_numpy(array).view(dtype).view(shape)


class LentMemory:
    """The blocks of a worker. Safe in threads: what is packed is packed by another one than it is made by."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[Block] = []
        self._unsent = 0
        self._abandoned: list[Token] = []

    def allocate(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor | None:
        """Return a tensor in a block, or None where it should have memory of its own.

        That is so if it is small, or if batches are kept, or if they are not sent as they are made: a collation of the
        user's then makes others of them.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= MOST_INLINE or self._unsent > _MOST_UNSENT:
            return None
        with self._lock:
            block = self._find(nbytes)
            if block is None:
                return None
            if block.was_dropped:
                self._unsent += 1
            return block.lend(shape, dtype)

    def block_of(self, storage: torch.UntypedStorage) -> Block | None:
        """Return the block in which a tensor lies that was lent, and has not been sent."""
        address = storage.data_ptr()
        for block in self._blocks:
            if block.storage.data_ptr() == address and not block.is_sent:
                return block
        return None

    def _find(self, nbytes: int) -> Block | None:
        free = sorted((block for block in self._blocks if block.is_free), key=lambda block: block.nbytes)
        for block in free:
            if block.nbytes >= nbytes:
                return block
        if len(self._blocks) >= _MOST_BLOCKS:
            if not free:
                return None
            self._blocks.remove(free[0])
            self._abandoned.append(free[0].token)
        self._blocks.append(Block(_rounded(nbytes)))
        return self._blocks[-1]

    def abandoned(self) -> list[Token]:
        """Return the names of blocks that will not come again, for the training process to forget; each once."""
        with self._lock:
            tokens, self._abandoned = self._abandoned, []
        return tokens


worker_memory = LentMemory()
"""That of this process, if it is a worker."""


def _rounded(nbytes: int) -> int:
    """Return a size a little above, so that batches of many sizes fit blocks of few."""
    step = 1 << max(0, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


def shared_storage(nbytes: int) -> torch.UntypedStorage:
    """Return memory that can leave this process without a copy."""
    storage: torch.UntypedStorage = torch.UntypedStorage._new_shared(nbytes, device="cpu")  # type: ignore[no-untyped-call]  # by torch
    return storage


def bytes_of(storage: torch.UntypedStorage) -> npt.NDArray[np.uint8]:
    """Return a view of memory, ``uint8[n]``."""
    array: npt.NDArray[np.uint8] = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
    return array
