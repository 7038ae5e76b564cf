"""The files of a folder that holds containers of one kind and, but for notes about them, nothing else.

Links to files are followed wherever they lead: they are made by whoever keeps the files, as in the cache of the
Hugging Face hub, which is all links. Links to folders are followed inside of the folder, as they are among raw files.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shardkit.contract import show_id
from shardkit.errors import SourceError
from shardkit.sources.files import find_junk

_NOTES = re.compile(
    r"(readme|licen[cs]e|copying|citation|changelog)(\.(txt|rst|cff))?"  # and these of any name:
    r"|.*\.(md|json)|.*\.labels\.txt",  # cards; what writers note of their files; classes of TensorFlow Datasets
    re.IGNORECASE,
)
_BACK = "link that leads back into its own folder"


class _Found(NamedTuple):
    """A file of the folder, or a link to a folder outside of it, which is not followed."""

    path: bytes
    leads_out: bool


def find_files(path: str, is_data: Callable[[str], bool], passed_over: Counter[str]) -> list[str]:
    """Return the relative paths of all files of one kind in a folder, in byte order; count others in `passed_over`.

    Passed over are hidden files, what operating systems leave behind, names that start with ``_`` (Spark's
    ``_SUCCESS``), .md and .json files, a README, a licence and the like.

    Args:
        path: The folder.
        is_data: Whether a file of this name is of the kind.
        passed_over: Kind of file -> how many.

    Raises:
        SourceError: A folder cannot be listed, a link leads to a folder elsewhere, or there is a file of another kind.
    """
    found = []
    for entry in _walk(path, passed_over):
        name = os.fsdecode(entry.path)
        if entry.leads_out:
            raise SourceError(
                f"{show_id(os.path.join(path, name))}: the link leads to a folder out of the source; ingest the folder "
                f"around both, or give that folder's own path"
            )
        note = describe_note(os.path.basename(entry.path))
        if note is not None:
            passed_over[note] += 1
        elif is_data(name):
            found.append(entry.path)
        else:
            raise SourceError(f"{path}: holds {show_id(name)!r} beside files of the kind expected")
    return [os.fsdecode(name) for name in sorted(found)]


def holds_only(path: str, is_data: Callable[[str], bool]) -> bool:
    """Whether a folder holds files of one kind and, but for notes about them, nothing else."""
    is_there = False
    try:
        for entry in _walk(path, Counter()):
            if entry.leads_out or describe_note(os.path.basename(entry.path)) is not None:
                continue  # of a link that leads out, opening the source tells
            if not is_data(os.fsdecode(entry.path)):
                return False
            is_there = True
    except SourceError:
        return False
    return is_there


def describe_note(name: bytes) -> str | None:
    """Return what kind of file beside the data a name stands for, or None if it may be data."""
    if name.startswith(b"_"):
        return "file of notes beside the data (_*)"
    if _NOTES.fullmatch(os.fsdecode(name)):
        return "file of notes beside the data"
    return None


def _walk(path: str, passed_over: Counter[str]) -> Iterator[_Found]:
    """Yield every file below a folder but leftovers, in no order; a link that leads back up is passed over."""
    root = os.path.realpath(os.fsencode(path))
    pending: list[tuple[bytes, tuple[bytes, ...]]] = [(b"", (root,))]
    while pending:
        folder, above = pending.pop()
        for entry in _list(path, folder):
            inside = os.path.join(folder, entry.name)
            is_folder = _is_folder(entry)
            junk = find_junk(entry.name, is_folder)
            if junk is not None:
                passed_over[junk] += 1
            elif not is_folder:
                yield _Found(inside, leads_out=False)
            else:
                real = os.path.realpath(entry.path)
                if os.path.commonpath((root, real)) != root:
                    yield _Found(inside, leads_out=True)
                elif real in above:
                    passed_over[_BACK] += 1
                else:
                    pending.append((inside, (*above, real)))


def _list(path: str, folder: bytes) -> "list[os.DirEntry[bytes]]":
    full = os.path.join(os.fsencode(path), folder)
    try:
        with os.scandir(full) as entries:
            return list(entries)
    except OSError as error:
        shown = show_id(os.fsdecode(full))
        raise SourceError(f"{shown}: cannot list the folder: {error.strerror}") from error


def _is_folder(entry: "os.DirEntry[bytes]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle: opening it as a file says so
        return False
