"""Counts what a run saw, so that nothing is lost between shards and the report."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardkit.contract import CheckedRecord, Contract, Rejection


@dataclass
class Tally:
    """Counts of one shard, or, added up, of a run.

    Attributes:
        accepted: Records that fit the contract.
        rejected: Rejections by reason code.
        kinds: Field name -> what was seen -> how often, over accepted records (image modes, classes).
        converted: ``"field: policy"`` -> how often.
        warnings: ``"field: code"`` -> how often.
    """

    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    converted: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)

    def count(self, contract: Contract, record: CheckedRecord) -> None:
        """Count one accepted record."""
        self.accepted += 1
        for name, checked in zip(contract.fields, record.values, strict=True):
            if checked.seen:
                self.kinds.setdefault(name, Counter())[checked.seen] += 1
            if checked.converted:
                self.converted.update(f"{name}: {policy}" for policy in checked.converted)
            if checked.warnings:
                self.warnings.update(f"{name}: {code}" for code in checked.warnings)

    def reject(self, rejection: Rejection) -> None:
        """Count one rejected record."""
        self.rejected[rejection.reason.value] += 1

    def add(self, other: "Tally") -> None:
        """Add the counts of another tally to this one."""
        self.accepted += other.accepted
        self.rejected += other.rejected
        self.converted += other.converted
        self.warnings += other.warnings
        for name, counts in other.kinds.items():
            self.kinds.setdefault(name, Counter()).update(counts)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON objects, the most frequent first."""
        return {
            "accepted": self.accepted,
            "rejected_by_reason": dict(self.rejected.most_common()),
            "kinds": {name: dict(counts.most_common()) for name, counts in self.kinds.items()},
            "converted": dict(self.converted.most_common()),
            "warnings": dict(self.warnings.most_common()),
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Tally":
        """Return the tally that `to_dict` described.

        Raises:
            KeyError, TypeError, ValueError: It is no such object.
        """
        return cls(
            int(table["accepted"]),
            _counter(table["rejected_by_reason"]),
            {str(name): _counter(counts) for name, counts in table["kinds"].items()},
            _counter(table["converted"]),
            _counter(table["warnings"]),
        )


def _counter(counts: Mapping[str, Any]) -> Counter[str]:
    return Counter({str(name): int(count) for name, count in counts.items()})
