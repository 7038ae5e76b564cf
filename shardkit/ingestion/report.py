"""What a run says of itself: totals that add up, and one line per rejected record.

``reports/summary.json`` and ``reports/rejected.jsonl`` in the output folder speak of the last run, whether it
committed or not. What a committed generation refused is kept with its index as well (docs/format.md).
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardkit.contract import Reason, Rejection
from shardkit.contract.strict_json import parse_json
from shardkit.errors import OutputError
from shardkit.ingestion.quarantine import Quarantine
from shardkit.ingestion.rejections import RejectionLog
from shardkit.ingestion.tally import Tally
from shardkit.store import write_atomically

REPORTS = "reports"
DRY_RUN = "dry-run"
SUMMARY = "summary.json"
REJECTED = "rejected.jsonl"
QUARANTINE = "quarantine"
_SHOWN = 3  # rejections quoted in a message; the rest is in the report


@dataclass(frozen=True)
class IngestReport:
    """The result of a run. ``seen = accepted + rejected + ignored``, as far as the run got.

    Attributes:
        out: The output folder.
        source: The source as messages call it.
        committed: Whether a data set stands in `out` because of this run.
        seconds: Wall time.
        tally: What was accepted, rejected, converted and warned about.
        ignored: What the source passed over on purpose, and how often.
        rejections: The first 1,000 rejected records in source order; all are in ``reports/rejected.jsonl``.
        lookalikes: Pairs of stored ids that differ only in case or in Unicode normal form, so that a copy to another
            file system may lose one: the first 100.
        lookalike_count: How many such pairs there are.
        dry_run: Whether the records were only judged.
        resumed: Shards taken over from the run that this one continued.
        discarded: Shards that an interrupted run had finished, and that this one, which did not resume it, removed.
        restored: Records stored whose ids had been deleted before.
        remarks: Column of the source -> what the contract makes of it, where none was given and it is not what one
            might expect: one whose name cannot name a field is left out.
        identity: Digest of all that decided which bytes were written; see `RunIdentity`.
        quarantine: The folder for the originals of rejected records, if there is to be one; it stands only where
            something was copied.
        was_complete: Whether the run was to be resumed, and had come to its end before: nothing was done.
    """

    out: Path
    source: str
    committed: bool
    seconds: float
    tally: Tally
    ignored: Counter[str] = field(default_factory=Counter)
    rejections: tuple[Rejection, ...] = ()
    lookalikes: tuple[tuple[str, str], ...] = ()
    lookalike_count: int = 0
    dry_run: bool = False
    resumed: int = 0
    discarded: int = 0
    restored: int = 0
    remarks: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    quarantine: Path | None = None
    was_complete: bool = False

    def __repr__(self) -> str:
        """Show the totals; the rejections may be a thousand."""
        counts = f"{self.accepted:,} accepted, {self.stored:,} stored, {self.rejected:,} rejected"
        done = "dry run: " if self.dry_run else "complete already: " if self.was_complete else ""
        return f"<{type(self).__name__} {self.out}: {done}{counts}>"

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
        return sum(self.tally.rejected.values())

    @property
    def seen(self) -> int:
        """Everything that was looked at: accepted, rejected and ignored."""
        return self.accepted + self.rejected + sum(self.ignored.values())

    @property
    def rejections_file(self) -> Path:
        """The file that lists all rejected records, one JSON object a line."""
        return self.out / REPORTS / (DRY_RUN if self.dry_run else "") / REJECTED

    @property
    def is_incomplete(self) -> bool:
        """Whether the source is damaged so that an unknown number of its records could not be seen at all."""
        return Reason.INCOMPLETE_SOURCE.value in self.tally.rejected

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {
            "out": str(self.out),
            "source": self.source,
            "committed": self.committed,
            "was_complete": self.was_complete,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            "resumed_shards": self.resumed,
            "discarded_shards": self.discarded,
            "restored": self.restored,
            "remarks": dict(self.remarks),
            "identity": self.identity,
            "seen": self.seen,
            "accepted": self.accepted,
            "stored": self.stored,
            "rejected": self.rejected,
            "quarantine": None if self.quarantine is None else str(self.quarantine),
            "ignored": sum(self.ignored.values()),
            "incomplete": self.is_incomplete,
            "ignored_by_kind": dict(self.ignored.most_common()),
            "lookalikes": self.lookalike_count,
            "lookalike_ids": [list(pair) for pair in self.lookalikes],
        } | self.tally.to_dict()

    def describe_rejections(self) -> str:
        """Name the first few rejected records, for a message."""
        shown = [f"{each.id!r} ({each.reason}: {each.sentence})" for each in self.rejections[:_SHOWN]]
        more = self.rejected - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def write_reports(
    folder: Path, report: IngestReport, log: RejectionLog, quarantine: Quarantine | None
) -> None:
    """Write the summary and the rejected records of a run into `folder`, replacing those of the last run.

    Raises:
        OutputError: The system refused; says so if the data set itself is committed.
    """
    summary = json.dumps(report.to_dict(), ensure_ascii=False, indent=2) + "\n"
    try:
        if quarantine is not None:
            quarantine.publish()
        log.publish()
        write_atomically(folder / SUMMARY, summary.encode("utf-8", "backslashreplace"))
    except OutputError as error:
        raise OutputError(
            f"{error}" + ("; the data set itself is committed" if report.committed else "")
        ) from error


def read_report(root: Path) -> IngestReport | None:
    """Return the summary of the run that committed the data set in `root`, or None if there is none to be had."""
    try:
        table = parse_json((root / REPORTS / SUMMARY).read_text("utf-8"))
        return _report(root, table) if table["committed"] else None
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _report(root: Path, table: Mapping[str, Any]) -> IngestReport:
    return IngestReport(
        out=root,
        source=str(table["source"]),
        committed=True,
        seconds=float(table["seconds"]),
        tally=Tally.from_dict(table),
        ignored=Counter({str(kind): int(count) for kind, count in table["ignored_by_kind"].items()}),
        lookalikes=tuple((str(first), str(second)) for first, second in table["lookalike_ids"]),
        lookalike_count=int(table["lookalikes"]),
        identity=str(table["identity"]),
        quarantine=Path(table["quarantine"]) if table.get("quarantine") else None,
    )
