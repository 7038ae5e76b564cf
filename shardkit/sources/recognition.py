"""Tells by names alone what kind of container a folder is, without the library that reads it."""

import os
import re
from collections import Counter
from collections.abc import Callable

from shardkit.contract import show_id
from shardkit.errors import SourceError
from shardkit.sources.files import find_junk

_NOTES = {"readme.md", "license", "license.txt", "license.md", "dataset_infos.json"}
_NOTES |= {"dataset_info.json", "features.json"}  # of TensorFlow Datasets
_CLASS_NAMES = ".labels.txt"  # of TensorFlow Datasets: the classes of a feature
_TFRECORD = re.compile(r"\.tfrecords?(-\d+-of-\d+)?(\.gz)?$", re.IGNORECASE)


def is_hf_dataset(path: str) -> bool:
    """Whether Hugging Face's ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` made the folder."""
    held = {"state.json", "dataset_info.json"}
    return all(os.path.isfile(os.path.join(path, name)) for name in held) or os.path.isfile(
        os.path.join(path, "dataset_dict.json")
    )


def ends_with(*suffixes: str) -> Callable[[str], bool]:
    """Return what tells whether a name ends with one of these suffixes, in letters of any case."""
    return lambda name: name.lower().endswith(suffixes)


def is_tfrecord(name: str) -> bool:
    """Whether a file is called as TFRecord files are: ``a.tfrecord``, ``a.tfrecord-00000-of-00010``, ``….gz``."""
    return _TFRECORD.search(name) is not None


def is_parquet_folder(path: str) -> bool:
    """Whether a folder holds .parquet files and, but for notes about them, nothing else."""
    return _holds_only(path, ends_with(".parquet"))


def is_tfrecord_folder(path: str) -> bool:
    """Whether a folder holds TFRecord files and, but for notes about them, nothing else."""
    return _holds_only(path, is_tfrecord)


def find_files(path: str, is_data: Callable[[str], bool], passed_over: Counter[str]) -> list[str]:
    """Return the relative paths of all files of one kind in a folder, in byte order; count others in `passed_over`.

    Hidden files, what operating systems leave behind, names that start with ``_`` (Spark's ``_SUCCESS``), a README and
    a licence are passed over. Links to folders are not followed.

    Args:
        path: The folder.
        is_data: Whether a file of this name is of the kind.
        passed_over: Kind of file -> how many.

    Raises:
        SourceError: A folder cannot be listed, or there is a file of another kind.
    """
    found: list[bytes] = []
    root = os.fsencode(path)
    for folder, folders, files in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if find_junk(name, True) is None]
        for name in files:
            note = _describe_note(name)
            if is_data(os.fsdecode(name)) and note is None:
                found.append(os.path.relpath(os.path.join(folder, name), root))
            elif note is not None:
                passed_over[note] += 1
            else:
                raise SourceError(
                    f"{path}: holds {show_id(os.fsdecode(name))!r} beside files of the kind expected"
                )
    return [os.fsdecode(name) for name in sorted(found)]


def _holds_only(path: str, is_data: Callable[[str], bool]) -> bool:
    try:
        return bool(find_files(path, is_data, Counter()))
    except SourceError:
        return False


def _describe_note(name: bytes) -> str | None:
    """Return what kind of file beside the data a name stands for, or None if it may be data."""
    if name.startswith(b"_"):
        return "file of notes beside the data (_*)"
    lower = os.fsdecode(name).lower()
    if lower in _NOTES or lower.endswith(_CLASS_NAMES):
        return "file of notes beside the data"
    return find_junk(name, False)


def _refuse(error: OSError) -> None:
    raise SourceError(f"{error.filename!r}: cannot list the folder: {error.strerror}") from error
