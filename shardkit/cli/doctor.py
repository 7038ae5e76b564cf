"""``shardkit doctor``."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.cli.output import print_json, printable
from shardkit.cli.usage import wrong_use

_SHOWN = 5  # troubles that are told one by one
_TOLD = {"failed": "FAILED", "hung": "HUNG", "died": "DIED"}


def doctor_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    transform: Annotated[
        str, typer.Option(help="none, center:SIZE, random:SIZE, or module:name of your own.")
    ] = "none",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="A step that takes longer hangs, and is ended.")
    ] = 60.0,
    samples: Annotated[int, typer.Option(min=1, help="Records to take, about.")] = 32,
    settings: Annotated[
        bool, typer.Option("--settings/--no-settings", help="Measure workers and threads as well.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False,
) -> int:
    """Take a few records through read, decode, transform, collate and transfer; say which fails, or which limits."""
    log = _Log()
    try:
        with wrong_use():
            diagnosis = shardkit.doctor(
                out, transform, samples=samples, timeout=timeout, settings=settings, log=log.note
            )
    finally:
        log.end()
    if json:
        print_json(diagnosis.to_dict())
    else:
        for line in _lines(diagnosis):
            print(printable(line))
    return 0 if diagnosis.ok else 1


class _Log:
    """Names on standard error the record that is about to be read: on a terminal in one line that changes."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()

    def note(self, line: str) -> None:
        """Name a record."""
        text = f"  sample     {printable(line)}"
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{text[:width]:<{width}}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear that line."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + " " * width + "\r", end="", file=sys.stderr, flush=True)


def _lines(diagnosis: "shardkit.Diagnosis") -> Iterator[str]:
    """Yield the diagnosis for a person."""
    for trouble in diagnosis.troubles[:_SHOWN]:
        yield f"  {_TOLD[trouble.kind]:<10} {trouble.step.describe()}"
        yield f"  {'':<10} {trouble.sentence}"
        yield from (f"  {'':<10} at {frame}" for frame in trouble.frames)
    if len(diagnosis.troubles) > _SHOWN:
        yield f"  {'FAILED':<10} and {len(diagnosis.troubles) - _SHOWN:,} more (--json lists them)"
    if diagnosis.ok:
        yield from _healthy_lines(diagnosis)
    yield f"{diagnosis.out}: {_last_line(diagnosis)}"


def _healthy_lines(diagnosis: "shardkit.Diagnosis") -> Iterator[str]:
    for stage in diagnosis.stages if diagnosis.samples else ():
        yield f"  {stage.stage:<10} {_stage_time(stage.seconds, stage.share, stage.note)}"
    yield from (f"  {'remark':<10} {sentence}" for sentence in diagnosis.remarks)
    if diagnosis.limit is not None:
        yield f"  {'limit':<10} {diagnosis.limit}"
    yield from (f"  {'advice':<10} {sentence}" for sentence in diagnosis.advice)
    yield from _setting_lines(diagnosis)


def _setting_lines(diagnosis: "shardkit.Diagnosis") -> Iterator[str]:
    recommended, level = diagnosis.recommended, diagnosis.level
    if recommended is None:
        return
    for measured in diagnosis.settings:
        rates = measured.rates
        rate = f"{measured.samples_per_second:>12,.0f} samples/s [{min(rates):,.0f}, {max(rates):,.0f}]"
        conclusion = f"{measured.share_of(recommended):.0%} of the marked one" + (
            ", or level with it" if measured in level else ""
        )
        if measured is recommended:
            conclusion = "<- the simplest within 5 % of the best"
        yield f"  {'setting':<10} {measured.setting.describe():<24} {rate:<46} {conclusion}"
    if len(recommended.rates) == 1:
        yield f"  {'noise':<10} a pass took so long that there was one of each: `shardkit bench` makes several"
    elif level:
        yield (
            f"  {'noise':<10} of settings that are level, none is proven the faster: measure them by `shardkit bench "
            f"{diagnosis.out}`, on a quiet machine"
        )


def _stage_time(seconds: float | None, share: float | None, note: str) -> str:
    time = "not done" if seconds is None else f"{seconds * 1000:,.3f} ms a sample"
    percentage = "" if share is None else f"{share:.0%}"
    reason = note or ("no sample came so far" if seconds is None else "")
    return f"{time:>20} {percentage:>5}  {reason}".rstrip()


def _last_line(diagnosis: "shardkit.Diagnosis") -> str:
    if diagnosis.records is None:
        return "could not be opened"
    if diagnosis.ok and not diagnosis.records:
        return "holds no records: there is nothing to take"
    looked_at = f"{diagnosis.samples:,} of {diagnosis.records:,} records taken"
    verdict = f"{len(diagnosis.troubles):,} went wrong" if diagnosis.troubles else "all went well"
    if diagnosis.samples < diagnosis.records or diagnosis.troubles:
        verdict += f"; `shardkit verify {diagnosis.out}` looks at all records"
    return f"{looked_at}: {verdict}"
