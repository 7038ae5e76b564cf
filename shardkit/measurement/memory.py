"""Host memory of this process and all that it started: their proportional set sizes (PSS), added, and watched.

PSS divides a page among those that share it, so that the sum counts each page once. Linux tells it in ``/proc``;
elsewhere nothing is measured.
"""

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROC = Path("/proc")
_INTERVAL = 0.1  # seconds between two looks
_LEAST_PAUSE = 50  # times what a look takes, so that looking takes 2 % of one CPU at most


@dataclass(frozen=True)
class MemoryUse:
    """Memory of some processes together.

    Attributes:
        pss: Bytes, all told.
        files: Bytes of it that are mapped files, such as libraries and memmap shards: the system takes them back
            where it needs room.
    """

    pss: int
    files: int


class MemoryWatch:
    """Looks at memory again and again in a thread of its own, while the ``with`` lasts, and once more at its end.

    Enter it after workers were started: they are looked up once, and a process with threads should not fork.

    Attributes:
        processes: Their numbers, this one first; complete at the end.
        peak: The most that was seen, or None where the system does not tell.
    """

    def __init__(self) -> None:
        self.processes: list[int] = []
        self.peak: MemoryUse | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shardkit-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        self.processes = [os.getpid(), *descendants(os.getpid())]  # here, for it takes milliseconds
        pause = 0.0
        while not self._is_over.wait(pause):
            begin = time.perf_counter()
            self._look()
            pause = max(_INTERVAL, _LEAST_PAUSE * (time.perf_counter() - begin))

    def _look(self) -> None:
        seen = measure_memory(self.processes)
        if seen is not None and (self.peak is None or seen.pss > self.peak.pss):
            self.peak = seen


def measure_memory(processes: Iterable[int]) -> MemoryUse | None:
    """Return the memory of some processes; those that have ended count nothing. None if no process tells."""
    tables = [table for table in map(_read_rollup, processes) if table]
    if not tables:
        return None
    return MemoryUse(
        pss=sum(table["Pss"] for table in tables), files=sum(table.get("Pss_File", 0) for table in tables)
    )


def _read_rollup(process: int) -> dict[str, int]:
    """Return the lines of a process's smaps_rollup in bytes; none if it ended, or the system has no such file."""
    with suppress(OSError):
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()[1:]
        return {name: int(value.split()[0]) * 1024 for name, value in (line.split(":") for line in lines)}
    return {}


def descendants(ancestor: int) -> list[int]:
    """Return the processes that one started, and those that these started."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            # behind the name, which may hold anything: state, then parent
            parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = list(children.get(ancestor, ()))
    for process in found:  # grows as it goes
        found += children.get(process, ())
    return found
