"""The picture of a measurement: a bar a setting, and every pass that counted as a dot."""

from pathlib import Path

from shardkit.errors import OutputError
from shardkit.measurement.bench_report import BenchReport, BenchRow

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None  # type: ignore[assignment, misc]

_SUFFIXES = (".png", ".svg", ".pdf")
_RIGHT, _WRONG, _DOT = "#4c78a8", "#c03a2b", "#222222"


class BenchPlot:
    """A picture of a `BenchReport`, in a file.

    Example:
        >>> plot = BenchPlot("bench.png")  # says at once what is in its way
        >>> plot.draw(bench("out/"))

    Args:
        path: The file to write: .png, .svg or .pdf. One that is there is replaced.

    Raises:
        OutputError: matplotlib is not installed, or there is no such folder.
        ValueError: The suffix is another one.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if self._path.suffix.lower() not in _SUFFIXES:
            raise ValueError(f"a plot ends in {', '.join(_SUFFIXES)}, which {self._path.name!r} does not")
        if Figure is None:
            raise OutputError(f'{path}: drawing it takes matplotlib: pip install "shardkit[plot]"')
        if not self._path.parent.is_dir():
            raise OutputError(f"{path}: there is no folder {self._path.parent}")

    def draw(self, report: BenchReport) -> None:
        """Write the picture.

        Raises:
            OSError: The system refused.
        """
        figure = Figure(figsize=(9, 1.6 + 0.5 * len(report.rows)), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(report.rows):
            axes.barh(
                place, row.samples_per_second.median, color=_RIGHT if row.verified else _WRONG, height=0.6
            )
            rates = [each.rate for each in row.passes]
            axes.plot(rates, [place] * len(rates), "o", color=_DOT, markersize=4)
        axes.set_yticks(range(len(report.rows)), [_label(row) for row in report.rows])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("samples delivered a second: median, and every pass")
        axes.set_title(_title(report), fontsize=10)
        figure.savefig(self._path)


def _label(row: BenchRow) -> str:
    return f"{row.name}\n{row.conclusion if row.verified else 'WRONG DATA'}"


def _title(report: BenchReport) -> str:
    conditions = report.conditions
    name = report.out.name.replace("$", r"\$")  # which would begin a formula
    return (
        f"{name}: {conditions.samples:,} of {conditions.records:,} records, batches of {conditions.batch_size}, "
        f"transform {conditions.transform}, {conditions.cpus} CPUs"
    )
