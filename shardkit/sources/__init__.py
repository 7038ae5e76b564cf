"""Where records come from: one file per kind of input, behind one protocol."""

import os
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

from shardkit.errors import SourceError
from shardkit.sources.folder import FolderSource
from shardkit.sources.iterable import IterableSource
from shardkit.sources.source import Part, RawRecord, Source
from shardkit.sources.table import TableSource

__all__ = [
    "FILE_SOURCES",
    "FolderSource",
    "IterableSource",
    "Part",
    "RawRecord",
    "Source",
    "TableSource",
    "open_source",
]

FILE_SOURCES: dict[str, Callable[[str], Source]] = {
    ".csv": TableSource,
    ".tsv": TableSource,
    ".jsonl": TableSource,
}
"""Suffix of a file -> the source that reads it."""


def open_source(raw: str | PathLike[str] | Iterable[Mapping[str, Any]]) -> Source:
    """Return the source for raw input: a folder, a table, or records of a program.

    Args:
        raw: Path of a folder or of a file with a suffix in `FILE_SOURCES`; or an iterable of mappings; or a
            map-style data set (``__len__`` and ``__getitem__``).

    Raises:
        SourceError: There is nothing at the path, it is of no supported kind, or it is empty.
    """
    if not isinstance(raw, str | PathLike):
        return IterableSource(raw)
    path = os.fspath(raw)
    if os.path.isdir(path):
        return FolderSource(path)
    if not os.path.lexists(path):
        raise SourceError(f"{path}: there is no such file or folder")
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FILE_SOURCES:
        supported = ", ".join(FILE_SOURCES)
        raise SourceError(f"{path}: cannot ingest this kind of file; supported are folders and {supported}")
    return FILE_SOURCES[suffix](path)
