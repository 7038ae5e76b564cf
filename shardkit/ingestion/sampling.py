"""Chooses which records of a source are looked at when not all can be: common ones, extreme ones, and the last.

One pass over the source, in bounded memory. Which records are chosen depends on the source alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shardkit.contract import Contract, Reason, Rejection
from shardkit.ingestion.seen import SeenIds
from shardkit.sources import Part, RawRecord, Source

_RUN = 16  # neighbouring records read together, so that a table is not opened anew for each
_STAMPED = 100_000  # records whose size is asked for, about; each may cost a look at a file
_EXTREME_SHARE = 16  # of all samples, one in so many is among the smallest, and one among the largest
_IDS_AT_ONCE = 4096


@dataclass(frozen=True)
class Pick:
    """Records of one part.

    Attributes:
        part: The part.
        positions: Which of its records are picked.
    """

    part: Part
    positions: frozenset[int]


@dataclass
class Sample:
    """Which records were chosen, and what the pass over the source showed without reading any.

    Attributes:
        total: Records in the source.
        chosen: How many of them were chosen.
        picks: Those of the chosen that can be read, in source order.
        rejections: Reason -> the first record that cannot even be tried for that reason: bad ids, malformed rows,
            repeated ids.
        rejected: Reason -> how many such records the whole source has.
    """

    total: int = 0
    chosen: int = 0
    picks: list[Pick] = field(default_factory=list)
    rejections: dict[Reason, Rejection] = field(default_factory=dict)
    rejected: dict[Reason, int] = field(default_factory=dict)

    def reject(self, rejection: Rejection) -> None:
        """Count a record that cannot be tried."""
        self.rejections.setdefault(rejection.reason, rejection)
        self.rejected[rejection.reason] = self.rejected.get(rejection.reason, 0) + 1


def choose_records(source: Source, contract: Contract, samples: int) -> Sample:
    """Choose about `samples` records: all if there are no more, else evenly spread ones, the smallest and the largest.

    The first and the last are always among them. Sizes are compared over about 100,000 evenly spread records.

    Args:
        source: Where they are.
        contract: Its fields say which files belong to a record.
        samples: Records to choose, about.

    Raises:
        SourceError: The source cannot be read.
    """
    counted = source.count()
    total = counted if counted is not None else sum(len(part.ids) for part in source.parts(_IDS_AT_ONCE))
    extremes = samples // _EXTREME_SHARE if samples < total else 0
    spread = _Spread(total, samples - 2 * extremes)
    every = -(-total // _STAMPED)
    sample, repeats, sizes = Sample(), _Repeats(source), _Sizes()
    spread_parts: dict[int, Part] = {}
    for number, part in enumerate(source.parts(_RUN)):
        sample.total += len(part.ids)
        for rejection in (*part.bad.values(), *repeats.add(part)):
            sample.reject(rejection)
        if spread.meets(part):
            spread_parts[part.first] = part
        if extremes and number % every == 0:
            sizes.add(part, [stamp.bytes for stamp in source.stamps(part, contract)])
    for rejection in repeats.finish():
        sample.reject(rejection)
    for pick in _merge(spread_parts.values(), sizes.extremes(extremes)):
        sample.chosen += len(pick.positions)
        readable = pick.positions - set(pick.part.bad)
        if readable:
            sample.picks.append(Pick(pick.part, readable))
    return sample


def read_picked(source: Source, contract: Contract, sample: Sample) -> Iterator[RawRecord | Rejection]:
    """Yield the chosen records as ingestion would have them.

    Raises:
        SourceError: The source changed since it was scanned.
    """
    for pick in sample.picks:
        last = max(pick.positions)
        for position, record in enumerate(source.read(pick.part, contract)):
            if position in pick.positions:
                yield record
            if position == last:
                break


class _Spread:
    """Evenly spread runs of records, the first and the last one among them."""

    def __init__(self, total: int, samples: int) -> None:
        runs = -(-total // _RUN)
        wanted = max(2, samples // _RUN)
        last = max(0, total - 1)
        evenly = [round(step * last / (wanted - 1)) for step in range(min(wanted, runs + 1))]
        self._targets: Sequence[int] = range(total) if samples >= total or wanted >= runs else evenly
        self._next = 0

    def meets(self, part: Part) -> bool:
        """Whether a part holds a target; parts must come in order."""
        end = part.first + len(part.ids)
        before = self._next
        while self._next < len(self._targets) and self._targets[self._next] < end:
            self._next += 1
        return self._next > before


class _Sizes:
    """Records with their sizes in bytes."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._records: list[tuple[int, int, int]] = []

    def add(self, part: Part, sizes: list[int]) -> None:
        """Take the records of a part."""
        self._records += [(size, len(self._parts), position) for position, size in enumerate(sizes)]
        self._parts.append(part)

    def extremes(self, count: int) -> Iterator[tuple[Part, int]]:
        """Yield the `count` smallest and largest records as part and position; the first of equals."""
        ordered = sorted(self._records)
        chosen = {*ordered[:count], *ordered[max(0, len(ordered) - count) :]}
        yield from ((self._parts[number], position) for _, number, position in sorted(chosen))


class _Repeats:
    """Finds ids that come twice, many at a time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._seen = SeenIds()
        self._ids: list[str] = []
        self._marks: list[int] = []

    def add(self, part: Part) -> list[Rejection]:
        """Take the ids of a part and return the repeats among those looked at by now."""
        good = [position for position in range(len(part.ids)) if position not in part.bad]
        self._ids += [part.ids[position] for position in good]
        self._marks += [part.marks[position] for position in good]
        return self.finish() if len(self._ids) >= _IDS_AT_ONCE else []

    def finish(self) -> list[Rejection]:
        """Return the repeats among the ids that were not looked at yet."""
        found = self._seen.add(self._ids, self._marks)
        repeats = [self._describe(position, first) for position, first in found.items()]
        self._ids, self._marks = [], []
        return repeats

    def _describe(self, position: int, first: int) -> Rejection:
        place, earlier = self._source.place(self._marks[position]), self._source.place(first)
        return Rejection(
            self._ids[position],
            place,
            Reason.DUPLICATE_ID,
            f"{earlier} has the same id; ids must be unique",
        )


def _merge(spread: Iterable[Part], extremes: Iterable[tuple[Part, int]]) -> list[Pick]:
    """Return what is wanted of each part, once and in source order."""
    parts: dict[int, Part] = {}
    wanted: dict[int, set[int]] = {}
    for part in spread:
        parts[part.first] = part
        wanted[part.first] = set(range(len(part.ids)))
    for part, position in extremes:
        parts[part.first] = part
        wanted.setdefault(part.first, set()).add(position)
    return [Pick(parts[first], frozenset(wanted[first])) for first in sorted(parts)]
