"""Which decisions a proposed contract leaves to a person, each one line above the key that it is about."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice

from shardkit.contract import (
    ArrayField,
    Checked,
    Contract,
    Field,
    ImageField,
    LabelField,
    Reason,
    Rejection,
    ScalarField,
)
from shardkit.ingestion.observation import Observation

_LARGEST_SIDE = 2**31 - 1
_LENIENT_IMAGE = {
    "grayscale": "convert",
    "alpha": "composite",
    "cmyk": "convert",
    "depth16": "convert",
    "palette": "convert",
    "animated": "first",
    "orientation": "apply",
    "warnings": "accept",
    "max_size": (_LARGEST_SIDE, _LARGEST_SIDE),
}
_REJECTED = {
    "grayscale": ("are gray", '"convert" repeats their channel'),
    "alpha": (
        "have transparency",
        '"drop" leaves it out, "composite" lays them over white, mode = "RGBA" keeps it',
    ),
    "cmyk": ("are CMYK", '"convert" turns them into RGB'),
    "depth16": ("have over 8 bits a sample", '"convert" keeps the 8 most significant'),
    "animated": ("have several frames or pages", '"first" keeps the first'),
    "max_pixels": ("have more pixels", "only a larger limit lets them in"),
    "finite": ("hold NaN or infinity", "false lets them in"),
}
"""Policy -> what it rejects, and what else could be done."""
_MISSING_WORDS = frozenset({"nan", "na", "n/a", "#n/a", "none", "null", "nil", "-", "?"})
_NAMED = 3  # classes that a comment names


@dataclass(frozen=True)
class Decision:
    """One decision that is left to a person.

    Attributes:
        field: The field.
        key: The key of its contract table.
        count: How many of the records looked at it concerns.
        sentence: What was seen and what the choices are; one line.
    """

    field: str
    key: str
    count: int
    sentence: str


def be_lenient(contract: Contract) -> Contract:
    """Return the contract with every policy set to let in what another setting could let in."""
    return Contract({name: _lenient(spec) for name, spec in contract.fields.items()}, contract.records)


def _lenient(spec: Field) -> Field:
    if isinstance(spec, ImageField):
        return replace(spec, **_LENIENT_IMAGE)  # type: ignore[arg-type]  # each value is of its key's type
    return replace(spec, finite=False) if isinstance(spec, ScalarField | ArrayField) else spec


def would_reject(spec: Field, checked: Checked) -> Iterator[str]:
    """Yield the policies of `spec` that would reject a value which its lenient twin let in."""
    known = {key.name for key in fields(spec)}
    for policy in checked.converted:
        if policy in known and getattr(spec, policy) == "reject":
            yield policy


def rejecting_limit(rejection: Rejection) -> str | None:
    """Return the key of the limit that even the lenient contract keeps, and by which it rejected a record, or None."""
    return "max_pixels" if rejection.reason is Reason.TOO_MANY_PIXELS else None


def open_decisions(
    contract: Contract, observations: dict[str, Observation], rejected: Counter[tuple[str, str]], sampled: int
) -> tuple[Decision, ...]:
    """Return what a person has to decide, in the order of the contract.

    Args:
        contract: The proposal.
        observations: Field -> what was seen of it under the lenient contract.
        rejected: ``(field, policy)`` -> how many records that policy would reject.
        sampled: Records looked at.
    """
    return tuple(
        decision
        for name, spec in contract.fields.items()
        for decision in _of_field(name, spec, observations[name], rejected, sampled)
    )


def _of_field(
    name: str, spec: Field, seen: Observation, rejected: Counter[tuple[str, str]], sampled: int
) -> Iterator[Decision]:
    found = [
        (policy, count, "{}, so are rejected as it stands; {}".format(*_REJECTED[policy]))
        for (field, policy), count in rejected.items()
        if field == name
    ]
    if seen.missing:
        way_out = "" if isinstance(spec, ImageField) else "; default = VALUE would give them one"
        found.append(("type", seen.missing, f"have no value, so are rejected{way_out}"))
    if isinstance(spec, ImageField):
        found += _of_image(spec, seen)
    order = list(spec.to_dict())
    for key, count, what in sorted(found, key=lambda each: order.index(each[0])):
        yield Decision(name, key, count, f"{count:,} of {sampled:,} records looked at {what}")
    if isinstance(spec, LabelField):
        yield from _of_label(name, spec, seen)


def _of_image(spec: ImageField, seen: Observation) -> Iterator[tuple[str, int, str]]:
    larger = Counter({each: count for each, count in seen.shapes.items() if _is_larger(each, spec.max_size)})
    if larger:
        height, width = (max(shape[axis] for shape in larger) for axis in (0, 1))
        what = f"are up to {height} high and {width} wide, so are rejected; a larger limit lets them in"
        yield "max_size", larger.total(), what
    if turned := seen.converted["orientation"]:
        yield "orientation", turned, 'are turned as their metadata says; or "ignore", or "reject"'
    if seen.recovered:
        what = 'are let in though the decoder remarked on them; "reject" refuses such'
        yield "warnings", seen.recovered, what
    if seen.values and seen.converted["grayscale"] == seen.values:
        yield "mode", seen.values, 'are gray, and none is in colour; "L" delivers their one channel'


def _is_larger(shape: tuple[int, ...], limit: tuple[int, int]) -> bool:
    return shape[0] > limit[0] or shape[1] > limit[1]


def _of_label(name: str, spec: LabelField, seen: Observation) -> Iterator[Decision]:
    if spec.num_classes is not None:
        numbers = sorted(int(kind) for kind in seen.kinds)
        if numbers and numbers[0] > 0:
            sentence = (
                f"no label looked at is 0, they are {numbers[0]} to {numbers[-1]}: labels may count from 1; if these "
                f"do, write first = 1, num_classes = {numbers[-1]}"
            )
            yield Decision(name, "num_classes", seen.values, sentence)
        return
    classes = spec.classes or ()
    words = [each for each in classes if each.strip().lower() in _MISSING_WORDS]
    if words:
        sentence = f"do these classes stand for a missing label? {_listed(words)}"
        yield Decision(name, "classes", len(words), sentence)
    alike = _alike(classes)
    if alike:
        sentence = f"these classes differ only by case or spaces: {_listed(alike)}"
        yield Decision(name, "classes", len(alike), sentence)


def _alike(classes: Iterable[str]) -> list[str]:
    """Return the classes that equal another one but for case and spaces, neighbours side by side."""
    groups: dict[str, list[str]] = {}
    for each in classes:
        groups.setdefault(" ".join(each.casefold().split()), []).append(each)
    return [each for group in groups.values() if len(group) > 1 for each in group]


def _listed(names: list[str]) -> str:
    more = len(names) - 2 * _NAMED
    shown = ", ".join(ascii(name[:40]) for name in islice(names, 2 * _NAMED))
    return f"{shown} and {more} more" if more > 0 else shown
