"""Proposes a contract: the fields that the source's structure suggests, and which decisions its records call for.

A sample of records is decoded exactly as ingestion does, under policies that let through what can be let through,
so that each conversion that would be needed is seen and counted. The proposal itself keeps the defaults: whether
gray may become colour depends on what the data means, so a person decides.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

from shardkit.contract import (
    CheckedRecord,
    Contract,
    ImageField,
    Rejection,
    override,
    render_toml,
    write_text,
)
from shardkit.ingestion.tally import Tally
from shardkit.sources import Part, RawRecord, Source, open_source

_RUN = 16  # neighbouring records looked at together, so that a table is not re-read for each
_LENIENT = {
    "grayscale": "convert",
    "alpha": "composite",
    "cmyk": "convert",
    "depth16": "convert",
    "palette": "convert",
    "animated": "first",
    "orientation": "apply",
    "warnings": "accept",
}


@dataclass(frozen=True)
class Inference:
    """A proposed contract and what it rests on.

    Attributes:
        contract: The proposal, every policy at its default.
        total: Records in the source.
        sampled: Records looked at.
        tally: What the sample held, under the most lenient policies; its rejections are faults no policy mends.
        decisions: ``(field, policy)`` -> how many sampled records the default would reject and another setting keep.
    """

    contract: Contract
    total: int
    sampled: int
    tally: Tally
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)

    def to_toml(self) -> str:
        """Return the contract file, with a comment at each decision that is left to a person."""
        return render_toml(self.contract.to_dict(), self._comments())

    def save(self, path: str | Path) -> None:
        """Write the contract file, in one step.

        Raises:
            OutputError: The system refused.
        """
        write_text(path, self.to_toml())

    def _comments(self) -> dict[tuple[str, ...], str]:
        return {
            ("fields", name, policy): f"DECIDE: {count} of {self.sampled} sampled records would be rejected"
            for (name, policy), count in self.decisions.items()
        }


def infer(raw: str | Path, samples: int = 2048) -> Inference:
    """Look at the first, the last and evenly spread records of raw input, and propose a contract.

    Args:
        raw: The folder or table that is to be ingested.
        samples: Records to look at, about.

    Raises:
        SourceError: The source cannot be read, or is empty.
    """
    source = open_source(raw)
    contract = source.propose()
    has_image = any(isinstance(spec, ImageField) for spec in contract.fields.values())
    lenient = override(contract, _LENIENT if has_image else {})
    total = source.count() or 0
    tally = Tally()
    decisions: Counter[tuple[str, str]] = Counter()
    sampled = 0
    for part in _spread(source, total, samples):
        for record in source.read(part, lenient):
            sampled += 1
            verdict = _judge(lenient, record)
            if isinstance(verdict, Rejection):
                tally.reject(verdict)
            else:
                tally.count(lenient, verdict)
                decisions.update(_decisions(contract, verdict))
    return Inference(contract, total, sampled, tally, decisions)


def _judge(contract: Contract, record: RawRecord | Rejection) -> CheckedRecord | Rejection:
    return (
        record if isinstance(record, Rejection) else contract.judge(record.id, record.source, record.values)
    )


def _spread(source: Source, total: int, samples: int) -> Iterator[Part]:
    """Yield runs of records: the first, the last, and others evenly between."""
    runs = -(-total // _RUN)
    wanted = min(runs, max(2, samples // _RUN))
    chosen = {round(step * (runs - 1) / max(1, wanted - 1)) for step in range(wanted)}
    for number, part in enumerate(source.parts(_RUN)):
        if number in chosen:
            yield part


def _decisions(contract: Contract, record: CheckedRecord) -> Iterator[tuple[str, str]]:
    """Yield the policies at default under which this record, accepted leniently, would be rejected."""
    for (name, spec), checked in zip(contract.fields.items(), record.values, strict=True):
        known = {key.name for key in fields(spec)}
        for policy in checked.converted:
            if policy in known and getattr(spec, policy) == "reject":
                yield name, policy
