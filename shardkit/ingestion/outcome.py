"""What a shard task did, as a value that is sent between processes and kept in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardkit.contract import Rejection
from shardkit.ingestion.tally import Tally
from shardkit.store import FileEntry, ShardEntry


@dataclass(frozen=True)
class ShardOutcome:
    """What a shard task did.

    Attributes:
        entry: The shard's manifest entry, or None if no record was stored.
        rejections: Rejected records, in source order.
        tally: The counts.
        records: Records looked at: stored and rejected.
        is_reused: Whether it was done by the run that this one resumes.
        input: Digest of what it read; `identity.digest_input`. Empty where there is no source.
    """

    entry: ShardEntry | None
    rejections: list[Rejection] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    records: int = 0
    is_reused: bool = False
    input: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the journal."""
        return {
            "entry": None if self.entry is None else self.entry.to_dict(),
            "rejections": [rejection.to_dict() for rejection in self.rejections],
            "tally": self.tally.to_dict(),
            "records": self.records,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "ShardOutcome":
        """Return the outcome that `to_dict` described, as a reused one.

        Raises:
            KeyError, TypeError, ValueError: It is no such object.
        """
        found = table["entry"]
        return cls(
            None if found is None else _entry(found),
            [Rejection.from_dict(rejection) for rejection in table["rejections"]],
            Tally.from_dict(table["tally"]),
            int(table["records"]),
            is_reused=True,
        )


def _entry(table: Mapping[str, Any]) -> ShardEntry:
    files = tuple(
        FileEntry(str(file["path"]), int(file["bytes"]), str(file["xxh3_128"])) for file in table["files"]
    )
    return ShardEntry(int(table["number"]), str(table["backend"]), int(table["count"]), files)
