"""Tells by names alone what kind of container a file or a folder is, without the library that reads it."""

import os
import re
from collections.abc import Callable

from shardkit.sources.container_folder import holds_only

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


is_table = ends_with(".csv", ".tsv", ".jsonl")
"""Whether a file is called as tables are."""
is_parquet = ends_with(".parquet")
"""Whether a file is called as Parquet files are."""
is_tar = ends_with(".tar", ".tar.gz", ".tgz")
"""Whether a file is called as tar files are."""


def is_tfrecord(name: str) -> bool:
    """Whether a file is called as TFRecord files are: ``a.tfrecord``, ``a.tfrecord-00000-of-00010``, ``….gz``."""
    return _TFRECORD.search(name) is not None


def is_parquet_folder(path: str) -> bool:
    """Whether a folder holds .parquet files and, but for notes about them, nothing else."""
    return holds_only(path, is_parquet)


def is_tar_folder(path: str) -> bool:
    """Whether a folder holds tar files and, but for notes about them, nothing else."""
    return holds_only(path, is_tar)


def is_tfrecord_folder(path: str) -> bool:
    """Whether a folder holds TFRecord files and, but for notes about them, nothing else."""
    return holds_only(path, is_tfrecord)
