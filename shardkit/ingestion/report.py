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
from shardkit.errors import OutputError
from shardkit.ingestion.tally import Tally
from shardkit.store import make_folder, publish, remove, write_atomically

SUMMARY = "summary.json"
REJECTED = "rejected.jsonl"
QUARANTINE = "quarantine"
SETTING_ASIDE = "quarantine.partial"  # until the run reports, what the last one set aside is still wanted
_SHOWN = 3  # rejections quoted in a message; the rest is in the report


@dataclass(frozen=True)
class IngestReport:
    """The result of a run. ``seen = accepted + rejected + ignored``, as far as the run got.

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
    def accepted(self) -> int:
        """Records that fit the contract."""
        return self.tally.accepted

    @property
    def stored(self) -> int:
        """Records stored: those accepted, or 0 if nothing was committed."""
        return self.accepted if self.committed else 0

    @property
    def rejected(self) -> int:
        """Records rejected."""
        return len(self.rejections)

    @property
    def seen(self) -> int:
        """Everything that was looked at: accepted, rejected and ignored."""
        return self.accepted + self.rejected + sum(self.ignored.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {
            "out": str(self.out),
            "source": self.source,
            "committed": self.committed,
            "seconds": round(self.seconds, 3),
            "seen": self.seen,
            "accepted": self.accepted,
            "stored": self.stored,
            "rejected": self.rejected,
            "ignored": sum(self.ignored.values()),
            "ignored_by_kind": dict(self.ignored.most_common()),
        } | self.tally.to_dict()

    def describe_rejections(self) -> str:
        """Name the first few rejected records, for a message."""
        shown = [f"{each.id!r} ({each.reason}: {each.sentence})" for each in self.rejections[:_SHOWN]]
        more = len(self.rejections) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")


def clear_reports(folder: Path) -> None:
    """Make the folder of reports, or remove from it what a run that was killed had begun to set aside.

    Raises:
        OutputError: The system refused.
    """
    make_folder(folder)
    remove(folder / SETTING_ASIDE)


def write_reports(folder: Path, report: IngestReport) -> None:
    """Write the summary and the rejected records of a run into `folder`, replacing those of the last run.

    Raises:
        OutputError: The system refused; says so if the data set itself is committed.
    """
    lines = (json.dumps(each.to_dict(), ensure_ascii=False) + "\n" for each in report.rejections)
    summary = json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n"
    try:
        remove(folder / QUARANTINE)
        if (folder / SETTING_ASIDE).exists():
            publish(folder / SETTING_ASIDE, folder / QUARANTINE)
        write_atomically(folder / REJECTED, "".join(lines).encode("utf-8", "backslashreplace"))
        write_atomically(folder / SUMMARY, summary.encode("utf-8", "backslashreplace"))
    except OutputError as error:
        raise OutputError(
            f"{error}" + ("; the data set itself is committed" if report.committed else "")
        ) from error
