"""``shardkit ingest``."""

from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_counts, print_json, printable
from shardkit.cli.usage import wrong_use
from shardkit.errors import IngestError

_KINDS_SHOWN = 12  # image modes or classes listed one by one


def ingest_command(
    raw: Annotated[Path, typer.Argument(metavar="RAW", help="A folder, a table, .tar or .parquet files, ….")],
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
    quarantine: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy the originals of rejected records there.")
    ] = None,
    backend: Annotated[str, typer.Option(help="memmap or lmdb.")] = "memmap",
    workers: Annotated[int | None, typer.Option(min=0, help="Processes; default one a CPU.")] = None,
    records_per_shard: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Default: fitted to the source.")
    ] = None,
    shuffle_seed: Annotated[
        int | None, typer.Option(help="Store the records in a shuffled order that this number decides.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the data set that stands at OUT.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Add to the data set that stands at OUT.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the ingest that was interrupted at OUT.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Judge every record; write nothing but the report.")
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
        with wrong_use():
            report = shardkit.ingest(
                raw,
                out,
                contract,
                policies={name: value for name, value in policies.items() if value is not None},
                on_bad=on_bad,
                quarantine=quarantine,
                backend=backend,
                workers=workers,
                records_per_shard=records_per_shard,
                shuffle_seed=shuffle_seed,
                overwrite=overwrite,
                append=append,
                resume=resume,
                dry_run=dry_run,
                progress=True,
            )
    except IngestError as error:
        failed: shardkit.IngestReport | None = error.context.get("report")
        if failed is not None and json:
            print_json(failed.to_dict())
        elif failed is not None and failed.dry_run:
            _print_counts(failed)
        raise
    if json:
        print_json(report.to_dict())
    else:
        _print(report)
    return 1 if report.is_incomplete else 0


def _print(report: "shardkit.IngestReport") -> None:
    _print_counts(report)
    print(_last_line(report))


def _print_counts(report: "shardkit.IngestReport") -> None:
    tally = report.tally
    for column, remark in report.remarks.items():
        print(f"  {'column':<10} {printable(column)}: {printable(remark)}")
    for name, counts in tally.kinds.items():
        print_counts(name, dict(counts.most_common(_KINDS_SHOWN)))
        if len(counts) > _KINDS_SHOWN:
            print(f"  {name:<10} and {len(counts) - _KINDS_SHOWN:,} more kinds")
    print_counts("converted", tally.converted)
    print_counts("warned", tally.warnings)
    for first, second in report.lookalikes[:_KINDS_SHOWN]:
        print(
            f"  {'look alike':<10} {printable(first)} and {printable(second)}: a copy elsewhere may lose one"
        )
    if report.lookalike_count > _KINDS_SHOWN:
        print(f"  {'look alike':<10} and {report.lookalike_count - _KINDS_SHOWN:,} more pairs")
    print_counts("ignored", report.ignored)
    print_counts("rejected", tally.rejected)


def _last_line(report: "shardkit.IngestReport") -> str:
    line = f"{report.out}: {_done(report)}"
    if report.discarded:
        line += (
            f"; {report.discarded:,} shards of an interrupted run discarded, which --resume would have kept"
        )
    if report.restored:
        line += f"; {report.restored:,} of them had been DELETED before"
    if report.resumed:
        line += f"; {report.resumed:,} shards taken over from the interrupted run"
    if report.rejected:
        line += f"; {report.rejected:,} REJECTED and left out, listed in {report.rejections_file}"
        aside = report.quarantine
        line += f", copied to {aside}" if aside is not None and aside.exists() else ""
    if report.is_incomplete:
        line += "; the source is DAMAGED and INCOMPLETE"
    return line


def _done(report: "shardkit.IngestReport") -> str:
    if report.was_complete:
        return f"was complete already, with {report.stored:,} records stored: nothing was left to do"
    if report.dry_run:
        return f"dry run: {report.accepted:,} records fit in {report.seconds:.1f} s"
    return f"{report.stored:,} records stored in {report.seconds:.1f} s"
