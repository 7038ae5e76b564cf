"""Runs that were killed after their commit, or that were done, and are resumed: nothing is done twice or lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkit import ArrayField, Contract, ingest
from shardkit.errors import OutputError

NUMBERS = Contract({"x": ArrayField("int64", (2,))})


class Killed(Exception):
    """What stands for a kill."""


def kill(*_: object) -> None:
    raise Killed


def write(path: Path, *ids: str, x: int = 0) -> Path:
    path.write_text("".join(json.dumps({"id": each, "x": [x, x]}) + "\n" for each in ids))
    return path


def run(table: Path, out: Path, **settings: Any) -> Any:
    return ingest(table, out, NUMBERS, records_per_shard=2, workers=0, **{"on_bad": "skip"} | settings)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "summary.json"
    }


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "second.jsonl", "b", "c", "d")


@pytest.fixture
def standing(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes a data set of two records."""

    def make(name: str) -> Path:
        run(write(tmp_path / "first.jsonl", "a", "b"), tmp_path / name)
        return tmp_path / name

    return make


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    "moment", ["shardkit.ingestion.run.write_reports", "shardkit.ingestion.output.clear_up"]
)
def test_a_run_killed_after_its_commit_is_brought_to_its_end(
    table: Path, standing: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, mode: str, moment: str
) -> None:
    out, whole = standing("out"), standing("whole")
    run(table, whole, **{mode: True})
    monkeypatch.setattr(moment, kill)
    with pytest.raises(Killed):
        run(table, out, **{mode: True})
    monkeypatch.undo()
    report = run(table, out, resume=True, **{mode: True})
    assert (report.stored, report.rejected) == ((2, 1) if mode == "append" else (3, 0))
    assert contents(out) == contents(whole)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_a_run_that_was_done_left_over_is_cleared_up_and_nothing_is_done_again(
    table: Path, standing: Callable[[str], Path], mode: str
) -> None:
    out, whole = standing("out"), standing("whole")
    for folder in (out, whole):
        run(table, folder, **{mode: True})
    (out / "shards" / "00099").mkdir()
    (out / "ingest").mkdir()
    (out / "ingest" / "00001.json").write_bytes(b"{")
    report = run(table, out, resume=True, **{mode: True})
    assert report.stored == (2 if mode == "append" else 3)
    assert report.was_complete
    assert contents(out) == contents(whole)


def test_records_that_changed_since_a_run_was_done_are_not_taken_for_those_of_then(
    table: Path, standing: Callable[[str], Path]
) -> None:
    out = standing("out")
    run(table, out, append=True)
    write(table, "e", "f", "g")  # as many, under the same name
    assert run(table, out, append=True, resume=True).stored == 3
    write(table, "e", "f", "g", x=1)
    assert run(table, out, overwrite=True, resume=True).stored == 3


def test_a_source_that_changed_since_its_run_was_done_is_refused(tmp_path: Path, table: Path) -> None:
    run(table, tmp_path / "out")
    write(table, "b", "c", "e")
    with pytest.raises(OutputError, match="made from other records"):
        run(table, tmp_path / "out", resume=True)


def test_copies_in_the_quarantine_survive_a_resume_after_the_commit(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (raw / "cat" / "01.jpg").write_bytes(b"bad")
    out = tmp_path / "out"
    monkeypatch.setattr(
        "shardkit.ingestion.report.write_atomically", kill
    )  # the summary: the quarantine stands
    with pytest.raises(Killed):
        ingest(raw, out, workers=0, on_bad="quarantine")
    monkeypatch.undo()
    ingest(raw, out, workers=0, on_bad="quarantine", resume=True)
    assert [path.read_bytes() for path in (out / "reports" / "quarantine").iterdir()] == [b"bad"]


def test_the_quarantine_of_the_last_run_goes_when_this_one_has_none(raw: Path, tmp_path: Path) -> None:
    good = (raw / "cat" / "01.jpg").read_bytes()
    (raw / "cat" / "01.jpg").write_bytes(b"bad")
    ingest(raw, tmp_path / "out", workers=0, on_bad="quarantine")
    (raw / "cat" / "01.jpg").write_bytes(good)
    ingest(raw, tmp_path / "out", workers=0, on_bad="quarantine", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out" / "reports").iterdir()) == [
        "rejected.jsonl",
        "summary.json",
    ]


def test_a_run_that_fails_before_its_first_shard_leaves_nothing(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkit.ingestion.task.create_shard", kill)
    with pytest.raises(Killed):
        ingest(raw, tmp_path / "out", workers=0, quarantine=tmp_path / "aside")
    assert sorted(tmp_path.iterdir()) == [raw]
