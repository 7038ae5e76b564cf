"""How a proof of delivery is printed: what was tried, what failed, how classes mix, and the verdict."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import shardkit
from shardkit.cli.output import printable

_SHOWN = 20  # failures printed one by one
_COLUMNS = ("loader", "ranks", "workers", "batch", "tail", "epoch", "course")
_COUNTS = ("expected", "delivered", "missing", "duplicate", "padded", "dropped")
_VERDICTS = ("labels", "order", "verdict")


def print_proof(out: Path, proof: "shardkit.DeliveryProof", *, is_verbose: bool) -> None:
    """Print on stdout how many settings of each loader there were, or each of them; the failures; and the verdict."""
    failed = [each for each in proof.results if not each.ok]
    if is_verbose:
        has_values = bool(proof.fields)
        _print_table(
            [(*_COLUMNS, *_COUNTS, *_VERDICTS), *(_cells(each, has_values) for each in proof.results)]
        )
    else:
        _print_loaders(proof)
    for each in failed[:_SHOWN]:
        print(f"  FAILED     {each.setting.describe()}: {printable(each.describe())}")
    if len(failed) > _SHOWN:
        print(f"  FAILED     and {len(failed) - _SHOWN:,} more settings (--json lists all)")
    for mixing in proof.mixing:
        _print_mixing(out, mixing)
    print(f"{out}: {proof.describe()}")


def _print_loaders(proof: "shardkit.DeliveryProof") -> None:
    settings = Counter(each.setting.loader for each in proof.results)
    failed = Counter(each.setting.loader for each in proof.results if not each.ok)
    for loader, count in settings.items():
        verdict = f"{failed[loader]:,} FAILED" if failed[loader] else "all delivered"
        print(f"  {loader:<10} {count:,} settings: {verdict}")


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
