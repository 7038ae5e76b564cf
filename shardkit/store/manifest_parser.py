"""Reads a manifest out of untrusted bytes: every key is checked, and the first fault is named.

Implements docs/format.md, "Manifest" and "Versions". Unknown extra keys are ignored. What the manifest says
of files is held against the files elsewhere, when they are opened.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from shardkit.contract import Contract
from shardkit.contract.strict_json import parse_json
from shardkit.errors import ContractError, DatasetNotFoundError, ManifestError, UnsupportedVersionError
from shardkit.store.backend import columns_of
from shardkit.store.backends import BACKENDS
from shardkit.store.folder import is_safe_path, open_regular
from shardkit.store.index_files import index_paths
from shardkit.store.manifest import (
    FORMAT_MAJOR,
    FORMAT_NAME,
    MANIFEST_NAME,
    MANIFEST_PARTIAL,
    FileEntry,
    IndexEntry,
    Manifest,
    PastGeneration,
    ShardEntry,
)

MAX_BYTES = 1 << 28
"""Largest manifest that is read: about a million shard files."""
MAX_NUMBER = (1 << 63) - 1
"""Largest size, count, number or generation: what a signed 64-bit file offset holds."""

_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})")
_DIGEST = re.compile(r"[0-9a-f]{32}")


def load_manifest(root: str | os.PathLike[str]) -> Manifest:
    """Read and check ``manifest.json`` of the data set in `root`.

    Raises:
        DatasetNotFoundError: There is none; says so if an unfinished ingest left something.
        UnsupportedVersionError: It is of another major version.
        ManifestError: It is not valid; names the key.
    """
    path = Path(root) / MANIFEST_NAME
    data = read_manifest(path)
    if data is None:
        raise DatasetNotFoundError(f"{os.fspath(root)}: {_why_none(Path(root))}")
    return parse_manifest(data, str(path))


def read_manifest(path: str | os.PathLike[str]) -> bytes | None:
    """Return the content of a manifest, or None if there is no such file.

    Raises:
        ManifestError: It is no regular file, or cannot be read.
    """
    try:
        descriptor, _ = open_regular(path)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ManifestError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error


def _why_none(root: Path) -> str:
    if not root.exists():
        return "does not exist"
    if not root.is_dir():
        return "is not a folder; a data set is a folder that holds manifest.json"
    if (root / "ingest" / "run.json").exists():
        return (
            "is not a data set yet: an ingest was interrupted there; go on with the same ingest and --resume"
        )
    leftovers = [name for name in ("shards", "index", MANIFEST_PARTIAL) if (root / name).exists()]
    if leftovers:
        return (
            f"is not a data set: it has no {MANIFEST_NAME}, but {', '.join(leftovers)} from an ingest "
            "that never finished; ingest again"
        )
    return f"is not a data set: it has no {MANIFEST_NAME}"


def parse_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in `data`.

    Args:
        data: Content of manifest.json.
        name: What messages call it.

    Raises:
        UnsupportedVersionError: It is of another major version.
        ManifestError: It is not valid; names the key.
    """
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{name}: is larger than {MAX_BYTES} bytes; it cannot be a manifest")
    try:
        top = parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise ManifestError(f"{name}: is not valid JSON: {error}; restore it, or ingest again") from error
    return _Parser(name).manifest(top)


class _Parser:
    """Turns JSON values into entries; `where` is the path to a value, such as ``shards[3].files``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def manifest(self, top: Any) -> Manifest:
        if not isinstance(top, dict) or top.get("format") != FORMAT_NAME:
            self._fail("format", f"must be {FORMAT_NAME!r}: this is not a manifest of shardkit")
        minor = self._version(self._get(top, "", "version", str))
        contract = self._contract(self._get(top, "", "contract", dict))
        generation = self._number(top, "", "generation", least=1)
        shards = self._shards(self._get(top, "", "shards", list), contract)
        manifest = Manifest(
            dataset_id=self._digest(top, "", "dataset_id"),
            generation=generation,
            contract=contract,
            shards=shards,
            index=self._index(self._get(top, "", "index", dict), contract),
            history=self._history(self._get(top, "", "history", list), generation),
            next_shard=self._number(
                top, "", "next_shard", least=max((shard.number + 1 for shard in shards), default=0)
            ),
            source=self._get(top, "", "source", dict),
            written_by=self._get(top, "", "written_by", dict),
            minor=minor,
        )
        if self._number(top, "", "count", least=0) != manifest.count:
            self._fail("count", f"says {top['count']}, the shards hold {manifest.count}")
        return manifest

    def _version(self, version: str) -> int:
        match = _VERSION.fullmatch(version)
        if match is None:
            self._fail("version", f"must be like '1.0', not {version[:40]!r}")
        if int(match[1]) != FORMAT_MAJOR:
            raise UnsupportedVersionError(
                f"{self._name}: was written in version {version} of the format; this shardkit reads "
                f"{FORMAT_MAJOR}.x: install a shardkit that reads {match[1]}.x, or ingest again"
            )
        return int(match[2])

    def _contract(self, tables: dict[str, Any]) -> Contract:
        try:
            return Contract.from_dict(tables)
        except ContractError as error:
            raise ManifestError(f"{self._name}: contract: {error}") from error

    def _shards(self, items: list[Any], contract: Contract) -> tuple[ShardEntry, ...]:
        columns = columns_of(contract)
        shards: list[ShardEntry] = []
        taken: set[int] = set()
        for position, item in enumerate(items):
            where = f"shards[{position}]"
            table = self._table(item, where)
            backend = BACKENDS.get(self._get(table, where, "backend", str))
            if backend is None:
                self._fail(
                    f"{where}.backend", f"is {table['backend'][:40]!r}; known are {', '.join(BACKENDS)}"
                )
            number = self._number(table, where, "number", least=0)
            if number in taken:
                self._fail(f"{where}.number", f"is {number}, which another shard has")
            taken.add(number)
            expected = backend.file_paths(number, columns)
            shards.append(
                ShardEntry(
                    number=number,
                    backend=backend.name,
                    count=self._number(table, where, "count", least=1),
                    files=self._files(table, where, expected),
                )
            )
        return tuple(shards)

    def _index(self, table: dict[str, Any], contract: Contract) -> IndexEntry:
        generation = self._number(table, "index", "generation", least=1)
        return IndexEntry(
            generation=generation,
            rejected=self._number(table, "index", "rejected", least=0),
            files=self._files(table, "index", index_paths(generation, columns_of(contract))),
        )

    def _history(self, items: list[Any], generation: int) -> tuple[PastGeneration, ...]:
        history: list[PastGeneration] = []
        for position, item in enumerate(items):
            where = f"history[{position}]"
            table = self._table(item, where)
            past = self._number(table, where, "generation", least=1)
            if not (history[-1].generation if history else 0) < past < generation:
                self._fail(f"{where}.generation", f"is {past}, but must increase and stay below {generation}")
            history.append(PastGeneration(past, self._digest(table, where, "dataset_id")))
        return tuple(history)

    def _files(self, table: dict[str, Any], where: str, expected: Sequence[str]) -> tuple[FileEntry, ...]:
        items = self._get(table, where, "files", list)
        files = tuple(self._file(item, f"{where}.files[{position}]") for position, item in enumerate(items))
        for position, path in enumerate(expected):
            if position >= len(files) or files[position].path != path:
                self._fail(f"{where}.files[{position}]", f"must be the file {path!r}")
        if len(files) > len(expected):
            self._fail(f"{where}.files[{len(expected)}]", "is one file too many")
        return files

    def _file(self, item: Any, where: str) -> FileEntry:
        table = self._table(item, where)
        path = self._get(table, where, "path", str)
        if not is_safe_path(path):
            self._fail(
                f"{where}.path",
                f"{path[:80]!r} must be relative, without '..', and of [A-Za-z0-9._-] and '/' alone",
            )
        return FileEntry(
            path, self._number(table, where, "bytes", least=0), self._digest(table, where, "xxh3_128")
        )

    def _digest(self, table: Mapping[str, Any], where: str, key: str) -> str:
        digest: str = self._get(table, where, key, str)
        if not _DIGEST.fullmatch(digest):
            self._fail(_join(where, key), "must be 32 lower-case hexadecimal digits")
        return digest

    def _number(self, table: Mapping[str, Any], where: str, key: str, least: int) -> int:
        number: int = self._get(table, where, key, int)
        if not least <= number <= MAX_NUMBER:
            self._fail(_join(where, key), f"must be at least {least} and fit 63 bits")
        return number

    def _table(self, item: Any, where: str) -> dict[str, Any]:
        if not isinstance(item, dict):
            self._fail(where, "must be an object")
        return item

    def _get(self, table: Mapping[str, Any], where: str, key: str, kind: type) -> Any:  # Any: of type `kind`
        if key not in table:
            self._fail(_join(where, key), "is missing")
        value = table[key]
        if type(value) is not kind:  # exactly: true is an int to isinstance
            names = {str: "a string", int: "an integer", dict: "an object", list: "an array"}
            self._fail(_join(where, key), f"must be {names[kind]}")
        return value

    def _fail(self, key: str, problem: str) -> NoReturn:
        raise ManifestError(f"{self._name}: {key}: {problem}; restore it, or ingest again")


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
