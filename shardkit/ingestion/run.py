"""Carries out a request to ingest: source -> plan -> shard tasks -> index -> manifest (the commit) -> report."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from shardkit.contract import Reason
from shardkit.errors import IngestError, OutputError, SourceError, WorkerError
from shardkit.ingestion.executor import run_ordered
from shardkit.ingestion.identity import RunIdentity
from shardkit.ingestion.journal import Journal, require_same_run
from shardkit.ingestion.lock import HeldLock, hold_lock
from shardkit.ingestion.outcome import ShardOutcome
from shardkit.ingestion.output import Output, require_ours
from shardkit.ingestion.plan import plan_tasks
from shardkit.ingestion.rejections import RejectionLog
from shardkit.ingestion.report import DRY_RUN, REJECTED, REPORTS, IngestReport, write_reports
from shardkit.ingestion.request import RULES, Request
from shardkit.ingestion.rewrite import RewriteTask, forget_open_shards, rewrite_shard, rewrite_tasks
from shardkit.ingestion.tally import Tally
from shardkit.ingestion.task import ShardTask, run_task
from shardkit.progress_bar import ProgressBar
from shardkit.store import (
    ShardEntry,
    Store,
    WrittenIndex,
    columns_of,
    commit,
    make_folder,
    make_manifest,
    write_index,
)


def judge(request: Request) -> IngestReport:
    """Hold every record against the contract and write nothing but the report.

    Raises:
        IngestError: Ingesting for real would end so.
        SourceError: The source cannot be read, or is empty.
        OutputError: The report cannot be written.
    """
    make_folder(request.root)
    with hold_lock(request.root) as lock:
        require_ours(request.root)
        existing = Store(request.root) if request.mode == "append" else None
        run = _Run(request, Journal(request.root), lock, is_dry=True)
        with closing(run.log):
            for _ in run.outcomes(0, journal=None, existing=existing):
                pass
            return run.end(run.hindrance(), is_committed=False, is_dry=True)


def carry_out(request: Request, output: Output) -> IngestReport:
    """Run all tasks that are left, then commit, or say why not; the report is written either way.

    Raises:
        IngestError: Records were rejected and the contract says ``on_bad = "abort"``, or none fits.
        SourceError: The source cannot be read, is empty, or changed since the run that is continued.
        OutputError: The output cannot be written, or the run to be continued was another.
        WorkerError: A worker process was killed.
    """
    journal = Journal(output.root, is_closed=output.is_committed)
    run = _Run(request, journal, output.lock)
    try:
        with closing(run.log):
            run.begin(output)
            return _carry_on(run, journal, output)
    except BaseException:
        if request.quarantine is not None and not journal.finished():
            request.quarantine.discard()
        raise


def _carry_on(run: "_Run", journal: Journal, output: Output) -> IngestReport:
    """Write what is left, and say in every error what it leaves behind."""
    try:
        return _write(run, journal, output)
    except (OutputError, WorkerError) as error:
        raise type(error)(f"{error}{_describe_kept(journal)}", **error.context) from None
    except IngestError as error:
        if not run.was_aborted():  # nothing fits: there is nothing to go on with
            journal.remove()
            raise
        raise IngestError(
            f"{error}{_describe_kept(journal, ' and --on-bad skip')}", **error.context
        ) from None
    except KeyboardInterrupt as error:
        raise type(error)(_describe_kept(journal).removeprefix("; ")) from None


def _describe_kept(journal: Journal, further: str = "") -> str:
    """Say what is left of a run that did not come to its end, if anything is."""
    count = journal.finished()
    if not count:
        return ""
    kept = "1 finished shard is" if count == 1 else f"{count} finished shards are"
    return f"; {kept} kept: the same ingest with --resume{further} goes on from there"


def _write(run: "_Run", journal: Journal, output: Output) -> IngestReport:
    shards = run.write_shards(journal, output)
    hindrance = run.hindrance()
    index = None
    if hindrance is None and not output.is_committed:
        index = run.commit(output, shards)
    return run.end(hindrance, is_committed=hindrance is None, index=index)


class _Run:
    """One run: counts what its tasks report, and knows what to make of it.

    Attributes:
        log: The rejections so far.
    """

    def __init__(self, request: Request, journal: Journal, lock: HeldLock, *, is_dry: bool = False) -> None:
        self._request = request
        self._journal = journal
        self._lock = lock
        self._started = time.monotonic()
        self._tally = Tally()
        self._resumed = 0
        self._discarded = 0
        self._restored = 0
        self._identity = RunIdentity({})
        self._reports = request.root / REPORTS / (DRY_RUN if is_dry else "")
        make_folder(self._reports)
        self.log = RejectionLog(self._reports / REJECTED)

    def begin(self, output: Output) -> None:
        """Note in the journal what this run is to do, or make sure that it is what the run to be continued was to do.

        Raises:
            OutputError: It is not, or the system refused.
        """
        self._discarded = output.discarded
        quarantine = self._request.quarantine
        described = self._request.describe(output.generation)
        self._identity = RunIdentity(described)
        described["first_shard"] = output.first_shard
        rules = {RULES: self._request.contract.to_dict()["records"]}
        if output.begun is not None:
            begun = {key: value for key, value in output.begun.items() if key != RULES}
            require_same_run(begun, described, output.root)
            return
        if quarantine is not None:
            quarantine.check()
            quarantine.begin()
        self._journal.begin(described | rules)

    def write_shards(self, journal: Journal, output: Output) -> list[ShardEntry]:
        """Run all tasks, those that shuffle what the others wrote included, and return the shards of the data set."""
        shards = [
            outcome.entry
            for outcome in self.outcomes(output.first_shard, journal=journal, existing=output.previous)
            if outcome.entry is not None
        ]
        if self._request.settings.shuffle_seed is None or self.hindrance() is not None:
            return shards
        return [entry for entry in self._shuffled(shards, journal) if entry is not None]

    def outcomes(
        self, first_shard: int, *, journal: Journal | None, existing: Store | None
    ) -> Iterator[ShardOutcome]:
        """Yield the outcome of each shard task in order; what it says is counted.

        It ends with the first shard that makes it certain that nothing will be committed, unless all is to be judged.
        """
        request = self._request
        tasks = plan_tasks(
            request.source,
            request.contract,
            request.settings,
            size=self._request.shard_size,
            root=request.root,
            first_shard=first_shard,
            journal=journal,
            quarantine=None if journal is None else request.quarantine,
            existing=existing,
        )
        workers = self._workers(self._request.total)
        results = run_ordered(run_task, tasks, workers, ShardTask.describe, self._lock)
        with self._bar(self._request.total, "ingest") as bar, closing(results):
            for outcome in results:
                bar.update(outcome.records)
                self._resumed += outcome.is_reused
                self.log.extend(outcome.rejections)
                self._tally.add(outcome.tally)
                self._identity.add(outcome.input)
                yield outcome
                if journal is not None and self.was_aborted():
                    return

    def was_aborted(self) -> bool:
        """Whether a record was rejected under a contract that then wants nothing stored."""
        return bool(self.log.kept) and self._request.contract.records.on_bad == "abort"

    def hindrance(self) -> str | None:
        """Return why nothing may be committed, or None.

        Raises:
            SourceError: There was not a single record.
        """
        if not self._tally.accepted and not self.log.kept:
            raise SourceError(f"{self._request.source.name}: there are no records")
        if self.was_aborted():
            return (
                'a record does not fit the contract, so nothing is stored (on_bad is "abort"; "skip" and '
                '"quarantine" leave such records out)'
            )
        if not self._tally.accepted:
            return "no record fits the contract, so nothing was stored"
        return None

    def commit(self, output: Output, shards: list[ShardEntry]) -> WrittenIndex:
        """Write the index over the finished shards, then the manifest, with which the data set begins to exist."""
        request, previous = self._request, output.previous
        kept = () if previous is None else previous.manifest.shards
        everything = [*kept, *shards]
        index = write_index(
            output.root, output.generation, request.contract, everything, self._refused(), previous
        )
        manifest = make_manifest(
            output.generation,
            request.contract,
            everything,
            index.entry,
            self._origin(output),
            history=output.history,
            next_shard=output.first_shard,
        )
        commit(output.root, manifest)
        if previous is not None:
            with Store(output.root) as store:
                self._restored = _deleted(previous) - _deleted(store)
        return index

    def end(
        self,
        hindrance: str | None,
        *,
        is_committed: bool,
        is_dry: bool = False,
        index: WrittenIndex | None = None,
    ) -> IngestReport:
        """Write the report and return it, or raise what hinders with it."""
        request = self._request
        report = IngestReport(
            out=request.root,
            source=request.source.name,
            committed=is_committed,
            seconds=time.monotonic() - self._started,
            tally=self._tally,
            ignored=request.source.ignored,
            rejections=tuple(self.log.kept),
            lookalikes=() if index is None else index.lookalikes,
            lookalike_count=0 if index is None else index.lookalike_count,
            dry_run=is_dry,
            resumed=self._resumed,
            discarded=self._discarded,
            restored=self._restored,
            remarks=request.remarks,
            identity=self._identity.hexdigest(),
            quarantine=None if is_dry or request.quarantine is None else request.quarantine.folder,
        )
        write_reports(self._reports, report, self.log, None if is_dry else request.quarantine)
        if hindrance is not None:
            listed = self._reports / REJECTED
            raise IngestError(
                f"{request.source.name}: {hindrance}: {report.describe_rejections()}; listed in {listed}",
                report=report,
            )
        return report

    def _refused(self) -> Iterator[dict[str, Any]]:
        """Yield the rejections as a data set keeps them: copies are of this run, and may be moved or deleted."""
        for rejection in self.log.read():
            yield {key: value for key, value in rejection.items() if key != "copies"}

    def _shuffled(self, shards: list[ShardEntry], journal: Journal) -> Iterator[ShardEntry | None]:
        request = self._request
        count = sum(shard.count for shard in shards)
        tasks = rewrite_tasks(
            request.root,
            shards,
            columns_of(request.contract),
            backend=request.settings.backend,
            size=self._request.shard_size,
            seed=request.settings.shuffle_seed,
            first_shard=max(shard.number for shard in shards) + 1,
            journal=journal,
        )
        results = run_ordered(rewrite_shard, tasks, self._workers(count), RewriteTask.describe, self._lock)
        with self._bar(count, "shuffle") as bar, closing(results):
            for outcome in results:
                bar.update(outcome.records)
                self._resumed += outcome.is_reused
                yield outcome.entry
        forget_open_shards()

    def _workers(self, records: int | None) -> int:
        workers = self._request.settings.workers
        return workers if records is None else min(workers, -(-records // self._request.shard_size))

    def _bar(self, total: int | None, what: str) -> ProgressBar:
        return ProgressBar(total, what, is_wanted=self._request.progress)

    def _origin(self, output: Output) -> dict[str, Any]:
        """Return what the manifest says of where the records came from."""
        before: Mapping[str, Any] = {} if output.previous is None else output.previous.manifest.source
        ingest = {
            "generation": output.generation,
            "name": self._request.source.name,
            "accepted": self._tally.accepted,
            "rejected": sum(self._tally.rejected.values()),
        }
        earlier = before.get("ingests")
        return {
            "name": self._request.source.name,
            "ingests": [*(earlier if isinstance(earlier, list) else []), ingest],
        }


def _deleted(store: Store) -> int:
    """Return how many deleted records a generation lists."""
    return sum(rejection.get("reason") == Reason.DELETED for rejection in store.rejected())
