"""Records made by a program: any iterable of mappings, or a map-style data set such as torch's."""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

import numpy as np

from shardkit.contract import Contract, Reason, Rejection, find_id_fault, show_id
from shardkit.errors import SourceError
from shardkit.sources.source import Part, RawRecord, Stamp
from shardkit.sources.stamps import bytes_in, stamp_value

_PART_BYTES = 64 << 20
"""A part is closed when its records hold this much: parts wait in memory, a few more than there are workers."""
_IMMUTABLE = (str, bytes, int, float, bool, type(None), np.generic)
_END = object()


class IterableSource:
    """Records of a program: mappings with ``"id"`` and one value a field.

    Taken lazily, part by part, in the process that ingests; a generator only once. An object with ``__len__``
    and ``__getitem__`` but no ``__iter__``, as torch's data sets are, is asked for items 0, 1, 2, ….

    Attributes:
        name: What messages call it: its type.
        ignored: Stays empty.
        remarks: Stay empty.
    """

    def __init__(self, records: Any) -> None:
        """Take an iterable or a map-style data set.

        Raises:
            SourceError: It is neither.
        """
        self.name = f"<{type(records).__name__}>"
        self.ignored: Counter[str] = Counter()
        self.remarks: Mapping[str, str] = {}
        self._records = records
        self._is_spent = False
        is_map_style = hasattr(records, "__getitem__") and hasattr(records, "__len__")
        self._is_map_style = is_map_style and not hasattr(records, "__iter__")
        if isinstance(records, Mapping) or not (self._is_map_style or isinstance(records, Iterable)):
            raise SourceError(f"{self.name}: not a path, an iterable of records, or a data set with a length")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the records behind: a worker gets those of its part with the part."""
        return self.__dict__ | {"_records": None, "_is_spent": True}

    def require(self, contract: Contract) -> None:
        """Accept any contract: which values there are shows only as records come."""

    def propose(self) -> Contract:
        """Refuse: values made by a program suggest no contract.

        Raises:
            SourceError: Always.
        """
        raise SourceError(
            f"{self.name}: records of a program suggest no contract; give one: ingest(…, contract=…)"
        )

    def count(self) -> int | None:
        """Return the length, or None for a generator."""
        try:
            return len(self._records)
        except (TypeError, NotImplementedError):
            return None

    def parts(self, size: int) -> Iterator[Part]:
        """Yield the records in parts, which carry them.

        Raises:
            SourceError: They were consumed before, and cannot be made again.
        """
        records = self._iterate()
        first = 0
        while (part := _gather(islice(records, size), first)).ids:
            yield part
            first += len(part.ids)

    def place(self, mark: int) -> str:
        """Return the number of the record, counting from 0 as the program does: ``record 7``."""
        return _place(mark)

    def stamps(self, part: Part, contract: Contract) -> list[Stamp]:
        """Return a stamp of each record's values, as they were when the part was made."""
        return [stamp_value(values) for values in part.locator]

    def read(self, part: Part, contract: Contract) -> Iterator[RawRecord | Rejection]:
        """Yield the records of a part."""
        for position, record_id in enumerate(part.ids):
            if position in part.bad:
                yield part.bad[position]
            else:
                yield RawRecord(record_id, _place(part.marks[position]), part.locator[position])

    def _iterate(self) -> Iterator[Any]:
        if self._is_spent:
            raise SourceError(f"{self.name}: the records were consumed before; make a new generator")
        if self._is_map_style:
            return (self._records[index] for index in range(len(self._records)))
        iterator: Iterator[Any] = iter(self._records)
        self._is_spent = iterator is self._records
        return iterator


def _gather(records: Iterator[Any], first: int) -> Part:
    """Return a part of the records, each looked at as it comes: the next may reuse its buffers."""
    ids: list[str] = []
    bad: dict[int, Rejection] = {}
    carried: list[dict[str, Any]] = []
    weight = 0
    while weight < _PART_BYTES and (record := next(records, _END)) is not _END:
        record_id, rejection = _judge(record, first + len(ids))
        values: dict[str, Any] = {}
        if rejection is None:
            try:
                values = _snapshot(cast(Mapping[str, Any], record))
            except Exception as error:  # copying runs code of the values, which may raise anything
                place = _place(first + len(ids))
                rejection = Rejection(record_id, place, Reason.BAD_ROW, f"a value cannot be copied: {error}")
        if rejection is not None:
            bad[len(ids)] = rejection
        ids.append(record_id)
        carried.append(values)
        weight += _bytes_of(values)
    return Part(first, ids, range(first, first + len(ids)), tuple(carried), bad)


def _place(number: int) -> str:
    return f"record {number}"


def _judge(record: Any, number: int) -> tuple[str, Rejection | None]:
    """Return the id of a record, or the best name it has and why it cannot be tried."""
    place = _place(number)
    if not isinstance(record, Mapping):
        sentence = (
            f'the record is a {type(record).__name__}; expected is a mapping with "id" and one value a field'
        )
        return place, Rejection(place, place, Reason.BAD_ROW, sentence)
    if "id" not in record:
        sentence = 'the record has no "id"; give each one a name that is unique and stays the same'
        return place, Rejection(place, place, Reason.BAD_ID, sentence)
    fault = find_id_fault(record["id"])
    if fault is not None:
        name = show_id(record["id"]) if isinstance(record["id"], str) and record["id"].strip() else place
        return name, Rejection(name, place, Reason.BAD_ID, fault)
    return str(record["id"]), None


def _snapshot(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as they are now: programs often fill the same buffer again for the next record."""
    return {key: _freeze(value) for key, value in record.items() if key != "id"}


def _freeze(value: Any) -> Any:
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value if isinstance(value, _IMMUTABLE) else copy.deepcopy(value)


def _bytes_of(values: Mapping[str, Any]) -> int:
    """Return about how much memory the large ones among some values take."""
    return sum(
        bytes_in(value) + (len(value) if isinstance(value, bytes | str) else 0) for value in values.values()
    )
