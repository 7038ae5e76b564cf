"""``shardkit contract infer``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import printable
from shardkit.errors import OutputError


def infer_command(
    raw: Annotated[Path, typer.Argument(metavar="RAW", help="What ingest takes: a folder, a table, ….")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the contract there, not to stdout."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it exists.")] = False,
    samples: Annotated[int, typer.Option(min=1, help="Records to look at, about.")] = 2048,
) -> int:
    """Look at common, extreme and the last records of RAW, say what is there, and propose a contract.

    Decisions that are left to a person are marked DECIDE. Faulty records are told of, and are no failure here.
    """
    if output is not None and output.exists() and not overwrite:
        raise OutputError(
            f"{output}: exists already, perhaps with decisions in it; pass --overwrite to replace it"
        )
    inference = shardkit.infer(raw, samples)
    if output is not None:
        inference.save(output)
    for line in inference.lines():
        print(printable(line), file=sys.stderr if output is None else sys.stdout)
    if output is None:
        print(inference.to_toml(), end="")
    else:
        print(
            printable(
                f"{output}: written; read it, decide what it marks, then: "
                f"shardkit ingest {raw} OUT --contract {output}"
            )
        )
    return 0
