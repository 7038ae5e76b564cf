"""``shardkit verify``."""

from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_json, printable
from shardkit.cli.proof import print_proof
from shardkit.cli.usage import wrong_use

_SHOWN = 20  # problems printed one by one
_OF_DELIVERY = ("ranks", "epochs", "batch_size", "start_methods", "sample", "verbose")


def verify_command(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RAW", help="Hold it against what it was ingested from; once for each, if appended."
        ),
    ] = None,
    delivery: Annotated[
        bool, typer.Option("--delivery", help="Prove instead what the loaders deliver, in many settings.")
    ] = False,
    ranks: Annotated[str, typer.Option(help="With --delivery: numbers of ranks.")] = "1,2,3",
    workers: Annotated[
        str | None,
        typer.Option(help="Processes, default one a CPU; with --delivery numbers of workers, default 0,2."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="With --delivery: epochs of each setting.")] = 2,
    batch_size: Annotated[str, typer.Option(help="With --delivery: batch sizes.")] = "64",
    start_methods: Annotated[str, typer.Option(help="With --delivery: of fork, spawn, forkserver.")] = "fork",
    sample: Annotated[
        int, typer.Option(min=0, help="With --delivery: rows to deliver of a larger data set; 0 is all.")
    ] = 2000,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="With --delivery: a line for each setting, not for those that fail alone."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Prove what is stored: every file, id, checksum and record; and, with --source, that nothing is missing."""
    if not delivery:
        _require_no_options_of_delivery(context)
        return _verify(out, source or None, workers, json)
    if source:
        raise typer.BadParameter("--source and --delivery are two proofs: run verify once with each")
    with wrong_use():
        proof = shardkit.verify_delivery(
            out,
            ranks=_numbers("--ranks", ranks),
            workers=_numbers("--workers", workers or "0,2"),
            epochs=epochs,
            batch_sizes=_numbers("--batch-size", batch_size),
            start_methods=[method.strip() for method in start_methods.split(",")],
            sample=sample or None,
            progress=True,
        )
    if json:
        print_json(proof.to_dict())
    else:
        print_proof(out, proof, is_verbose=verbose)
    return 0 if proof.ok else 1


def _verify(out: Path, source: list[Path] | None, workers: str | None, json: bool) -> int:
    report = shardkit.verify(out, source, workers=_processes(workers), progress=True)
    if json:
        print_json(report.to_dict())
    else:
        _print(out, report)
    return 0 if report.ok else 1


def _require_no_options_of_delivery(context: typer.Context) -> None:
    for name in _OF_DELIVERY:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is of the proof of delivery: add --delivery, or leave it out")


def _processes(text: str | None) -> int | None:
    if text is None:
        return None
    numbers = _numbers("--workers", text)
    if len(numbers) != 1 or numbers[0] < 0:
        raise typer.BadParameter(f"--workers takes one number, 0 or more, without --delivery, not {text!r}")
    return numbers[0]


def _print(out: Path, report: "shardkit.VerifyReport") -> None:
    for name, count in report.checked.items():
        print(f"  checked    {name}: {count:,}")
    for problem in report.problems[:_SHOWN]:
        print(f"  PROBLEM    {problem.kind}: {printable(problem.sentence)}")
    problems = sum(report.counts.values())
    if problems > _SHOWN:
        print(f"  PROBLEM    and {problems - _SHOWN:,} more (--json lists up to 1,000)")
    print(f"{out}: {report.records:,} records: " + ("all well" if report.ok else f"{problems:,} problems"))


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{option} takes whole numbers, such as 1,2,3, not {text!r}") from error
