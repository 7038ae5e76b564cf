"""Memory that a process shares with the DataLoader workers it starts, and with no other process.

Ranks that are started from one data set object, by fork or by spawn, would else share it too.
"""

import os
import weakref
from multiprocessing.context import get_spawning_popen

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
        self._at_fork: torch.Tensor | None = None
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
            self._take(self._tensor if self._at_fork is None else self._at_fork)

    def prepare_fork(self) -> None:
        """Keep what the tensor holds for the process that is forked next, whose parent may change it meanwhile."""
        self.own()
        is_small = self._tensor.nbytes <= _SMALL
        self._at_fork = torch.from_numpy(self._tensor.numpy().copy()) if is_small else None

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over what another process handed on: still its own, until `own`."""
        self.__dict__.update(state)
        _living.add(self)

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a process that is being started, in which the memory stays shared; or for a copy."""
        is_shared = get_spawning_popen() is not None
        return {"_tensor": self.tensor, "_owner": self._owner if is_shared else None, "_at_fork": None}

    def _take(self, content: torch.Tensor) -> None:
        # copied by numpy: torch copies over 32 KB in threads, which a forked process waits for in vain
        storage = torch.UntypedStorage._new_shared(content.nbytes, device="cpu")  # type: ignore[no-untyped-call]  # by torch
        self._tensor: torch.Tensor = torch.empty(0, dtype=content.dtype, device="cpu").set_(storage)
        self._tensor.numpy()[:] = content.numpy()
        self._owner: int | None = os.getpid()


_SMALL = 1 << 20  # bytes; copying more would slow down every fork
_living: "weakref.WeakSet[SharedTensor]" = weakref.WeakSet()


def _prepare_all() -> None:
    for shared in list(_living):
        shared.prepare_fork()


os.register_at_fork(before=_prepare_all)
