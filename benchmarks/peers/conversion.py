"""What every writer in this folder shares: which files there are, and how a conversion is timed and reported.

Each writer is a program: ``write_X.py PHOTOS OUT WORKERS``. It runs in the peer's own environment, so this folder uses
the standard library and the one peer. The last line of its output is a JSON object.
"""

import importlib.metadata
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Photo(NamedTuple):
    """A file of the folder: its path within, ``/`` between, where it is, and the number of its subfolder."""

    id: str
    path: str
    label: int


def list_photos(folder: str) -> list[Photo]:
    """Return the photos of a folder with one subfolder a class, sorted by id."""
    files = sorted(file.relative_to(folder).as_posix() for file in Path(folder).glob("*/*.jpg"))
    classes = sorted({file.split("/")[0] for file in files})
    numbers = {name: number for number, name in enumerate(classes)}
    return [Photo(file, f"{folder}/{file}", numbers[file.split("/")[0]]) for file in files]


def read(photo: Photo) -> bytes:
    """Return the bytes of a photo's file."""
    with open(photo.path, "rb") as file:
        return file.read()


def run(package: str, convert: Callable[[str, str, int], None], count: Callable[[str], int]) -> None:
    """Convert what the command line names, and print what that took and how much there is to show for it.

    Args:
        package: Whose version is reported.
        convert: Is given the folder of photos, the output and the number of processes. Only this is timed.
        count: Returns how many records an output holds, by the peer's own reader.
    """
    photos, out, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    wall, cpu = time.perf_counter(), _cpu_seconds()
    convert(photos, out, workers)
    report: dict[str, float] = {"wall": time.perf_counter() - wall}
    for child in multiprocessing.active_children():  # CPU time counts once a child was waited for
        child.join()
    report["cpu"] = _cpu_seconds() - cpu
    report["records"] = count(out)
    files = [Path(out)] if Path(out).is_file() else [file for file in Path(out).rglob("*") if file.is_file()]
    report["bytes"] = sum(file.stat().st_size for file in files)
    print(json.dumps(report | {"version": f"{package} {importlib.metadata.version(package)}"}), flush=True)


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
