"""``shardkit ingest``."""

from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_counts, print_json
from shardkit.errors import IngestError, ShardkitError

_KINDS_SHOWN = 12  # image modes or classes listed one by one


def ingest_command(
    raw: Annotated[Path, typer.Argument(metavar="RAW", help="A folder, or a table (.csv .tsv .jsonl).")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write the data set to.")],
    contract: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What a record must be (TOML); see 'contract infer'.")
    ] = None,
    grayscale: Annotated[str | None, typer.Option(help="Gray images: reject or convert.")] = None,
    alpha: Annotated[str | None, typer.Option(help="Transparency: reject, drop or composite.")] = None,
    cmyk: Annotated[str | None, typer.Option(help="CMYK images: reject or convert.")] = None,
    depth16: Annotated[str | None, typer.Option(help="16-bit images: reject or convert.")] = None,
    palette: Annotated[str | None, typer.Option(help="Palette images: convert or reject.")] = None,
    animated: Annotated[str | None, typer.Option(help="Animations: reject or first.")] = None,
    orientation: Annotated[
        str | None, typer.Option(help="EXIF orientation: apply, ignore or reject.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="What is stored: original, jpeg or raw.")] = None,
    on_bad: Annotated[str | None, typer.Option(help="Rejected records: abort, quarantine or skip.")] = None,
    backend: Annotated[str, typer.Option(help="memmap or lmdb.")] = "memmap",
    workers: Annotated[int | None, typer.Option(min=0, help="Processes; default one a CPU.")] = None,
    records_per_shard: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Default: fitted to the source.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the data set that stands at OUT.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> int:
    """Hold every record of RAW against the contract and write those that fit to OUT."""
    policies = {
        "grayscale": grayscale,
        "alpha": alpha,
        "cmyk": cmyk,
        "depth16": depth16,
        "palette": palette,
        "animated": animated,
        "orientation": orientation,
        "store": store,
    }
    try:
        report = shardkit.ingest(
            raw,
            out,
            contract,
            policies={name: value for name, value in policies.items() if value is not None},
            on_bad=on_bad,
            backend=backend,
            workers=workers,
            records_per_shard=records_per_shard,
            overwrite=overwrite,
            progress=True,
        )
    except ValueError as error:
        if isinstance(error, ShardkitError):
            raise
        raise typer.BadParameter(str(error)) from error
    except IngestError as error:
        failed: shardkit.IngestReport | None = error.context.get("report")
        if json and failed is not None:
            print_json(failed.to_dict())
        raise
    if json:
        print_json(report.to_dict())
    else:
        _print(report)
    return 0


def _print(report: "shardkit.IngestReport") -> None:
    tally = report.tally
    for name, counts in tally.kinds.items():
        print_counts(name, dict(counts.most_common(_KINDS_SHOWN)))
        if len(counts) > _KINDS_SHOWN:
            print(f"  {name:<10} and {len(counts) - _KINDS_SHOWN:,} more kinds")
    print_counts("converted", tally.converted)
    print_counts("warned", tally.warnings)
    print_counts("ignored", report.ignored)
    print_counts("rejected", tally.rejected)
    last = f"{report.out}: {report.stored:,} records stored in {report.seconds:.1f} s"
    if report.rejected:
        listed = report.out / "reports" / "rejected.jsonl"
        last += f"; {report.rejected:,} REJECTED and left out, listed in {listed}"
    print(last)
