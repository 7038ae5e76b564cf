"""The label field: one class of a pinned list, or one number of a pinned range."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from shardkit.contract.field import Checked, Field, Layout, Payload, Violation, later
from shardkit.contract.keys import check_whole, wrong_key
from shardkit.contract.numerals import is_bool, read_whole, show_number
from shardkit.contract.reasons import Reason
from shardkit.errors import ContractError, FormatError

_INT64_MAX = 2**63 - 1
_MAX_FIRST = 2**31 - 1
_LISTED = 8  # classes that a sentence names


@dataclass(frozen=True)
class LabelField(Field):
    """A class of each record, stored as its number from 0, an int64. Either `classes` or `num_classes` is set.

    Attributes:
        classes: Class names; a record's label is one of them, letter by letter, or an int that is its
            position. Pinned, so that a split which lacks a class keeps the numbers.
        num_classes: A record's label is a whole number in ``[first, first + num_classes)``: an int, or its plain
            decimal text (``"7"``; not ``" 7"``, ``"+7"``, ``"07"`` or ``"7.0"``).
        first: The number that the raw input gives the first class: 1 where it counts from 1. What is stored and
            delivered counts from 0 all the same. Says nothing of names.
    """

    kind: ClassVar[str] = "label"

    classes: tuple[str, ...] | None = None
    num_classes: int | None = None
    first: int = later(0)

    def __post_init__(self) -> None:
        if (self.classes is None) == (self.num_classes is None):
            found = "neither" if self.classes is None else "both"
            raise ContractError(f"classes, num_classes: exactly one of the two must be given, found {found}")
        if self.num_classes is not None:
            check_whole("num_classes", self.num_classes, 1, _INT64_MAX)
        if self.classes is not None:
            object.__setattr__(self, "classes", _classes(self.classes))
        check_whole("first", self.first, 0, _MAX_FIRST)
        super().__post_init__()

    @property
    def count(self) -> int:
        """Number of classes."""
        return len(self.classes) if self.classes is not None else int(self.num_classes or 0)

    @property
    def layout(self) -> Layout:
        """One int64."""
        return Layout(np.dtype("<i8"))

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.classes or ())}

    def check(self, value: Any) -> Checked:
        """Judge a class name or a class number.

        Raises:
            Violation: ``label-type``, ``label-unknown`` or ``label-range``.
        """
        if self.classes is not None and isinstance(value, str):
            if value not in self._positions:
                raise Violation(Reason.LABEL_UNKNOWN, self._describe_unknown(value))
            number = self._positions[value]
        else:
            number = self._check_number(value)
        seen = self.classes[number] if self.classes is not None else str(number)
        return Checked(number.to_bytes(8, "little"), seen)

    def decode(self, payload: Payload) -> int:
        """Return the class number, an int in ``[0, count)``.

        Raises:
            FormatError: The payload is not 8 bytes, or the number is out of range.
        """
        if len(payload) != 8:
            raise FormatError(f"a label payload has {len(payload)} bytes, expected 8")
        number = int.from_bytes(payload, "little", signed=True)
        if not 0 <= number < self.count:
            raise FormatError(f"a label payload holds {number}, expected is one of [0, {self.count})")
        return number

    def _check_number(self, value: Any) -> int:
        number = None if is_bool(value) else read_whole(value)
        if number is None:
            wanted = (
                "a class name or a class number"
                if self.classes
                else 'a whole number in plain digits, such as "7"'
            )
            raise Violation(Reason.LABEL_TYPE, f"the label is {show_number(value)}; expected is {wanted}")
        if not self.first <= number < self.first + self.count:
            allowed = f"allowed are {self.first} to {self.first + self.count - 1}{self._hint(number)}"
            raise Violation(Reason.LABEL_RANGE, f"the label is {show_number(value)}; {allowed}")
        return number - self.first

    def _hint(self, number: int) -> str:
        if self.first == 0 and number == self.count:
            return "; if the labels count from 1, say so with first = 1 in the contract"
        if self.first == 1 and number == 0:
            return "; first = 1 in the contract says that they count from 1"
        return ""

    def _describe_unknown(self, value: str) -> str:
        classes = self.classes or ()
        close = get_close_matches(value[:100], classes, n=3) if len(classes) <= 10_000 else []
        if close:
            allowed = f"close to it are {', '.join(ascii(name) for name in close)}"
        else:
            more = f", … ({len(classes)} in all)" if len(classes) > _LISTED else ""
            allowed = f"the classes are {', '.join(ascii(name) for name in classes[:_LISTED])}{more}"
        return f"the label is {show_number(value)}, which is no class; {allowed}"


def _classes(classes: Any) -> tuple[str, ...]:  # Any: whatever stood in the contract
    allowed = "allowed is a list of distinct, non-empty names"
    if not isinstance(classes, list | tuple) or not classes:
        raise wrong_key("classes", classes, allowed)
    seen = set()
    for name in classes:
        if not isinstance(name, str) or not name or not _is_utf8(name):
            raise wrong_key("classes", classes, f"{show_number(name)} is no name; {allowed}")
        if name in seen:
            raise wrong_key("classes", classes, f"{show_number(name)} stands there twice; {allowed}")
        seen.add(name)
    return tuple(classes)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
