"""TFRecord files of ``tf.train.Example`` messages as a container: one file, or a folder of them."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from shardkit.contract import Field, Reason
from shardkit.errors import SourceError
from shardkit.sources.columns import gather_columns
from shardkit.sources.container import Row
from shardkit.sources.container_folder import find_files
from shardkit.sources.recognition import is_tfrecord
from shardkit.sources.streams import StreamFault, open_stream
from shardkit.sources.tfrecord import example, frames
from shardkit.sources.tfrecord.example import Example, ExampleFault
from shardkit.sources.tfrecord.frames import Frame, find_compression, read_frames

_SUFFIX = re.compile(r"\.tfrecords?(?=$|-\d+-of-\d+$|\.gz$)(\.gz)?", re.IGNORECASE)
_ROW_BITS = 40
_LOOKED_AT = 100
"""Records whose features make the columns at first."""

Locator = tuple[int, int, int]
"""File, byte of its content, number of the record in it."""


class TfRecordContainer:
    """The records of one file, or of all such files of a folder in the order of their paths.

    They are called ``FILE-STEM/ROW``. Every feature is a column; text is bytes, as the format has no other. Gzip is
    told by content. In a compressed file all that is before a part is decompressed again for it.

    Attributes:
        name: The path as given.
        paths: The files.
        columns: Features of the first 100 records, or once complete of all; sorted, for a message has them in no order.
        path_columns: None, since the format has no text.
    """

    path_columns: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        """Take a file, or a folder that holds such files.

        Raises:
            SourceError: It cannot be read, or none of the first 100 records is whole.
        """
        if not (example.IS_INSTALLED and frames.IS_INSTALLED):
            raise SourceError(
                f'{path}: reading it takes protobuf and google-crc32c: pip install "shardkit[tfrecord]"'
            )
        self.name = path
        self._passed_over: Counter[str] = Counter()
        is_folder = os.path.isdir(path)
        names = find_files(path, is_tfrecord, self._passed_over) if is_folder else [os.path.basename(path)]
        self.paths: Sequence[str] = [os.path.join(path, name) for name in names] if is_folder else [path]
        self._stems = tuple(_SUFFIX.sub("", name) for name in names)
        self._compressions = tuple(map(find_compression, self.paths))
        self.columns = self._find_columns(_LOOKED_AT)

    def complete(self) -> "TfRecordContainer":
        """Learn the columns of all records, which reads and parses each of them.

        Raises:
            SourceError: A file cannot be read.
        """
        self.columns = self._find_columns(None)
        return self

    @property
    def known(self) -> Mapping[str, Field]:
        """Nothing, since any feature may be a list."""
        return {}

    def count(self) -> None:
        """Return None: only reading all records tells how many there are."""

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every record in order, held against its checksums."""
        ignored.update(self._passed_over)
        return self._read_from((0, 0, 0), columns)

    def read(self, locator: Locator, marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield the records from `locator` on that have these marks."""
        return islice(self._read_from(locator, columns), len(marks))

    def place(self, mark: int) -> str:
        """Return the file and the record, counting from 0: ``train.tfrecord record 7``."""
        return f"{self.paths[mark >> _ROW_BITS]} record {mark % 2**_ROW_BITS}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the files that hold these records."""
        return [self.paths[file] for file in dict.fromkeys(mark >> _ROW_BITS for mark in marks)]

    def _read_from(self, start: Locator, columns: Sequence[str]) -> Iterator[Row]:
        for locator, frame in self._frames(start):
            yield self._row(locator, frame, columns)

    def _frames(self, start: Locator) -> Iterator[tuple[Locator, Frame]]:
        """Yield the records from one on, each with its locator."""
        first, offset, number = start
        for file in range(first, len(self.paths)):
            with open_stream(self.paths[file], self._compressions[file]) as stream:
                try:
                    stream.seek(offset)
                except StreamFault as fault:
                    raise SourceError(
                        f"{self.paths[file]}: {fault}; the file changed; start again"
                    ) from fault
                for frame in read_frames(stream):
                    yield (file, frame.offset, number), frame
                    number += 1
            offset, number = 0, 0

    def _row(self, locator: Locator, frame: Frame, columns: Sequence[str]) -> Row:
        file, offset, number = locator
        mark = file << _ROW_BITS | number
        if frame.is_last:
            name = f"{self.paths[file]} byte {offset}"
            return Row(mark, locator, {}, frame.fault, Reason.INCOMPLETE_SOURCE, name)
        name = f"{self._stems[file]}/{number}"
        if frame.fault is not None:
            return Row(mark, locator, {}, f"{frame.fault}, at byte {offset}", name=name)
        try:
            example = Example(frame.data) if columns else None
        except ExampleFault as fault:
            return Row(mark, locator, {}, f"{fault}, at byte {offset}", name=name)
        values = {column: example.get(column) for column in columns} if example is not None else {}
        return Row(mark, locator, values, name=name, size=len(frame.data))

    def _find_columns(self, limit: int | None) -> tuple[str, ...]:
        faults: list[str] = []
        examples = self._examples(limit, faults)
        first = next(examples, None)
        if first is None and faults:
            raise SourceError(f"{faults[0]}; expected are TFRecord files of tf.train.Example")
        return tuple(sorted(gather_columns(chain(() if first is None else (first,), examples), self.name)))

    def _examples(self, limit: int | None, faults: list[str]) -> Iterator[Example]:
        """Yield those of the first records that can be read; note what is wrong with the first that cannot."""
        for (file, offset, _), frame in islice(self._frames((0, 0, 0)), limit):
            fault = frame.fault
            if fault is None:
                try:
                    yield Example(frame.data)
                except ExampleFault as error:
                    fault = str(error)
            if fault is not None and not faults:
                faults.append(f"{self.paths[file]} byte {offset}: {fault}")
