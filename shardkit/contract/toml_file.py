"""Reads and writes the contract file, and finds the line that a key stands on.

`tomllib` gives values without positions, so the line is looked up in the text once there is an error to
report.
"""

import contextlib
import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import tomlkit

from shardkit.errors import ContractError, OutputError

_HEADER = re.compile(r"\s*(\[{1,2}[^\[\]]+\]{1,2})\s*(#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.\- \t]|"[^"]*"|'[^']*')+?)\s*=""")
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True)
class TomlFile:
    """A TOML file that was read.

    Attributes:
        path: Where it stands, as the user gave it.
        text: Its text.
        tables: Its contents.
    """

    path: str
    text: str
    tables: dict[str, Any]

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "TomlFile":
        """Read a TOML file.

        Raises:
            ContractError: There is none, or it is not TOML; names the path and the line.
        """
        shown = os.fspath(path)
        try:
            raw = _read_regular(path)
        except OSError as error:
            raise ContractError(f"{shown}: cannot read the contract file: {error.strerror}") from error
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ContractError(f"{shown} line {line}: not UTF-8; save the contract file as UTF-8") from error
        try:
            return cls(shown, text, tomllib.loads(text))
        except ValueError as error:  # TOMLDecodeError, or an int of over 4300 digits
            raise ContractError(_syntax_message(shown, text, str(error))) from error
        except RecursionError as error:
            raise ContractError(f"{shown}: not a contract file: it is nested too deeply") from error

    def locate(self, keys: Sequence[str], text: str) -> str:
        """Return an error text with the path and, where `keys` leads to one, the line in front."""
        line = find_line(self.text, keys)
        return f"{self.path} line {line}: {text}" if line else f"{self.path}: {text}"


def _read_regular(path: str | PathLike[str]) -> bytes:
    """Return the content of a regular file: a FIFO would be waited for, and a device may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read()


def _syntax_message(path: str, text: str, fault: str) -> str:
    position = _POSITION.search(fault)
    if position is None:
        return f"{path}: not valid TOML: {fault}"
    line = position.group(1) or str(text.count("\n") + 1)
    return f"{path} line {line}: not valid TOML: {fault[: position.start()]}"


def find_line(text: str, keys: Sequence[str]) -> int | None:
    """Return the line, from 1, that sets the value at `keys`, or else of the nearest table around it.

    Follows table headers and dotted keys; a key inside an inline table gives the line of that table.
    """
    best_depth, best_line = 0, None
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _HEADER.fullmatch(line):
            path = header = _key_path(f"{found.group(1)}\n")
        elif found := _KEY.match(line):
            path = header + _key_path(f"{found.group(1)} = 0\n")
        else:
            continue
        depth = len(path)
        if depth > best_depth and path == tuple(keys[:depth]):
            best_depth, best_line = depth, number
    return best_line


def _key_path(toml: str) -> tuple[str, ...]:
    """Return the keys that lead into a one-line document; none if the line is no TOML of its own."""
    try:
        node: Any = tomllib.loads(toml)
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(node, dict | list) and node:
        if isinstance(node, dict):
            path.append(next(iter(node)))
            node = node[path[-1]]
        else:
            node = node[0]
    return tuple(path)


def render_toml(tables: Mapping[str, Any], comments: Mapping[tuple[str, ...], str] | None = None) -> str:
    """Return tables as TOML text.

    Args:
        tables: What to write.
        comments: Path of a key, such as ``("fields", "image", "grayscale")`` -> a comment above it, of one line.
    """
    document = tomlkit.document()
    for name, table in tables.items():
        document[name] = tomlkit.item(table)
    text = tomlkit.dumps(document)
    lines = text.splitlines(keepends=True)
    placed = {find_line(text, keys) or 1: comment for keys, comment in (comments or {}).items()}
    for number in sorted(placed, reverse=True):
        lines.insert(number - 1, f"# {placed[number]}\n")
    return "".join(lines)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a UTF-8 text file in one step: written beside, flushed to disk, renamed.

    Raises:
        OutputError: The system refused.
    """
    target = Path(path)
    beside = target.parent / f".{target.name}.{os.getpid()}"
    try:
        with open(beside, "xb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as error:
        with contextlib.suppress(OSError):  # there may be no such file, nor a folder for it
            beside.unlink()
        raise OutputError(f"{os.fspath(path)}: cannot write the file: {error.strerror}") from error
