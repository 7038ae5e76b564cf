"""Proposes a contract: the fields that the source's structure suggests, and which decisions its records call for.

Chosen records (``sampling.py``) are judged exactly as ingestion judges them, under policies that let through what can
be let through, so that each conversion that would be needed is seen and counted. The proposal itself keeps the
defaults: whether gray may become colour depends on what the data means, so a person decides.
"""

from collections import Counter
from pathlib import Path

from shardkit.contract import Contract, Reason, Rejection
from shardkit.errors import SourceError
from shardkit.ingestion.decisions import be_lenient, open_decisions, rejecting_limit, would_reject
from shardkit.ingestion.inference import Inference, Trouble
from shardkit.ingestion.observation import Observation
from shardkit.ingestion.sampling import choose_records, read_picked
from shardkit.sources import RawRecord, open_source


def infer(raw: str | Path, samples: int = 2048) -> Inference:
    """Look at common, extreme and the last records of raw input, and propose a contract.

    Args:
        raw: What is to be ingested: a folder, a table, or another file that `ingest` takes.
        samples: Records to decode, about.

    Raises:
        SourceError: The source cannot be read, is empty, or suggests no contract.
    """
    source = open_source(raw)
    contract = source.propose()
    source.require(contract)
    lenient = be_lenient(contract)
    sample = choose_records(source, lenient, samples)
    if not sample.total:
        raise SourceError(f"{source.name}: there are no records")
    findings = _Findings(contract, lenient, sample.chosen)
    for record in read_picked(source, lenient, sample):
        findings.add(record)
    troubles = [
        Trouble(reason, sample.rejected[reason], sample.total, example)
        for reason, example in sample.rejections.items()
    ]
    return Inference(
        contract=contract,
        total=sample.total,
        sampled=sample.chosen,
        observations=findings.observations,
        decisions=open_decisions(contract, findings.observations, findings.policies, sample.chosen),
        troubles=tuple(sorted([*troubles, *findings.troubles()], key=lambda trouble: -trouble.count)),
        ignored=dict(source.ignored),
        remarks=dict(source.remarks),
    )


class _Findings:
    """What the records looked at were like."""

    def __init__(self, contract: Contract, lenient: Contract, sampled: int) -> None:
        self.observations = {name: Observation() for name in contract.fields}
        self.policies: Counter[tuple[str, str]] = Counter()
        """``(field, policy)`` -> records that the proposed contract rejects by it and the lenient one lets in."""
        self._sampled = sampled
        self._contract = contract
        self._lenient = lenient
        self._rejected: Counter[Reason] = Counter()
        self._examples: dict[Reason, Rejection] = {}

    def add(self, record: RawRecord | Rejection) -> None:
        """Judge one record. What it lacks is counted; the rest of it is judged all the same."""
        if isinstance(record, Rejection):
            self._reject(record)
            return
        missing = [
            name for name, spec in self._lenient.fields.items() if spec.is_missing(record.values.get(name))
        ]
        for name in missing:
            self.observations[name].missing += 1
        if missing:
            sentence = f"there is no value for {missing[0]!r}"
            self._reject(Rejection(record.id, record.source, Reason.MISSING_FIELD, sentence, missing[0]))
        present = {name: spec for name, spec in self._lenient.fields.items() if name not in missing}
        if present:
            self._judge(record, Contract(present))

    def _judge(self, record: RawRecord, contract: Contract) -> None:
        verdict = contract.judge(record.id, record.source, record.values)
        if isinstance(verdict, Rejection):
            self._reject(verdict)
            return
        for (name, spec), checked in zip(contract.fields.items(), verdict.values, strict=True):
            seen = self.observations[name]
            before = seen.not_finite
            seen.add(spec, record.values[name], checked)
            self.policies.update(
                (name, policy) for policy in would_reject(self._contract.fields[name], checked)
            )
            if seen.not_finite > before:
                self.policies[name, "finite"] += 1

    def _reject(self, rejection: Rejection) -> None:
        limit = rejecting_limit(rejection)
        if limit is not None and rejection.field is not None:
            self.policies[rejection.field, limit] += 1
        self._rejected[rejection.reason] += 1
        self._examples.setdefault(rejection.reason, rejection)

    def troubles(self) -> list[Trouble]:
        """Return the faults found in the records looked at."""
        return [
            Trouble(reason, count, self._sampled, self._examples[reason])
            for reason, count in self._rejected.items()
        ]
