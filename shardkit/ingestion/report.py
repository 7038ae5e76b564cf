"""What a run says of itself: totals that add up, and one line per rejected record.

``reports/summary.json`` and ``reports/rejected.jsonl`` in the output folder speak of the last run, whether it
committed or not. What a committed generation refused is kept with its index as well (docs/format.md).
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardkit.contract import Rejection
from shardkit.ingestion.tally import Tally
from shardkit.store import write_atomically

SUMMARY = "summary.json"
REJECTED = "rejected.jsonl"
_SHOWN = 3  # rejections quoted in a message; the rest is in the report


@dataclass(frozen=True)
class IngestReport:
    """The result of a run.

    Attributes:
        out: The output folder.
        source: The source as messages call it.
        committed: Whether a data set stands in `out` because of this run.
        seconds: Wall time.
        tally: What was stored, rejected, converted and warned about.
        ignored: What the source passed over on purpose, and how often.
        rejections: The rejected records in source order.
    """

    out: Path
    source: str
    committed: bool
    seconds: float
    tally: Tally
    ignored: Counter[str] = field(default_factory=Counter)
    rejections: tuple[Rejection, ...] = ()

    @property
    def stored(self) -> int:
        """Records stored."""
        return self.tally.stored

    @property
    def rejected(self) -> int:
        """Records rejected."""
        return len(self.rejections)

    @property
    def seen(self) -> int:
        """Everything the source held: stored, rejected and ignored."""
        return self.stored + self.rejected + sum(self.ignored.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a JSON object; in it, ``seen = stored + rejected + ignored``."""
        return {
            "out": str(self.out),
            "source": self.source,
            "committed": self.committed,
            "seconds": round(self.seconds, 3),
            "seen": self.seen,
            "ignored": sum(self.ignored.values()),
            "ignored_by_kind": dict(self.ignored.most_common()),
        } | self.tally.to_dict()

    def describe_rejections(self) -> str:
        """Name the first few rejected records, for a message."""
        shown = [f"{each.id!r} ({each.reason}: {each.sentence})" for each in self.rejections[:_SHOWN]]
        more = len(self.rejections) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")


def write_reports(folder: Path, report: IngestReport) -> None:
    """Write the summary and the rejected records of a run into `folder`, replacing those of the last run.

    Raises:
        OutputError: The system refused.
    """
    lines = (json.dumps(each.to_dict(), ensure_ascii=False) + "\n" for each in report.rejections)
    summary = json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n"
    folder.mkdir(exist_ok=True)
    write_atomically(folder / REJECTED, "".join(lines).encode("utf-8", "backslashreplace"))
    write_atomically(folder / SUMMARY, summary.encode("utf-8", "backslashreplace"))
