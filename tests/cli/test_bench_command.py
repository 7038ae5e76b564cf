"""``shardkit bench`` prints a table or one JSON object, tells wrong data by its exit status, and ends at Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

import shardkit
from shardkit import BenchReport, ingest
from shardkit.cli.bench import bench_command
from shardkit.measurement.memory import descendants

FEW: dict[str, Any] = {"workers": "0", "threads": "1", "repetitions": 1, "warm_ups": 0}


@pytest.fixture
def out(raw: Path, tmp_path: Path) -> Path:
    ingest(raw, tmp_path / "out", workers=0)
    return tmp_path / "out"


def test_the_table_declares_what_was_measured_and_has_a_row_a_setting(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_command(out, **FEW, samples=8, step_ms=1, transform="center:16", shuffle="block") == 0
    declared, head, *rows, last = _split(capsys.readouterr().out)
    assert "samples    8 of 12 records chosen at random, shuffled (block), in batches of 64" in declared
    assert "transform  center:16" in declared
    assert "step       1 ms of sleep after each batch" in declared
    assert "passes     0 to warm up and 1 that count of each" in declared
    assert "cache      as it was found" in declared
    for column in (
        "setting",
        "samples",
        "data",
        "first batch",
        "duration",
        "samples/s",
        "Mpixels/s",
        "waiting",
    ):
        assert column in head
    assert "tokens/s" not in head
    assert [row.split("  ")[0] for row in rows] == ["DataLoader, 0 workers", "ShardLoader, 1 thread"]
    assert all(" 8  equal  " in row for row in rows)
    assert last.startswith(f"{out}: ")
    assert last.endswith("samples/s, all data equal")


def _split(text: str) -> list[str]:
    """Return what is declared as one string, then the lines of the table, then the last one."""
    lines = text.splitlines()
    table = next(number for number, line in enumerate(lines) if not line.startswith("  "))
    return ["\n".join(lines[:table]), *lines[table:]]


def test_json_is_one_object_with_every_pass(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = FEW | {"workers": "0,1", "warm_ups": 1}
    assert bench_command(out, **options, json=True) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert found["ok"]
    assert [row["setting"] for row in found["rows"]] == [
        "DataLoader, 0 workers",
        "DataLoader, 1 worker",
        "DataLoader, 1 worker, second epoch",
        "ShardLoader, 1 thread",
    ]
    assert [each["is_warm_up"] for each in found["passes"]] == [True] * 4 + [False] * 4
    assert {row["verified"] for row in found["rows"]} == {True}
    assert {row["samples"] for row in found["rows"]} == {12}


def test_wrong_data_are_told_by_the_exit_status(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = shardkit.bench

    def measure_and_spoil(*arguments: Any, **options: Any) -> BenchReport:
        report = measure(*arguments, **options)
        right, other = report.rows
        spoiled = replace(other, wrong="its labels", conclusion="WRONG: its labels")
        return replace(report, rows=(right, spoiled))

    monkeypatch.setattr(shardkit, "bench", measure_and_spoil)
    assert bench_command(out, **FEW) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "WRONG: its labels" in printed[-2]
    assert printed[-1] == f"{out}: 1 of 2 settings deliver WRONG data"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "many"}, "--workers takes whole numbers"),
        ({"threads": "0"}, "threads must be whole numbers of 1 or more"),
        ({"workers": "", "threads": ""}, "nothing to measure"),
        ({"shuffle": "wild"}, "--shuffle must be global, block or none"),
        ({"transform": "middle"}, "center:SIZE"),
        ({"transform": "no_such:one"}, "cannot be imported"),
        ({"plot": Path("bench.jpg")}, "ends in .png"),
    ],
)
def test_wrong_use_is_named(out: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        bench_command(out, **FEW | options)
    assert message in str(caught.value)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds workers in /proc")
def test_ctrl_c_ends_it_and_its_workers_in_one_line(out: Path) -> None:
    command = [sys.executable, "-m", "shardkit", "bench", str(out), "--workers", "1", "--threads", "1"]
    run = subprocess.Popen(
        [*command, "--step-ms", "60000"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (workers := descendants(run.pid)):
        assert run.poll() is None
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (130, "shardkit: interrupted\n")
    while any(map(_runs, workers)):
        time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
