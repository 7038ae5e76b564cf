"""`ingest`: takes raw input in once, and commits a data set or nothing.

source -> plan -> shard tasks -> index -> manifest (the commit) -> report
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from shardkit.contract import Contract, Rejection, override
from shardkit.errors import IngestError, OutputError, SourceError
from shardkit.ingestion.executor import run_ordered, usable_cpus
from shardkit.ingestion.output import REPORTS, Output, claim
from shardkit.ingestion.plan import IngestSettings, plan_tasks, shard_size
from shardkit.ingestion.report import REJECTED, SETTING_ASIDE, IngestReport, clear_reports, write_reports
from shardkit.ingestion.tally import Tally
from shardkit.ingestion.task import ShardOutcome, ShardTask, run_task
from shardkit.sources import Source, open_source
from shardkit.store import BACKENDS, ShardEntry, commit, make_manifest, write_index

_MOST_RECORDS = 10**9


def ingest(
    raw: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    contract: Contract | str | Path | None = None,
    *,
    policies: Mapping[str, str] | None = None,
    on_bad: str | None = None,
    backend: str = "memmap",
    workers: int | None = None,
    records_per_shard: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> IngestReport:
    """Hold every record of `raw` against the contract and write those that fit to `out`.

    Until the manifest stands, which is written last and in one step, there is no data set at `out`. Identical input
    and settings give the same bytes for any number of workers.

    Args:
        raw: A folder, a table (.csv, .tsv, .jsonl), or an iterable (or torch data set) of mappings that hold
            ``"id"`` and one value a field.
        out: The folder to write. Refused if it holds a data set already, unless `overwrite`.
        contract: What a record must be, or the path of a contract file; None takes what the source's structure
            suggests, all policies at default.
        policies: Image policies that replace those of the contract, such as ``{"grayscale": "convert"}``.
        on_bad: Replaces the contract's: ``"abort"``, ``"quarantine"`` or ``"skip"``.
        backend: ``"memmap"`` or ``"lmdb"``.
        workers: Processes that decode and write; None takes one a usable CPU, 0 works in this process. Where
            processes are spawned (macOS), the calling script needs the ``if __name__ == "__main__":`` guard.
        records_per_shard: Input records a shard; None fits it to the source.
        overwrite: Replace a data set that stands at `out`. The old one stays whole until the new one is committed.
        progress: Show a progress bar on standard error.

    Returns:
        The report, which also stands in ``out/reports/``.

    Raises:
        ContractError: A policy is not allowed.
        SourceError: The input cannot be read, is empty, or lacks what the contract asks for.
        OutputError: The output cannot be written.
        IngestError: Records were rejected and the contract says ``on_bad = "abort"``, or none fits;
            ``error.context["report"]`` holds the report.
        WorkerError: A worker process was killed.

    Example:
        >>> report = ingest("raw/", "out/", Contract.load("contract.toml"))  # doctest: +SKIP
        >>> report.stored, report.rejected  # doctest: +SKIP
        (2998, 0)
    """
    settings = _settings(backend, workers, records_per_shard)
    source = open_source(raw)
    _require_apart(raw, Path(out))
    agreed = override(_contract(contract, source), policies or {}, on_bad)
    source.require(agreed)
    with claim(Path(out), overwrite) as output:
        return _run(source, agreed, settings, output, progress)


def _require_apart(raw: object, out: Path) -> None:
    """Refuse an output inside the raw folder, where it would be raw input the next time."""
    if (
        isinstance(raw, str | Path)
        and Path(raw).is_dir()
        and out.resolve().is_relative_to(Path(raw).resolve())
    ):
        raise OutputError(f"{out}: lies inside the raw folder {raw}; choose a folder outside of it", path=out)


def _contract(contract: Contract | str | Path | None, source: Source) -> Contract:
    if contract is None:
        return source.propose()
    return contract if isinstance(contract, Contract) else Contract.load(contract)


def _settings(backend: str, workers: int | None, records_per_shard: int | None) -> IngestSettings:
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; allowed are {', '.join(sorted(BACKENDS))}")
    if workers is not None and workers < 0:
        raise ValueError(f"workers is {workers}; it must be 0 or more")
    if records_per_shard is not None and not 1 <= records_per_shard <= _MOST_RECORDS:
        raise ValueError(f"records_per_shard is {records_per_shard}; it must be 1 to {_MOST_RECORDS:,}")
    return IngestSettings(backend, usable_cpus() if workers is None else workers, records_per_shard)


def _run(
    source: Source, contract: Contract, settings: IngestSettings, output: Output, progress: bool
) -> IngestReport:
    """Run all tasks, then commit, or say why not; the report is written either way."""
    started = time.monotonic()
    clear_reports(output.root / REPORTS)
    entries: list[ShardEntry] = []
    rejections: list[Rejection] = []
    tally = Tally()
    for outcome in _outcomes(source, contract, settings, output, progress):
        entries += [outcome.entry] if outcome.entry is not None else []
        rejections += outcome.rejections
        tally.add(outcome.tally)
        if rejections and contract.records.on_bad == "abort":
            break
    if not tally.accepted and not rejections:
        raise SourceError(f"{source.name}: there are no records")
    hindrance = _hindrance(contract, tally, rejections)
    if hindrance is None:
        _commit(source, contract, output, entries, rejections)
    report = IngestReport(
        out=output.root,
        source=source.name,
        committed=hindrance is None,
        seconds=time.monotonic() - started,
        tally=tally,
        ignored=source.ignored,
        rejections=tuple(rejections),
    )
    write_reports(output.root / REPORTS, report)
    if hindrance is not None:
        raise IngestError(
            f"{source.name}: {hindrance}: {report.describe_rejections()}; listed in "
            f"{output.root / REPORTS / REJECTED}",
            report=report,
        )
    return report


def _outcomes(
    source: Source, contract: Contract, settings: IngestSettings, output: Output, progress: bool
) -> Iterator[ShardOutcome]:
    """Yield the outcome of each shard task in order, and advance the progress bar by the records judged."""
    total = source.count()
    size = settings.records_per_shard or shard_size(total)
    workers = settings.workers if total is None else min(settings.workers, -(-total // size))
    tasks = plan_tasks(
        source,
        contract,
        settings,
        size=size,
        root=output.root,
        first_shard=output.first_shard,
        quarantine=output.root / REPORTS / SETTING_ASIDE if contract.records.on_bad == "quarantine" else None,
    )
    outcomes = run_ordered(run_task, tasks, workers, ShardTask.describe)
    bar = tqdm(total=total, unit=" records", desc="ingest", disable=None if progress else True)
    with bar, closing(outcomes):
        for outcome in outcomes:
            bar.update(outcome.records)
            yield outcome


def _hindrance(contract: Contract, tally: Tally, rejections: list[Rejection]) -> str | None:
    """Return why nothing may be committed, or None."""
    if rejections and contract.records.on_bad == "abort":
        return (
            'a record does not fit the contract, so nothing was stored (on_bad is "abort"; "skip" and '
            '"quarantine" leave such records out)'
        )
    if not tally.accepted:
        return "no record fits the contract, so nothing was stored"
    return None


def _commit(
    source: Source,
    contract: Contract,
    output: Output,
    shards: list[ShardEntry],
    rejections: list[Rejection],
) -> None:
    """Write the index over the finished shards, then the manifest, with which the data set begins to exist."""
    index = write_index(
        output.root, output.generation, contract, shards, (rejection.to_dict() for rejection in rejections)
    )
    origin = {"name": source.name}
    commit(output.root, make_manifest(output.generation, contract, shards, index, origin))
