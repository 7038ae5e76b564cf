"""The one protocol behind which every kind of raw input stands.

A source is scanned once in the parent, in parts, and read part by part in worker processes. It is small,
picklable and holds no open handle, so that a shard task is a pure function of the source, the part and the
contract. Adding a source: one file with a class of this shape, and one line in
``shardkit/sources/__init__.py``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from shardkit.contract import Contract, Rejection


@dataclass(frozen=True)
class RawRecord:
    """A record as the source gives it, not judged yet.

    Attributes:
        id: Unique name, independent of position.
        source: Where it stands in the raw input, for people: a path, or a table and row.
        values: Field name to raw value. A field that takes a file gets a
            :class:`~shardkit.contract.FileContent`; a value that is not there is None.
    """

    id: str
    source: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A run of consecutive records of a source: the input of one shard task.

    Attributes:
        first: Number of the first record in the source, counting from 0.
        ids: One id per record, in order. A record whose id is bad still has an entry (see `bad`).
        marks: One rising number a record, by which `Source.place` names it later without the part.
        locator: What `Source.read` needs to find the records again (a byte offset, paths, the records
            themselves); only the source that made it looks inside. Picklable.
        bad: Position in this part -> why the record cannot even be tried (bad id, malformed row).
        versions: Files that hold the part -> `Stamp.changed` of each when it was scanned: what is read from them must
            be what was scanned.
    """

    first: int
    ids: Sequence[str]
    marks: Sequence[int]
    locator: Any  # Any: private to each source
    bad: dict[int, Rejection] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)


class Stamp(NamedTuple):
    """What a record's raw input looks like from outside, without being read.

    Attributes:
        bytes: Size of it, or 0 where nobody can know.
        changed: A number that differs once any of it was written to again: made of the size and the times of last
            write and change of each file, or of the values themselves where there is no file.
    """

    bytes: int
    changed: int


@runtime_checkable
class Source(Protocol):
    """Where records come from."""

    @property
    def name(self) -> str:
        """What messages call this source: usually its path as the user gave it."""

    @property
    def ignored(self) -> Counter[str]:
        """What was passed over (``"hidden file"``, …), counted; complete after `parts` has ended."""

    @property
    def remarks(self) -> Mapping[str, str]:
        """Column -> what a person should know of it, in one sentence; of the contract that `propose` last gave."""

    def require(self, contract: Contract) -> None:
        """Check that the source has something for every field.

        Raises:
            SourceError: It has not; names what is missing and what there is.
        """

    def propose(self) -> Contract:
        """Return the contract that the structure suggests: fields and classes, every policy at default.

        Raises:
            SourceError: The source cannot be read, or is empty.
        """

    def count(self) -> int | None:
        """Return the number of records, or None where nobody can know (a generator). May scan the source.

        Raises:
            SourceError: The source cannot be read.
        """

    def parts(self, size: int) -> Iterator[Part]:
        """Yield all records in order, at most `size` to a part and always cut the same, in bounded memory.

        Raises:
            SourceError: The source cannot be read.
        """

    def place(self, mark: int) -> str:
        """Return where the record with this mark stands in the raw input, for people."""

    def stamps(self, part: Part, contract: Contract) -> list[Stamp]:
        """Return one stamp a record of `part`, by which a run that is resumed notices that its input changed.

        Never raises for a record whose input is missing: that has a stamp too.

        Raises:
            SourceError: The source changed or became unreadable since it was scanned.
        """

    def read(self, part: Part, contract: Contract) -> Iterator[RawRecord | Rejection]:
        """Yield, for each record of `part` in order, the record with its bytes, or why it cannot be had.

        Exactly ``len(part.ids)`` items. Records in ``part.bad`` come as that rejection.

        Raises:
            SourceError: The source changed or became unreadable since it was scanned.
        """
