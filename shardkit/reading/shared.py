"""Memory that a process shares with the DataLoader workers it starts, and with no other process.

Ranks that are started from one data set object, by fork or by spawn, would else share it too.
"""

import os
import weakref

import torch
from torch.utils.data import get_worker_info


class SharedTensor:
    """A tensor of the process that uses it, which its DataLoader workers read and write as well.

    A process that came by it from another one, and is no worker, takes a copy of its own before it uses it or
    hands it on. Where that is by fork, nothing else tells it: hence the hook below.

    Args:
        initial: What the tensor holds at first.
    """

    def __init__(self, initial: torch.Tensor) -> None:
        self._take(initial)
        _living.add(self)

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor, in shared memory."""
        self.own()
        return self._tensor

    def own(self) -> None:
        """Make the tensor this process's own, unless it is, or the process is a worker."""
        if self._owner != os.getpid() and get_worker_info() is None:
            self._take(self._tensor)

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over what another process handed on: still its own, until `own`."""
        self.__dict__.update(state)
        _living.add(self)

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a process that is being started, in which the memory stays shared."""
        return {"_tensor": self.tensor, "_owner": self._owner}

    def _take(self, content: torch.Tensor) -> None:
        # copied by numpy: torch copies over 32 KB in threads, which a forked process waits for in vain
        storage = torch.UntypedStorage._new_shared(content.nbytes, device="cpu")  # type: ignore[no-untyped-call]  # by torch
        self._tensor: torch.Tensor = torch.empty(0, dtype=content.dtype, device="cpu").set_(storage)
        self._tensor.numpy()[:] = content.numpy()
        self._owner = os.getpid()


_living: "weakref.WeakSet[SharedTensor]" = weakref.WeakSet()


def _own_all() -> None:
    for shared in list(_living):
        shared.own()


os.register_at_fork(before=_own_all)
