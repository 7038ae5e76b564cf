"""The manifest: what a data set consists of, as frozen values (docs/format.md, "Manifest").

Reading one from untrusted bytes is in manifest_parser.py; making one the committed state is in commit.py.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import xxhash

from shardkit.contract import Contract
from shardkit.store.durable import PARTIAL

FORMAT_NAME = "shardkit"
FORMAT_MAJOR = 1
FORMAT_MINOR = 0
MANIFEST_NAME = "manifest.json"
MANIFEST_PARTIAL = MANIFEST_NAME + PARTIAL

_WRITERS = ("shardkit", "numpy", "lmdb", "msgpack", "pillow")
"""Packages that have a say in the bytes written."""


@dataclass(frozen=True)
class FileEntry:
    """One file of the data set.

    Attributes:
        path: Relative to the data set, with forward slashes.
        bytes: Its exact size.
        digest: XXH3-128 of its content, 32 hexadecimal digits.
    """

    path: str
    bytes: int
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"path": self.path, "bytes": self.bytes, "xxh3_128": self.digest}


@dataclass(frozen=True)
class ShardEntry:
    """One shard. The rows of a data set are the rows of its shards, one shard after the other.

    Attributes:
        number: Unique over all generations; gives the shard its path.
        backend: A key of `BACKENDS`.
        count: Rows, at least 1.
        files: Every file of the shard, in the order the backend names them.
    """

    number: int
    backend: str
    count: int
    files: tuple[FileEntry, ...]

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "number": self.number,
            "backend": self.backend,
            "count": self.count,
            "files": [file.to_dict() for file in self.files],
        }


@dataclass(frozen=True)
class IndexEntry:
    """The index of one generation.

    Attributes:
        generation: Which generation wrote it; gives the index its path.
        rejected: Lines of ``rejected.jsonl``: records that are left out, refused by the contract or deleted since.
        files: Every file of the index.
    """

    generation: int
    rejected: int
    files: tuple[FileEntry, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "generation": self.generation,
            "rejected": self.rejected,
            "files": [file.to_dict() for file in self.files],
        }


@dataclass(frozen=True)
class PastGeneration:
    """An earlier generation of the same lineage: what later ones were made from.

    Attributes:
        generation: Its counter of commits.
        dataset_id: What names its content.
    """

    generation: int
    dataset_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"generation": self.generation, "dataset_id": self.dataset_id}


@dataclass(frozen=True)
class Manifest:
    """What a committed data set is.

    Attributes:
        dataset_id: 32 hexadecimal digits that follow from the fields of the contract and the stored bytes alone.
        generation: Counts commits to this folder, from 1.
        contract: What every record fits.
        shards: In row order.
        index: The id index and the columns kept over all rows.
        history: The generations that this one was made from by appending, deleting and the like, oldest first;
            empty if it was ingested whole.
        next_shard: Lowest number for a new shard: above that of every shard of this generation and its history.
        source: What it was ingested from; JSON-ready, free in form.
        written_by: Versions of what wrote it, by name.
        minor: Minor version of the format it was written in.
    """

    dataset_id: str
    generation: int
    contract: Contract
    shards: tuple[ShardEntry, ...]
    index: IndexEntry
    history: tuple[PastGeneration, ...]
    next_shard: int
    source: Mapping[str, Any] = field(default_factory=dict)
    written_by: Mapping[str, str] = field(default_factory=dict)
    minor: int = FORMAT_MINOR

    @property
    def count(self) -> int:
        """Rows of all shards together."""
        return sum(shard.count for shard in self.shards)

    @property
    def lineage(self) -> tuple[PastGeneration, ...]:
        """The history and this generation itself: the history of what is made from it."""
        return (*self.history, PastGeneration(self.generation, self.dataset_id))

    @property
    def file_count(self) -> int:
        """Files of all shards and the index."""
        return sum(len(shard.files) for shard in self.shards) + len(self.index.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of manifest.json."""
        return {
            "format": FORMAT_NAME,
            "version": f"{FORMAT_MAJOR}.{self.minor}",
            "dataset_id": self.dataset_id,
            "generation": self.generation,
            "count": self.count,
            "contract": self.contract.to_dict(),
            "shards": [shard.to_dict() for shard in self.shards],
            "index": self.index.to_dict(),
            "history": [past.to_dict() for past in self.history],
            "next_shard": self.next_shard,
            "source": dict(self.source),
            "written_by": dict(self.written_by),
        }

    def to_bytes(self) -> bytes:
        """Return the content of manifest.json."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def make_manifest(
    generation: int,
    contract: Contract,
    shards: Sequence[ShardEntry],
    index: IndexEntry,
    source: Mapping[str, Any] | None = None,
    *,
    history: Sequence[PastGeneration] = (),
    next_shard: int = 0,
) -> Manifest:
    """Return the manifest of what was just written; the data set id is computed, `written_by` filled in.

    Args:
        generation: At least 1, above that of every earlier manifest of the folder.
        contract: Of the records.
        shards: In row order.
        index: As `write_index` returned it.
        source: What was ingested, JSON-ready.
        history: `Manifest.lineage` of the generation that this one was made from; empty where there is none.
        next_shard: `Manifest.next_shard` of that generation, so that no number of its lineage comes again.
    """
    return Manifest(
        dataset_id=dataset_id_of(contract, shards),
        generation=generation,
        contract=contract,
        shards=tuple(shards),
        index=index,
        history=tuple(history),
        next_shard=max([next_shard, *(shard.number + 1 for shard in shards)]),
        source=source or {},
        written_by=versions(),
    )


def dataset_id_of(contract: Contract, shards: Sequence[ShardEntry]) -> str:
    """Return the XXH3-128 of the fields' compact JSON and the digest of every shard file.

    What the contract does with records that do not fit is left out: it names no stored byte.
    """
    compact = json.dumps(contract.to_dict()["fields"], separators=(",", ":"), ensure_ascii=True)
    digest = xxhash.xxh3_128(compact.encode())
    for shard in shards:
        for file in shard.files:
            digest.update(file.digest.encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of the packages that have a say in the bytes written, by name."""
    found = {}
    for name in _WRITERS:
        with suppress(PackageNotFoundError):  # run from a checkout that is not installed
            found[name] = version(name)
    return found
