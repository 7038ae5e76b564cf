"""Dry runs, quarantine folders, shuffled storage, look-alikes, and what the report says of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkit import ArrayField, Contract, IngestReport, RecordRules, Store, ingest, verify
from shardkit.errors import DatasetNotFoundError, IngestError, OutputError

NUMBERS = Contract({"x": ArrayField("int64", (2,))})
SKIPPING = Contract({"x": ArrayField("int64", (2,))}, RecordRules(on_bad="skip"))


def records(*names: str) -> list[dict[str, Any]]:
    return [{"id": name, "x": np.array([number, 0])} for number, name in enumerate(names)]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def totals(report: IngestReport) -> tuple[int, int, int, int]:
    return report.seen, report.stored, report.rejected, sum(report.ignored.values())


def test_a_dry_run_judges_everything_and_writes_nothing_but_the_report(raw: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (raw / "cat" / f"{name}.jpg").write_bytes(b"bad")
    with pytest.raises(IngestError, match="not-an-image") as caught:
        ingest(raw, tmp_path / "out", workers=0, dry_run=True)
    report = caught.value.context["report"]
    assert (report.accepted, report.stored, report.rejected, report.committed) == (12, 0, 2, False)
    assert files(tmp_path / "out") == ["reports/dry-run/rejected.jsonl", "reports/dry-run/summary.json"]
    summary = json.loads((tmp_path / "out" / "reports" / "dry-run" / "summary.json").read_text())
    assert (summary["dry_run"], summary["accepted"], summary["rejected"]) == (True, 12, 2)
    with pytest.raises(DatasetNotFoundError):
        Store(tmp_path / "out")


def test_a_dry_run_over_a_data_set_leaves_it_as_it_is(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ingest(raw, out, workers=0)
    before = {path: (out / path).read_bytes() for path in files(out)}
    report = ingest(raw, out, workers=0, dry_run=True, on_bad="quarantine")
    assert (report.accepted, report.committed) == (12, False)
    assert {path: (out / path).read_bytes() for path in before} == before


def test_rejected_originals_are_copied_to_the_folder_that_was_named(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "bad.jpg").write_bytes(b"bad")
    report = ingest(raw, tmp_path / "out", workers=2, quarantine=tmp_path / "deep" / "aside")
    assert totals(report) == (13, 12, 1, 0)
    (copy,) = (tmp_path / "deep" / "aside").iterdir()
    assert (copy.name.endswith("image-bad.jpg"), copy.read_bytes()) == (True, b"bad")


def test_the_report_names_the_copies_and_their_folder_and_the_data_set_does_not(
    raw: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (raw / "cat" / "bad.jpg").write_bytes(b"bad")
    report = ingest(raw, out, workers=0, on_bad="quarantine")
    (line,) = map(json.loads, (out / "reports" / "rejected.jsonl").read_text().splitlines())
    summary = json.loads((out / "reports" / "summary.json").read_text())
    assert report.rejections[0].copies == ("00000006-image-bad.jpg",)
    assert line["copies"] == ["00000006-image-bad.jpg"]
    assert (Path(summary["quarantine"]) / line["copies"][0]).read_bytes() == b"bad"
    assert repr(report) == f"<IngestReport {out}: 12 accepted, 12 stored, 1 rejected>"
    with Store(out) as store:
        assert [rejection.get("copies") for rejection in store.rejected()] == [None]


def test_a_quarantine_folder_with_something_in_it_is_refused(raw: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "mine").write_text("years of work")
    with pytest.raises(OutputError, match="aside"):
        ingest(raw, tmp_path / "out", workers=0, quarantine=aside)
    assert files(aside) == ["mine"]
    with pytest.raises(OutputError, match="inside the raw folder"):
        ingest(raw, tmp_path / "out", workers=0, quarantine=raw / "aside")
    with pytest.raises(OutputError, match="inside the output folder"):
        ingest(raw, tmp_path / "out", workers=0, quarantine=tmp_path / "out" / "shards")


def test_an_append_leaves_what_was_set_aside_before(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "bad.jpg").write_bytes(b"bad")
    ingest(raw, tmp_path / "out", workers=0, on_bad="quarantine")
    more = tmp_path / "more"
    (more / "cat").mkdir(parents=True)
    (more / "cat" / "new.jpg").write_bytes((raw / "cat" / "01.jpg").read_bytes())
    (more / "cat" / "worse.jpg").write_bytes(b"worse")
    ingest(more, tmp_path / "out", workers=0, append=True, on_bad="quarantine")
    aside = sorted(path for path in files(tmp_path / "out" / "reports") if path.startswith("quarantine"))
    assert aside == ["quarantine-00002/00000001-image-worse.jpg", "quarantine/00000006-image-bad.jpg"]


def test_the_original_of_a_repeated_id_is_quarantined_too(tmp_path: Path) -> None:
    contract = Contract.from_dict({"fields": {"data": {"type": "bytes"}}})
    given = [{"id": "a", "data": b"first"}, {"id": "a", "data": b"second"}]
    ingest(given, tmp_path / "out", contract, workers=0, quarantine=tmp_path / "aside")
    assert [path.read_bytes() for path in (tmp_path / "aside").iterdir()] == [b"second"]


@pytest.mark.parametrize("workers", [0, 2])
def test_records_are_stored_in_a_shuffled_order_that_the_seed_decides(tmp_path: Path, workers: int) -> None:
    names = [f"n{number}" for number in range(100)]
    orders = []
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        ingest(
            records(*names), tmp_path / out, NUMBERS, workers=workers, shuffle_seed=seed, records_per_shard=32
        )
        with Store(tmp_path / out) as store:
            orders.append(list(store.ids))
        assert verify(tmp_path / out, records(*names), workers=0).ok
    assert sorted(orders[0]) == sorted(names)
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in [*orders, names]}) == 3
    assert len(list((tmp_path / "a" / "shards").iterdir())) == 4


def test_ids_that_a_file_system_may_confuse_are_reported(tmp_path: Path) -> None:
    names = ["Cat", "cat", "caf\u00e9", "cafe\u0301", "dog"]
    report = ingest(records(*names), tmp_path / "out", NUMBERS, workers=0)
    assert report.stored == 5
    assert set(report.lookalikes) == {("Cat", "cat"), ("caf\u00e9", "cafe\u0301")}
    summary = json.loads((tmp_path / "out" / "reports" / "summary.json").read_text())
    assert summary["lookalikes"] == 2


def test_totals_add_up_when_most_records_are_bad(tmp_path: Path) -> None:
    good = records(*(f"n{number}" for number in range(10)))
    bad = [{"id": f"b{number}", "x": np.zeros(3, np.int64)} for number in range(2500)]
    report = ingest([*good, *bad], tmp_path / "out", SKIPPING, workers=2)
    assert totals(report) == (2510, 10, 2500, 0)
    assert len(report.rejections) == 1000
    lines = (tmp_path / "out" / "reports" / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"b{number}" for number in range(2500)]
    with Store(tmp_path / "out") as store:
        assert sum(1 for _ in store.rejected()) == 2500
    assert verify(tmp_path / "out", [*good, *bad], workers=0).ok


def test_a_source_that_changed_in_silence_is_found(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "bad.jpg").write_bytes(b"bad")
    policies = {"store": "jpeg"}
    ingest(raw, tmp_path / "out", workers=0, on_bad="skip", policies=policies)
    assert verify(tmp_path / "out", raw, workers=0).ok
    changed = raw / "cat" / "01.jpg"
    changed.write_bytes(changed.read_bytes() + b"\0")
    (raw / "cat" / "bad.jpg").write_bytes(b"worse")
    (raw / "dog" / "extra.jpg").write_bytes(b"new")
    report = verify(tmp_path / "out", raw, workers=0)
    assert sorted((problem.kind, problem.id) for problem in report.problems) == [
        ("changed", "cat/01.jpg"),
        ("changed", "cat/bad.jpg"),
        ("missing", "dog/extra.jpg"),
    ]
    (raw / "cat" / "bad.jpg").unlink()
    kinds = {problem.id: problem.sentence for problem in verify(tmp_path / "out", raw, workers=0).problems}
    assert "not in the source any more" in kinds["cat/bad.jpg"]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("workers", [0, 8])
def test_fewer_records_than_workers_are_no_matter(tmp_path: Path, count: int, workers: int) -> None:
    report = ingest(records(*"abc"[:count]), tmp_path / "out", NUMBERS, workers=workers)
    assert report.stored == count


def test_settings_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    for settings in ({"overwrite": True, "append": True}, {"dry_run": True, "resume": True}):
        with pytest.raises(ValueError, match=r"exclude|resumed"):
            ingest(records("a"), tmp_path / "out", NUMBERS, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exclude"):
        ingest(records("a"), tmp_path / "out", NUMBERS, on_bad="skip", quarantine=tmp_path / "aside")
    for settings in ({"shuffle_seed": 1.5}, {"shuffle_seed": "1"}, {"records_per_shard": True}):
        with pytest.raises(TypeError, match="must be an integer"):
            ingest(records("a"), tmp_path / "out", NUMBERS, **settings)  # type: ignore[arg-type]


def test_a_dry_run_writes_into_no_folder_that_is_not_ours(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        ingest(raw, tmp_path / "mine", workers=0, dry_run=True)
    assert files(tmp_path / "mine") == ["thesis.tex"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "reports").symlink_to(tmp_path / "mine")
    with pytest.raises(OutputError, match="symbolic link"):
        ingest(raw, tmp_path / "out", workers=0, dry_run=True)
    assert files(tmp_path / "mine") == ["thesis.tex"]


def test_a_dry_run_of_an_append_sees_the_ids_that_are_there(tmp_path: Path) -> None:
    ingest(records("a", "b"), tmp_path / "out", NUMBERS, workers=0)
    with pytest.raises(IngestError, match="duplicate-id"):
        ingest(records("b", "c"), tmp_path / "out", workers=0, append=True, dry_run=True)


def test_a_lock_that_is_a_link_is_not_followed(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".shardkit.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=r"\.shardkit\.lock|output folder"):
        ingest(raw, tmp_path / "out", workers=0)
    assert not (tmp_path / "elsewhere").exists()


def test_a_column_that_no_field_can_take_is_reported(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("id,my col,x\na,1,2\n")
    report = ingest(tmp_path / "table.csv", tmp_path / "out", workers=0)
    assert list(report.remarks) == ["my col"]
    assert "left out" in report.remarks["my col"]
    contract = Contract.from_dict({"fields": {"x": {"type": "scalar", "dtype": "int64"}}})
    assert not ingest(tmp_path / "table.csv", tmp_path / "other", contract, workers=0).remarks


def test_small_arrays_go_into_few_shards(tmp_path: Path) -> None:
    arrays = [{"id": f"r{row}", "x": np.full(4, row, np.int16)} for row in range(1500)]
    named = [record | {"name": "text"} for record in arrays]
    few = Contract.from_dict({"fields": {"x": {"type": "array", "dtype": "int16", "shape": [4]}}})
    many = Contract.from_dict({"fields": {**few.to_dict()["fields"], "name": {"type": "text"}}})
    counts = []
    for folder, contract, records in (("few", few, arrays), ("many", many, named)):
        ingest(records, tmp_path / folder, contract, workers=0)
        counts.append([shard.count for shard in Store(tmp_path / folder).manifest.shards])
    assert counts == [[1500], [512, 512, 476]]
