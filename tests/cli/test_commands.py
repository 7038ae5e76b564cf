"""The commands print results on stdout, messages on stderr, and exit with 0, 1 or 2."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardkit import Contract, TextField, ingest


def shardkit(*arguments: object, status: int = 0) -> str:
    command = [sys.executable, "-m", "shardkit", *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == status, run.stderr
    return run.stdout


def printed(*arguments: object, status: int = 0) -> dict[str, Any]:
    return json.loads(shardkit(*arguments, "--json", status=status))


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
def test_from_raw_files_to_a_verified_data_set_and_back(raw: Path, tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    report = printed("ingest", raw, out, "--backend", backend)
    assert (report["seen"], report["stored"], report["rejected"], report["committed"]) == (12, 12, 0, True)
    verified = printed("verify", out, "--source", raw)
    assert verified["ok"]
    assert verified["checked"]["records"] == verified["checked"]["source records"] == 12
    facts = printed("info", out)
    assert facts["labels"] == {"label": {"cat": 6, "dog": 6}}
    assert facts["backends"] == {backend: 1}
    shardkit("get", out, "cat/03.jpg", "-o", tmp_path / "one.jpg")
    assert (tmp_path / "one.jpg").read_bytes() == (raw / "cat" / "03.jpg").read_bytes()


def test_get_writes_bytes_to_stdout(raw: Path, tmp_path: Path) -> None:
    shardkit("ingest", raw, tmp_path / "out")
    command = [sys.executable, "-m", "shardkit", "get", str(tmp_path / "out"), "dog/00.jpg"]
    run = subprocess.run(command, capture_output=True, check=True)
    assert run.stdout == (raw / "dog" / "00.jpg").read_bytes()


def test_info_prints_what_a_contract_holds_without_obeying_it(tmp_path: Path) -> None:
    contract = Contract({"t": TextField(default="\x1b[2J")})
    ingest([{"id": "a"}], tmp_path / "out", contract, workers=0)
    assert "default = \\x1b[2J" in shardkit("info", tmp_path / "out")


def test_resuming_what_was_complete_says_so(raw: Path, tmp_path: Path) -> None:
    ingest(raw, tmp_path / "out", workers=0)
    last = shardkit("ingest", raw, tmp_path / "out", "--resume").splitlines()[-1]
    assert last == f"{tmp_path / 'out'}: was complete already, with 12 records stored: nothing was left to do"


def test_flags_change_the_contract(raw: Path, tmp_path: Path, photo: Image.Image) -> None:
    photo.convert("L").crop((0, 0, 9, 9)).save(raw / "cat" / "gray.png")
    shardkit("ingest", raw, tmp_path / "out", status=1)
    report = printed("ingest", raw, tmp_path / "out", "--grayscale", "convert", "--workers", 0)
    assert report["converted"] == {"image: grayscale": 1}
    assert report["kinds"]["image"] == {"RGB": 12, "L": 1}


def test_rejects_under_skip_are_said_in_the_last_line(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "empty.jpg").write_bytes(b"")
    lines = shardkit("ingest", raw, tmp_path / "out", "--on-bad", "skip").splitlines()
    assert "12 records stored" in lines[-1]
    assert "1 REJECTED" in lines[-1]


def test_verify_names_a_flipped_bit_by_id_and_shard(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shardkit("ingest", raw, out)
    shard = out / "shards" / "00000" / "image.bin"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(bytes(data))
    report = printed("verify", out, status=1)
    assert not report["ok"]
    assert report["problems_by_kind"]["checksum"] == 1
    (problem,) = [problem for problem in report["problems"] if problem["kind"] == "checksum"]
    assert problem["id"] in {str(path.relative_to(raw)) for path in raw.rglob("*.jpg")}
    assert problem["shard"] == "shards/00000"


def test_verify_against_the_source_finds_what_is_missing_extra_changed_and_mislabelled(
    raw: Path, tmp_path: Path
) -> None:
    table = raw / "items.csv"
    rows = [
        f"{number:02d},{'cat' if number % 2 else 'dog'}/{number:02d}.jpg,{number % 2}" for number in range(12)
    ]
    table.write_text("\n".join(["id,path,label", *rows]) + "\n")
    out = tmp_path / "out"
    shardkit("ingest", table, out)
    assert printed("verify", out, "--source", table)["ok"]
    rows[3] = "03,cat/03.jpg,0"  # another label
    rows[5] = "new,cat/05.jpg,1"  # one missing, one extra
    table.write_text("\n".join(["id,path,label", *rows]) + "\n")
    (raw / "dog" / "08.jpg").write_bytes((raw / "dog" / "10.jpg").read_bytes())
    report = printed("verify", out, "--source", table, status=1)
    assert {(problem["kind"], problem["id"]) for problem in report["problems"]} == {
        ("label", "03"),
        ("missing", "new"),
        ("extra", "05"),
        ("changed", "08"),
    }


def test_a_rejected_record_is_accounted_for_and_a_silently_dropped_one_is_not(
    raw: Path, tmp_path: Path
) -> None:
    (raw / "cat" / "empty.jpg").write_bytes(b"")
    shardkit("ingest", raw, tmp_path / "out", "--on-bad", "skip")
    assert printed("verify", tmp_path / "out", "--source", raw)["ok"]
    (raw / "cat" / "later.jpg").write_bytes((raw / "cat" / "01.jpg").read_bytes())
    report = printed("verify", tmp_path / "out", "--source", raw, status=1)
    assert [(problem["kind"], problem["id"]) for problem in report["problems"]] == [
        ("missing", "cat/later.jpg")
    ]


def test_infer_writes_a_contract_that_marks_the_open_decisions(
    raw: Path, tmp_path: Path, photo: Image.Image
) -> None:
    photo.convert("L").crop((0, 0, 9, 9)).save(raw / "cat" / "gray.png")
    text = shardkit("contract", "infer", raw)
    assert 'classes = ["cat", "dog"]' in text
    assert text.count("DECIDE") == 1
    comment, _ = text.split('\ngrayscale = "reject"\n')
    assert comment.splitlines()[-1].startswith("# DECIDE: 1 of 13 records")
    (tmp_path / "c.toml").write_text(text.replace('grayscale = "reject"', 'grayscale = "convert"'))
    assert printed("ingest", raw, tmp_path / "out", "--contract", tmp_path / "c.toml")["stored"] == 13


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_ingest_leaves_no_data_set_and_is_resumed(
    raw: Path, tmp_path: Path, number: int, status: int
) -> None:
    with Image.open(raw / "cat" / "01.jpg") as image:
        image.resize((4000, 4000)).save(raw / "cat" / "large.jpg")
    for copy in range(60):
        (raw / "cat" / f"large-{copy}.jpg").hardlink_to(raw / "cat" / "large.jpg")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardkit", "ingest", str(raw), str(out)]
    run = subprocess.Popen([*command, "--records-per-shard", "8"], stderr=subprocess.PIPE, text=True)
    while not list(out.glob("shards/*")):
        time.sleep(0.01)
        assert run.poll() is None
    os.kill(run.pid, number)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == status, errors
    assert "Traceback" not in errors
    assert not (out / "manifest.json").exists()
    finished = len(list(out.glob("ingest/0*.json")))
    if number == signal.SIGINT and finished:
        assert f"{finished} finished shard" in errors
        assert "--resume" in errors
    again = subprocess.run([*command, "--records-per-shard", "8", "--resume"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert f"{finished} shards taken over" in again.stdout or not finished
    assert not (out / "ingest").exists()


def test_help_lists_the_commands() -> None:
    text = shardkit("--help")
    assert all(command in text for command in ("ingest", "verify", "info", "get", "contract"))


@pytest.mark.parametrize("gap", [0.0, 0.1, 0.4])
def test_a_second_ctrl_c_ends_an_ingest_at_once(raw: Path, tmp_path: Path, gap: float) -> None:
    with Image.open(raw / "cat" / "01.jpg") as image:
        image.resize((3000, 3000)).save(raw / "cat" / "large.jpg")
    for copy in range(60):
        (raw / "cat" / f"large-{copy}.jpg").hardlink_to(raw / "cat" / "large.jpg")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardkit", "ingest", str(raw), str(out), "--workers", "2"]
    command += ["--records-per-shard", "4"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("shards/*")):
        time.sleep(0.01)
        assert run.poll() is None
    os.kill(run.pid, signal.SIGINT)
    time.sleep(gap)
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert run.returncode in (130, -signal.SIGINT), errors  # the latter if Python is on its way out already
    assert "Traceback" not in errors
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr


def test_workers_that_cannot_be_started_end_the_run(raw: Path, tmp_path: Path) -> None:
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (22, 22)); "
        "sys.argv[0] = 'shardkit'; from shardkit.cli import main; main()"
    )
    command = [sys.executable, "-c", script, "ingest", str(raw), str(tmp_path / "out"), "--workers", "8"]
    run = subprocess.run([*command, "--records-per-shard", "1"], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in run.stderr
