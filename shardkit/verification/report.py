"""What a verification found: the checks it made, and each problem by id, file and kind."""

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

PROBLEMS_KEPT = 1000
"""Problems listed one by one; beyond that they are only counted, so that a ruined data set does not fill memory."""


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be.

    Attributes:
        kind: Stable code. Of what is stored: ``"manifest"``, ``"file"``, ``"record"``, ``"checksum"``, ``"id"``,
            ``"index"`` or ``"decode"``; against the source: ``"missing"``, ``"extra"``, ``"label"`` or
            ``"changed"``.
        sentence: What was expected and what was found, for a person.
        id: The record concerned, or None for a file.
        shard: The shard concerned, or None.
    """

    kind: str
    sentence: str
    id: str | None = None
    shard: str | None = None


@dataclass
class VerifyReport:
    """The result of a verification.

    Attributes:
        records: Records that the manifest counts.
        checked: Name of a check -> how many things passed through it, such as ``{"files": 12, "checksums": 6000}``.
        problems: The first problems found.
        counts: How many problems of each kind.
    """

    records: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts

    def found(self, problem: Problem) -> None:
        """Note one problem."""
        self.counts[problem.kind] += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem)

    def add(self, other: "VerifyReport") -> None:
        """Take over what another report found."""
        self.checked += other.checked
        self.counts += other.counts
        self.problems += other.problems[: PROBLEMS_KEPT - len(self.problems)]

    def without(self, ids: Collection[str]) -> "VerifyReport":
        """Return the report less what was found of some records, as far as it is listed."""
        kept = [problem for problem in self.problems if problem.id not in ids]
        counts = self.counts - Counter(problem.kind for problem in self.problems if problem.id in ids)
        return VerifyReport(self.records, self.checked, kept, counts)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "ok": self.ok,
            "records": self.records,
            "checked": dict(self.checked),
            "problems_by_kind": dict(self.counts),
            "problems": [asdict(problem) for problem in self.problems],
        }
