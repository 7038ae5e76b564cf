"""The raw reader that everything above uses: rows, ids, payloads and checksums of one committed data set.

It opens nothing that disagrees with the manifest (docs/format.md, "Integrity"), and decodes nothing.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.contract import Contract, Payload
from shardkit.contract.strict_json import parse_json
from shardkit.errors import CorruptShardError
from shardkit.store.backend import Column, ShardReader, columns_of
from shardkit.store.backends import BACKENDS
from shardkit.store.checksum import id_hash
from shardkit.store.committed_folder import CommittedFolder
from shardkit.store.ids import BatchIdView, IdSequence, share_index
from shardkit.store.index_files import REJECTED, index_folder
from shardkit.store.manifest import Manifest, ShardEntry
from shardkit.store.open_files import reserve_open_files


class Store:
    """A committed data set, read-only. Any number of threads may read, and forked children.

    Opening checks every file against the manifest, in a time that grows with the files and not the rows.
    Shards are opened when first read; if another data set has taken the folder by then, that is a FormatError.
    Later generations of the same data set do no harm, as long as they keep the files of this one. Pickles to its
    path, data set id and generation, and opens that generation elsewhere, whichever is current by then.

    Attributes:
        path: The folder, absolute.
        manifest: What the data set consists of.
        contract: What every record fits.
        columns: One stored column a field, in field order.
        ids: Every id, in row order.
        starts: First row of each shard.

    Example:
        >>> store = Store("out/")
        >>> store.payloads(store.row_of("cats/1.jpg"), range(len(store.columns)))
        [<memory at …>, <memory at …>]
    """

    def __init__(
        self, path: str | os.PathLike[str], generation: int | None = None, dataset_id: str | None = None
    ) -> None:
        """Open the data set in the folder `path`.

        Args:
            path: The folder.
            generation: Which generation to open: the current one by default, or an earlier one that was kept.
            dataset_id: Which data set that generation was, where it was open elsewhere or before.

        Raises:
            DatasetNotFoundError: There is no manifest, or none of that generation.
            UnsupportedVersionError: It is of another major version.
            ManifestError: The manifest is not valid.
            CorruptShardError: A file is missing, of the wrong size, or its header or ends are off.
            FormatError: The data set was replaced meanwhile.
        """
        self._folder = CommittedFolder(path, generation, dataset_id)
        self.path = self._folder.path
        self.manifest: Manifest = self._folder.manifest
        self.contract: Contract = self.manifest.contract
        self.columns: list[Column] = columns_of(self.contract)
        for shard in self.manifest.shards:
            BACKENDS[shard.backend].check_files(self._folder, shard, self.columns)
        self._index = share_index(self._folder)
        self.ids = IdSequence(self._index, range(len(self._index)))
        self._count = self.manifest.count
        self.starts = [0, *accumulate(shard.count for shard in self.manifest.shards)][:-1]
        reserve_open_files(self, self.manifest.file_count)
        self._forget_readers()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, record_id: object) -> bool:
        """Whether a record has this id."""
        return record_id in self.ids

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (str(self.path), self.manifest.generation, self.manifest.dataset_id))

    def id_of(self, row: int) -> str:
        """Return the id in `row`, in ``[0, len(self))``.

        Raises:
            IndexError: There is no such row.
            CorruptShardError: The index is inconsistent.
        """
        if not 0 <= row < self._count:
            self._require_row(row)
        return self._index.id_of(row)

    def ids_of(self, rows: npt.NDArray[np.int64]) -> BatchIdView:
        """Return the ids in some rows, ``int64[k]`` in ``[0, len(self))``: a sequence that makes them when asked."""
        return BatchIdView(self._index, rows)

    def row_of(self, record_id: str) -> int:
        """Return the row of an id.

        Raises:
            TypeError: `record_id` is not a str.
            RecordNotFoundError: No record has this id.
            CorruptShardError: The index is inconsistent.
        """
        return self._index.row_of(record_id)

    def locate(self, row: int) -> tuple[ShardEntry, int]:
        """Return the shard that holds `row`, and the row within it.

        Raises:
            IndexError: There is no such row.
        """
        self._require_row(row)
        position = bisect_right(self.starts, row) - 1
        return self.manifest.shards[position], row - self.starts[position]

    def where(self, row: int) -> str:
        """Return how a message names a row: shard, row within the shard, id, and what was ingested, if that is clear.

        Raises:
            IndexError: There is no such row.
        """
        shard, shard_row = self.locate(row)
        name = self._only_source()
        source = "" if name is None else f", ingested from {name}"
        path = self.path / BACKENDS[shard.backend].shard_path(shard.number)
        return f"{path}: row {shard_row} (id {self.id_of(row)!r}{source})"

    def payload(self, row: int, column: int) -> Payload:
        """Return one payload, as bytes or a read-only view; either may be kept.

        Raises:
            IndexError: There is no such row.
            CorruptShardError: What is stored is inconsistent.
        """
        return self.payloads(row, (column,))[0]

    def payloads(self, row: int, columns: Sequence[int]) -> list[Payload]:
        """Return the payloads of several columns of one row, at the cost of one look-up; of none, at no cost.

        Raises:
            IndexError: There is no such row.
            CorruptShardError: What is stored is inconsistent.
            FormatError: The data set was replaced before its shard was first read.
        """
        if not 0 <= row < self._count:
            self._require_row(row)
        if not columns:
            return []
        position = bisect_right(self.starts, row) - 1
        reader = self._readers[position] or self._open_reader(position)
        return reader.payloads(row - self.starts[position], columns)

    def check(self, row: int, column: int, payload: Payload) -> None:
        """Hold a payload against the checksum that was stored with it.

        Raises:
            CorruptShardError: They differ; names shard, row, id and field.
        """
        reader, shard_row = self._reader(row)
        expected = reader.checksum(shard_row, column)
        found = xxhash.xxh3_64_intdigest(payload, id_hash(self._index.encoded_id(row)))
        if found != expected:
            raise CorruptShardError(
                f"{self.where(row)}, field {self.columns[column].name!r}: has checksum {found:016x}, stored is "
                f"{expected:016x}; it was altered: restore it, or ingest again"
            )

    def stored_id(self, row: int) -> str:
        """Return the id that the shard itself stores for `row`; a sound index says the same.

        Raises:
            IndexError: There is no such row.
            CorruptShardError: What is stored is inconsistent.
        """
        reader, shard_row = self._reader(row)
        return reader.read_id(shard_row)

    def source_digest(self, row: int) -> bytes:
        """Return the XXH3-128 of what the record in `row` was made from: 16 bytes, all zeros if there is none.

        Raises:
            IndexError: There is no such row.
            CorruptShardError: What is stored is inconsistent.
        """
        reader, shard_row = self._reader(row)
        return reader.source_digest(shard_row)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one value a row of a label or scalar field, over all rows, as a read-only memory map.

        Raises:
            LookupError: The contract has no such field, or it is not a single fixed-size value.
            CorruptShardError: The file changed its size.
        """
        return self._index.column(name)

    def array(self, shard: int, column: int) -> npt.NDArray[Any] | None:
        """Return ``[rows, *shape]`` of a fixed-size column of the shard at position `shard`, memory-mapped.

        None where the backend has no such view, or the column varies in size.

        Raises:
            CorruptShardError: The file changed its size.
        """
        reader, _ = self._reader(self.starts[shard])
        return reader.array(column)

    def rejected(self) -> Iterator[dict[str, Any]]:
        """Yield what was left out of this generation and those before it, one mapping a record.

        That is what the contract refused, and what was deleted since (its reason is ``"deleted"``).

        Raises:
            CorruptShardError: The file is not as the manifest says.
        """
        relative = f"{index_folder(self.manifest.index.generation)}/{REJECTED}"
        size = next(file.bytes for file in self.manifest.index.files if file.path == relative)
        count = 0
        with os.fdopen(self._folder.open(relative, size), "rb") as stream:
            for line in stream:
                count += 1
                try:
                    rejection = parse_json(line.decode())
                except ValueError:
                    rejection = None
                if not isinstance(rejection, dict):
                    raise CorruptShardError(f"{self.path / relative}: line {count} is not a JSON object")
                yield rejection
        if count != self.manifest.index.rejected:
            raise CorruptShardError(
                f"{self.path / relative}: has {count} lines, the manifest says {self.manifest.index.rejected}"
            )

    def close(self) -> None:
        """Let go of the shards. Payloads handed out stay valid; reading again opens them anew."""
        self._forget_readers()

    def _only_source(self) -> str | None:
        """Return what all rows came from; None where that is unknown, or several sources were appended."""
        source = self.manifest.source
        ingests = source.get("ingests", [])
        if not isinstance(ingests, list) or not all(isinstance(each, dict) for each in ingests):
            return None
        names = {str(each.get("name")) for each in ingests} | {str(source.get("name"))}
        return names.pop() if len(names) == 1 and "name" in source else None

    def _reader(self, row: int) -> tuple[ShardReader, int]:
        self._require_row(row)
        position = bisect_right(self.starts, row) - 1
        return self._readers[position] or self._open_reader(position), row - self.starts[position]

    def _open_reader(self, position: int) -> ShardReader:
        """Open a shard at its first use. Where two threads do so at once, either reader serves."""
        shard = self.manifest.shards[position]
        reader = self._readers[position] = BACKENDS[shard.backend].open(self._folder, shard, self.columns)
        return reader

    def _forget_readers(self) -> None:
        self._readers: list[ShardReader | None] = [None] * len(self.manifest.shards)

    def _require_row(self, row: int) -> None:
        if not 0 <= row < self._count:
            raise IndexError(f"{self.path}: row {row} is not in [0, {self._count})")
