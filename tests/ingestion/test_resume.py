"""Runs that were interrupted and are continued: the result is that of a run which never was."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkit import ArrayField, Contract, LabelField, RecordRules, Store, ingest, verify
from shardkit.errors import IngestError, OutputError, ShardkitError, SourceError

BACKENDS = ("memmap", "lmdb")
NUMBERS = Contract({"x": ArrayField("int64", (2,)), "label": LabelField(num_classes=10)})
COUNT = 40
SIZE = 8


class Interrupted(Exception):
    """What stands for a kill in the tests that run in this process."""


def records(until: int | None = None) -> Iterator[dict[str, Any]]:
    for number in range(COUNT):
        if number == until:
            raise Interrupted
        yield {"id": f"r{number}", "x": np.array([number, -number]), "label": number % 10}


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a data set, the reports aside."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "reports" not in path.relative_to(folder).parts
    }


def interrupt(out: Path, until: int, **settings: Any) -> None:
    with pytest.raises(Interrupted):
        ingest(records(until), out, NUMBERS, workers=0, records_per_shard=SIZE, **settings)


def run(out: Path, source: Any = None, **settings: Any) -> Any:
    return ingest(
        records() if source is None else source,
        out,
        NUMBERS,
        records_per_shard=SIZE,
        **{"workers": 0} | settings,
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "raw" / "table.jsonl"
    path.parent.mkdir()
    lines = [json.dumps({"id": f"r{row}", "x": [row, -row], "label": row % 10}) for row in range(COUNT)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("until", [0, 1, SIZE, SIZE + 1, 3 * SIZE, COUNT - 1])
def test_a_resumed_run_ends_in_the_same_bytes(tmp_path: Path, backend: str, until: int) -> None:
    run(tmp_path / "whole", backend=backend)
    interrupt(tmp_path / "out", until, backend=backend)
    assert not (tmp_path / "out" / "manifest.json").exists()
    report = run(tmp_path / "out", backend=backend, resume=True)
    assert (report.resumed, report.stored) == (until // SIZE, COUNT)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert verify(tmp_path / "out", workers=0).ok


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_it_does_not_matter_how_many_workers_resume(tmp_path: Path, workers: int) -> None:
    run(tmp_path / "whole")
    interrupt(tmp_path / "out", 20)
    run(tmp_path / "out", resume=True, workers=workers)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_finished_shards_are_not_written_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(out, 20)
    before = {path: path.stat().st_mtime_ns for path in out.glob("shards/*/*")}
    assert len(list(out.glob("shards/*"))) == 2
    run(out, resume=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_without_resume_the_run_starts_over(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    interrupt(tmp_path / "out", 20)
    assert run(tmp_path / "out").resumed == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_shard_that_is_not_whole_any_more_is_written_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path / "whole")
    interrupt(out, 20)
    with (out / "shards" / "00001" / "x.npy").open("r+b") as file:
        file.truncate(100)
    assert run(out, resume=True).resumed == 1
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"input": 1}', b"\xff", b'{"input": "", "stamps": [], "outcome": 3}']
)
def test_a_damaged_entry_of_the_journal_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    out = tmp_path / "out"
    run(tmp_path / "whole")
    interrupt(out, 20)
    (out / "ingest" / "00000.json").write_bytes(damage)
    assert run(out, resume=True).resumed == 1
    assert contents(out) == contents(tmp_path / "whole")


def test_resuming_where_nothing_was_begun_starts_a_run(tmp_path: Path) -> None:
    assert run(tmp_path / "out", resume=True).stored == COUNT


def test_resuming_what_is_done_does_nothing(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "out"
    first = run(out, table)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = run(out, table, resume=True)
    assert (again.stored, again.seen) == (first.stored, first.seen) == (COUNT, COUNT)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    with pytest.raises(OutputError, match="already holds a data set"):
        run(out, table, resume=True, backend="lmdb")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": "lmdb"}, 'backend: "memmap" then, "lmdb" now'),
        ({"records_per_shard": 4}, "records_per_shard: 8 then, 4 now"),
        ({"shuffle_seed": 1}, "shuffle_seed: null then, 1 now"),
        ({"contract": Contract({"x": ArrayField("int64", (2,))})}, "contract"),
        (
            {
                "contract": Contract(
                    {"x": ArrayField("int64", (2,), min=-100), "label": LabelField(num_classes=10)}
                )
            },
            "contract.x.min: null then, -100 now",
        ),
        ({"contract": Contract(dict(reversed(NUMBERS.fields.items())))}, "order of the fields"),
        ({"overwrite": True}, 'mode: "new" then, "overwrite" now'),
    ],
)
def test_another_setting_is_refused_and_named(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    interrupt(tmp_path / "out", 20)
    wanted = {"contract": NUMBERS, "records_per_shard": SIZE, "workers": 0, "resume": True} | settings
    with pytest.raises(OutputError, match="without --resume") as caught:
        ingest(records(), tmp_path / "out", **wanted)
    assert words in str(caught.value)
    assert run(tmp_path / "out", resume=True).resumed == 2


def rewrite_line(table: Path) -> None:
    table.write_text(table.read_text().replace('"x": [3, -3]', '"x": [3, -4]'))


def drop_line(table: Path) -> None:
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:3] + lines[4:]))


def add_line(table: Path) -> None:
    table.write_text('{"id": "new", "x": [0, 0], "label": 0}\n' + table.read_text())


def rename(table: Path) -> None:
    table.write_text(table.read_text().replace('"r3"', '"s3"'))


@pytest.mark.parametrize("change", [rewrite_line, drop_line, add_line, rename])
def test_a_table_that_changed_is_refused(
    tmp_path: Path, table: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off_after(2, monkeypatch)
    with pytest.raises(Interrupted):
        run(tmp_path / "out", table)
    monkeypatch.undo()
    change(table)
    with pytest.raises(ShardkitError, match="without --resume"):
        run(tmp_path / "out", table, resume=True)
    assert run(tmp_path / "out", table).stored >= COUNT - 1


def break_off_after(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the run fail after some shards are done."""
    real = os.replace
    done = 0

    def replace(old: Any, new: Any) -> None:
        nonlocal done
        if Path(new).parent.name == "shards":
            if done == shards:
                raise Interrupted
            done += 1
        real(old, new)

    monkeypatch.setattr("os.replace", replace)


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_file_that_changed_is_named(
    raw: Path, tmp_path: Path, keeps_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    break_off_after(2, monkeypatch)
    with pytest.raises(Interrupted):
        ingest(raw, out, workers=0, records_per_shard=4)
    monkeypatch.undo()
    victim = raw / "cat" / "01.jpg"
    status, data = victim.stat(), bytearray(victim.read_bytes())
    data[-3] ^= 1
    victim.write_bytes(data)
    if keeps_time:  # size and time of last write are those of before
        os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(SourceError, match=r"cat/01\.jpg.*without --resume"):
        ingest(raw, out, workers=0, records_per_shard=4, resume=True)


def test_a_run_that_was_killed_after_its_commit_is_brought_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run(tmp_path / "whole")

    def fail(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr("shardkit.ingestion.run.write_reports", fail)
    with pytest.raises(Interrupted):
        run(out)
    monkeypatch.undo()
    assert (out / "manifest.json").exists()
    assert (out / "ingest").exists()
    report = run(out, resume=True)
    assert (report.stored, report.resumed) == (COUNT, COUNT // SIZE)
    assert contents(out) == contents(tmp_path / "whole")
    assert json.loads((out / "reports" / "summary.json").read_text())["stored"] == COUNT


def test_a_run_that_a_bad_record_aborted_is_resumed_without_it(tmp_path: Path) -> None:
    bad = [*records(), {"id": "bad", "x": np.zeros(2, np.int64), "label": 77}]
    run(tmp_path / "whole", bad, on_bad="skip")
    with pytest.raises(IngestError, match=r"5 finished shards.*--resume and --on-bad skip"):
        run(tmp_path / "out", bad)
    report = run(tmp_path / "out", bad, on_bad="skip", resume=True)
    assert (report.stored, report.rejected) == (COUNT, 1)
    assert report.resumed == COUNT // SIZE
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_run_that_a_bad_record_aborted_is_resumed_once_it_is_mended(raw: Path, tmp_path: Path) -> None:
    ingest(raw, tmp_path / "whole", workers=0, records_per_shard=4)
    victim = raw / "dog" / "08.jpg"
    good = victim.read_bytes()
    victim.write_bytes(good[:100])
    with pytest.raises(IngestError, match="2 finished shards"):
        ingest(raw, tmp_path / "out", workers=0, records_per_shard=4)
    victim.write_bytes(good)
    report = ingest(raw, tmp_path / "out", workers=0, records_per_shard=4, resume=True)
    assert (report.resumed, report.stored) == (2, 12)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_quarantined_originals_of_finished_shards_are_kept_for_the_resumed_run(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (raw / "cat" / "00.jpg").write_bytes(b"bad")
    aside = tmp_path / "aside"
    break_off_after(2, monkeypatch)
    with pytest.raises(Interrupted):
        ingest(raw, tmp_path / "out", workers=0, records_per_shard=4, quarantine=aside)
    monkeypatch.undo()
    report = ingest(raw, tmp_path / "out", workers=0, records_per_shard=4, quarantine=aside, resume=True)
    assert report.resumed == 2
    assert [path.read_bytes() for path in aside.iterdir()] == [b"bad"]


def test_a_shuffled_run_is_resumed_in_its_second_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", shuffle_seed=3)
    break_off_after(7, monkeypatch)
    with pytest.raises(Interrupted):
        run(tmp_path / "out", shuffle_seed=3)
    monkeypatch.undo()
    assert run(tmp_path / "out", shuffle_seed=3, resume=True).resumed == 7
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_an_append_that_was_interrupted_is_resumed(tmp_path: Path) -> None:
    first = [{"id": f"a{number}", "x": np.zeros(2, np.int64), "label": 0} for number in range(3)]
    for name in ("whole", "out"):
        run(tmp_path / name, first)
    run(tmp_path / "whole", append=True)
    interrupt(tmp_path / "out", 20, append=True)
    assert verify(tmp_path / "out", workers=0).records == 3
    assert run(tmp_path / "out", append=True, resume=True).resumed == 2
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_journal_of_another_generation_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    interrupt(out, 20)
    shutil.copytree(out / "ingest", tmp_path / "journal")
    run(out)
    run(out, [{"id": "a", "x": np.zeros(2, np.int64), "label": 0}], append=True)
    shutil.copytree(tmp_path / "journal", out / "ingest")
    with pytest.raises(OutputError, match="without --resume"):
        run(out, resume=True)


def test_a_run_is_resumed_under_its_own_contract_if_none_is_given(tmp_path: Path) -> None:
    contract = Contract(
        {"x": ArrayField("int64", (2,), min=-100), "label": LabelField(num_classes=10)},
        RecordRules(on_bad="skip"),
    )
    with pytest.raises(Interrupted):
        ingest(records(20), tmp_path / "out", contract, workers=0, records_per_shard=SIZE)
    report = ingest(records(), tmp_path / "out", workers=0, records_per_shard=SIZE, resume=True)
    assert (report.resumed, report.stored) == (2, COUNT)
    with Store(tmp_path / "out") as store:
        assert store.contract == contract


def test_finished_shards_that_are_not_resumed_are_counted(tmp_path: Path) -> None:
    interrupt(tmp_path / "out", 20)
    assert run(tmp_path / "out").discarded == 2
