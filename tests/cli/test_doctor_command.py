"""``shardkit doctor`` says in a few lines, or as JSON, what is wrong or slow; no process outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from shardkit import Diagnosis, ingest
from shardkit.cli.doctor import doctor_command
from shardkit.measurement import doctor_settings
from shardkit.measurement.doctor_settings import MeasuredSetting
from shardkit.measurement.setting import Setting

QUICK: dict[str, Any] = {
    "transform": "none",
    "timeout": 30.0,
    "samples": 32,
    "settings": False,
    "json": False,
}
HANGING = """
import os, time

def hang(sample):
    if sample["id"] == "dog/04.jpg":
        open("child", "w").write(str(os.getpid()))
        time.sleep(600)
    return sample

def fail(sample):
    raise ValueError("\\x1b[2J")
"""


@pytest.fixture
def out(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("of_a_user.py").write_text(HANGING, encoding="utf-8")
    ingest(raw, tmp_path / "out", workers=0)
    return Path("out")


def run(out: Path, **options: Any) -> int:
    return doctor_command(out, **QUICK | options)


def test_a_healthy_data_set_has_a_line_a_stage_and_a_limit(
    out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(out, samples=6) == 0
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    words = [line.split()[0] for line in lines]
    assert words[:6] == ["read", "decode", "transform", "collate", "transfer", "limit"]
    assert set(words[6:-1]) == {"advice"}
    assert "ms a sample" in lines[0]
    assert lines[2].split(maxsplit=1)[1] == "not done        none"
    assert lines[-1] == (
        "out: 6 of 12 records taken: all went well; `shardkit verify out` looks at all records"
    )
    assert printed.err.startswith("  sample     'cat/01.jpg' (shards/00000, row 0): first")
    assert printed.err.count("  sample     ") == 6


@pytest.mark.filterwarnings(
    "ignore:This DataLoader will create"
)  # more workers than this machine may have CPUs
def test_the_settings_are_listed_and_one_is_marked(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_settings, "_PASS_SECONDS", 0.02)
    monkeypatch.setattr(doctor_settings, "usable_cpus", lambda: 1)
    assert run(out, settings=True, transform="center:16") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  setting ")]
    assert [" ".join(line.split()[1:4]) for line in lines] == [
        "DataLoader, 0 workers",
        "ShardLoader, 1 thread",
        "DataLoader, 1 worker",
    ]
    assert sum(line.endswith("<- the simplest within 5 % of the best") for line in lines) == 1


@pytest.mark.parametrize(
    ("threads", "conclusion", "noise"),
    [
        ((990.0, 1050.0), "102% of the marked one, or level with it", "none is proven the faster"),
        ((1010.0, 1050.0), "103% of the marked one", None),
        ((1040.0,), "104% of the marked one", "one of each"),
    ],
)
def test_each_setting_has_its_spread_and_those_that_are_level_are_said_to_be(
    threads: tuple[float, ...],
    conclusion: str,
    noise: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = MeasuredSetting(Setting("workers", 0), (1000.0, 1000.0)[: len(threads)])
    measured = (workers, MeasuredSetting(Setting("threads", 2), threads))
    diagnosis = Diagnosis(Path("out"), 9, 9, (), settings=measured)
    monkeypatch.setattr("shardkit.doctor", lambda *_, **__: diagnosis)
    assert run(Path("out")) == 0
    marked, other, *rest, _ = capsys.readouterr().out.splitlines()
    assert marked.endswith("  <- the simplest within 5 % of the best")
    assert " 1,000 samples/s [1,000, 1,000] " in marked
    assert f"[{min(threads):,.0f}, {max(threads):,.0f}] " in other
    assert other.endswith(f" {conclusion}")
    assert [noise in line for line in rest] == [True] * (noise is not None)


def test_troubles_are_told_five_at_most_in_print_and_all_as_json(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(out, transform="of_a_user:fail") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  FAILED     transform: 'cat/01.jpg' (shards/00000, row 0)"
    assert "the transform raised ValueError: \\x1b[2J" in lines[1]
    assert lines[2].startswith("             at ")
    assert lines[2].endswith("of_a_user.py:11 in fail")
    assert sum(line.startswith("  FAILED ") for line in lines) == 6
    assert lines[-2] == "  FAILED     and 7 more (--json lists them)"
    assert lines[-1].startswith("out: 12 of 12 records taken: 12 went wrong; `shardkit verify out`")
    assert run(out, transform="of_a_user:fail", json=True) == 1
    diagnosis = json.loads(capsys.readouterr().out)
    assert (diagnosis["ok"], len(diagnosis["troubles"])) == (False, 12)
    assert diagnosis["troubles"][0]["stage"] == "transform"
    assert diagnosis["troubles"][0]["records"] == [
        {"id": "cat/01.jpg", "row": 0, "shard": "shards/00000", "shard_row": 0}
    ]


def test_a_hang_is_told_with_the_last_step(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(out, transform="of_a_user:hang", timeout=2.0) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "  HUNG       transform: 'dog/04.jpg' (shards/00000, row 8)",
        "             nothing came of it for 2 s; it was ended",
    ]
    assert lines[2].endswith("of_a_user.py:7 in hang")
    assert lines[-1].startswith("out: 9 of 12 records taken: 1 went wrong")


@pytest.mark.parametrize(
    "options", [{"transform": "rotate"}, {"transform": "of_a_user:nothing"}, {"timeout": 0.0}]
)
def test_wrong_use_is_an_error_of_the_command_line(out: Path, options: dict[str, Any]) -> None:
    with pytest.raises(typer.BadParameter):
        run(out, **options)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_process_or_file_is_left_when_it_is_interrupted_or_killed(
    out: Path, number: int, status: int
) -> None:
    command = [sys.executable, "-m", "shardkit", "doctor", "out", "--transform", "of_a_user:hang"]
    Path("tmp").mkdir()
    doctor = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(Path("tmp").absolute())},
    )
    while not (Path("child").exists() and Path("child").read_text()):
        assert doctor.poll() is None
        time.sleep(0.01)
    os.kill(doctor.pid, number)
    _, errors = doctor.communicate(timeout=60)
    assert doctor.returncode == status
    assert "Traceback" not in errors
    if number == signal.SIGINT:
        assert errors.splitlines()[-1] == "shardkit: interrupted"
    command_line = Path("/proc") / Path("child").read_text() / "cmdline"
    while command_line.exists() and command_line.read_bytes():
        time.sleep(0.01)  # if it never ends, the test's own time limit does
    assert list(Path("tmp").glob("shardkit-*")) == []
