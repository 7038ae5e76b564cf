"""The shard backends there are, and what is done with a shard whatever its backend."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shardkit.store.backend import Backend, Column, ShardWriter
from shardkit.store.checksum import digest_file
from shardkit.store.durable import refusals
from shardkit.store.lmdb_backend import LmdbBackend
from shardkit.store.manifest import FileEntry, ShardEntry
from shardkit.store.memmap_backend import MemmapBackend

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (MemmapBackend(), LmdbBackend())}
"""Name to backend. A new one is one line here."""


def create_shard(root: Path, number: int, backend: str, columns: Sequence[Column]) -> ShardWriter:
    """Begin writing a shard.

    `ShardWriter.finish` puts it at its own path, replacing what is there: `number` must not be one that a
    committed manifest refers to.

    Args:
        root: The folder of the data set.
        number: Shard number, unique over all generations.
        backend: A key of `BACKENDS`.
        columns: Of the contract.

    Raises:
        OutputError: The system refused.
    """
    return BACKENDS[backend].create(root, number, columns)


def seal_shard(
    root: Path,
    number: int,
    backend: str,
    columns: Sequence[Column],
    count: int,
    digests: Mapping[str, str] | None = None,
) -> ShardEntry:
    """Return the manifest entry of a finished shard, with size and digest of each file as they are on disk.

    Args:
        root: The folder of the data set.
        number: Shard number.
        backend: A key of `BACKENDS`.
        columns: Of the contract.
        count: Rows appended, at least 1.
        digests: What `ShardWriter.finish` returned; the other files are read back.

    Raises:
        OutputError: A file cannot be read back.
    """
    known = digests or {}
    files = [seal_file(root, path, known.get(path)) for path in BACKENDS[backend].file_paths(number, columns)]
    return ShardEntry(number, backend, count, tuple(files))


def seal_file(root: Path, relative: str, digest: str | None = None) -> FileEntry:
    """Return the manifest entry of a finished file, whose digest is taken by reading it back if it is not known.

    Raises:
        OutputError: It cannot be read back.
    """
    path = root / relative
    with refusals(path):
        return FileEntry(relative, path.stat().st_size, digest_file(path) if digest is None else digest)
