"""A block of memory that is written once, and read by this process and those that it starts without a copy.

It lies in no file system: a container's /dev/shm may be as small as it likes, and nothing is left behind, for the
system takes the memory back with the last process that has it.
"""

import mmap
import os
import tempfile
import weakref
from multiprocessing.reduction import DupFd
from typing import Any

_CHUNK = 1 << 20


class SharedBlock:
    """Bytes that forked children see as well, and processes to which a block is handed as they are started.

    Args:
        descriptor: Of a file that holds the bytes; the block closes it.
        nbytes: How many, at least 1.

    Attributes:
        data: The bytes, read-only.
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self._descriptor = descriptor
        self._nbytes = nbytes
        weakref.finalize(self, os.close, descriptor)
        self.data = memoryview(mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ))

    @classmethod
    def allocate(cls, nbytes: int) -> "SharedBlock":
        """Return a block of zeros.

        Raises:
            OSError: The system has not so much memory.
        """
        size = max(1, nbytes)  # the system maps no empty file
        return cls(_zeros(size), size)

    def writable(self) -> memoryview:
        """Return a view to write to, which is for whoever allocated the block."""
        return memoryview(mmap.mmap(self._descriptor, self._nbytes))

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand the block to a process that is being started; it can be pickled for nothing else."""
        return (_receive, (DupFd(self._descriptor), self._nbytes))


def available_memory() -> int | None:
    """Return how many bytes the machine could give to programs, or None where it does not say (Linux does).

    The field ``MemAvailable`` of /proc/meminfo (proc_meminfo(5)); the limit of a container is not looked at.
    """
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _receive(descriptor: Any, nbytes: int) -> SharedBlock:  # Any: what DupFd made; it has no public type
    return SharedBlock(descriptor.detach(), nbytes)


def _zeros(nbytes: int) -> int:
    """Return the descriptor of a file without a name that holds zeros.

    They are written, for a page that the system cannot give later, when it is first touched, ends the process.
    """
    descriptor = _unnamed_file()
    zeros = bytes(_CHUNK)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            for begin in range(0, nbytes, _CHUNK):
                stream.write(zeros[: nbytes - begin])
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("shardkit")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
