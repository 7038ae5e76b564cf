"""Recognizes the run that is to be resumed where it had in fact come to its end, or nearly.

The last things that a run does are to remove its journal and what is not needed any more. One that was killed
there is known by its summary alone.
"""

from dataclasses import replace

from shardkit.errors import OutputError
from shardkit.ingestion.identity import RunIdentity, digest_input, digest_part
from shardkit.ingestion.journal import Journal
from shardkit.ingestion.lock import hold_lock
from shardkit.ingestion.output import clear_up
from shardkit.ingestion.report import IngestReport, read_report
from shardkit.ingestion.request import Request
from shardkit.store import Manifest, load_manifest


def find_finished(request: Request) -> IngestReport | None:
    """Return the report of the run that is to be resumed if all of its work was done, and clear up after it.

    Raises:
        OutputError: The data set that stands there was made from something else, and may not be replaced.
        SourceError: The source cannot be read.
    """
    report = read_report(request.root)
    if report is None or Journal(request.root).begun() is not None:
        return None
    standing = load_manifest(request.root)
    if _is_same(request, report, standing):
        with hold_lock(request.root):
            clear_up(request.root)
        return replace(report, was_complete=True)
    if request.mode != "new":
        return None
    raise OutputError(
        f"{request.root}: already holds a data set, made from other records or under another contract, and no "
        "interrupted ingest to resume; choose another folder, or pass --overwrite to replace it",
        path=request.root,
    )


def _is_same(request: Request, report: IngestReport, standing: Manifest) -> bool:
    """Whether the report is that of the run that is requested.

    Records of a generator can be gone through only once: for them, contract and backend have to do.
    """
    if request.total is None:
        return (
            request.mode == "new"
            and standing.contract == request.contract
            and standing.shards[0].backend == request.settings.backend
        )
    identity = RunIdentity(request.describe(standing.generation))
    for part in request.source.parts(request.shard_size):
        stamps = [stamp.changed for stamp in request.source.stamps(part, request.contract)]
        identity.add(digest_input(digest_part(part), stamps))
    return identity.hexdigest() == report.identity
