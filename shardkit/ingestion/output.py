"""The output folder of a run: claimed before anything is written, and left without a trace if nothing is committed.

A folder is ours to write into if it does not exist, is empty, holds a data set (with leave to overwrite it), or
holds only what an ingest that never finished left behind. One run at a time holds its lock.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardkit.errors import OutputError
from shardkit.ingestion.lock import LOCK_NAME, hold_lock
from shardkit.store import (
    MANIFEST_NAME,
    STORE_NAMES,
    Manifest,
    load_manifest,
    make_folder,
    remove_unreferenced,
)

REPORTS = "reports"
_OURS = STORE_NAMES | {REPORTS, LOCK_NAME}


@dataclass(frozen=True)
class Output:
    """A claimed output folder.

    Attributes:
        root: The folder.
        first_shard: Number of the first new shard; above every number in use, so that old shards stay readable.
        generation: Generation of the data set to be committed.
    """

    root: Path
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
        with hold_lock(root):
            previous = _previous(root, overwrite)
            _refuse_links(root)
            remove_unreferenced(root, previous)
            try:
                yield _claimed(root, previous)
            except BaseException:
                # a commit may have failed in its last fsync: either state may stand after a power cut
                remove_unreferenced(root, previous, _standing(root))
                raise
            else:
                remove_unreferenced(root, _standing(root))
            finally:
                _drop_empty(root)
    finally:
        if made:
            with contextlib.suppress(OSError):
                root.rmdir()


def _claimed(root: Path, previous: Manifest | None) -> Output:
    if previous is None:
        return Output(root, first_shard=0, generation=1)
    highest = max((shard.number for shard in previous.shards), default=-1)
    return Output(root, highest + 1, previous.generation + 1)


def _make(root: Path) -> bool:
    """Make the folder if need be, durably, and return whether it was made."""
    is_new = not root.is_dir()
    make_folder(root)
    return is_new


def _refuse_links(root: Path) -> None:
    """Refuse folders of ours that are links: what is removed and written in them would lie elsewhere."""
    for name in sorted(_OURS):
        if (root / name).is_symlink():
            raise OutputError(
                f"{root / name}: is a symbolic link; nothing will be written through it", path=root
            )


def _standing(root: Path) -> Manifest | None:
    return load_manifest(root) if (root / MANIFEST_NAME).exists() else None


def _drop_empty(root: Path) -> None:
    for name in ("shards", "index", REPORTS):
        with contextlib.suppress(OSError):  # it is not there, or not empty
            (root / name).rmdir()


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
