"""What a loader delivered, compared with what it should have: counts, and the first ids of each kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

IDS_LISTED = 20
"""Ids that a report names of each kind; the others are counted."""

_IDS_SAID = 3  # in one line


@dataclass(frozen=True)
class DeliveryReport:
    """What was delivered, compared with what should have been.

    Attributes:
        expected: Ids that should come once.
        delivered: Samples that came, those marked as padding and those with unknown ids aside.
        padded: Samples that came marked as padding (``batch["is_pad"]``).
        batches: Batches that came.
        missing: How many ids did not come.
        duplicate: How many samples came again.
        unknown: How many samples have an id that the data set has not, or that was not expected.
        wrong: How many values of label and scalar fields differ from what is stored.
        order: The rows in the order in which they came, padding and unknown ids aside: ``int64[k]``.
        missing_ids: The first of the ids that did not come.
        duplicate_ids: The first of the ids that came again.
        unknown_ids: The first of the unknown ids.
        wrong_values: The first of the differing values, as ``id: field: delivered x, stored y``.
        not_compared: Label and scalar fields whose values were not compared in every batch -> why not.
        may_repeat: Whether ids may come again, and others not at all.
        is_endless: Whether the loader was stopped, for it had delivered many times what was expected.
    """

    expected: int
    delivered: int
    padded: int
    batches: int
    missing: int
    duplicate: int
    unknown: int
    wrong: int
    order: npt.NDArray[np.int64]
    missing_ids: tuple[str, ...] = ()
    duplicate_ids: tuple[str, ...] = ()
    unknown_ids: tuple[str, ...] = ()
    wrong_values: tuple[str, ...] = ()
    not_compared: Mapping[str, str] = field(default_factory=dict)
    may_repeat: bool = False
    is_endless: bool = False

    def __repr__(self) -> str:
        """Show the verdict: the order alone may be millions of rows."""
        return f"<{type(self).__name__}: {self.describe()}>"

    @property
    def ok(self) -> bool:
        """Whether every expected id came once (or as often as it may), with the values that are stored."""
        is_complete = self.may_repeat or not (self.missing or self.duplicate)
        return is_complete and not (self.unknown or self.wrong or self.is_endless)

    def describe(self) -> str:
        """Say in one line what is wrong, or that all is well, and which values were not compared."""
        said = self._problems() or [self._success()]
        said += [f"{name} not compared: {reason}" for name, reason in self.not_compared.items()]
        return "; ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object, the order aside: ``ok``, and the attributes under their names."""
        table = {name: value for name, value in self.__dict__.items() if name != "order"}
        return {"ok": self.ok} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in table.items()
        }

    def _problems(self) -> list[str]:
        found = [("unknown", self.unknown, self.unknown_ids), ("wrong values", self.wrong, self.wrong_values)]
        if not self.may_repeat:
            found = [
                ("missing", self.missing, self.missing_ids),
                ("delivered again", self.duplicate, self.duplicate_ids),
                *found,
            ]
        said = [_count_and_name(kind, count, named) for kind, count, named in found if count]
        if self.is_endless:
            said.append(f"stopped after {self.batches} batches: the loader seems to have no end")
        return said

    def _success(self) -> str:
        if not self.may_repeat:
            return f"all {self.expected} ids delivered once"
        return f"{self.delivered} samples of {self.expected} ids, {self.missing} of which were not drawn"


def _count_and_name(kind: str, count: int, named: tuple[str, ...]) -> str:
    more = ", …" if count > _IDS_SAID else ""
    return f"{count} {kind} ({', '.join(named[:_IDS_SAID])}{more})"
