"""Tar files and WebDataset shards as a source: the members of a tar that share a key are a record.

Which members make a record, and which serve which field, is told in ``names.py``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

from shardkit.contract import (
    BytesField,
    Contract,
    Field,
    FileContent,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    Rejection,
    TextField,
    Violation,
)
from shardkit.contract.npy import read_npy
from shardkit.contract.numerals import read_whole
from shardkit.errors import SourceError
from shardkit.sources.columns import IMAGE, IMAGE_COLUMNS, LABEL, Columns
from shardkit.sources.container import Row
from shardkit.sources.files import FileReader
from shardkit.sources.proposal import Guess, find_name_fault, guess_label, guess_value
from shardkit.sources.row_source import RowSource
from shardkit.sources.source import Part, RawRecord, Stamp
from shardkit.sources.stamps import stamp_file
from shardkit.sources.tar.container import BETWEEN, Found, TarContainer
from shardkit.sources.tar.names import choose_extensions, field_name

_PART_BYTES = 64 << 20
"""A part that carries the bytes of its records is closed when it holds this much, as with records of a program."""
_LOOKED_AT = 64
"""Arrays that are looked at for a proposal; a pass over all of them would read everything."""


class TarSource(RowSource):
    """A .tar, .tar.gz or .tgz file, or a folder of them.

    The id of a record is its key: the path of its members up to the first dot of the base name. A field takes the
    member with the extension of its name (``left.jpg`` for ``left_jpg`` or ``left``), or else the one of its kind: an
    image ``jpg``, ``png``, …, a label ``cls``, a text ``txt``, json ``json``, an array ``npy``, bytes what is left.

    A tar that is cut or damaged, or goes on behind its end, gives the records before that place and one rejection
    ``incomplete-source``; a record that may have lost members to the damage is given no default in their place. Of a
    gzip file whose checksum fails, no record is taken. A record with two members of one name, or one stored sparse, is
    rejected.
    """

    kind: ClassVar[str] = "tar"

    def __init__(self, path: str) -> None:
        """Take a tar file or a folder of them.

        Raises:
            SourceError: They cannot be read, or hold no record.
        """
        self._tar = TarContainer(path)
        super().__init__(self._tar)
        self._id_column = None

    def propose(self) -> Contract:
        """Return the contract that the extensions suggest.

        The one kind of image becomes ``image``, ``cls`` a label, ``txt`` the field ``text``, ``json`` and ``npy`` what
        they say, anything else bytes, called after its extension; what cannot name a field is left out.

        Raises:
            SourceError: No extension makes a field, or the ``cls`` members suggest no label.
        """
        specs: dict[str, Field] = {}
        remarks: dict[str, str] = {}
        for extension in self._tar.columns:
            spec = self._propose_field(extension)
            name = self._propose_name(extension)
            fault = find_name_fault(name)
            if fault is not None:
                remarks[extension] = fault
            elif not (name == IMAGE and IMAGE in specs):
                specs[field_name(extension) if name in specs else name] = spec
        if not specs:
            raise SourceError(f"{self.name}: no member extension that a field could be named after")
        self.remarks = remarks
        return Contract(specs)

    def stamps(self, part: Part, contract: Contract) -> list[Stamp]:
        """Return one stamp a record: of its own bytes, and of the tar that it is in."""
        found: Sequence[Found] = part.locator
        changed = {
            number: stamp_file(self._tar.files[number].path).changed for number in {one.file for one in found}
        }
        return [Stamp(sum(piece.size for piece in one.pieces), changed[one.file]) for one in found]

    def _choose(self, contract: Contract) -> Columns:
        if contract.records.id is not None:
            raise SourceError(
                f"{self.name}: [records] id is {contract.records.id!r}, but the key of its members names a record of a "
                f"tar; leave it out"
            )
        try:
            chosen = choose_extensions(contract, self._tar.columns, self._tar.together, self.name)
        except SourceError as error:
            damage = self._tar.damage
            raise SourceError(f"{error}; the tar is damaged: {damage}" if damage else str(error)) from None
        return Columns(None, {name: BETWEEN.join(extensions) for name, extensions in chosen.items()})

    def _is_settled(self, name: str, spec: Field, column: str) -> bool:
        """Look for a better extension only where a default could hide it: gzip data would be read once more."""
        return spec.default is None or field_name(column) == name

    def _take(self, rows: Iterator[Row], size: int) -> list[Row]:
        """Return the rows of the next part."""
        run: list[Row] = []
        weight = 0
        for row in islice(rows, size):
            run.append(row)
            weight += row.size if row.locator.contents is not None else 0
            if weight >= _PART_BYTES:
                break
        return run

    def _locate(self, run: Sequence[Row]) -> Any:
        """Return where every row of a part is, since members may lie anywhere in the tar."""
        return tuple(row.locator for row in run)

    def _record(
        self, row: Row, record_id: str, contract: Contract, columns: Columns, files: FileReader
    ) -> RawRecord | Rejection:
        place = self.place(row.mark)
        for name in contract.fields:
            extensions = columns.fields[name].split(BETWEEN) if name in columns.fields else []
            held = [extension for extension in extensions if extension in row.values]
            if len(held) > 1:
                sentence = f"the record has several members for this field: {', '.join(map(repr, held))}"
                return Rejection(record_id, place, Reason.BAD_ROW, sentence, name)
            if not held and row.locator.damage is not None:
                damage = f"it may be lost, for the tar is damaged: {row.locator.damage}"
                sentence = f"there is no value for {name!r}; {damage}"
                return Rejection(record_id, place, Reason.MISSING_FIELD, sentence, name)
        return super()._record(row, record_id, contract, columns, files)

    def _convert(self, spec: Field, value: Any) -> Any:
        """Return the text of a member for fields that take a plain value; the others take the content.

        A ``cls`` member holds a class number or a class name; text that is no class but a number is the number.
        """
        if spec.takes_file or spec.accepts_file:
            return value
        text = _text_of(value)
        if isinstance(spec, LabelField) and isinstance(text, str) and text not in (spec.classes or ()):
            number = read_whole(text)
            return text if number is None else number
        return text

    def _propose_name(self, extension: str) -> str:
        """Return what a field of this extension is to be called, if anything can be."""
        images = [column for column in self._tar.columns if column in IMAGE_COLUMNS]
        mixed = any(other in self._tar.together[column] for column in images for other in images)
        if extension in images and not mixed:
            return IMAGE
        return {"cls": LABEL, "txt": "text"}.get(extension, field_name(extension))

    def _propose_field(self, extension: str) -> Field:
        suffix = extension.rpartition(".")[2]
        if suffix in IMAGE_COLUMNS:
            return ImageField()
        if suffix == "cls":
            return guess_label(self._look(extension, _text_of, None), self.name, extension)
        if suffix == "npy":
            return guess_value(self._look(extension, _array_of, _LOOKED_AT))
        return {"txt": TextField(), "json": JsonField()}.get(suffix, BytesField())

    def _look(self, extension: str, convert: Any, limit: int | None) -> Guess:
        guess = Guess()
        for row in islice(self._tar.scan((extension,), Counter()), limit):
            guess.add(convert(row.values.get(extension)), is_label=True)
        return guess


def _text_of(value: Any) -> Any:
    """Return the text of a member without the line feed at its end; its bytes if it is not UTF-8."""
    if not isinstance(value, FileContent):
        return value
    try:
        return value.data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return value.data


def _array_of(value: Any) -> Any:
    if not isinstance(value, FileContent):
        return None
    try:
        return read_npy(value.data)
    except Violation:
        return None
