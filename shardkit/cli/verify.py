"""``shardkit verify``."""

from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_json, printable

_SHOWN = 20  # problems printed one by one


def verify_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RAW", help="Hold it against what it was ingested from; once for each, if appended."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes; default one a CPU.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Prove what is stored: every file, id, checksum and record; and, with --source, that nothing is missing."""
    report = shardkit.verify(out, source or None, workers=workers, progress=True)
    if json:
        print_json(report.to_dict())
    else:
        _print(out, report)
    return 0 if report.ok else 1


def _print(out: Path, report: "shardkit.VerifyReport") -> None:
    for name, count in report.checked.items():
        print(f"  checked    {name}: {count:,}")
    for problem in report.problems[:_SHOWN]:
        print(f"  PROBLEM    {problem.kind}: {printable(problem.sentence)}")
    problems = sum(report.counts.values())
    if problems > _SHOWN:
        print(f"  PROBLEM    and {problems - _SHOWN:,} more (--json lists up to 1,000)")
    print(f"{out}: {report.records:,} records: " + ("all well" if report.ok else f"{problems:,} problems"))
