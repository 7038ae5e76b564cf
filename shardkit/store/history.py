"""The manifests of earlier generations, which are kept beside so that their readers go on unharmed.

Implements docs/format.md, "Generations". Which of them stay is for the writer to decide (see commit.py).
"""

import os
from pathlib import Path

from shardkit.errors import DatasetNotFoundError, ManifestError
from shardkit.store.durable import make_folder, write_atomically
from shardkit.store.folder import DataFolder
from shardkit.store.manifest import MANIFEST_NAME, Manifest, PastGeneration
from shardkit.store.manifest_parser import load_manifest, parse_manifest, read_manifest

HISTORY = "history"


def history_path(generation: int) -> str:
    """Return where the manifest of an earlier generation is kept, relative to the data set."""
    return f"{HISTORY}/{generation:05d}.json"


def keep_standing(root: Path, successor: Manifest) -> None:
    """Keep a durable copy of ``manifest.json``, byte for byte, if `successor` was made from it.

    Raises:
        ManifestError: It is not valid.
        OutputError: The system refused.
    """
    path = root / MANIFEST_NAME
    data = read_manifest(path) if successor.history else None
    if data is None:
        return
    standing = parse_manifest(data, str(path))
    if standing.lineage[-1] in successor.history:
        make_folder(root / HISTORY)
        write_atomically(root / history_path(standing.generation), data)


def load_generation(root: str | os.PathLike[str], generation: int) -> Manifest:
    """Return the manifest of the current generation, or of an earlier one that it was made from.

    Raises:
        DatasetNotFoundError: There is no data set, or it has no such generation, or has it no more.
        UnsupportedVersionError: It is of another major version.
        ManifestError: A manifest is not valid, or not of the generation that it is kept for.
        CorruptShardError: ``history/`` leads out of the data set.
    """
    current = load_manifest(root)
    return current if current.generation == generation else load_past(root, current, generation)


def load_past(root: str | os.PathLike[str], current: Manifest, generation: int) -> Manifest:
    """Return the manifest of an earlier generation that `current` was made from.

    Raises:
        DatasetNotFoundError: `current` was made from no such generation, or it was removed since.
        UnsupportedVersionError: It is of another major version.
        ManifestError: It is not valid, or not of the generation that it is kept for.
        CorruptShardError: ``history/`` leads out of the data set.
    """
    past = next((each for each in current.history if each.generation == generation), None)
    if past is None:
        raise _not_kept(root, current, f"has no generation {generation}")
    path = DataFolder(root).resolve(history_path(generation))
    data = read_manifest(path)
    if data is None:
        raise _not_kept(root, current, f"generation {generation} was removed by a later generation")
    manifest = parse_manifest(data, path)
    found = PastGeneration(manifest.generation, manifest.dataset_id)
    if found != past:
        raise ManifestError(
            f"{path}: is of generation {found.generation}, data set {found.dataset_id}, and is kept for "
            f"generation {past.generation}, data set {past.dataset_id}; restore it, or open the data set anew"
        )
    return manifest


def _not_kept(root: str | os.PathLike[str], current: Manifest, problem: str) -> DatasetNotFoundError:
    kept = [
        str(past.generation)
        for past in current.history
        if os.path.isfile(os.path.join(root, history_path(past.generation)))
    ]
    return DatasetNotFoundError(
        f"{os.fspath(root)}: {problem}; open the data set anew, or one of its generations "
        f"{', '.join([*kept, str(current.generation)])}"
    )
