"""``shardkit contract infer``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_counts
from shardkit.errors import OutputError


def infer_command(
    raw: Annotated[Path, typer.Argument(metavar="RAW", help="A folder, or a table (.csv .tsv .jsonl).")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the contract there, not to stdout."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it exists.")] = False,
    samples: Annotated[int, typer.Option(min=1, help="Records to decode, about.")] = 2048,
) -> int:
    """Look at a sample of RAW, say what is there, and propose a contract with its open decisions marked."""
    if output is not None and output.exists() and not overwrite:
        raise OutputError(
            f"{output}: exists already, perhaps with decisions in it; pass --overwrite to replace it"
        )
    inference = shardkit.infer(raw, samples)
    _describe(inference)
    if output is None:
        print(inference.to_toml(), end="")
    else:
        inference.save(output)
        print(
            f"{output}: written; read it, decide what it marks, then: "
            f"shardkit ingest {raw} OUT --contract {output}"
        )
    return 0


def _describe(inference: "shardkit.Inference") -> None:
    """Say what was seen, on stderr: the contract itself may go to stdout."""
    print(f"{inference.total:,} records, {inference.sampled:,} of them decoded:", file=sys.stderr)
    for name, counts in inference.tally.kinds.items():
        print_counts(name, dict(counts.most_common(12)), file=sys.stderr)
    print_counts("warned", inference.tally.warnings, file=sys.stderr)
    print_counts("rejected", inference.tally.rejected, file=sys.stderr)
