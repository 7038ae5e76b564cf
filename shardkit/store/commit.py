"""Makes a manifest the committed state of a data set, and clears away what it no longer refers to.

Implements docs/format.md, "Publishing".
"""

import re
from pathlib import Path

from shardkit.store.backends import BACKENDS
from shardkit.store.durable import make_folder, remove, write_atomically
from shardkit.store.history import HISTORY, history_path, keep_standing
from shardkit.store.index_files import index_folder
from shardkit.store.manifest import MANIFEST_NAME, MANIFEST_PARTIAL, Manifest

_OURS = {
    HISTORY: re.compile(r"[0-9]{5,}\.json(\.partial)?"),  # first: what is named must be there
    "shards": re.compile(r"[0-9]{5,}(\.lmdb)?(\.partial)?"),
    "index": re.compile(r"[0-9]{5,}(\.partial)?"),
}
"""Names in a folder of the store that only the store makes. Nothing else is ever deleted there."""

STORE_NAMES = frozenset({MANIFEST_NAME, MANIFEST_PARTIAL, *_OURS})
"""Names in the folder of a data set that the store makes."""


def commit(root: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` so that it is either the old one or, durably, the new one.

    If the new one was made from the old one (`Manifest.history`), a copy of the old one is kept in ``history/``.
    Shards and index must be finished: they were fsynced by their writers.

    Raises:
        ManifestError: The standing manifest, from which this one may have been made, is not valid.
        OutputError: The system refused. Then the old state stands; or the new one, if only the last fsync failed and
            no power cut takes it back, so that nothing of either may be removed.
    """
    make_folder(root)
    keep_standing(root, manifest)
    write_atomically(root / MANIFEST_NAME, manifest.to_bytes())


def remove_unreferenced(root: Path, *manifests: Manifest | None) -> None:
    """Remove shards, indexes and copies of manifests that belong to none of `manifests`, and what is half written.

    The one of the highest generation is the current one; the others are those of older generations that are to
    stay readable. None stands for no manifest.

    A reader of any other generation keeps what it has mapped, and may fail to open more.

    Raises:
        OutputError: The system refused.
    """
    remove(root / MANIFEST_PARTIAL)
    known = [manifest for manifest in manifests if manifest is not None]
    kept = {path for manifest in known for path in _referenced(manifest)}
    current = max((manifest.generation for manifest in known), default=0)
    kept |= {history_path(manifest.generation) for manifest in known if manifest.generation < current}
    for folder, ours in _OURS.items():
        if not (root / folder).is_dir():
            continue
        for path in sorted((root / folder).iterdir()):
            if ours.fullmatch(path.name) and f"{folder}/{path.name}" not in kept:
                remove(path)


def _referenced(manifest: Manifest) -> set[str]:
    shards = {BACKENDS[shard.backend].shard_path(shard.number) for shard in manifest.shards}
    return shards | {index_folder(manifest.index.generation)}
