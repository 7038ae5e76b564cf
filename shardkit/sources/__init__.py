"""Where records come from: one file per kind of input, behind one protocol."""

import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from os import PathLike
from typing import Any, NamedTuple

from shardkit.errors import SourceError
from shardkit.sources.digest import NO_DIGEST, source_digest
from shardkit.sources.folder import FolderSource
from shardkit.sources.iterable import IterableSource
from shardkit.sources.lmdb.file import is_lmdb_folder
from shardkit.sources.lmdb.source import LmdbSource
from shardkit.sources.mds.index import is_mds_folder
from shardkit.sources.recognition import (
    ends_with,
    is_hf_dataset,
    is_parquet,
    is_parquet_folder,
    is_table,
    is_tar,
    is_tar_folder,
    is_tfrecord,
    is_tfrecord_folder,
)
from shardkit.sources.row_source import RowSource
from shardkit.sources.source import Part, RawRecord, Source, Stamp
from shardkit.sources.tables.table import TableSource
from shardkit.sources.untyped import UntypedSource

__all__ = [
    "FILE_SOURCES",
    "FOLDER_SOURCES",
    "NO_DIGEST",
    "FolderSource",
    "IterableSource",
    "LmdbSource",
    "Part",
    "RawRecord",
    "RowSource",
    "Source",
    "Stamp",
    "TableSource",
    "open_source",
    "source_digest",
]


class Kind(NamedTuple):
    """One kind of raw input.

    Attributes:
        shown: What messages call it.
        recognise: Whether the file or folder at a path is of this kind. Cheap, and needs no further library.
        open: Makes the source.
    """

    shown: str
    recognise: Callable[[str], bool]
    open: Callable[[str], Source]


def _source(module: str, name: str) -> Callable[[str], Source]:
    """Return what opens a source whose module is imported only then: its library may be large, or missing."""

    def open_path(path: str) -> Source:
        made: Source = getattr(import_module(f"shardkit.sources.{module}"), name)(path)
        return made

    return open_path


def _rows(module: str, name: str) -> Callable[[str], Source]:
    """Return what opens the rows of a container, whose module is imported only then."""

    def open_path(path: str) -> Source:
        return UntypedSource(getattr(import_module(f"shardkit.sources.{module}"), name)(path))

    return open_path


FILE_SOURCES: tuple[Kind, ...] = (
    Kind(".csv, .tsv, .jsonl", is_table, TableSource),
    Kind(".parquet", is_parquet, _source("arrow.parquet", "ParquetSource")),
    Kind(".tar, .tar.gz, .tgz", is_tar, _source("tar.source", "TarSource")),
    Kind(".lmdb, .mdb", ends_with(".lmdb", ".mdb"), LmdbSource),
    Kind(".tfrecord", is_tfrecord, _rows("tfrecord.container", "TfRecordContainer")),
    Kind(".h5, .hdf5", ends_with(".h5", ".hdf5"), _rows("arrays.hdf5", "Hdf5Container")),
    Kind(".npy", ends_with(".npy"), _rows("arrays.npy", "NpyContainer")),
    Kind(".npz", ends_with(".npz"), _rows("arrays.npz", "NpzContainer")),
)
"""Kinds of files, told by their names; the first that fits is taken."""

FOLDER_SOURCES: tuple[Kind, ...] = (
    Kind("a data set of Hugging Face", is_hf_dataset, _source("arrow.hf_dataset", "HfDatasetSource")),
    Kind("MDS shards", is_mds_folder, _rows("mds.container", "MdsContainer")),
    Kind(".parquet files", is_parquet_folder, _source("arrow.parquet", "ParquetSource")),
    Kind(".tar files", is_tar_folder, _source("tar.source", "TarSource")),
    Kind("an LMDB", is_lmdb_folder, LmdbSource),
    Kind(".tfrecord files", is_tfrecord_folder, _rows("tfrecord.container", "TfRecordContainer")),
)
"""Kinds of folders, told by what is in them; the first that fits is taken, and one that fits none holds raw files."""


def open_source(raw: str | PathLike[str] | Iterable[Mapping[str, Any]] | Source) -> Source:
    """Return the source for raw input: a folder, a file, or records of a program.

    Args:
        raw: Path of a folder (see `FOLDER_SOURCES`) or of a file (see `FILE_SOURCES`); or an iterable of mappings; or a
            map-style data set (``__len__`` and ``__getitem__``); or a source, which is taken as it is.

    Raises:
        SourceError: There is nothing at the path, it is of no supported kind, or it is empty.
    """
    if not isinstance(raw, str | PathLike):
        return raw if isinstance(raw, Source) else IterableSource(raw)
    path = os.fspath(raw)
    if os.path.isdir(path):
        return next(
            (kind.open(path) for kind in FOLDER_SOURCES if kind.recognise(path)), None
        ) or FolderSource(path)
    if not os.path.lexists(path):
        raise SourceError(f"{path}: there is no such file or folder")
    for kind in FILE_SOURCES:
        if kind.recognise(path):
            return kind.open(path)
    supported = ", ".join(kind.shown for kind in FILE_SOURCES)
    raise SourceError(f"{path}: cannot ingest this kind of file; supported are folders and {supported}")
