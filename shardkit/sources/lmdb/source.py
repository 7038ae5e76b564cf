"""An LMDB as a source: key to bytes, or to whatever a function of the caller makes of an entry."""

import os
from collections import Counter
from itertools import islice
from typing import ClassVar

from shardkit.contract import BytesField, Contract, FileContent, ImageField, Rejection, Violation
from shardkit.contract.images.sniff import sniff
from shardkit.errors import SourceError
from shardkit.sources.columns import Columns
from shardkit.sources.container import Row
from shardkit.sources.files import FileReader
from shardkit.sources.lmdb.container import VALUE, LmdbContainer, Parse
from shardkit.sources.row_source import RowSource
from shardkit.sources.source import RawRecord

_LOOKED_AT = 64  # values that a proposal goes by


class LmdbSource(RowSource):
    """The entries of an LMDB's main database, in the order of their keys.

    Without `parse`, the id of a record is its key, in UTF-8, and the value is the content of the one field that takes
    a file (an image, bytes, an array as .npy, a text, json). With it, a record is what `parse` gives for an entry: a
    mapping of values, as for records of a program, whose ``id``, if there is one, takes the place of the key; or None
    for an entry that is no record. Which are records and what values they have is found when the source is made, where
    `parse` runs once an entry, and again where it gives ids.

    Attributes:
        name: The path as given.
        ignored: Entries that `parse` gives None for.

    Example:
        >>> def parse(key: bytes, value: bytes) -> dict[str, object]:
        ...     return {"image": value[8:], "label": int.from_bytes(value[:8], "little")}
        >>> ingest(LmdbSource("train.lmdb", parse=parse), "out/", contract)  # doctest: +SKIP
    """

    kind: ClassVar[str] = "LMDB"

    def __init__(self, path: str | os.PathLike[str], parse: Parse | None = None) -> None:
        """Take an LMDB: a file, or a folder with ``data.mdb``.

        Args:
            path: Where it is.
            parse: A function at the top of a module, called as ``parse(key, value)`` with bytes.

        Raises:
            SourceError: It is none, is empty, damaged or of a kind that is not read; or `parse` fails on every of the
                first entries, or cannot be sent to a worker.
        """
        self._is_parsed = parse is not None
        super().__init__(LmdbContainer(os.fspath(path), parse))

    def propose(self) -> Contract:
        """Return an image field if most of the first values begin as images do, else a bytes field; or as for tables.

        Raises:
            SourceError: What `parse` gives suggests nothing.
        """
        if self._is_parsed:
            return super().propose()
        rows = list(islice(self._container.scan((VALUE,), Counter()), _LOOKED_AT))
        images = sum(_is_image(row.values.get(VALUE)) for row in rows)
        return Contract({"image": ImageField()} if 2 * images > len(rows) else {"value": BytesField()})

    def _choose(self, contract: Contract) -> Columns:
        if self._is_parsed:
            return super()._choose(contract)
        if contract.records.id is not None:
            asked = contract.records.id
            raise SourceError(
                f"{self.name}: [records] id is {asked!r}, but the key names a record; leave it out"
            )
        needed = [name for name, spec in contract.fields.items() if spec.default is None] or list(
            contract.fields
        )
        spec = contract.fields[needed[0]]
        if len(needed) > 1 or not (spec.takes_file or spec.accepts_file):
            raise SourceError(
                f"{self.name}: an LMDB gives each record one value, the content of one field; the contract asks for "
                f"{', '.join(map(repr, needed))}; give a function that takes values apart: LmdbSource(…, parse=…)"
            )
        return Columns(None, {needed[0]: VALUE})

    def _record(
        self, row: Row, record_id: str, contract: Contract, columns: Columns, files: FileReader
    ) -> RawRecord | Rejection:
        if row.fault is not None:  # found only now that the value was looked at
            return Rejection(record_id, self.place(row.mark), row.reason, row.fault)
        return super()._record(row, record_id, contract, columns, files)


def _is_image(value: object) -> bool:
    try:
        sniff(value.data if isinstance(value, FileContent) else b"")
    except Violation:
        return False
    return True
