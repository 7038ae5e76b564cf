"""`verify`: proves what is stored, on its own and against the raw input."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from shardkit.ingestion import run_ordered, usable_cpus
from shardkit.progress_bar import ProgressBar
from shardkit.sources import Source, open_source
from shardkit.store import Store
from shardkit.verification.against_source import (
    SourceCheck,
    check_source_part,
    find_extra,
    find_unlisted,
    plan_source_checks,
    rejected_ids,
)
from shardkit.verification.opened import DataSet
from shardkit.verification.report import VerifyReport
from shardkit.verification.stored import ShardCheck, check_files, check_manifest, check_shard, plan_checks


def verify(
    out: str | Path,
    source: str | Path | Source | Iterable[Mapping[str, Any]] | Sequence[str | Path] | None = None,
    *,
    workers: int | None = None,
    progress: bool = False,
) -> VerifyReport:
    """Check every file, id, checksum and record of a data set; with `source`, that it holds all of it and no more.

    Args:
        out: The data set.
        source: What it was ingested from; a list of paths if it was appended to.
        workers: Processes; None takes one a usable CPU, 0 works in this process.
        progress: Show a progress bar on standard error.

    Returns:
        The report; damage is a problem in it, not an exception, as long as the data set can be opened at all.

    Raises:
        DatasetNotFoundError: There is no data set.
        UnsupportedVersionError: It is of another major version of the format.
        FormatError: The manifest, or the size or header of a file, is so far off that nothing can be opened.
        SourceError: The source cannot be read.
        WorkerError: A worker process was killed.

    Example:
        >>> verify("out/", "raw/").ok  # doctest: +SKIP
        True
    """
    workers = usable_cpus() if workers is None else workers
    with Store(out) as store:
        sources = _open_sources(source)
        for each in sources:
            each.require(store.contract)
        report = VerifyReport(records=len(store))
        report.add(check_manifest(store))
        report.add(check_files(store.path, store.manifest.index.files))
        try:
            _check_stored(store, report, workers, progress)
            if sources:
                _check_sources(store, sources, report, workers, progress)
        finally:
            DataSet.forget()
    return report


def _open_sources(source: Any) -> list[Source]:  # Any: see `verify`
    if source is None:
        return []
    is_list = isinstance(source, list | tuple) and all(isinstance(each, str | Path) for each in source)
    return [open_source(each) for each in (source if is_list else [source])]


def _check_stored(store: Store, report: VerifyReport, workers: int, progress: bool) -> None:
    checks = plan_checks(store)
    results = run_ordered(check_shard, checks, min(workers, len(checks)), ShardCheck.describe)
    with ProgressBar(len(store), "verify", is_wanted=progress) as bar, closing(results):
        for check, found in zip(checks, results, strict=True):
            report.add(found)
            bar.update(check.count)


def _check_sources(
    store: Store, sources: Sequence[Source], report: VerifyReport, workers: int, progress: bool
) -> None:
    accounted, differing = np.zeros((2, len(store)), dtype=np.bool_)
    found_in_sources = VerifyReport()
    rejected, accounted_rejected = rejected_ids(store), set[str]()
    checks = plan_source_checks(store, sources, rejected)
    results = run_ordered(check_source_part, checks, workers, SourceCheck.describe)
    counts = [source.count() for source in sources]
    total = None if None in counts else sum(count for count in counts if count is not None)
    with ProgressBar(total, "source", is_wanted=progress) as bar, closing(results):
        for found in results:
            accounted[list(found.rows)] = True
            differing[list(found.differing)] = True
            accounted_rejected |= found.rejected
            found_in_sources.add(found.report)
            bar.update(found.records)
    satisfied = {store.id_of(int(row)) for row in np.flatnonzero(accounted & differing)}
    report.add(found_in_sources.without(satisfied))
    report.add(find_extra(store, accounted | differing))
    report.add(find_unlisted(rejected, accounted_rejected))
