"""The output folder of a run: claimed before anything is written, and left without a trace if nothing is committed.

A folder is ours to write into if it does not exist, is empty, holds a data set (with leave to overwrite it), or
holds only what an ingest that never finished left behind. One run at a time holds its lock.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from shardkit.errors import OutputError
from shardkit.store import MANIFEST_NAME, Manifest, load_manifest, remove_unreferenced

REPORTS = "reports"
_LOCK_NAME = ".shardkit.lock"
_OURS = frozenset({MANIFEST_NAME, "index", "shards", REPORTS, _LOCK_NAME})


@dataclass(frozen=True)
class Output:
    """A claimed output folder.

    Attributes:
        root: The folder.
        previous: The data set that stands there and will be replaced, or None.
        first_shard: Number of the first new shard; above every number in use, so that old shards stay readable.
        generation: Generation of the data set to be committed.
    """

    root: Path
    previous: Manifest | None
    first_shard: int
    generation: int


@contextlib.contextmanager
def claim(root: Path, overwrite: bool) -> Iterator[Output]:
    """Hold the output folder for one run.

    Whatever a run wrote but did not commit is removed at the end, whether it succeeded or not; and a folder that
    this call made is removed if it is empty then.

    Raises:
        OutputError: It cannot be written, holds other files, holds a data set and `overwrite` is False, or
            another run is writing to it.
        FormatError: It holds a data set whose manifest cannot be read, even with `overwrite`.
    """
    made = _make(root)
    try:
        with _locked(root):
            previous = _previous(root, overwrite)
            remove_unreferenced(root, previous)
            try:
                yield _claimed(root, previous)
            finally:
                remove_unreferenced(root, load_manifest(root) if (root / MANIFEST_NAME).exists() else None)
    finally:
        if made:
            with contextlib.suppress(OSError):
                root.rmdir()


def _claimed(root: Path, previous: Manifest | None) -> Output:
    if previous is None:
        return Output(root, previous, first_shard=0, generation=1)
    highest = max((shard.number for shard in previous.shards), default=-1)
    return Output(root, previous, highest + 1, previous.generation + 1)


def _make(root: Path) -> bool:
    """Make the folder if need be and return whether it was made."""
    try:
        if root.is_dir():
            return False
        root.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{root}: cannot make the output folder: {error.strerror}", path=root) from error
    return True


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    lock = FileLock(root / _LOCK_NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise OutputError(f"{root}: another ingest is writing to this folder", path=root) from error
    except OSError as error:
        raise OutputError(
            f"{root}: cannot write to the output folder: {error.strerror}", path=root
        ) from error
    try:
        yield
    finally:
        (root / _LOCK_NAME).unlink(
            missing_ok=True
        )  # before the release: whoever holds the lock owns the name
        lock.release()


def _previous(root: Path, overwrite: bool) -> Manifest | None:
    if (root / MANIFEST_NAME).exists():
        if not overwrite:
            raise OutputError(
                f"{root}: already holds a data set; choose another folder, or pass --overwrite to replace it",
                path=root,
            )
        return load_manifest(root)
    foreign = sorted(entry.name for entry in root.iterdir() if entry.name not in _OURS)
    if foreign:
        raise OutputError(
            f"{root}: is not empty and not a data set (it holds {foreign[0]!r}); choose another folder",
            path=root,
        )
    return None
