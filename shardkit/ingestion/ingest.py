"""`ingest`: what a caller may ask for, made into a request that holds together; carried out in run.py."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shardkit.contract import Contract, override
from shardkit.errors import OutputError
from shardkit.ingestion.executor import usable_cpus
from shardkit.ingestion.finished import find_finished
from shardkit.ingestion.journal import Journal
from shardkit.ingestion.output import Mode, claim
from shardkit.ingestion.plan import IngestSettings, check_numbers
from shardkit.ingestion.quarantine import Quarantine
from shardkit.ingestion.report import QUARANTINE, REPORTS, IngestReport
from shardkit.ingestion.request import Request, contract_of
from shardkit.ingestion.run import carry_out, judge
from shardkit.sources import Source, open_source
from shardkit.store import BACKENDS, MANIFEST_NAME, load_manifest


def ingest(
    raw: str | Path | Iterable[Mapping[str, Any]] | Source,
    out: str | Path,
    contract: Contract | str | Path | None = None,
    *,
    policies: Mapping[str, str] | None = None,
    on_bad: str | None = None,
    quarantine: str | Path | None = None,
    backend: str = "memmap",
    workers: int | None = None,
    records_per_shard: int | None = None,
    shuffle_seed: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    resume: bool = False,
    dry_run: bool = False,
    progress: bool = False,
) -> IngestReport:
    """Hold every record of `raw` against the contract and write those that fit to `out`.

    Until the manifest stands, which is written last and in one step, there is no data set at `out`. Identical input
    and settings give the same bytes for any number of workers, and whether or not the run was killed on the way and
    resumed.

    Args:
        raw: A folder, a table, or any other kind of file in `shardkit.sources`; or an iterable (or torch data set) of
            mappings that hold ``"id"`` and one value a field; or a source.
        out: The folder to write. Refused if it holds a data set already, unless `overwrite` or `append`.
        contract: What a record must be, or the path of a contract file; None takes what the source's structure
            suggests, all policies at default; with `append`, that of the data set; with `resume`, that of the run
            which was interrupted.
        policies: Image policies that replace those of the contract, such as ``{"grayscale": "convert"}``.
        on_bad: Replaces the contract's: ``"abort"``, ``"quarantine"`` or ``"skip"``.
        quarantine: An empty or new folder for the originals of rejected records; implies ``on_bad="quarantine"``.
            None takes ``out/reports/quarantine`` (appending: ``quarantine-NNNNN``, by generation) where the contract
            asks for one.
        backend: ``"memmap"`` or ``"lmdb"``.
        workers: Processes that decode and write; None takes one a usable CPU, 0 works in this process. Where
            processes are spawned (macOS), the calling script needs the ``if __name__ == "__main__":`` guard.
        records_per_shard: Input records a shard; None fits it to the source.
        shuffle_seed: Store the records in a shuffled order that this number decides, for readers that go through
            the data set as it is stored. Takes a second pass over what was stored, and its size once more meanwhile.
        overwrite: Replace a data set that stands at `out`. The old one stays whole until the new one is committed.
        append: Add to the data set that stands at `out`, as a new generation. Readers of the old one go on unharmed.
            A record whose id is there already is rejected.
        resume: Continue the run that was interrupted at `out`, with the shards that it finished. Refused if source,
            contract or settings changed since. Starts anew if there is none; does nothing if it was done already.
        dry_run: Judge every record and write nothing but ``out/reports/dry-run/``.
        progress: Show a progress bar on standard error.

    Returns:
        The report, which also stands in ``out/reports/``.

    Raises:
        ContractError: A policy is not allowed.
        ValueError: A setting is not allowed, or two exclude each other.
        SourceError: The input cannot be read, is empty, or lacks what the contract asks for.
        OutputError: The output cannot be written, or the run to be resumed was another.
        IngestError: Records were rejected and the contract says ``on_bad = "abort"``, or none fits;
            ``error.context["report"]`` holds the report.
        WorkerError: A worker process was killed.

    Example:
        >>> report = ingest("raw/", "out/", Contract.load("contract.toml"))  # doctest: +SKIP
        >>> report.stored, report.rejected  # doctest: +SKIP
        (2998, 0)
    """
    if not os.fspath(out):
        raise ValueError("out is empty; it must name a folder")
    settings = _settings(backend, workers, records_per_shard, shuffle_seed)
    mode = _mode(overwrite, append, resume, dry_run)
    root = Path(out)
    source = open_source(raw)
    _require_apart(source, root, quarantine)
    if contract is None and resume:
        contract = _contract_before(root, mode)
    agreed = _agreed(contract, source, root, mode, policies or {}, on_bad, quarantine)
    source.require(agreed)
    remarks = source.remarks if contract is None and mode != "append" else {}
    request = Request(
        source, agreed, settings, root, mode, _quarantine(agreed, root, mode, quarantine), progress, remarks
    )
    if dry_run:
        return judge(request)
    finished = find_finished(request) if resume else None
    if finished is not None:
        return finished
    with claim(root, mode, resume=resume) as output:
        return carry_out(request, output)


def _contract_before(root: Path, mode: Mode) -> Contract | None:
    """Return the contract of the run that is to be resumed, or of the data set that it came to, if there is either."""
    begun = Journal(root).begun()
    if begun is not None:
        return contract_of(begun)
    is_done = mode == "new" and (root / MANIFEST_NAME).exists()
    return load_manifest(root).contract if is_done else None


def _mode(overwrite: bool, append: bool, resume: bool, dry_run: bool) -> Mode:
    if overwrite and append:
        raise ValueError("overwrite and append exclude each other")
    if dry_run and resume:
        raise ValueError("a dry run writes nothing that could be resumed")
    return "overwrite" if overwrite else "append" if append else "new"


def _agreed(
    contract: Contract | str | Path | None,
    source: Source,
    root: Path,
    mode: Mode,
    policies: Mapping[str, str],
    on_bad: str | None,
    quarantine: str | Path | None,
) -> Contract:
    """Return the contract of the run; one that appends must have the fields of the data set."""
    standing = load_manifest(root).contract if mode == "append" else None
    if contract is None:
        contract = source.propose() if standing is None else standing
    elif not isinstance(contract, Contract):
        contract = Contract.load(contract)
    if quarantine is not None and on_bad not in (None, "quarantine"):
        raise ValueError(f"a quarantine folder and on_bad={on_bad!r} exclude each other")
    agreed = override(contract, policies, on_bad if quarantine is None else "quarantine")
    if standing is not None:
        _require_same_fields(root, standing, agreed)
    return agreed


def _require_same_fields(root: Path, standing: Contract, agreed: Contract) -> None:
    old, new = standing.to_dict()["fields"], agreed.to_dict()["fields"]
    if list(old.items()) == list(new.items()):
        return
    differing = next((name for name in (*old, *new) if old.get(name) != new.get(name)), None)
    what = "the order of the fields" if differing is None else f"field {differing!r}"
    raise OutputError(
        f"{root}: {what} differs between the contract and the data set; what is appended must fit the contract "
        "of the data set: leave --contract and the policies out to take that",
        path=root,
    )


def _quarantine(contract: Contract, root: Path, mode: Mode, folder: str | Path | None) -> Quarantine | None:
    if folder is not None:
        aside = Path(folder).absolute()
        if aside.resolve().is_relative_to(root.resolve()):
            raise OutputError(
                f"{folder}: lies inside the output folder; choose a quarantine outside of it", path=aside
            )
        return Quarantine(aside, is_ours=False)
    if contract.records.on_bad != "quarantine":
        return None
    name = QUARANTINE
    if mode == "append":  # what was set aside of the records that stay is still wanted
        name += f"-{load_manifest(root).generation + 1:05d}"
    return Quarantine(root / REPORTS / name, is_ours=True)


def _require_apart(source: Source, out: Path, quarantine: str | Path | None) -> None:
    """Refuse to write inside the raw folder, where what is written would be raw input the next time."""
    if not Path(source.name).is_dir():
        return
    for folder in (out, *([] if quarantine is None else [Path(quarantine)])):
        if folder.resolve().is_relative_to(Path(source.name).resolve()):
            raise OutputError(
                f"{folder}: lies inside the raw folder {source.name}; choose a folder outside of it",
                path=folder,
            )


def _settings(
    backend: str, workers: int | None, records_per_shard: int | None, shuffle_seed: int | None
) -> IngestSettings:
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}; allowed are {', '.join(sorted(BACKENDS))}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int)):
        raise TypeError(f"workers must be an integer, not {workers!r}")
    if workers is not None and workers < 0:
        raise ValueError(f"workers is {workers}; it must be 0 or more")
    check_numbers(records_per_shard, shuffle_seed)
    return IngestSettings(
        backend, usable_cpus() if workers is None else workers, records_per_shard, shuffle_seed
    )
