"""The output folder of a run: claimed before anything is written, and never left looking like more than it is.

A folder is ours to write into if it does not exist, is empty, holds a data set (with leave to replace or to extend
it), or holds only what a run that never finished left behind. One run at a time holds its lock.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from shardkit.errors import OutputError, ShardkitError
from shardkit.ingestion.journal import JOURNAL, Journal
from shardkit.ingestion.lock import LOCK_NAME, HeldLock, hold_lock
from shardkit.ingestion.report import REPORTS
from shardkit.store import (
    MANIFEST_NAME,
    STORE_NAMES,
    Manifest,
    PastGeneration,
    Store,
    load_generation,
    load_manifest,
    make_folder,
    remove_unreferenced,
)

Mode = Literal["new", "overwrite", "append"]
"""What becomes of a data set that stands in the folder: refused, replaced, or made into a new generation."""

_OURS = STORE_NAMES | {REPORTS, JOURNAL, LOCK_NAME}


@dataclass(frozen=True)
class Output:
    """A claimed output folder.

    Attributes:
        root: The folder.
        lock: What keeps other runs out.
        first_shard: Number of the first new shard; above every number in use, so that old shards stay readable.
        generation: Generation of the data set to be committed.
        previous: The generation that is extended, or None.
        history: The generations that the new one is made from.
        begun: What the journal says of the run that is continued, or None if there is none.
        is_committed: Whether that run got as far as its commit.
        discarded: Shards that an interrupted run had finished, and that were removed as this one does not continue it.
    """

    root: Path
    lock: HeldLock
    first_shard: int
    generation: int
    previous: Store | None = None
    history: tuple[PastGeneration, ...] = ()
    begun: dict[str, Any] | None = None
    is_committed: bool = False
    discarded: int = 0


@contextlib.contextmanager
def claim(root: Path, mode: Mode, *, resume: bool = False) -> Iterator[Output]:
    """Hold the output folder for one run.

    When the run succeeds, all that the new data set does not need is removed, save the generation that it was made
    from. When it fails, shards that were finished stay for a run that resumes; if there are none, no trace is left, and
    folders that this call made are removed if they are empty then.

    Raises:
        OutputError: It cannot be written, holds other files, holds a data set and `mode` is ``"new"``, holds none and
            it is ``"append"``, or another run is writing to it.
        FormatError: It holds a data set whose manifest cannot be read.
    """
    if mode == "append":
        load_manifest(root)  # before a folder is made that holds nothing
    made = [folder for folder in (root, *root.absolute().parents) if not folder.exists()]
    make_folder(root)
    try:
        with hold_lock(root) as lock:
            standing = _standing(root)
            journal = Journal(root)
            begun = journal.begun() if resume else None
            require_ours(root)
            output = _output(root, lock, mode, standing, begun)
            if begun is None:
                output = replace(output, discarded=journal.finished())
                journal.remove()
                remove_unreferenced(root, standing, _made_from(root, standing))
            try:
                yield output
            except BaseException:
                if not journal.finished():
                    # a commit may have failed in its last fsync: either state may stand after a power cut
                    journal.remove()
                    remove_unreferenced(root, standing, _standing(root), _made_from(root, standing))
                raise
            else:
                clear_up(root)
            finally:
                if output.previous is not None:
                    output.previous.close()
                _drop_empty(root)
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def clear_up(root: Path) -> None:
    """Remove the journal, and all that the data set does not need, save the generation that it was made from.

    Raises:
        OutputError: The system refused.
        FormatError: The manifest cannot be read.
    """
    Journal(root).remove()
    standing = _standing(root)
    remove_unreferenced(root, standing, _made_from(root, standing))
    _drop_empty(root)


def _output(
    root: Path, lock: HeldLock, mode: Mode, standing: Manifest | None, begun: dict[str, Any] | None
) -> Output:
    """Return the output of a run, or refuse it."""
    generation = 0 if standing is None else standing.generation
    first_shard = 0 if standing is None else standing.next_shard
    if begun is not None:
        if begun.get("generation") == generation:
            return Output(root, lock, _first_shard(root, begun), generation, begun=begun, is_committed=True)
        if (begun.get("generation"), begun.get("first_shard")) != (generation + 1, first_shard):
            raise OutputError(
                f"{root}: the data set changed since the ingest that was interrupted here; start over without --resume",
                path=root,
            )
    if mode == "new" and standing is not None:
        raise OutputError(
            f"{root}: already holds a data set; choose another folder, or pass --overwrite to replace it, or "
            "--append to add to it",
            path=root,
        )
    if mode == "append":
        previous = Store(root)
        return Output(
            root, lock, first_shard, generation + 1, previous, previous.manifest.lineage, begun=begun
        )
    return Output(root, lock, first_shard, generation + 1, begun=begun)


def _first_shard(root: Path, begun: dict[str, Any]) -> int:
    number = begun.get("first_shard")
    if not isinstance(number, int):
        raise OutputError(
            f"{root / JOURNAL}: the journal is damaged; the data set itself is committed: remove the journal",
            path=root,
        )
    return number


def require_ours(root: Path) -> None:
    """Refuse a folder with other things in it, and links in place of folders of ours: they lead elsewhere."""
    for name in sorted(_OURS):
        if (root / name).is_symlink():
            raise OutputError(
                f"{root / name}: is a symbolic link; nothing will be written through it", path=root
            )
    if (root / MANIFEST_NAME).exists():
        return
    foreign = sorted(entry.name for entry in root.iterdir() if entry.name not in _OURS)
    if foreign:
        raise OutputError(
            f"{root}: is not empty and not a data set (it holds {foreign[0]!r}); choose another folder",
            path=root,
        )


def _standing(root: Path) -> Manifest | None:
    return load_manifest(root) if (root / MANIFEST_NAME).exists() else None


def _made_from(root: Path, standing: Manifest | None) -> Manifest | None:
    """Return the generation that the standing one was made from, which stays for its readers, if it is still there."""
    if standing is None or not standing.history:
        return None
    with contextlib.suppress(ShardkitError):  # it was removed, or cannot be read any more
        return load_generation(root, standing.history[-1].generation)
    return None


def _drop_empty(root: Path) -> None:
    for name in ("shards", "index", "history", REPORTS):
        with contextlib.suppress(OSError):  # it is not there, or not empty
            (root / name).rmdir()
