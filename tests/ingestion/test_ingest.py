"""What `ingest` commits, refuses and reports, through the public interface."""

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardkit import Contract, ingest, verify
from shardkit.contract import ArrayField, ImageField, LabelField, RecordRules
from shardkit.errors import (
    ContractError,
    DatasetNotFoundError,
    IngestError,
    OutputError,
    SourceError,
    WorkerError,
)
from shardkit.store import Store

BACKENDS = ("memmap", "lmdb")


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a data set, the report aside."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "reports" not in path.parts
    }


def rejected(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "reports" / "rejected.jsonl").read_text().splitlines()]


def four_arrays() -> list[dict[str, Any]]:
    """Three colour images of [3, 16, 16] and one gray one."""
    draw = np.random.default_rng(0)
    records = [
        {"id": f"colour-{number}", "image": draw.integers(0, 256, (3, 16, 16), dtype=np.uint8)}
        for number in range(3)
    ]
    return [*records, {"id": "gray", "image": draw.integers(0, 256, (1, 16, 16), dtype=np.uint8)}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_folder_of_classes_comes_back_byte_for_byte(raw: Path, tmp_path: Path, backend: str) -> None:
    report = ingest(raw, tmp_path / "out", backend=backend, workers=0)
    assert (report.stored, report.rejected, report.committed) == (12, 0, True)
    with Store(tmp_path / "out") as store:
        assert list(store.ids) == sorted(str(path.relative_to(raw)) for path in raw.rglob("*.jpg"))
        for row, record_id in enumerate(store.ids):
            image, label = store.payloads(row, (0, 1))
            assert bytes(image) == (raw / record_id).read_bytes()
            assert store.contract.fields["label"].decode(label) == ("cat", "dog").index(record_id[:3])
    assert verify(tmp_path / "out", raw, workers=0).ok


@pytest.mark.parametrize("backend", BACKENDS)
def test_shards_and_index_are_the_same_bytes_for_any_number_of_workers(
    raw: Path, tmp_path: Path, backend: str
) -> None:
    (raw / "cat" / "03.jpg").write_bytes(b"")
    written = []
    for workers in (0, 1, 2, 8):
        out = tmp_path / f"out-{workers}"
        ingest(raw, out, backend=backend, workers=workers, records_per_shard=3, on_bad="skip")
        written.append(digests(out))
    assert len(written[0]) > 8
    assert written[1:] == written[:1] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_gray_among_four_is_named_when_gray_is_rejected(tmp_path: Path, backend: str) -> None:
    contract = Contract({"image": ImageField()})
    with pytest.raises(IngestError, match=r"'gray'.*grayscale"):
        ingest(four_arrays(), tmp_path / "out", contract, backend=backend, workers=0)
    assert [(line["id"], line["reason"]) for line in rejected(tmp_path / "out")] == [("gray", "grayscale")]
    assert not (tmp_path / "out" / "manifest.json").exists()
    with pytest.raises(DatasetNotFoundError):
        Store(tmp_path / "out")


def test_gray_converts_where_the_contract_says_so(tmp_path: Path) -> None:
    contract = Contract({"image": ImageField(grayscale="convert")})
    report = ingest(four_arrays(), tmp_path / "out", contract, workers=0)
    assert report.stored == 4
    with Store(tmp_path / "out") as store:
        image = store.contract.fields["image"].decode(store.payload(store.row_of("gray"), 0))
    assert image.shape == (16, 16, 3)
    np.testing.assert_array_equal(image, np.repeat(four_arrays()[3]["image"].transpose(1, 2, 0), 3, axis=2))


def test_the_totals_add_up(raw: Path, tmp_path: Path, photo: Image.Image) -> None:
    (raw / "cat" / "cut.jpg").write_bytes((raw / "cat" / "01.jpg").read_bytes()[:700])
    (raw / "cat" / "empty.jpg").write_bytes(b"")
    (raw / "dog" / ".DS_Store").write_bytes(b"\0")
    photo.crop((0, 0, 8, 8)).convert("L").save(raw / "dog" / "gray.png")
    report = ingest(raw, tmp_path / "out", workers=0, on_bad="skip")
    assert (report.stored, report.rejected, sum(report.ignored.values())) == (12, 3, 1)
    assert report.seen == 16
    assert report.tally.rejected == {"truncated": 1, "empty": 1, "grayscale": 1}
    summary = json.loads((tmp_path / "out" / "reports" / "summary.json").read_text())
    assert summary["seen"] == summary["accepted"] + summary["rejected"] + summary["ignored"] == 16
    assert {line["id"]: line["reason"] for line in rejected(tmp_path / "out")} == {
        "cat/cut.jpg": "truncated",
        "cat/empty.jpg": "empty",
        "dog/gray.png": "grayscale",
    }
    with Store(tmp_path / "out") as store:
        assert [line["id"] for line in store.rejected()] == [
            line["id"] for line in rejected(tmp_path / "out")
        ]


def test_quarantine_keeps_the_original_of_a_rejected_record(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "bad name.jpg").write_bytes(b"not an image")
    report = ingest(raw, tmp_path / "out", workers=0, on_bad="quarantine")
    assert report.rejected == 1
    kept = list((tmp_path / "out" / "reports" / "quarantine").iterdir())
    assert [path.read_bytes() for path in kept] == [b"not an image"]
    assert kept[0].name.endswith("bad_name.jpg")


def test_a_second_record_with_the_same_id_is_rejected_and_both_rows_are_named(
    raw: Path, tmp_path: Path
) -> None:
    table = raw / "items.csv"
    table.write_text("id,path,label\na,cat/01.jpg,0\nb,cat/03.jpg,1\nc,dog/00.jpg,1\na,dog/02.jpg,1\n")
    report = ingest(table, tmp_path / "out", workers=0, records_per_shard=2, on_bad="skip")
    assert report.stored == 3
    (line,) = rejected(tmp_path / "out")
    assert (line["id"], line["reason"]) == ("a", "duplicate-id")
    assert "line 5" in line["source"]
    assert "line 2" in line["sentence"]


def test_a_label_outside_the_classes_stops_the_run(raw: Path, tmp_path: Path) -> None:
    contract = Contract({"image": ImageField(), "label": LabelField(classes=("cat", "cow"))})
    with pytest.raises(IngestError, match=r"dog/00\.jpg.*label-unknown"):
        ingest(raw, tmp_path / "out", contract, workers=0)


def test_an_existing_data_set_is_refused_without_overwrite(raw: Path, tmp_path: Path) -> None:
    ingest(raw, tmp_path / "out", workers=0)
    before = digests(tmp_path / "out")
    with pytest.raises(OutputError, match="--overwrite"):
        ingest(raw, tmp_path / "out", workers=0)
    assert digests(tmp_path / "out") == before


def test_a_folder_with_other_files_is_never_written_to(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        ingest(raw, tmp_path / "out", workers=0, overwrite=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_overwriting_leaves_the_old_data_set_whole_until_the_new_one_stands(
    raw: Path, tmp_path: Path, backend: str
) -> None:
    out = tmp_path / "out"
    ingest(raw, out, backend=backend, workers=0)
    before = digests(out)
    (raw / "cat" / "zz.jpg").write_bytes(b"broken")
    with pytest.raises(IngestError):
        ingest(raw, out, backend=backend, workers=0, overwrite=True)
    after = digests(out)
    assert {path: after[path] for path in before} == before
    assert verify(out, workers=0).ok
    (raw / "cat" / "zz.jpg").unlink()
    (raw / "cat" / "01.jpg").unlink()
    reader = Store(out)
    ingest(raw, out, backend=backend, workers=0, overwrite=True)
    with Store(out) as store:
        assert (len(store), store.manifest.generation) == (11, 2)
    assert verify(out, raw, workers=0).ok
    assert len(list((out / "shards").iterdir())) == len(list((out / "index").iterdir())) == 1
    reader.close()


def test_nothing_is_left_of_a_run_that_found_no_fitting_record(raw: Path, tmp_path: Path) -> None:
    contract = Contract({"image": ImageField(min_size=(1000, 1000))}, RecordRules(on_bad="skip"))
    with pytest.raises(IngestError, match="no record fits"):
        ingest(raw, tmp_path / "out", contract, workers=0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index", "reports", "shards"][1:2]


class Deadly:
    """An array that kills the process that looks at it, as the system does when memory runs out."""

    def __array__(self, *_: object, **__: object) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_fails_the_run_and_names_what_it_was_at(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"id": f"r{number}", "x": np.zeros(3, np.float32)} for number in range(9)
    ]
    records[4]["x"] = Deadly()
    contract = Contract({"x": ArrayField(dtype="float32", shape=(3,))})
    with pytest.raises(WorkerError, match=r"killed.*records 3 to 5.*'r3' … 'r5'"):
        ingest(records, tmp_path / "out", contract, workers=2, records_per_shard=3)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_fewer_records_than_workers(tmp_path: Path, count: int, backend: str) -> None:
    records = [{"id": str(number), "label": number} for number in range(count)]
    contract = Contract({"label": LabelField(num_classes=5)})
    assert ingest(records, tmp_path / "out", contract, workers=8, backend=backend).stored == count


def test_an_empty_source_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(SourceError, match="no files"):
        ingest(tmp_path / "raw", tmp_path / "out", workers=0)
    with pytest.raises(SourceError, match="no records"):
        ingest([], tmp_path / "out", Contract({"label": LabelField(num_classes=5)}), workers=0)


def test_a_policy_without_an_image_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no image field"):
        ingest(
            [], tmp_path / "out", Contract({"label": LabelField(num_classes=5)}), policies={"alpha": "drop"}
        )
