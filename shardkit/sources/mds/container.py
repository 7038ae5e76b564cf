"""A folder that mosaicml-streaming wrote (MDS, version 2) as a container.

A shard is: uint32 number of samples; uint32 offsets, one more than samples; a JSON header, which the index repeats; the
samples. A sample is: uint32 size of each column whose size varies; the bytes of all columns. All is little-endian
(https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html#mds).
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from shardkit.contract import Field, Reason
from shardkit.errors import SourceError
from shardkit.sources.container import Row
from shardkit.sources.mds.index import INDEX, MdsColumn, MdsShard, read_index
from shardkit.sources.streams import PIECE_BYTES, Stream, StreamCut, StreamFault, open_stream

_ROW_BITS = 40
_WHOLE_SHARD = 2**_ROW_BITS - 1
"""Stands in a mark for a shard of which nothing is read."""
_HASHES: dict[str, Callable[[], Any]] = {
    name: getattr(module, name)
    for module, names in (
        (hashlib, ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s", "sha3_256")),
        (xxhash, ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128")),
    )
    for name in names
}


class MdsContainer:
    """The samples of all shards that the folder's index lists, called ``SHARD-STEM/SAMPLE``.

    A shard whose hash in the index does not fit is left out whole; one that is cut short is read up to the cut.

    Attributes:
        name: The path as given.
    """

    def __init__(self, path: str) -> None:
        """Take a folder with an ``index.json``.

        Raises:
            SourceError: The index cannot be read, or lists shards that cannot; names what.
        """
        self.name = path
        _ = self._shards  # read now, so that what is wrong with the index shows at once

    def __getstate__(self) -> dict[str, Any]:
        """Leave the list of shards behind, which may be long; it is read again where it is needed."""
        return {"name": self.name}

    @cached_property
    def _shards(self) -> tuple[MdsShard, ...]:
        return read_index(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of all shards."""
        return tuple(dict.fromkeys(column.name for shard in self._shards for column in shard.columns))

    @property
    def path_columns(self) -> tuple[str, ...]:
        """Columns of text."""
        columns = (column for shard in self._shards for column in shard.columns)
        return tuple(dict.fromkeys(column.name for column in columns if column.is_text))

    @property
    def known(self) -> Mapping[str, Field]:
        """What the encodings of the columns say."""
        columns = (column for shard in self._shards for column in shard.columns)
        return {column.name: column.known for column in columns if column.known is not None}

    def count(self) -> int:
        """Return the number of samples that the index promises."""
        return sum(shard.samples for shard in self._shards)

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every sample in order; each shard is held against its hash and size first."""
        for number, shard in enumerate(self._shards):
            fault = _find_damage(shard)
            if fault is not None:
                yield self._lose(number, fault)
                continue
            for row in self._read_shard(number, range(shard.samples), columns):
                yield row
                if row.reason is Reason.INCOMPLETE_SOURCE:
                    break

    def read(self, locator: Any, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the samples with these marks; `locator` is not needed."""
        samples = [mark % 2**_ROW_BITS for mark in marks]
        first = 0
        for number, count in Counter(mark >> _ROW_BITS for mark in marks).items():
            wanted = samples[first : first + count]
            first += count
            if wanted == [_WHOLE_SHARD]:
                yield self._lose(number, "the shard is damaged")
            elif number < len(self._shards):
                yield from self._read_shard(number, wanted, columns)

    def place(self, mark: int) -> str:
        """Return the shard and the sample, counting from 0: ``train/shard.00003.mds sample 17``."""
        path, sample = self._shards[mark >> _ROW_BITS].path, mark % 2**_ROW_BITS
        return path if sample == _WHOLE_SHARD else f"{path} sample {sample}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the index, and the shards that hold these samples."""
        numbers = dict.fromkeys(mark >> _ROW_BITS for mark in marks)
        return [os.path.join(self.name, INDEX), *(self._shards[number].path for number in numbers)]

    def _read_shard(self, number: int, samples: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield some samples of one shard; one that is beyond what can be read says so."""
        shard = self._shards[number]
        with open_stream(shard.path, shard.compression) as stream:
            try:
                offsets = _read_offsets(stream, shard)
            except StreamFault as fault:
                yield self._lose(number, str(fault))
                return
            for sample in samples:
                yield self._read_sample(stream, offsets, number, sample, columns)

    def _read_sample(
        self,
        stream: Stream,
        offsets: npt.NDArray[np.int64],
        number: int,
        sample: int,
        columns: Sequence[str],
    ) -> Row:
        shard = self._shards[number]
        mark = number << _ROW_BITS | sample
        name = f"{shard.stem}/{sample}"
        if sample + 1 >= len(offsets):
            raise SourceError(
                f"{shard.path}: there is no sample {sample} any more; the shard changed; start again"
            )
        begin, end = int(offsets[sample]), int(offsets[sample + 1])
        try:
            stream.seek(begin)
            if not columns:
                stream.seek(end)
                return Row(mark, None, {}, name=name, size=end - begin)
            values, fault = _split_sample(stream.read(end - begin), shard.columns, columns)
        except StreamFault as cut:
            sentence = (
                f"{cut}; the {shard.samples - sample} samples from here to the end of the shard are lost"
            )
            return Row(mark, None, {}, sentence, Reason.INCOMPLETE_SOURCE, f"{shard.path} byte {begin}")
        return Row(mark, None, values, fault, name=name, size=end - begin)

    def _lose(self, number: int, fault: str) -> Row:
        """Return the one row that stands for a whole shard."""
        shard = self._shards[number]
        sentence = f"{fault}; its {shard.samples} samples are left out"
        return Row(
            number << _ROW_BITS | _WHOLE_SHARD,
            None,
            {},
            sentence,
            Reason.INCOMPLETE_SOURCE,
            f"{shard.path} byte 0",
        )


def _find_damage(shard: MdsShard) -> str | None:
    """Return how the file of a shard differs from what the index or its own checksum says of it, or None.

    A shard that is cut short is none of these: its first samples can still be had.
    """
    known = {name: _HASHES[name]() for name in shard.hashes if name in _HASHES}
    try:
        with open_stream(shard.path) as stream:
            size = int(stream.size or 0)
            if shard.compression is None and size != shard.size:
                return (
                    None if size < shard.size else f"the shard has {size} bytes; the index says {shard.size}"
                )
            _drain(stream, list(known.values()))
        wrong = [name for name, digest in known.items() if digest.hexdigest() != shard.hashes[name].lower()]
        if shard.compression is not None and not known:
            with open_stream(shard.path, shard.compression) as stream:
                _drain(
                    stream, [xxhash.xxh3_64()]
                )  # which holds the data against the checksum of gzip or bzip2
    except StreamCut:
        return None
    except StreamFault as fault:
        return str(fault)
    return f"the shard's {wrong[0]} is not the one in the index" if wrong else None


def _drain(stream: Stream, digests: Sequence[Any]) -> None:
    """Feed all bytes to some digests."""
    while digests and (piece := stream.read_some(PIECE_BYTES)):
        for digest in digests:
            digest.update(piece)


def _read_offsets(stream: Stream, shard: MdsShard) -> npt.NDArray[np.int64]:
    """Return where each sample starts, and where the last one ends.

    Raises:
        StreamFault: The shard ends before, or does not hold as many samples as the index says.
    """
    count = int.from_bytes(stream.read(4), "little")
    if count != shard.samples:
        raise StreamFault(f"the shard says it has {count} samples; the index says {shard.samples}")
    offsets = np.frombuffer(stream.read(4 * (count + 1)), "<u4").astype(np.int64)
    if offsets[0] < stream.position or (np.diff(offsets) < 0).any():
        raise StreamFault("the shard's offsets do not rise")
    return offsets


def _split_sample(
    data: bytes, columns: Sequence[MdsColumn], wanted: Sequence[str]
) -> tuple[dict[str, Any], str | None]:
    """Return the values of the wanted columns, and what is wrong with the first of them that cannot be had."""
    varying = [column for column in columns if column.size is None]
    head = 4 * len(varying)
    if len(data) < head:
        return {}, f"the sample's {len(data)} bytes end within its sizes"
    found = iter(np.frombuffer(data, "<u4", len(varying)).tolist())
    sizes = [next(found) if column.size is None else column.size for column in columns]
    if head + sum(sizes) != len(data):
        return {}, f"the sample has {len(data)} bytes; its columns take {head + sum(sizes)}"
    values: dict[str, Any] = {}
    fault = None
    position = head
    for column, size in zip(columns, sizes, strict=True):
        if column.name in wanted:
            try:
                values[column.name] = column.decode(data[position : position + size])
            except ValueError as error:
                fault = fault or f"column {column.name!r}: {error}"
        position += size
    return values, fault
