"""What `infer` found: the proposed contract, its file with the open decisions marked, and what to tell a person."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, starmap
from pathlib import Path

from shardkit.contract import Contract, LabelField, Reason, Rejection, render_toml, write_text
from shardkit.ingestion.decisions import Decision
from shardkit.ingestion.observation import Observation, Range

_LISTED = 12  # modes or classes named on one line
_RAREST = 6
_REMARKED = 50  # columns, each on a line of its own
_SHOWN = 80  # characters of an id


@dataclass(frozen=True)
class Trouble:
    """Records that are rejected for one reason, whatever the policies. One record may have several.

    Attributes:
        reason: Stable code.
        count: How many.
        looked_at: Of how many: all records of the source where their ids or rows are at fault, else the sample.
        example: The first of them.
    """

    reason: Reason
    count: int
    looked_at: int
    example: Rejection


@dataclass(frozen=True)
class Inference:
    """A proposed contract and what it rests on.

    Attributes:
        contract: The proposal, every policy at its default.
        total: Records in the source.
        sampled: Records looked at: all, or evenly spread ones, the smallest, the largest and the last.
        observations: Field name -> what its values were like, which holds for records that have no other fault.
        decisions: What is left to a person.
        troubles: Faults that no policy mends, the most frequent first.
        ignored: What the source passed over, counted.
        remarks: Column -> what a person should know of it: why it is left out, say.
    """

    contract: Contract
    total: int
    sampled: int
    observations: Mapping[str, Observation]
    decisions: tuple[Decision, ...]
    troubles: tuple[Trouble, ...]
    ignored: Mapping[str, int]
    remarks: Mapping[str, str]

    def to_toml(self) -> str:
        """Return the contract file, with a comment ``# DECIDE: …`` above each key that is left to a person.

        What a person should know of a field stands above its type; columns that are left out are named at the top.
        """
        comments: dict[tuple[str, ...], str] = {}
        for decision in self.decisions:
            keys = ("fields", decision.field, decision.key)
            before = f"{comments[keys]}; " if keys in comments else "DECIDE: "
            comments[keys] = before + decision.sentence
        left_out = []
        for column, remark in self.remarks.items():
            keys = ("fields", column, "type")
            if column in self.contract.fields:
                comments[keys] = f"{comments[keys]}; {remark}" if keys in comments else remark
            else:
                left_out.append(ascii(column[:_SHOWN]))
        if left_out:
            shown = ", ".join(left_out[:_LISTED]) + _more(len(left_out) - _LISTED)
            comments[()] = f"left out: {shown}; rename these columns to have them"
        return render_toml(self.contract.to_dict(), comments)

    def save(self, path: str | Path) -> None:
        """Write the contract file, in one step.

        Raises:
            OutputError: The system refused.
        """
        write_text(path, self.to_toml())

    def lines(self) -> Iterator[str]:
        """Yield what was seen, one line for each thing, for a person. Names stand in them as they are."""
        which = "" if self.sampled >= self.total else ": evenly spread, smallest, largest and last ones"
        yield f"{self.total:,} records, {self.sampled:,} looked at{which}"
        for name, seen in self.observations.items():
            spec = self.contract.fields[name]
            yield from (
                f"  {name:<10} {line}"
                for line in (*_kind_lines(spec, seen), *_size_lines(seen), *_remark_lines(seen))
            )
        yield from (f"  {'ignored':<10} {kind}: {count:,}" for kind, count in self.ignored.items())
        for column, remark in islice(self.remarks.items(), _REMARKED):
            yield f"  {'column':<10} {column[:_SHOWN]!r}: {remark}"
        if len(self.remarks) > _REMARKED:
            yield f"  {'column':<10} of {len(self.remarks) - _REMARKED:,} more there are like remarks"
        for trouble in self.troubles:
            example = trouble.example
            yield (
                f"  {'trouble':<10} {trouble.reason}: {trouble.count:,} of {trouble.looked_at:,}, such as "
                f"{example.id[:_SHOWN]!r}: {example.sentence}"
            )
        for decision in self.decisions:
            yield f"  {'decide':<10} {decision.field}.{decision.key}: {decision.sentence}"


def _kind_lines(spec: object, seen: Observation) -> Iterator[str]:
    """Yield the lines about image modes and formats, or about classes."""
    if isinstance(spec, LabelField):
        yield from _class_lines(spec, seen.kinds)
        return
    for title, counts in (("modes", seen.kinds), ("formats", seen.formats)):
        if counts:
            yield f"{title}: {_listed(counts)}"


def _class_lines(spec: LabelField, counts: Counter[str]) -> Iterator[str]:
    yield f"classes: {len(counts):,} of {spec.count:,} seen: {_listed(counts)}"
    if len(counts) > _LISTED:
        yield f"rarest: {', '.join(starmap(_counted, counts.most_common()[: -_RAREST - 1 : -1]))}"
    unseen = spec.count - len(counts)
    if unseen > 0:
        names = spec.classes if spec.classes is not None else map(str, range(spec.count))
        shown = list(islice((name for name in names if name not in counts), _LISTED))
        yield f"not seen: {', '.join(map(_shown, shown))}{_more(unseen - len(shown))}"


def _size_lines(seen: Observation) -> Iterator[str]:
    """Yield the lines about shapes, values and lengths."""
    if seen.shapes:
        title = "sizes [H, W]" if seen.formats else "shapes"
        smallest, largest = seen.extreme_shapes()
        ((common, count),) = seen.shapes.most_common(1)
        span = f"all {list(common)}"
        if len(seen.shapes) > 1:
            span = (
                f"{list(smallest)} to {list(largest)}, {len(seen.shapes):,} distinct, "
                f"most common {list(common)} ({count:,})"
            )
        yield f"{title}: {span}"
    for title, numbers in (("values", seen.numbers), ("lengths", seen.lengths)):
        if numbers.least is not None:
            yield f"{title}: {_span(numbers)}"


def _remark_lines(seen: Observation) -> Iterator[str]:
    """Yield the lines about what a person may wish to know of some of the values."""
    if seen.not_finite:
        yield f"NaN or infinity: {seen.not_finite:,}"
    if seen.missing:
        yield f"missing: {seen.missing:,}"
    for title, counts in (("conversions", seen.converted), ("warned", seen.warnings)):
        if counts:
            yield f"{title}: {_listed(counts)}"


def _listed(counts: Counter[str]) -> str:
    shown = starmap(_counted, counts.most_common(_LISTED))
    return ", ".join(shown) + _more(len(counts) - _LISTED)


def _counted(name: str, count: int) -> str:
    return f"{_shown(name)} ({count:,})"


def _shown(name: str) -> str:
    """Return a name such that spaces around it show."""
    return name if name == name.strip() else ascii(name)


def _more(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""


def _span(numbers: Range) -> str:
    if numbers.least == numbers.greatest:
        return f"all {_number(numbers.least)}"
    return f"{_number(numbers.least)} to {_number(numbers.greatest)}"


def _number(value: int | float | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
