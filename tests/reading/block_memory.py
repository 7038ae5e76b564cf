"""Looks at the memory of processes that read a preloaded data set; workers import it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_NAME = "/memfd:shardkit"


def open_blocks() -> set[int]:
    """Return the inodes of the blocks of memory that this process has mapped or open."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = {int(line.split()[4]) for line in lines if _NAME in line}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # what listed the folder is closed by now
            if _NAME in os.readlink(f"/proc/self/fd/{name}"):
                found.add(os.stat(int(name)).st_ino)
    return found


def mapped_of(block: int, process: int | str = "self") -> dict[str, int]:
    """Return Rss and Pss, in KiB, of a block in a process."""
    is_block, sizes = False, dict.fromkeys(["Rss", "Pss"], 0)
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            is_block = _NAME in line and int(values[3]) == block
        elif is_block and name[:-1] in sizes:
            sizes[name[:-1]] += int(values[0])
    return sizes


def anonymous_of(process: int | str = "self") -> int:
    """Return KiB of memory that a process has resident and that is no file's, whether others share it or not."""
    return int(Path(f"/proc/{process}/status").read_text().split("RssAnon:")[1].split()[0])


def read_and_tell(samples: Any) -> tuple[list[int], int, set[int]]:
    """Return the number that fills the array of each sample, the process, and the blocks that it has."""
    arrays = [sample["x"] for sample in samples]
    if not all(bool((array == array[0]).all()) for array in arrays):
        raise ValueError("an array holds more than one number")
    return [int(array[0]) for array in arrays], os.getpid(), open_blocks()
