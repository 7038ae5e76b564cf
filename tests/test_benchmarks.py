"""Every benchmark runs, in small, so that none can rot. Nothing here is timed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run_small(name: str, tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run a benchmark in a process of its own and return what it writes as JSON."""
    results = tmp_path / "results.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json", str(results), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    report: dict[str, Any] = json.loads(results.read_text())
    return report


def test_random_reads_measures_every_contender_that_is_installed(tmp_path: Path) -> None:
    options = ("--records", "12", "--passes", "1", "--repetitions", "2", "--width", "96", "--height", "72")
    report = run_small("random_reads", tmp_path, "--folder", str(tmp_path), *options)

    names = {result["name"] for result in report["results"]}
    assert {"numpy memmap", "plain files", "shardkit memmap", "shardkit lmdb"} <= names
    assert names | {each["name"] for each in report["not_measured"]} >= {"HF datasets"}
    assert all(len(runs) == 2 for runs in report["runs"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_ingest_speed_measures_both_backends_and_their_stages(tmp_path: Path) -> None:
    options = ("--records", "12", "--repetitions", "1", "--width", "96", "--height", "72")
    report = run_small("ingest_speed", tmp_path, "--folder", str(tmp_path), *options)

    names = {result["name"] for result in report["results"]}
    assert names == {"read + simplejpeg", "read + Pillow", "shardkit memmap", "shardkit lmdb"}
    assert {target["least"] for target in report["targets"]} == {0.8}
    assert set(report["stages_microseconds"]) == {"memmap", "lmdb"}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads private memory from there")
def test_open_large_opens_what_it_wrote(tmp_path: Path) -> None:
    report = run_small("open_large", tmp_path, "--records", "3000", "--repeats", "1")

    assert report["records"] == 3000


@pytest.mark.parametrize("name", ["random_reads", "ingest_speed", "open_large"])
def test_a_benchmark_answers_the_question_it_begins_with(name: str) -> None:
    docstring = (BENCHMARKS / f"{name}.py").read_text().removeprefix('"""')
    assert docstring.split("\n", 1)[0].endswith("?")
