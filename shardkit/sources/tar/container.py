"""Tar files as a container: a row is a record, its columns are the extensions of its members.

The headers of a plain tar are read once, in the parent; its members are then read by their offsets. A gzip file is
decompressed twice in the parent: to find the records and verify its checksum, then to take their bytes along.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from shardkit.contract import FileContent, Reason, show_id
from shardkit.errors import SourceError
from shardkit.sources.columns import gather_columns
from shardkit.sources.container import Row
from shardkit.sources.tar.bytes import GzipBytes, PlainBytes
from shardkit.sources.tar.files import TarFile, list_tar_files
from shardkit.sources.tar.headers import BLOCK
from shardkit.sources.tar.index import Piece, TarIndex, index_tar

BETWEEN = ";"
"""Stands between extensions of which a record has one, as in WebDataset: ``jpg;png``."""
_FILE_SHIFT = 44  # of a mark: the file above, the block of the first header below
_MAX_KEPT_RECORDS = 200_000  # of tars gone through: some 20 MB
_MAX_HELD_BYTES = 1 << 30  # of records of a gzip file whose members are not all there yet


class Found(NamedTuple):
    """Where a row's bytes are.

    Attributes:
        file: Number of the tar.
        name: The key.
        pieces: The members.
        contents: Their bytes, taken along from a gzip file; None where they are to be read from a plain one.
        fault: Why the row cannot be had, or None.
        damage: Why members may be missing, if the tar is damaged and the row may have lost some to it.
    """

    file: int
    name: str
    pieces: tuple[Piece, ...] = ()
    contents: tuple[bytes, ...] | None = None
    fault: tuple[Reason, str] | None = None
    damage: str | None = None


class TarContainer:
    """One tar file, or all of a folder.

    Attributes:
        name: The path as given.
        files: The tar files, in order.
        columns: The extensions in the first tar that has a record, or once complete in all.
        together: Extension -> those that stand beside it in some record of these tars.
        damage: What is wrong with the first of these tars that is damaged, or None.
        path_columns: None: names in a tar are never opened.
    """

    path_columns: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        """Take a tar file, or a folder of them.

        Raises:
            SourceError: They cannot be read, or hold no record.
        """
        self.name = path
        self._passed_over: Counter[str] = Counter()
        self.files = tuple(list_tar_files(path, self._passed_over))
        self._indexes: dict[int, TarIndex] = {}
        self.columns: tuple[str, ...] = ()
        self.together: dict[str, frozenset[str]] = {}
        self.damage: str | None = None
        for number in range(len(self.files)):
            if len(self._index(number)):
                self._add_columns(number)
                return
        raise SourceError(self._describe_lack())

    def complete(self) -> "TarContainer":
        """Learn the extensions of all tars, by one pass over their headers.

        Raises:
            SourceError: A file cannot be read, or changed.
        """
        for number in range(len(self.files)):
            self._add_columns(number)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave the indexes behind: a part tells where its rows are."""
        return self.__dict__ | {"_indexes": {}}

    def count(self) -> int:
        """Return the number of rows, from the headers alone."""
        indexes = map(self._index, range(len(self.files)))
        return sum(len(index) + (index.damage is not None) for index in indexes)

    def scan(self, columns: Sequence[str], ignored: Counter[str]) -> Iterator[Row]:
        """Yield every record, and behind those of a damaged tar a row that says so.

        Raises:
            SourceError: A file cannot be read, or changed.
        """
        ignored.update(self._passed_over)
        with _OpenTar(self.files) as opened:
            for number, file in enumerate(self.files):
                index = self._index(number)
                ignored.update(index.ignored)
                found = _carry(file, number, index) if file.is_gzip else _locate(number, index)
                for header, row in zip(index.headers, found, strict=True):
                    yield opened.row(_mark(number, int(header)), row, columns)
                if index.damage is not None:
                    mark = _mark(number, index.damage.offset)
                    fault = (Reason.INCOMPLETE_SOURCE, index.damage.sentence)
                    yield opened.row(mark, Found(number, self.place(mark), fault=fault), columns)

    def read(self, locator: Sequence[Found], marks: Sequence[int], columns: Sequence[str]) -> Iterator[Row]:
        """Yield rows again; `locator` holds one entry for each.

        Raises:
            SourceError: A file cannot be read, or changed.
        """
        with _OpenTar(self.files) as opened:
            for mark, found in zip(marks, locator, strict=True):
                yield opened.row(mark, found, columns)

    def place(self, mark: int) -> str:
        """Return the tar and the byte of the first header, such as ``train.tar at byte 1024``."""
        number, block = divmod(mark, 1 << _FILE_SHIFT)
        return f"{show_id(self.files[number].path)} at byte {block * BLOCK}"

    def paths_of(self, marks: Sequence[int]) -> Sequence[str]:
        """Return the tars that these records are in."""
        return [self.files[number].path for number in dict.fromkeys(mark >> _FILE_SHIFT for mark in marks)]

    def _add_columns(self, number: int) -> None:
        index = self._index(number)
        self.columns = gather_columns((self.columns, index.extensions), show_id(self.name))
        for extension, beside in index.together.items():
            self.together[extension] = self.together.get(extension, frozenset()) | beside
        if self.damage is None and index.damage is not None:
            self.damage = index.damage.sentence

    def _index(self, number: int) -> TarIndex:
        """Return the records of one tar; the latest are kept, so that most sets are gone through once."""
        if number not in self._indexes:
            if sum(map(len, self._indexes.values())) > _MAX_KEPT_RECORDS:
                self._indexes.clear()
            tar = self.files[number]
            with tar.open() as file, _refusals(tar):
                stream = GzipBytes(file) if tar.is_gzip else PlainBytes(file, tar.size)
                self._indexes[number] = index_tar(stream, show_id(tar.path))
        return self._indexes[number]

    def _describe_lack(self) -> str:
        """Say why there is no record, by the first tar."""
        if not self.files:
            return f"{show_id(self.name)}: the folder holds no tar files"
        index = self._index(0)
        shown = show_id(self.files[0].path)
        if index.damage is not None:
            return f"{shown}: no whole record can be read: {index.damage.sentence}"
        ignored = ", ".join(f"{count} x {kind}" for kind, count in index.ignored.items())
        return f"{shown}: the tar holds no records" + (f"; ignored were {ignored}" if ignored else "")


class _OpenTar:
    """Reads rows; holds one plain tar open at a time."""

    def __init__(self, files: Sequence[TarFile]) -> None:
        self._files = files
        self._number = -1
        self._file: BinaryIO | None = None

    def __enter__(self) -> "_OpenTar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def row(self, mark: int, found: Found, columns: Sequence[str]) -> Row:
        """Return a row with the values of some columns, each under every extension that it names and has."""
        if found.fault is not None:
            reason, sentence = found.fault
            return Row(mark, found, {}, sentence, reason, found.name)
        wanted = {column: column.split(BETWEEN) for column in columns}
        values: dict[str, FileContent] = {}
        for position, piece in enumerate(found.pieces):
            names = [column for column, extensions in wanted.items() if piece.extension in extensions]
            if names:
                content = FileContent(self._content(found, position), f"{found.name}.{piece.extension}")
                values |= dict.fromkeys([piece.extension, *names], content)
        size = sum(piece.size for piece in found.pieces)
        return Row(mark, found, values, name=found.name, size=size)

    def _content(self, found: Found, position: int) -> bytes:
        if found.contents is not None:
            return found.contents[position]
        piece = found.pieces[position]
        if self._number != found.file:
            self.__exit__()
            self._file, self._number = self._files[found.file].open(), found.file
        if self._file is None:
            raise ValueError("the tar is closed")
        with _refusals(self._files[found.file]):
            self._file.seek(piece.data)
            data = self._file.read(piece.size)
        if len(data) < piece.size:
            raise _changed(self._files[found.file])
        return data


def _mark(number: int, offset: int) -> int:
    return (number << _FILE_SHIFT) + offset // BLOCK


@contextmanager
def _refusals(file: TarFile) -> Iterator[None]:
    """Turn what the system says against reading into a SourceError."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{show_id(file.path)}: cannot read the tar: {error.strerror}") from error


def _changed(file: TarFile) -> SourceError:
    return SourceError(f"{show_id(file.path)}: changed while it was ingested; start again")


def _locate(number: int, index: TarIndex) -> Iterator[Found]:
    """Yield the records of a plain tar."""
    for record in range(len(index)):
        fault = index.faults.get(record)
        pieces = () if fault is not None else tuple(index.pieces(record))
        damage = index.damage.sentence if index.damage is not None and index.is_open[record] else None
        yield Found(number, index.key(record), pieces, fault=fault, damage=damage)


def _carry(file: TarFile, number: int, index: TarIndex) -> Iterator[Found]:
    """Yield the records of a gzip file with their bytes; those that wait for a member are held meanwhile."""
    held: dict[int, list[bytes]] = {}
    weight = 0
    members = index.in_file_order()
    with file.open() as opened:
        stream = GzipBytes(opened)
        for record, found in enumerate(_locate(number, index)):
            while len(held.get(record, ())) < len(found.pieces):
                owner, piece = next(members)
                if owner not in index.faults:
                    held.setdefault(owner, []).append(_take(stream, piece, file))
                    weight += piece.size
                    if owner != record and weight > _MAX_HELD_BYTES:
                        raise _too_far_apart(file)
            contents = tuple(held.pop(record, ()))
            weight -= sum(map(len, contents))
            yield found._replace(contents=contents)


def _take(stream: GzipBytes, piece: Piece, file: TarFile) -> bytes:
    with _refusals(file):
        stream.skip(piece.data - stream.position)
        data = stream.read(piece.size)
    if len(data) < piece.size:
        raise _changed(file)
    return data


def _too_far_apart(file: TarFile) -> SourceError:
    return SourceError(
        f"{show_id(file.path)}: the members of its records lie over {_MAX_HELD_BYTES >> 20} MiB apart, too far to be "
        f"read from gzip data; decompress it with gunzip, and ingest the .tar"
    )
