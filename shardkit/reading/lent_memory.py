"""Memory that a DataLoader's worker lends to the training process with a batch, and has back when that is let go.

By itself torch makes new shared memory for each tensor that leaves a worker: pages that the system clears, a file whose
descriptor goes through a socket, a memory map. For a batch of a megabyte that takes longer than reading it. Here both
processes keep a block and its map, and its last byte says who has it:

    =========  ==========================================  ======================================================
    last byte  written by                                  then
    =========  ==========================================  ======================================================
    LENT       the worker, when it makes a batch in it     the worker leaves it alone
    RETURNED   the training process, when no tensor        the worker uses it again, and sends no more than its
               refers to what it received                  token: the training process has kept the block
    FREE       the same, where it has not kept the block   the worker uses it again, and sends it anew
    =========  ==========================================  ======================================================

A block that was lent, and whose batch was dropped before it was sent, is free as well, whatever the byte says. While
anything in the worker itself refers to the batch, it is not. One byte is written at once, and after all that its
writer did with the block: the interpreter's locks order it.
"""

import math
import os
import threading
import weakref
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

MOST_INLINE = 1 << 14
"""Bytes of a tensor that is sent by value, as a part of the message: quicker than a block."""
_MOST_BLOCKS = 32
"""Of a worker. Beyond that (when many batches are kept) tensors get shared memory of their own, as torch makes it."""
_MOST_UNSENT = 4
_UNUSED_FOR = 64
"""Tensors made since a block was last lent, after which the worker gives it up: it is not needed, or its batch is
kept for long, and who has the batch has the memory."""

Shape = tuple[int, ...]
Token = tuple[int, bytes]


class Owner(IntEnum):
    """What the last byte of a block says."""

    FREE = 0
    LENT = 1
    RETURNED = 2


class Block:
    """Shared memory of a worker.

    Args:
        nbytes: Room for values.

    Attributes:
        token: Names it: the process, and chance.
        storage: The memory, with a byte more.
        nbytes: Room for values.
        is_known: Whether the training process has kept it.
        is_sent: Whether it is on its way to the training process, or there.
        last_use: When it was lent, in tensors made.
    """

    def __init__(self, nbytes: int) -> None:
        self.token: Token = (os.getpid(), os.urandom(8))  # a process may get the number of an earlier one
        self.storage = shared_storage(nbytes + 1)
        self.nbytes = nbytes
        self.is_known = False
        self.is_sent = False
        self.last_use = 0
        self._bytes = bytes_of(self.storage)
        self._user: weakref.ref[npt.NDArray[Any]] | None = None

    @property
    def is_free(self) -> bool:
        """Whether it can be lent."""
        if self._user is not None and self._user() is not None:  # first: whoever sends it drops it afterwards
            return False
        return not self.is_sent or self._bytes[-1] != Owner.LENT

    @property
    def was_dropped(self) -> bool:
        """Whether it was lent, and let go of without being sent."""
        return self._user is not None and not self.is_sent

    def lend(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor in it, whose content is yet to be written."""
        if self.is_sent:
            self.is_known = bool(self._bytes[-1] == Owner.RETURNED)
        self.is_sent = False
        self._bytes[-1] = Owner.LENT
        array = np.ndarray(math.prod(shape) * dtype.itemsize, np.uint8, self._bytes)
        self._user = weakref.ref(array)  # which the storage holds, and so all that is made of the tensor
        return torch.from_numpy(array).view(dtype).view(shape)


class LentMemory:
    """The blocks of a worker. Safe in threads: batches are packed by another one than makes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[Block] = []
        self._made = 0
        self._unsent = 0
        self._abandoned: list[Token] = []

    def allocate(self, shape: Shape, dtype: torch.dtype) -> torch.Tensor | None:
        """Return a tensor in a block, or None where it should have memory of its own.

        That is so if it is small, if many batches are kept, or if one after the other is not sent as it was made, since
        a collation of the user's makes others of them.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= MOST_INLINE or self._unsent > _MOST_UNSENT:
            return None
        with self._lock:
            block = self._find(nbytes)
            if block is None:
                return None
            self._unsent += block.was_dropped
            self._made += 1
            block.last_use = self._made
            return block.lend(shape, dtype)

    def block_of(self, storage: torch.UntypedStorage) -> Block | None:
        """Return the block in which a tensor lies that was lent, and has not been sent."""
        address = storage.data_ptr()
        with self._lock:
            for block in self._blocks:
                if block.storage.data_ptr() == address and not block.is_sent:
                    return block
        return None

    def send(self, block: Block) -> None:
        """Note that a block goes to the training process."""
        with self._lock:
            block.is_sent = True
            self._unsent = 0

    def abandoned(self) -> list[Token]:
        """Return the names of blocks that will not come again, for the training process to forget; each once."""
        with self._lock:
            tokens, self._abandoned = self._abandoned, []
        return tokens

    def _find(self, nbytes: int) -> Block | None:
        self._abandon([block for block in self._blocks if self._made - block.last_use > _UNUSED_FOR])
        free = sorted((block for block in self._blocks if block.is_free), key=lambda block: block.nbytes)
        for block in free:
            if nbytes <= block.nbytes <= 2 * nbytes:
                return block
        if len(self._blocks) >= _MOST_BLOCKS:
            self._abandon(free[:1])
        if len(self._blocks) >= _MOST_BLOCKS:
            return None
        self._blocks.append(Block(_rounded(nbytes)))
        return self._blocks[-1]

    def _abandon(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._blocks.remove(block)
            self._abandoned.append(block.token)


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
