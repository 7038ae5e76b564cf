"""Reads the ``index.json`` of an MDS folder: which shards there are, how large, and what their columns hold.

The format is that of mosaicml-streaming, version 2
(https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html). The index is
untrusted: every key is checked, and paths stay inside the folder.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.contract import Field
from shardkit.contract.strict_json import parse_json
from shardkit.errors import SourceError
from shardkit.sources.mds.values import Decoder, find_decoder, find_field
from shardkit.sources.streams import OPENERS, StreamFault, open_stream

INDEX = "index.json"
_MAX_INDEX_BYTES = 2**28  # some 300,000 shards
_MAX_SHARD_BYTES = 2**32  # offsets are of 32 bits
_VERSION = 2


@dataclass(frozen=True)
class MdsColumn:
    """One column of a shard.

    Attributes:
        name: As the writer called it.
        size: Bytes of each value, or None where each sample says.
        is_text: Whether values are text.
        decode: Makes a value of its bytes.
        known: The field that the encoding stands for, or None where the values decide.
    """

    name: str
    size: int | None
    is_text: bool
    decode: Decoder
    known: Field | None


@dataclass(frozen=True)
class MdsShard:
    """One shard.

    Attributes:
        path: The file to read: the plain one if it is there, else the compressed one.
        stem: Its path inside the folder, without what stands behind the first ``.mds``; names samples.
        compression: Key of :data:`~shardkit.sources.streams.OPENERS`, or None.
        hashes: Algorithm -> hexadecimal digest of the file at `path`.
        samples: How many there are.
        size: Bytes of the plain shard.
        columns: In the order in which samples hold them.
    """

    path: str
    stem: str
    compression: str | None
    hashes: Mapping[str, str]
    samples: int
    size: int
    columns: tuple[MdsColumn, ...]


def is_mds_folder(folder: str) -> bool:
    """Whether a folder holds an index that lists shards, or a damaged one beside ``.mds`` files."""
    path = os.path.join(folder, INDEX)
    if not os.path.isfile(path):
        return False
    try:
        return "shards" in _read_table(path)
    except SourceError:
        return any(".mds" in name for name in os.listdir(folder))


def read_index(folder: str) -> tuple[MdsShard, ...]:
    """Return the shards that the index of a folder lists.

    Raises:
        SourceError: The index cannot be read or says what cannot be; a shard is of another format, holds pickled
            objects or a compression that needs a library; names the shard.
    """
    path = os.path.join(folder, INDEX)
    table = _read_table(path)
    if table.get("version") != _VERSION:
        raise SourceError(
            f"{path}: the index is of version {table.get('version')!r}; version {_VERSION} is read"
        )
    shards = table.get("shards")
    if not isinstance(shards, list) or not shards:
        raise SourceError(f"{path}: the index lists no shards")
    return tuple(
        _Entry(entry, f"{path} shard {number}", folder).shard() for number, entry in enumerate(shards)
    )


def _read_table(path: str) -> dict[str, Any]:
    try:
        with open_stream(path) as stream:
            if int(stream.size or 0) > _MAX_INDEX_BYTES:
                raise SourceError(
                    f"{path}: the index has {stream.size} bytes; at most {_MAX_INDEX_BYTES} are read"
                )
            table = parse_json(stream.read(int(stream.size or 0)).decode("utf-8"))
    except (StreamFault, ValueError) as error:
        raise SourceError(f"{path}: the index cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise SourceError(f"{path}: the index holds a JSON {type(table).__name__}; expected is an object")
    return table


class _Entry:
    """One entry of the index, checked key by key as it is asked for."""

    def __init__(self, entry: Any, where: str, folder: str) -> None:
        self._where = where
        self._folder = folder
        self._entry = self._expect(isinstance(entry, dict), entry, "the entry is no object")

    def shard(self) -> MdsShard:
        """Return the shard that the entry describes.

        Raises:
            SourceError: It describes none that can be read.
        """
        entry = self._entry
        self._expect(
            entry.get("format") == "mds", entry, f"of format {entry.get('format')!r}; only 'mds' is read"
        )
        self._expect(
            entry.get("version") == _VERSION, entry, f"of version {entry.get('version')!r}, not {_VERSION}"
        )
        plain = self._file("raw_data")
        size = self._whole(plain.get("bytes"), _MAX_SHARD_BYTES, "raw_data.bytes")
        path, compression, hashes = self._choose_file(plain)
        stem = str(plain["basename"]).partition(".mds")[0]
        samples = self._whole(entry.get("samples"), size // 4, "samples")
        return MdsShard(path, stem, compression, hashes, samples, size, self._columns())

    def _choose_file(self, plain: Mapping[str, Any]) -> tuple[str, str | None, Mapping[str, str]]:
        """Return path, compression and hashes of the plain file, or of the compressed one if that is gone."""
        path = self._path(plain)
        if os.path.lexists(path) or not self._entry.get("zip_data"):
            return path, None, self._hashes(plain)
        packed = self._file("zip_data")
        word = str(self._entry.get("compression")).partition(":")[0]
        if word not in OPENERS:
            raise SourceError(
                f"{self._where}: compressed with {word!r}, which needs a library of its own; unpack the shards with "
                f"mosaicml-streaming (StreamingDataset(..., keep_zip=False)), or write them with one of "
                f"{', '.join(OPENERS)}"
            )
        return self._path(packed), word, self._hashes(packed)

    def _columns(self) -> tuple[MdsColumn, ...]:
        keys = ("column_names", "column_encodings", "column_sizes")
        lists = [self._entry.get(key) for key in keys]
        are_lists = all(isinstance(found, list) for found in lists)
        names, encodings, sizes = lists if are_lists else ([], [], [])
        is_even = are_lists and len(names) == len(encodings) == len(sizes) > 0
        self._expect(is_even, None, f"{', '.join(keys)} are no lists of the same length")
        self._expect(all(isinstance(name, str) for name in names), None, "a column name is no text")
        self._expect(len(set(names)) == len(names), None, "two columns have the same name")
        return tuple(map(self._column, names, encodings, sizes))

    def _column(self, name: str, encoding: Any, size: Any) -> MdsColumn:
        if encoding == "pkl":
            raise SourceError(
                f"{self._where}: column {name!r} holds pickled objects, which may run code and are never read; write "
                f"it with another encoding"
            )
        decode = find_decoder(encoding)
        if decode is None:
            raise SourceError(
                f"{self._where}: column {name!r} has the encoding {encoding!r}, which is none of MDS"
            )
        width = self._whole(size, _MAX_SHARD_BYTES, "column_sizes") if size else None
        return MdsColumn(name, width, encoding == "str", decode, find_field(encoding))

    def _file(self, key: str) -> dict[str, Any]:
        found = self._entry.get(key)
        self._expect(
            isinstance(found, dict) and isinstance(found.get("basename"), str), None, f"{key} names no file"
        )
        return dict(found or {})

    def _path(self, file: Mapping[str, Any]) -> str:
        """Return the path of a file of the folder, of which merged indexes may lie in subfolders."""
        name = str(file["basename"])
        parts = name.split("/")
        is_plain = all(part not in ("", ".", "..") and not set(part) & {"\\", "\0"} for part in parts)
        self._expect(is_plain, None, f"the file name {name!r} is not allowed: it must stay inside the folder")
        path = os.path.join(self._folder, name)
        root = os.path.realpath(self._folder)
        is_inside = os.path.commonpath((root, os.path.realpath(os.path.dirname(path)))) == root
        self._expect(
            is_inside, None, f"the folder of {name!r} is a link that leads out of this one; copy it here"
        )
        return path

    def _hashes(self, file: Mapping[str, Any]) -> Mapping[str, str]:
        found = file.get("hashes") or {}
        is_table = isinstance(found, dict) and all(isinstance(digest, str) for digest in found.values())
        self._expect(is_table, None, "hashes is no table of texts")
        return dict(found)

    def _whole(self, value: Any, greatest: int, key: str) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= greatest
        self._expect(
            is_whole, None, f"{key} is {str(value)[:40]}; expected is a whole number up to {greatest}"
        )
        return int(value)

    def _expect(self, holds: bool, value: Any, sentence: str) -> Any:
        if not holds:
            raise SourceError(f"{self._where}: {sentence}")
        return value
