"""``shardkit delete``, ``shardkit compact`` and ``shardkit prune``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_json, show_bytes
from shardkit.cli.usage import wrong_use
from shardkit.errors import SourceError

_Out = Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")]
_Workers = Annotated[int | None, typer.Option(min=0, help="Processes; default one a CPU.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def delete_command(
    out: _Out,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Which records.")] = None,
    ids_from: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="A file of ids, one a line; - is stdin.")
    ] = None,
    workers: _Workers = None,
    json: _Json = False,
) -> int:
    """Make a new generation of OUT without some records; 'prune' then removes their bytes from disk."""
    named = [*(ids or []), *(_read_ids(ids_from) if ids_from is not None else [])]
    if not named:
        raise typer.BadParameter("name at least one id, or pass --ids FILE")
    _print(shardkit.delete(out, named, workers=workers, progress=True), json)
    return 0


def compact_command(
    out: _Out,
    backend: Annotated[str | None, typer.Option(help="memmap or lmdb; default as it is.")] = None,
    records_per_shard: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Default: fitted to the number of records.")
    ] = None,
    shuffle_seed: Annotated[
        int | None, typer.Option(help="Store the records in a shuffled order that this number decides.")
    ] = None,
    workers: _Workers = None,
    json: _Json = False,
) -> int:
    """Make a new generation of OUT with the same records in evenly filled shards."""
    with wrong_use():
        report = shardkit.compact(
            out,
            backend=backend,
            records_per_shard=records_per_shard,
            shuffle_seed=shuffle_seed,
            workers=workers,
            progress=True,
        )
    _print(report, json)
    return 0


def prune_command(out: _Out, json: _Json = False) -> int:
    """Remove from disk what only earlier generations of OUT need."""
    freed = shardkit.prune(out)
    if json:
        print_json({"out": str(out), "freed_bytes": freed})
    else:
        print(f"{out}: {show_bytes(freed)} freed")
    return 0


def _print(report: "shardkit.EditReport", as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
        return
    deleted = f", {report.deleted:,} deleted" if report.deleted else ""
    print(
        f"{report.out}: generation {report.generation}, {report.records:,} records{deleted}; "
        f"{report.shards_written:,} shards written"
    )


def _read_ids(path: Path) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return [line for line in data.decode("utf-8-sig").split("\n") if line]
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not UTF-8 at byte {error.start}; write one id a line") from error
