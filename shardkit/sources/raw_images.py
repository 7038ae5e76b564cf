"""Whether a folder may hold raw images at all, or only files that hold many records each."""

import os
from collections.abc import Iterable
from itertools import islice

from shardkit.contract import Reason, Violation, show_id
from shardkit.contract.images.sniff import sniff
from shardkit.errors import SourceError
from shardkit.sources.columns import IMAGE_COLUMNS
from shardkit.sources.container_folder import describe_note
from shardkit.sources.recognition import ends_with, is_parquet, is_table, is_tar, is_tfrecord

_IMAGE = ends_with(*(f".{suffix}" for suffix in IMAGE_COLUMNS))
_IN_FOLDERS = (
    is_parquet,
    is_tar,
    is_tfrecord,
    ends_with(".arrow", ".mdb"),
    lambda name: ".mds" in name.lower(),
)
"""Files whose folder is given, rather than they."""
_ALONE = (is_table, ends_with(".lmdb", ".h5", ".hdf5", ".npy", ".npz"))
_LOOKED_AT = 1000  # files that are neither, in search of an image
_HEAD_BYTES = 4096
_NO_IMAGE = (Reason.NOT_AN_IMAGE, Reason.EMPTY)
_SHOWN = 5


def require_raw_images(folder: str, files: Iterable[bytes]) -> None:
    """Check that not all of a folder is files that shardkit reads as many records each, and notes about them.

    One image among them is enough, or one damaged file called as images are: the others are rejected one by one then.

    Args:
        folder: The folder.
        files: Relative paths of what is in it.

    Raises:
        SourceError: It is; names what to ingest instead.
    """
    found: dict[str, None] = {}
    others = 0
    for file in files:
        name = os.fsdecode(file)
        if describe_note(os.path.basename(file)) is not None:
            continue
        instead = _find_instead(name)
        if instead is not None:
            found[instead] = None
            continue
        others += 1
        if _IMAGE(name.lower()) or others > _LOOKED_AT or _is_image(os.path.join(folder, name)):
            return
    if found:
        shown = [show_id(os.path.join(folder, name)) for name in islice(found, _SHOWN)]
        more = f", … ({len(found)} in all)" if len(found) > _SHOWN else ""
        rest = "; add the others with --append" if len(found) > 1 else ""
        raise SourceError(
            f"{folder}: holds no images, but data of which each file or folder is ingested by itself; give the path of "
            f"one: {', '.join(shown)}{more}{rest}"
        )


def _find_instead(name: str) -> str | None:
    """Return the path to give where a file is of a kind that holds many records; None if it is of none."""
    folder = os.path.dirname(name)
    if any(is_kind(name) for is_kind in _IN_FOLDERS):
        return folder or name
    return name if any(is_kind(name) for is_kind in _ALONE) else None


def _is_image(path: str) -> bool:
    try:
        if not os.path.isfile(path):  # a pipe would block
            return False
        with open(path, "rb") as file:
            sniff(file.read(_HEAD_BYTES))
    except Violation as violation:
        return violation.reason not in _NO_IMAGE
    except (OSError, ValueError):  # ValueError: no file can have such a name
        return False
    return True
