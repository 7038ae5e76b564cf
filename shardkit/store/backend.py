"""The protocol of a shard backend: how one shard's rows are written and read.

A backend stores, for each row, the id, one payload and one checksum a column, and the digest of what the record
was made from; it knows nothing of what the fields mean (docs/format.md, "Shards"). Adding one: one file with a
class of this shape, and one line in ``shardkit/store/backends.py``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from shardkit.contract import Contract, Layout, Payload
from shardkit.store.folder import DataFolder
from shardkit.store.manifest import ShardEntry


@dataclass(frozen=True)
class Column:
    """One stored column: a field's name and how its payloads lie."""

    name: str
    layout: Layout


def columns_of(contract: Contract) -> list[Column]:
    """Return the columns of a contract, one a field, in field order."""
    return [Column(name, field.layout) for name, field in contract.fields.items()]


class ShardWriter(Protocol):
    """Writes one shard. Use: `append` for each row, then `finish`; on any error `abort`."""

    def append(
        self, record_id: str, payloads: Sequence[Payload], checksums: Sequence[int], source_digest: bytes
    ) -> None:
        """Add one row: one payload and one checksum (``0 <= c < 2**64``) a column, in column order.

        `source_digest` has 16 bytes, all zeros if the record was made from nothing that has a digest.

        Raises:
            OutputError: The system refused the write, or the value is over a limit of the backend.
        """

    def finish(self) -> dict[str, str]:
        """Write what is left and fsync every file and new folder: the shard is complete under its own path.

        Returns:
            Path of a file, relative to the data set -> its digest, of those whose digest was taken on the way.

        Raises:
            OutputError: The system refused; nothing of this shard may be used then.
        """

    def abort(self) -> None:
        """Drop handles and remove what was written."""


class ShardReader(Protocol):
    """Reads one shard, read-only, from any number of threads, and in a forked child.

    Its handles go when nothing refers to the reader, nor to any payload or array that it gave.
    """

    def payload(self, row: int, column: int) -> Payload:
        """Return one payload; `row` counts within the shard.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def payloads(self, row: int, columns: Sequence[int]) -> list[Payload]:
        """Return the payloads of several columns of one row at the cost of one look-up.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def read_id(self, row: int) -> str:
        """Return the id that the shard itself stores.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def checksum(self, row: int, column: int) -> int:
        """Return the stored checksum of one payload.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def source_digest(self, row: int) -> bytes:
        """Return the digest of what the record was made from: 16 bytes, all zeros if there is none.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def scan(self, columns: Sequence[int]) -> Iterator[tuple[str, list[Payload]]]:
        """Yield id and payloads of fixed-size columns without axes for every row, touching little else.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def array(self, column: int) -> npt.NDArray[Any] | None:  # Any: the column's dtype
        """Return ``[rows, *shape]`` of a fixed-size column as a read-only view, or None if there is none."""


class Backend(Protocol):
    """A kind of shard."""

    @property
    def name(self) -> str:
        """What the manifest calls it."""

    def shard_path(self, number: int) -> str:
        """Return the shard's path relative to the data set, such as ``shards/00000``."""

    def file_paths(self, number: int, columns: Sequence[Column]) -> list[str]:
        """Return every file of a shard, relative to the data set, in manifest order."""

    def create(self, root: Path, number: int, columns: Sequence[Column]) -> ShardWriter:
        """Begin a shard under a temporary name; whatever an earlier attempt left under that name goes.

        Raises:
            OutputError: The system refused.
        """

    def check_files(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> None:
        """Hold every file against the manifest, mapping none, in a time that does not grow with the rows.

        Raises:
            CorruptShardError: A file is missing, of the wrong size, or its header or ends are off.
        """

    def open(self, folder: DataFolder, shard: ShardEntry, columns: Sequence[Column]) -> ShardReader:
        """Open a shard whose files were checked.

        Raises:
            CorruptShardError: A file changed its size since, or the inner structure is not sound.
        """
