"""Runs that are killed, sources that misbehave, and folders that hold the unexpected."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shardkit import ArrayField, Contract, ImageField, LabelField, ingest, verify
from shardkit.errors import OutputError, SourceError
from shardkit.sources import IterableSource
from shardkit.store import Store

NUMBERS = Contract({"x": ArrayField("int64", (2,))})


def stored(out: Path) -> dict[str, list[int]]:
    with Store(out) as store:
        decode = store.contract.fields["x"].decode
        return {record_id: decode(store.payload(row, 0)).tolist() for row, record_id in enumerate(store.ids)}


def ingest_when_free(raw: Path, out: Path) -> None:
    """Ingest once the workers of a killed run have noticed; within a second, in which they hold the lock."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            ingest(raw, out, workers=2, records_per_shard=8)
            return
        except OutputError as error:
            if "another ingest" not in str(error):
                raise
        time.sleep(0.1)
    pytest.fail("the lock of the killed run is still held")


@pytest.mark.parametrize("buffer", [np.zeros(2, np.int64), torch.zeros(2, dtype=torch.int64), [0, 0]])
def test_a_generator_may_use_one_buffer_for_all_records(tmp_path: Path, buffer: Any) -> None:
    def records() -> Iterator[dict[str, Any]]:
        for number in range(5):
            buffer[0] = number
            yield {"id": str(number), "x": buffer}

    ingest(records(), tmp_path / "out", NUMBERS, workers=0)
    assert stored(tmp_path / "out") == {str(number): [number, 0] for number in range(5)}


def test_a_part_of_large_records_is_closed_early_and_always_at_the_same_place() -> None:
    records = [{"id": str(number), "x": bytes(30 << 20)} for number in range(7)]
    parts = [list(part.ids) for part in IterableSource(records).parts(1000)]
    assert parts == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_a_value_that_cannot_be_copied_makes_a_rejected_record(tmp_path: Path) -> None:
    weight = torch.ones(2, requires_grad=True)
    records = [{"id": "a", "x": np.zeros(2, np.int64)}, {"id": "b", "x": weight * 2}]
    report = ingest(records, tmp_path / "out", NUMBERS, workers=0, on_bad="skip")
    assert [(each.id, each.reason.value) for each in report.rejections] == [("b", "bad-row")]


def test_a_value_that_cannot_go_to_a_worker_is_named(tmp_path: Path) -> None:
    class Local:
        def __array__(self, *_: object, **__: object) -> Any:
            return np.zeros(2, np.int64)

    with pytest.raises(SourceError, match=r"records 0 to 0 .*workers=0"):
        ingest([{"id": "a", "x": Local()}], tmp_path / "out", NUMBERS, workers=1)


def test_an_output_inside_the_raw_folder_is_refused(raw: Path) -> None:
    with pytest.raises(OutputError, match="inside the raw folder"):
        ingest(raw, raw / "out", workers=0)
    assert not (raw / "out").exists()


def test_what_a_crash_left_of_a_manifest_is_cleared_away(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "shards" / "00000.partial").mkdir(parents=True)
    (out / "manifest.json.partial").write_text('{"format": "shar')
    assert ingest(raw, out, workers=0).stored == 12
    assert not (out / "manifest.json.partial").exists()
    assert not (out / "shards" / "00000.partial").exists()


def test_a_file_where_the_reports_belong_is_found_before_anything_is_done(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "reports").write_text("mine")
    with pytest.raises(OutputError, match="reports"):
        ingest(raw, out, workers=0)
    assert not (out / "manifest.json").exists()
    assert (out / "reports").read_text() == "mine"


def test_a_link_in_the_place_of_a_folder_of_ours_is_not_written_through(raw: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "quarantine"
    elsewhere.mkdir(parents=True)
    (elsewhere / "mine").write_text("years of work")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "reports").symlink_to(elsewhere.parent)
    with pytest.raises(OutputError, match=r"reports: is a symbolic link"):
        ingest(raw, tmp_path / "out", workers=0)
    assert (elsewhere / "mine").exists()


def test_a_run_that_was_killed_leaves_no_data_set_and_the_next_one_succeeds(
    raw: Path, tmp_path: Path
) -> None:
    with Image.open(raw / "cat" / "01.jpg") as image:
        image.resize((4000, 4000)).save(raw / "cat" / "large.jpg")
    for copy in range(40):
        (raw / "cat" / f"large-{copy}.jpg").hardlink_to(raw / "cat" / "large.jpg")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardkit", "ingest", str(raw), str(out), "--records-per-shard", "8"]
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not list(out.glob("shards/00000")):
        time.sleep(0.01)
        assert run.poll() is None
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert not (out / "manifest.json").exists()
    ingest_when_free(raw, out)
    assert verify(out, raw, workers=0).ok


def test_what_is_re_encoded_is_held_against_the_source_too(tmp_path: Path, photo: Image.Image) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(3):
        photo.crop((number, 0, number + 50, 40)).save(raw / f"{number}.png")
    contract = Contract({"image": ImageField(store="jpeg", max_side=32)})
    ingest(raw, tmp_path / "out", contract, workers=0)
    assert verify(tmp_path / "out", raw, workers=0).ok
    photo.crop((90, 90, 140, 130)).save(raw / "1.png")
    (raw / "2.png").write_bytes(b"garbage")
    problems = verify(tmp_path / "out", raw, workers=0).problems
    assert [(problem.kind, problem.id) for problem in problems] == [
        ("changed", "1.png"),
        ("changed", "2.png"),
    ]


def test_records_of_a_program_are_verified_value_by_value(tmp_path: Path) -> None:
    records = [{"id": str(number), "label": number} for number in range(4)]
    ingest(records, tmp_path / "out", Contract({"label": LabelField(num_classes=9)}), workers=0)
    assert verify(tmp_path / "out", records, workers=0).ok
    records[2] = {"id": "2", "label": 7}
    assert [problem.id for problem in verify(tmp_path / "out", records, workers=0).problems] == ["2"]


def test_a_commit_that_fails_in_its_last_fsync_removes_nothing_of_either_state(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    ingest(raw, out, workers=0)

    def fail_on_root(path: object) -> None:
        if Path(str(path)) == out and (out / "index" / "00002").exists():
            raise OutputError(f"{path}: cannot be written: Input/output error")

    monkeypatch.setattr("shardkit.store.durable.sync_file", fail_on_root)
    with pytest.raises(OutputError, match="Input/output error"):
        ingest(raw, out, workers=0, overwrite=True)
    assert sorted(path.name for path in (out / "shards").iterdir()) == ["00000", "00001"]
    assert sorted(path.name for path in (out / "index").iterdir()) == ["00001", "00002"]


def test_what_was_set_aside_stays_until_the_next_run_reports(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (raw / "cat" / "bad.jpg").write_bytes(b"bad")
    ingest(raw, out, workers=0, on_bad="quarantine")
    kept = out / "reports" / "quarantine"
    assert [path.read_bytes() for path in kept.iterdir()] == [b"bad"]

    def broken() -> Iterator[dict[str, Any]]:
        yield {"id": "a", "x": [1, 2]}
        raise RuntimeError("the program failed")

    with pytest.raises(RuntimeError):
        ingest(broken(), out, NUMBERS, workers=0, on_bad="quarantine", overwrite=True)
    assert [path.read_bytes() for path in kept.iterdir()] == [b"bad"]
    (raw / "cat" / "bad.jpg").unlink()
    ingest(raw, out, workers=0, on_bad="quarantine", overwrite=True)
    assert not kept.exists()


def test_the_first_bearer_of_a_repeated_id_is_held_against_the_source(tmp_path: Path) -> None:
    records = [{"id": "a", "x": [1, 2]}, {"id": "b", "x": [3, 4]}, {"id": "a", "x": [5, 6]}]
    ingest(records, tmp_path / "out", NUMBERS, workers=0, on_bad="skip")
    assert stored(tmp_path / "out") == {"a": [1, 2], "b": [3, 4]}
    assert verify(tmp_path / "out", records, workers=0).ok
    records[0] = {"id": "a", "x": [7, 8]}
    assert [each.id for each in verify(tmp_path / "out", records, workers=0).problems] == ["a"]
