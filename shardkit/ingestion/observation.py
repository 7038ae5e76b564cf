"""What the values of one field were like: modes, classes, sizes, ranges, lengths. Counts only, never contents."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from shardkit.contract import Checked, Field, FileContent, ImageField
from shardkit.contract.images.examination import DECODER_WARNINGS
from shardkit.contract.images.inspection import inspect

_ENCODED = (FileContent, bytes, bytearray, memoryview)


@dataclass
class Range:
    """The least and the greatest of some numbers; both None where there was none."""

    least: int | float | None = None
    greatest: int | float | None = None

    def add(self, least: int | float, greatest: int | float) -> None:
        """Take numbers from `least` to `greatest` into account."""
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)


@dataclass
class Observation:
    """What was seen of one field in the records looked at. What does not apply to its kind stays empty.

    Attributes:
        values: Records with a value that the field takes, or would take if its policies were lenient.
        missing: Records without a value.
        kinds: Image modes, or classes, and how often each came.
        converted: Policies that change the value -> how many values.
        warnings: What was noticed about values -> how many of them.
        recovered: Images that ``warnings = "reject"`` would refuse.
        formats: Formats of encoded images; ``"array"`` counts pixels that came as an array.
        shapes: ``[H, W]`` of images as delivered, shapes of arrays.
        numbers: Range of scalars and of the elements of arrays, NaN and infinity left out.
        not_finite: Records with NaN or infinity.
        lengths: Range of the characters of texts, the bytes of bytes, the tokens of tokens.
    """

    values: int = 0
    missing: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    converted: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    recovered: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    numbers: Range = field(default_factory=Range)
    not_finite: int = 0
    lengths: Range = field(default_factory=Range)

    def add(self, spec: Field, value: Any, checked: Checked) -> None:  # Any: raw input may be anything
        """Take one value into account.

        Args:
            spec: Its field.
            value: As the source gave it.
            checked: What the field made of it.
        """
        self.values += 1
        if checked.seen:
            self.kinds[checked.seen] += 1
        self.converted.update(checked.converted)
        self.warnings.update(checked.warnings)
        observe = _OBSERVERS.get(spec.kind)
        if observe is not None:
            observe(self, spec, value, checked)

    def extreme_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes with the fewest and the most elements; only where there are shapes."""
        ordered = sorted(self.shapes, key=lambda shape: (int(np.prod(shape, dtype=np.float64)), shape))
        return ordered[0], ordered[-1]


def _observe_image(seen: Observation, spec: Field, value: Any, checked: Checked) -> None:
    seen.shapes[delivered_size(cast(ImageField, spec), checked)] += 1
    seen.recovered += not DECODER_WARNINGS.isdisjoint(checked.warnings)
    is_encoded = isinstance(value, _ENCODED)
    seen.formats[inspect(bytes(checked.payload), complete=False).format if is_encoded else "array"] += 1


def delivered_size(spec: ImageField, checked: Checked) -> tuple[int, int]:
    """Return ``(H, W)`` of an image whose original bytes are the payload, as it is delivered."""
    data = bytes(checked.payload)
    facts = inspect(data, complete=False)
    is_turned = "orientation" in checked.converted
    if is_turned and facts.format != "jpeg":  # some decoders find the orientation where no header says it
        height, width = spec.decode(data).shape[:2]
        return height, width
    has_sides_swapped = is_turned and facts.orientation >= 5
    return (facts.width, facts.height) if has_sides_swapped else (facts.height, facts.width)


def _observe_numbers(seen: Observation, spec: Field, _value: Any, checked: Checked) -> None:
    found = np.asarray(spec.decode(checked.payload))
    if found.ndim:
        seen.shapes[found.shape] += 1
    finite = found[np.isfinite(found)]
    seen.not_finite += finite.size < found.size
    if finite.size:
        seen.numbers.add(finite.min().item(), finite.max().item())


def _observe_length(seen: Observation, spec: Field, _value: Any, checked: Checked) -> None:
    length = len(spec.decode(checked.payload))
    seen.lengths.add(length, length)


_OBSERVERS: dict[str, Callable[[Observation, Field, Any, Checked], None]] = {
    "image": _observe_image,
    "scalar": _observe_numbers,
    "array": _observe_numbers,
    "text": _observe_length,
    "bytes": _observe_length,
    "tokens": _observe_length,
}
"""Kind of field -> what is looked at beside the counts that its check gives."""
