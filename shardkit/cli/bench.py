"""``shardkit bench``."""

from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_json, printable, show_bytes
from shardkit.cli.usage import wrong_use


def bench_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Samples of a batch.")] = 64,
    workers: Annotated[
        str | None, typer.Option(help="DataLoader workers, such as 0,2; default 0 and one a CPU.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(help="ShardLoader threads, such as 1,2; default one a CPU.")
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Passes that count, of each setting.")] = 3,
    warm_ups: Annotated[int, typer.Option(min=0, help="Passes of each before those.")] = 1,
    transform: Annotated[
        str, typer.Option(help="none, center:SIZE, random:SIZE, or module:name of your own.")
    ] = "none",
    shuffle: Annotated[str, typer.Option(help="global, block or none.")] = "global",
    samples: Annotated[
        int, typer.Option(min=0, help="Samples that a pass delivers of a larger data set; 0 is all.")
    ] = 2000,
    step_ms: Annotated[
        float, typer.Option(min=0, help="Sleep so many milliseconds after each batch, as a model's step.")
    ] = 0.0,
    drop_caches: Annotated[
        bool,
        typer.Option("--drop-caches", help="Read from the disk: empty the page cache before each loader."),
    ] = False,
    preload: Annotated[
        bool, typer.Option("--preload", help="Hold the data set in memory, which is read before it is timed.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, every pass in it.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it as well: .png, .svg or .pdf.")
    ] = None,
) -> int:
    """Measure how fast a data set is delivered here, by workers and by threads, each checked for its data."""
    if shuffle not in ("global", "block", "none"):
        raise typer.BadParameter(f"--shuffle must be global, block or none, not {shuffle!r}")
    with wrong_use():
        drawing = None if plot is None else shardkit.BenchPlot(plot)
        report = shardkit.bench(
            out,
            batch_size=batch_size,
            workers=_numbers("--workers", workers),
            threads=_numbers("--threads", threads),
            repetitions=repetitions,
            warm_ups=warm_ups,
            transform=transform,
            shuffle=False if shuffle == "none" else shuffle,  # type: ignore[arg-type]  # checked above
            samples=samples or None,
            step_ms=step_ms,
            drop_caches=drop_caches,
            preload=preload,
            progress=True,
        )
    if drawing is not None:
        drawing.draw(report)
    if json:
        print_json(report.to_dict())
    else:
        _print(out, report)
    return 0 if report.ok else 1


def _numbers(option: str, text: str | None) -> list[int] | None:
    """Return the numbers of a list such as ``0,2``; none of an empty one."""
    try:
        return None if text is None else [int(part) for part in text.split(",") if text.strip()]
    except ValueError as error:
        raise typer.BadParameter(f"{option} takes whole numbers, such as 0,2, not {text!r}") from error


def _print(out: Path, report: "shardkit.BenchReport") -> None:
    for name, value in _declared(report).items():
        print(f"  {name:<10} {printable(value)}")
    table = [_HEAD, *(_cells(row) for row in report.rows)]
    filled = [column for column in range(len(_HEAD)) if any(cells[column] for cells in table[1:])]
    widths = {column: max(len(cells[column]) for cells in table) for column in filled}
    last = filled[-1]
    for cells in table:
        print(
            "  ".join(
                _place(cells[column], widths[column], column in (0, last)) for column in filled
            ).rstrip()
        )
    print(f"{out}: {report.describe()}")


def _declared(report: "shardkit.BenchReport") -> dict[str, str]:
    conditions = report.conditions
    which = " chosen at random" if conditions.samples < conditions.records else ""
    shuffled = "as stored" if conditions.shuffle == "False" else f"shuffled ({conditions.shuffle})"
    slept = f"{conditions.step_ms:g} ms of sleep after each batch, as while an accelerator computes"
    return {
        "samples": f"{conditions.samples:,} of {conditions.records:,} records{which}, {shuffled}, "
        f"in batches of {conditions.batch_size}",
        "transform": conditions.transform,
        "step": slept if conditions.step_ms else "none: all the time goes into waiting for data",
        "passes": f"{conditions.warm_ups} to warm up and {conditions.repetitions} that count of each, by turns",
        "cache": "of no matter: held in memory (preload)" if conditions.preload else conditions.page_cache,
        "machine": f"{conditions.cpus} CPUs; {conditions.torch_threads} threads of torch in this process; "
        + ", ".join(f"{name} {version}" for name, version in conditions.versions.items()),
    }


_HEAD = (
    "setting",
    "samples",
    "data",
    "first batch",
    "duration",
    "samples/s",
    "[least, most]",
    "Mpixels/s",
    "tokens/s",
    "waiting",
    "memory",
    "mapped",
    "conclusion",
)


def _cells(row: "shardkit.BenchRow") -> tuple[str, ...]:
    rate, first, pixels, tokens = (
        row.samples_per_second,
        row.first_batch_seconds,
        row.pixels_per_second,
        row.tokens_per_second,
    )
    return (
        row.name,
        f"{row.samples:,}",
        "equal" if row.verified else "WRONG",
        "-" if first is None else f"{first.median:.3f} s",
        f"{row.seconds.median:.3f} s",
        f"{rate.median:,.0f}",
        f"[{rate.least:,.0f}, {rate.most:,.0f}]",
        "" if pixels is None else f"{pixels.median / 1e6:,.1f}",
        "" if tokens is None else f"{tokens.median:,.0f}",
        f"{row.waiting_share.median:.0%}",
        "not measured" if row.peak_pss is None else show_bytes(row.peak_pss),
        "" if row.peak_mapped is None else show_bytes(row.peak_mapped),
        row.conclusion,
    )


def _place(cell: str, width: int, is_text: bool) -> str:
    return cell.ljust(width) if is_text else cell.rjust(width)
