"""The troubles that tables come with, from the file to the committed data set or the report."""

import os
from pathlib import Path

import pytest

from shardkit import ShardDataset, ingest
from shardkit.contract import BytesField, Contract, LabelField, RecordRules, ScalarField, TextField
from shardkit.errors import IngestError, SourceError
from shardkit.ingestion import IngestReport

LABEL = LabelField(num_classes=3)
CLASSES = LabelField(classes=("cat", "dog"))
SKIP = RecordRules(on_bad="skip")


def taken(tmp_path: Path, text: str | bytes, contract: Contract, name: str = "t.csv") -> IngestReport:
    """Ingest a table, rejected records left out."""
    (tmp_path / "raw").mkdir(exist_ok=True)
    path = tmp_path / "raw" / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        report = ingest(path, tmp_path / "out", Contract(contract.fields, SKIP), workers=0)
    except IngestError as error:  # no record fits
        report = error.context["report"]
    assert isinstance(report, IngestReport)
    return report


def rejected(report: IngestReport) -> list[tuple[str, str]]:
    return [(rejection.id, rejection.reason.value) for rejection in report.rejections]


def stored(tmp_path: Path) -> list[str]:
    return list(ShardDataset(str(tmp_path / "out")).ids)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_byte_order_marks_line_ends_and_a_missing_last_one_change_nothing(
    tmp_path: Path, bom: bytes, end: bytes, last: bool
) -> None:
    text = bom + end.join([b"id,label", b"a,0", b'"b, ""c""",1', b"d,2"]) + (end if last else b"")
    report = taken(tmp_path, text, Contract({"label": LABEL}))
    assert report.rejections == ()
    assert stored(tmp_path) == ["a", 'b, "c"', "d"]


def test_a_label_that_is_no_plain_number_of_a_class_is_rejected(tmp_path: Path) -> None:
    cells = [
        ("0.0", "label-type"),
        ("1.5", "label-type"),
        ("nan", "label-type"),
        ("NaN", "label-type"),
        ("inf", "label-type"),
        ("", "missing-field"),
        (" 1", "label-type"),
        ("+1", "label-type"),
        ("01", "label-type"),
        ("-1", "label-range"),
        ("3", "label-range"),
        ("9223372036854775808", "label-range"),
        ("9" * 5000, "label-range"),
    ]
    rows = "".join(f"{number},{cell}\n" for number, (cell, _) in enumerate(cells))
    report = taken(tmp_path, f"id,label\na,0\n{rows}c,1\n", Contract({"label": LABEL}))
    assert rejected(report) == [(str(number), reason) for number, (_, reason) in enumerate(cells)]
    assert stored(tmp_path) == ["a", "c"]


def test_labels_that_count_from_1_are_rejected_with_a_hint_at_the_first_beyond(tmp_path: Path) -> None:
    report = taken(tmp_path, "id,label\na,1\nb,2\nc,3\n", Contract({"label": LABEL}))
    (rejection,) = report.rejections
    assert (rejection.id, rejection.reason.value) == ("c", "label-range")
    assert "count from 1" in rejection.sentence


def test_an_unknown_class_is_rejected_and_not_mended(tmp_path: Path) -> None:
    labels = ["Dog", "dog ", "bird", "0.5", "2"]
    rows = "".join(f"{number},{label}\n" for number, label in enumerate(labels))
    report = taken(tmp_path, f"id,label\na,cat\n{rows}", Contract({"label": CLASSES}))
    assert rejected(report) == [(str(number), "label-unknown") for number in range(len(labels))]


def test_a_number_that_is_none_is_rejected(tmp_path: Path) -> None:
    cells = [
        ("", "missing-field"),
        ("x", "wrong-type"),
        ("nan", "not-finite"),
        ("inf", "not-finite"),
        ("1,5", "wrong-type"),
    ]
    rows = "".join(f'{number},"{cell}"\n' for number, (cell, _) in enumerate(cells))
    report = taken(tmp_path, f"id,x\na,1.5\n{rows}", Contract({"x": ScalarField("float32")}))
    assert rejected(report) == [(str(number), reason) for number, (_, reason) in enumerate(cells)]


def test_of_repeated_ids_the_first_is_stored_and_both_rows_are_named(tmp_path: Path) -> None:
    report = taken(tmp_path, "id,label\na,0\nb,1\n\na,0\na,2\n", Contract({"label": LABEL}))
    path = tmp_path / "raw" / "t.csv"
    assert rejected(report) == [("a", "duplicate-id"), ("a", "duplicate-id")]
    for rejection, line in zip(report.rejections, (5, 6), strict=True):
        assert rejection.source == f"{path} line {line}"
        assert f"{path} line 2" in rejection.sentence
    assert stored(tmp_path) == ["a", "b"]


def test_missing_files_links_out_and_folders_are_rejected_and_links_inside_followed(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    (raw / "folder").mkdir(parents=True)
    (raw / "real").write_bytes(b"real")
    (tmp_path / "secret").write_bytes(b"secret")
    (raw / "inside").symlink_to("real")
    (raw / "out").symlink_to("../secret")
    (raw / "through").symlink_to("..")
    (raw / "loop").symlink_to("loop")
    (raw / "dangling").symlink_to("gone")
    os.mkfifo(raw / "pipe")
    names = ["real", "inside", "out", "through/secret", "loop", "dangling", "pipe", "folder", "gone", "REAL"]
    report = taken(
        tmp_path, "path\n" + "".join(f"{name}\n" for name in names), Contract({"data": BytesField()})
    )
    assert rejected(report) == [
        ("out", "outside-source"),
        ("through/secret", "outside-source"),
        ("loop", "unreadable"),
        ("dangling", "missing-file"),
        ("pipe", "not-a-file"),
        ("folder", "not-a-file"),
        ("gone", "missing-file"),
        ("REAL", "missing-file"),
    ]
    assert stored(tmp_path) == ["real", "inside"]


def test_names_with_spaces_and_of_any_length_the_system_takes_are_read(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    deep = "/".join(["d" * 200] * 5)
    (raw / deep).mkdir(parents=True)
    names = [" leading", "trailing ", "two  spaces", "tab\there", "a" * 255, f"{deep}/{'b' * 255}", "é" * 127]
    for name in names:
        (raw / name).write_bytes(name.encode())
    lines = "".join(f'"{name}"\n' for name in [*names, "c" * 256])
    report = taken(tmp_path, "path\n" + lines, Contract({"data": BytesField()}))
    assert rejected(report) == [("c" * 256, "missing-file")]
    assert stored(tmp_path) == names
    assert all(row["data"] == row["id"].encode() for row in ShardDataset(str(tmp_path / "out")))  # type: ignore[attr-defined]


def test_a_very_long_id_is_stored_up_to_the_limit_and_rejected_beyond(tmp_path: Path) -> None:
    report = taken(tmp_path, f"id,label\n{'a' * 65_535},0\n{'b' * 65_536},0\n", Contract({"label": LABEL}))
    assert [reason for _, reason in rejected(report)] == ["bad-id"]
    assert stored(tmp_path) == ["a" * 65_535]


def test_cells_that_look_like_formulas_are_text(tmp_path: Path) -> None:
    taken(tmp_path, 'id,note\n"=1+1","=HYPERLINK(""x"")"\n', Contract({"note": TextField()}))
    (row,) = list(ShardDataset(str(tmp_path / "out")))  # type: ignore[call-overload]
    assert (row["id"], row["note"]) == ("=1+1", '=HYPERLINK("x")')


def test_spaces_in_a_header_are_not_taken_away(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="found 'id', ' label '; spaces around a name count"):
        taken(tmp_path, "id, label \na,0\n", Contract({"label": LABEL}))


def test_the_id_may_be_in_a_column_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / "t.csv"
    path.write_text("id,key,label\na,x,0\na,y,1\n")
    ingest(path, tmp_path / "out", Contract({"label": LABEL}, RecordRules(id="key")), workers=0)
    assert stored(tmp_path) == ["x", "y"]
