"""A picture of what benchmarks found: a bar a contender, as long as its median, with a line from slowest to fastest."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None


def plot_results(results: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draw the results of `measure.Comparison`, one panel a workload, or say that matplotlib is missing.

    Args:
        results: Name of the workload -> its results.
        path: The file to write; its ending chooses the format.
    """
    if Figure is None:
        print(f"\n{path}: not drawn; pip install matplotlib")
        return
    bars = sum(map(len, results.values()))
    figure = Figure(figsize=(9, 1.2 * len(results) + 0.28 * bars), layout="constrained")
    heights = [len(each) + 3 for each in results.values()]
    panels = figure.subplots(len(results), squeeze=False, height_ratios=heights)[:, 0]
    for panel, (name, found) in zip(panels, results.items(), strict=True):
        _draw(panel, name, found)
    figure.savefig(path, dpi=120)
    print(f"\n{path}: drawn")


def _draw(panel: Any, title: str, results: Sequence[Mapping[str, Any]]) -> None:
    ordered = sorted(results, key=lambda result: result["records_per_second"])
    medians = [result["records_per_second"] for result in ordered]
    spread = [
        [result["records_per_second"] - result["slowest"] for result in ordered],
        [result["fastest"] - result["records_per_second"] for result in ordered],
    ]
    ours = ["tab:orange" if "shard" in result["name"].lower() else "tab:gray" for result in ordered]
    panel.barh([result["name"] for result in ordered], medians, xerr=spread, color=ours, height=0.7)
    panel.set_title(title, loc="left")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.set_xlabel("records/s: median, slowest and fastest")
    panel.margins(y=0.02)
