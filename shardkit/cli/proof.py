"""How a proof of delivery is printed: a table of settings, what failed, how classes mix, and the verdict."""

from collections.abc import Sequence
from pathlib import Path

import shardkit
from shardkit.cli.output import printable

_SHOWN = 20  # failures printed one by one
_COLUMNS = ("loader", "ranks", "workers", "batch", "tail", "epoch", "course")
_COUNTS = ("expected", "delivered", "missing", "duplicate", "padded", "dropped")
_VERDICTS = ("labels", "order", "verdict")


def print_proof(out: Path, proof: "shardkit.DeliveryProof") -> None:
    """Print the table on stdout, one line a setting; the failures again, with ids; and last the verdict."""
    has_values = bool(proof.fields)
    _print_table([(*_COLUMNS, *_COUNTS, *_VERDICTS), *(_cells(each, has_values) for each in proof.results)])
    failed = [each for each in proof.results if not each.ok]
    for each in failed[:_SHOWN]:
        print(f"  FAILED     {each.setting.describe()}: {printable(each.describe())}")
    if len(failed) > _SHOWN:
        print(f"  FAILED     and {len(failed) - _SHOWN:,} more settings (--json lists all)")
    for mixing in proof.mixing:
        _print_mixing(out, mixing)
    of = f" of {proof.records:,}" if proof.rows < proof.records else ""
    verdict = f"{len(failed):,} FAILED" if failed else "all delivered"
    print(f"{out}: {proof.rows:,}{of} records in {len(proof.results):,} settings: {verdict}")


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print lines of cells in columns: the first is set to the left, the others to the right."""
    first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    for name, *cells in lines:
        others = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{name:<{first}}", *others)


def _cells(result: "shardkit.verification.proof.SettingResult", has_values: bool) -> list[str]:
    setting, report = result.setting, result.report
    started = f" {setting.start_method}" if setting.has_processes else ""
    block = " block" if setting.shuffle == "block" else ""
    counts = (
        report.expected,
        report.delivered,
        report.missing,
        report.duplicate,
        report.padded,
        result.dropped,
    )
    return [
        setting.loader,
        f"{setting.ranks}",
        f"{setting.workers}{started}",
        f"{setting.batch_size}",
        setting.tail,
        f"{setting.epoch}",
        f"{setting.course}{block}",
        *map(str, counts),
        ("equal" if result.labels_equal else "WRONG") if has_values else "-",
        "equal" if result.order_equal else "WRONG",
        "ok" if result.ok else "FAILED",
    ]


def _print_mixing(out: Path, mixing: "shardkit.verification.mixing.Mixing") -> None:
    of = f"{mixing.field}, shuffle {mixing.shuffle}, batch {mixing.batch_size}"
    if mixing.ratio is None:
        print(f"  mixing     {of}: nothing to tell, of one class or of one batch")
        return
    print(f"  mixing     {of}: {mixing.ratio:.2f} (1 is as by chance, more is classes in clumps)")
    if mixing.is_clumped and mixing.shuffle == "block":
        print(
            f"  hint       records of one {mixing.field} are stored together: store them shuffled (shardkit compact "
            f'{out} --shuffle-seed 0, or ingest with --shuffle-seed), or train with shuffle="global"'
        )
