"""Reads one file of a source, safely: only regular files, only inside the source, never waiting on a pipe."""

import errno
import os
import re
import stat
import unicodedata

from shardkit.contract import FileContent, Reason, show_id
from shardkit.sources.source import Stamp
from shardkit.sources.stamps import NO_FILE, stamp_file

MAX_FILE_BYTES = 2**31 - 1  # a file is one value of one record, held in memory
APPLE_DOUBLE = b"\x00\x05\x16\x07"  # RFC 1740: metadata that macOS keeps beside a file

_JUNK_FILES = {
    b".ds_store": "macOS folder settings (.DS_Store)",
    b"thumbs.db": "Windows thumbnails (Thumbs.db)",
    b"ehthumbs.db": "Windows thumbnails (ehthumbs.db)",
    b"desktop.ini": "Windows folder settings (desktop.ini)",
    b"icon\r": "macOS folder icon (Icon)",
}
_JUNK_FOLDERS = {
    b"__macosx": "macOS metadata folder (__MACOSX)",
    b".ipynb_checkpoints": "notebook checkpoints (.ipynb_checkpoints)",
    b"@eadir": "Synology thumbnails (@eaDir)",
    b"$recycle.bin": "Windows recycle bin ($RECYCLE.BIN)",
    b"system volume information": "Windows folder (System Volume Information)",
    b"lost+found": "file system's folder (lost+found)",
}
_ROOTED_IN_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")  # C:\x, or \\server\x
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class FileFault(Exception):
    """Why a file cannot be had: a reason code and one plain sentence."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


def find_junk(name: bytes, is_folder: bool) -> str | None:
    """Return what kind of leftover a name stands for, or None if it may be data."""
    lower = name.lower()
    known = (_JUNK_FOLDERS if is_folder else _JUNK_FILES).get(lower)
    if known is not None:
        return known
    if name.startswith(b"._") and not is_folder:
        return "macOS metadata file (._*)"
    if name.startswith(b"."):
        return "hidden folder" if is_folder else "hidden file"
    return None


class FileReader:
    """Reads files below one root; remembers which folders lie inside of it, so make one for each part."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._real_folders: dict[str, str] = {}

    def read(self, path: str, *, may_be_absolute: bool = False) -> FileContent:
        """Return the content of a file of the source.

        Symbolic links are followed where they lead to inside of the root.

        Args:
            path: Relative path with ``/``; or an absolute one, which may lead out of the root only if allowed.
            may_be_absolute: Whether a person wrote this path to be opened, wherever it leads.

        Raises:
            FileFault: ``missing-file``, ``not-a-file``, ``unreadable``, ``outside-source`` or ``too-long``.
        """
        if "\0" in path:
            raise FileFault(Reason.MISSING_FILE, "no file can have this path: it holds a NUL character")
        try:
            return FileContent(_read(self._locate(path, may_be_absolute)), path)
        except OSError as error:
            raise _fault_of(error, self._root, path) from error
        except UnicodeEncodeError as error:
            raise FileFault(
                Reason.MISSING_FILE, "no file can have this path: it is not valid UTF-8"
            ) from error

    def stamp(self, path: str, *, may_be_absolute: bool = False) -> Stamp:
        """Return the stamp of what `read` would read; that of no file where it would refuse."""
        try:
            return stamp_file(self._locate(path, may_be_absolute))
        except (FileFault, OSError, ValueError):  # ValueError: a NUL, or no UTF-8
            return NO_FILE

    def _locate(self, path: str, may_be_absolute: bool) -> str:
        """Return the real path of a file, with all links followed.

        Where there is none of this name, but one whose name is the same text in another Unicode normal form, it is
        that one: archives and macOS change the form of names, and tables keep it.
        """
        located = self._locate_exactly(path, may_be_absolute)
        if path.isascii() or os.path.lexists(located):
            return located
        forms = {unicodedata.normalize(form, path) for form in ("NFC", "NFD")} - {path}
        twins = [self._locate_exactly(form, may_be_absolute) for form in sorted(forms)]
        found = [twin for twin in twins if os.path.lexists(twin)]
        return found[0] if len(found) == 1 else located

    def _locate_exactly(self, path: str, may_be_absolute: bool) -> str:
        if os.path.isabs(path):
            return path if may_be_absolute else self._resolve_absolute(path)
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            _check_dots(folder)
            self._real_folders[folder] = self._resolve(os.path.join(self._root, folder))
        located = os.path.join(self._real_folders[folder], name)
        if name != ".." and not os.path.islink(located):
            return located
        _check_dots(path)
        return self._resolve(located)

    def _resolve_absolute(self, path: str) -> str:
        real = os.path.realpath(path)
        if os.path.commonpath((self._root, real)) != self._root:
            sentence = (
                "the path is absolute and leads out of the source; list such files in a table, such as a .csv"
            )
            raise FileFault(Reason.OUTSIDE_SOURCE, sentence)
        return real

    def _resolve(self, path: str) -> str:
        real = os.path.realpath(path)
        if os.path.commonpath((self._root, real)) != self._root:
            sentence = (
                "a symbolic link leads out of the source; copy the file, or ingest the folder around both"
            )
            raise FileFault(Reason.OUTSIDE_SOURCE, sentence)
        return real


def find_escape(path: str) -> str | None:
    """Return how a path leads out of the folder it starts at, here or in Windows, as one plain sentence; or None."""
    if os.path.isabs(path):
        return "the path is absolute; it must start at the source"
    if _climbs_out(path.split("/")):
        return "the path leaves the source through '..'; move what lists it, or write an absolute path in a table"
    if _ROOTED_IN_WINDOWS.match(path) or _climbs_out(re.split(r"[\\/]", path)):
        return "the path leaves the source as Windows reads it; it must start there, with '/' between folders"
    return None


def _climbs_out(components: list[str]) -> bool:
    depth = 0
    for component in components:
        depth += {"": 0, ".": 0, "..": -1}.get(component, 1)
        if depth < 0:
            return True
    return False


def _check_dots(path: str) -> None:
    if _climbs_out(path.split("/")):
        raise FileFault(Reason.OUTSIDE_SOURCE, str(find_escape(path)))


def _read(path: str) -> bytes:
    _check_regular(os.stat(path))  # before opening, since opening a device may have an effect of its own
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(handle, "rb", buffering=0) as file:
        size = _check_regular(os.fstat(handle))
        data = file.read(size)
        if size and len(data) == size:
            return data
        return data + file.read()  # it grew or shrank meanwhile, or lies about its size as /proc does


def _check_regular(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        found = _describe_mode(status.st_mode)
        raise FileFault(Reason.NOT_A_FILE, f"this is {found}, not a file")
    if status.st_size > MAX_FILE_BYTES:
        sentence = f"the file has {status.st_size} bytes; at most {MAX_FILE_BYTES} are read"
        raise FileFault(Reason.TOO_LONG, sentence)
    return status.st_size


def _describe_mode(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def _fault_of(error: OSError, root: str, path: str) -> FileFault:
    if error.errno not in _MISSING:
        return FileFault(Reason.UNREADABLE, f"the system refused to read the file: {error.strerror}")
    escape = find_escape(path)
    if escape is not None and not os.path.isabs(path):
        return FileFault(Reason.OUTSIDE_SOURCE, escape)
    shown = show_id(path if len(path) <= 200 else f"{path[:200]}…")
    slashed = path.replace("\\", "/")
    hint = ""
    if slashed != path and os.path.exists(os.path.join(root, slashed)):
        hint = "; there is one if '/' stands for each backslash, as it must here"
    return FileFault(Reason.MISSING_FILE, f"there is no file {shown!r}{hint}")
