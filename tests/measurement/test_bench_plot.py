"""The picture says what is in its way before anything is measured, and is drawn where matplotlib is installed."""

from pathlib import Path

import pytest

from shardkit import BenchPlot, bench, ingest
from shardkit.errors import OutputError
from shardkit.measurement import bench_plot

PNG = b"\x89PNG\r\n\x1a\n"


def test_without_matplotlib_it_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_plot, "Figure", None)
    with pytest.raises(OutputError, match=r'matplotlib: pip install "shardkit\[plot\]"'):
        BenchPlot(tmp_path / "bench.png")


def test_a_file_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_plot, "Figure", object)
    with pytest.raises(OutputError, match="there is no folder"):
        BenchPlot(tmp_path / "nowhere" / "bench.png")
    with pytest.raises(ValueError, match=r"a plot ends in \.png"):
        BenchPlot(tmp_path / "bench.jpg")


def test_it_is_drawn(raw: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "$_$"  # dollars begin formulas, and this is none
    ingest(raw, out, workers=0)
    report = bench(out, workers=[0], threads=[1], repetitions=1, warm_ups=0)
    BenchPlot(tmp_path / "bench.png").draw(report)
    assert (tmp_path / "bench.png").read_bytes().startswith(PNG)
