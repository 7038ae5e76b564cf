import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_containers import OpenEndedRows, Rows, records

from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    Field,
    FileContent,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    RecordRules,
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, RowSource, Source, columns, open_source
from shardkit.sources.container import Row

PNG = b"\x89PNG\r\n\x1a\n"
LABEL = Contract({"label": LabelField(num_classes=3)})
DATA = Contract({"data": BytesField()})


def ids(container: Rows, contract: Contract = LABEL) -> list[str]:
    return [record.id for record in records(RowSource(container), contract)]


def test_a_row_source_is_a_source() -> None:
    assert isinstance(RowSource(Rows("r", [{"label": 1}], ("label",))), Source)


@pytest.mark.parametrize(
    ("columns", "row", "rules", "expected"),
    [
        (("label", "id", "__key__"), {"id": "a", "__key__": "b"}, RecordRules(), "a"),
        (("label", "__key__"), {"__key__": "b"}, RecordRules(), "b"),
        (("label", "id", "name"), {"id": "a", "name": "c"}, RecordRules(id="name"), "c"),
        (("label",), {}, RecordRules(), "rows/0"),
        (("label", "id"), {"id": 7}, RecordRules(), "7"),
        (("label", "id"), {"id": np.int64(7)}, RecordRules(), "7"),
    ],
)
def test_the_id_is_in_the_column_asked_for_or_the_usual_one_or_the_name_of_the_row(
    columns: tuple[str, ...], row: dict[str, Any], rules: RecordRules, expected: str
) -> None:
    contract = Contract(LABEL.fields, rules)
    assert ids(Rows("r", [row | {"label": 1}], columns), contract) == [expected]


def test_an_id_column_that_is_not_there_is_refused_naming_those_there_are() -> None:
    source = RowSource(Rows("r", [{"label": 1}], ("label", "other")))
    with pytest.raises(
        SourceError, match=r"no column 'name', which \[records\] id asks for; found 'label', 'other'"
    ):
        source.require(Contract(LABEL.fields, RecordRules(id="name")))


def test_rows_that_nothing_names_are_refused() -> None:
    source = RowSource(Rows("r", [{"label": 1}], ("label",), stem=None))
    with pytest.raises(SourceError, match="no column 'id' or 'path' that names the records"):
        source.require(LABEL)


def test_a_field_with_a_default_needs_no_column() -> None:
    contract = Contract({"label": LabelField(num_classes=3), "note": TextField(default="none")})
    (record,) = records(RowSource(Rows("r", [{"label": 1}], ("label",))), contract)
    assert isinstance(record, RawRecord)
    assert record.values == {"label": 1}
    with pytest.raises(SourceError, match="no column 'note' for field 'note'"):
        RowSource(Rows("r", [{"label": 1}], ("label",))).require(Contract({"note": TextField()}))


@pytest.mark.parametrize("late", ["w", "label"])
def test_a_value_whose_column_comes_late_is_never_replaced_by_the_default(late: str) -> None:
    contract = Contract({"w": LabelField(num_classes=9, default=0)})
    rows = OpenEndedRows("r", [{"x": 1}, {"x": 2, late: 5}], ("x",))
    assert [item.values for item in records(RowSource(rows), contract) if isinstance(item, RawRecord)] == [
        {"w": None},
        {"w": 5},
    ]


def test_a_default_field_takes_its_own_late_column_before_a_stand_in() -> None:
    contract = Contract({"w": LabelField(num_classes=9, default=0)})
    rows = OpenEndedRows("r", [{"label": 1}, {"label": 2, "w": 5}], ("label",))
    found = records(RowSource(rows), contract)
    assert [item.values for item in found if isinstance(item, RawRecord)] == [{"w": None}, {"w": 5}]


def test_a_field_takes_its_own_late_column_before_a_stand_in_though_it_has_no_default() -> None:
    rows = OpenEndedRows("r", [{"cls": 1}, {"cls": 1, "y": 2}], ("cls",))
    found = records(RowSource(rows), Contract({"y": LabelField(num_classes=3)}))
    assert [item.values for item in found if isinstance(item, RawRecord)] == [{"y": None}, {"y": 2}]


def test_a_needed_column_that_comes_late_is_found_and_one_that_no_row_has_is_refused() -> None:
    rows = OpenEndedRows("r", [{"x": 1}, {"x": 2, "note": "n"}], ("x",))
    found = records(RowSource(rows), Contract({"note": TextField()}))
    assert [item.values for item in found if isinstance(item, RawRecord)] == [{"note": None}, {"note": "n"}]
    with pytest.raises(SourceError, match="no column 'other' for field 'other'; found 'x', 'note'"):
        RowSource(rows).require(Contract({"other": TextField()}))


def test_rows_are_not_looked_through_where_the_first_have_all_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[OpenEndedRows] = []
    monkeypatch.setattr(OpenEndedRows, "complete", lambda rows: asked.append(rows) or rows)
    rows = OpenEndedRows("r", [{"label": 1, "w": 2}], ("label", "w"))
    contract = Contract({"label": LabelField(num_classes=3), "w": ScalarField("int64", default=0)})
    source = RowSource(rows)
    source.require(contract)
    assert asked == []
    for _ in range(2):
        source.require(Contract(contract.fields | {"v": ScalarField("int64", default=0)}))
        assert asked == [rows]


def test_more_names_than_there_can_be_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_COLUMNS", 2)
    assert columns.gather_columns([["a"], ["b", "a"]], "r") == ("a", "b")
    with pytest.raises(SourceError, match="r: its rows have over 2 different columns, such as 'c'"):
        columns.gather_columns([["a"], ["b"], ["c"]], "r")


def test_an_absolute_path_is_opened_inside_of_the_source_only(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "in").write_bytes(b"in")
    (tmp_path / "secret").write_bytes(b"out")
    (tmp_path / "raw" / "link").symlink_to(tmp_path / "secret")
    rows = [{"data": str(tmp_path / path)} for path in ("raw/in", "secret", "raw/link", "raw/../secret")]
    source = RowSource(Rows(str(tmp_path / "raw" / "r"), rows, ("data",)))
    first, *others = records(source, DATA)
    assert isinstance(first, RawRecord)
    assert first.values["data"].data == b"in"
    assert [item.reason for item in others if isinstance(item, Rejection)] == [Reason.OUTSIDE_SOURCE] * 3
    (part,) = source.parts(9)
    assert [stamp.bytes for stamp in source.stamps(part, DATA)] == [3] * 4


def test_a_container_without_rows_is_refused() -> None:
    with pytest.raises(SourceError, match="r: the source has no rows"):
        RowSource(Rows("r", [], ("label",)))


def test_bytes_are_the_content_and_text_is_the_path_of_it(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"from a file")
    rows = [
        {"data": b"raw"},
        {"data": FileContent(b"named", "n")},
        {"data": "one"},
        {"data": "two"},
        {"data": None},
    ]
    first, second, third, fourth, fifth = records(RowSource(Rows(str(tmp_path / "r"), rows, ("data",))), DATA)
    assert [first, second, third] == [
        RawRecord("rows/0", "r row 0", {"data": b"raw"}),
        RawRecord("rows/1", "r row 1", {"data": FileContent(b"named", "n")}),
        RawRecord("rows/2", "r row 2", {"data": FileContent(b"from a file", "one")}),
    ]
    assert isinstance(fourth, Rejection)
    assert (fourth.id, fourth.reason, fourth.field) == ("rows/3", Reason.MISSING_FILE, "data")
    assert fifth == RawRecord("rows/4", "r row 4", {"data": None})


def test_a_path_column_names_the_records_where_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")
    container = Rows(str(tmp_path / "r"), [{"data": "x.bin"}], ("data",), path_columns=("data",))
    assert ids(container, DATA) == ["x.bin"]


def test_paths_start_at_a_container_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")
    (record,) = records(RowSource(Rows(str(tmp_path), [{"data": "x.bin"}], ("data",))), DATA)
    assert isinstance(record, RawRecord)
    assert record.values == {"data": FileContent(b"x", "x.bin")}


def test_damage_has_the_code_and_the_name_that_the_container_gives_it() -> None:
    damage = Row(1, 1, {}, "cut at byte 512", Reason.INCOMPLETE_SOURCE, "a.tar byte 512")
    _, second = records(RowSource(Rows("r", [{"label": 1}, damage], ("label",))), LABEL)
    assert second == Rejection("a.tar byte 512", "r row 1", Reason.INCOMPLETE_SOURCE, "cut at byte 512")


def test_a_bad_id_is_rejected_under_the_best_name_there_is() -> None:
    rows = [
        {"id": "", "label": 1},
        {"id": "a\0b", "label": 1},
        {"id": 1.5, "label": 1},
        {"id": None, "label": 1},
    ]
    found = records(RowSource(Rows("r", rows, ("id", "label"))), LABEL)
    assert [(record.id, record.reason) for record in found if isinstance(record, Rejection)] == [
        ("rows/0", Reason.BAD_ID),
        ("a\\x00b", Reason.BAD_ID),
        ("rows/2", Reason.BAD_ID),
        ("rows/3", Reason.BAD_ID),
    ]


def test_a_row_that_is_another_one_than_it_was_is_refused() -> None:
    container = Rows("r", [{"id": "a", "label": 1}], ("id", "label"))
    source = RowSource(container)
    source.require(LABEL)
    (part,) = source.parts(2)
    container.rows = [{"id": "b", "label": 1}]
    with pytest.raises(SourceError, match="r row 0: expected the row of 'a'; the source changed"):
        list(source.read(part, LABEL))
    container.rows = []
    with pytest.raises(SourceError, match="the source changed"):
        source.stamps(part, LABEL)


def test_the_stamp_of_a_row_changes_with_the_container_and_with_the_file_it_names(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(b"r")
    (tmp_path / "x.bin").write_bytes(b"1234")
    rows = [{"data": "x.bin"}, {"data": "gone"}, {"data": b"here"}, {"data": "../out"}]
    source = RowSource(Rows(str(tmp_path / "r"), rows, ("data",), path_columns=("data",), stem="s"))
    contract = Contract(DATA.fields)
    source.require(contract)
    (part,) = source.parts(9)
    before = source.stamps(part, contract)
    assert [stamp.bytes for stamp in before] == [3 + 4, 3, 3, 3]
    assert source.stamps(part, contract) == before
    os.utime(tmp_path / "x.bin", ns=(1, 1))
    after = source.stamps(part, contract)
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, True, True]
    (tmp_path / "r").write_bytes(b"longer")
    last = source.stamps(part, contract)
    assert [one == other for one, other in zip(after, last, strict=True)] == [False] * 4
    assert all(0 <= stamp.changed < 2**63 for stamp in last)


def test_the_proposal_follows_the_values() -> None:
    row = {
        "id": "a",
        "jpg": FileContent(PNG, "a.jpg"),
        "cls": 2,
        "blob": b"\0\1",
        "truth": True,
        "count": 3,
        "weight": 0.5,
        "word": "w",
        "extra": {"k": 1},
        "vector": np.zeros((2, 3), np.float32),
        "a b": 1,
    }
    other = row | {"cls": 0, "vector": np.zeros((2, 4), np.float32)}
    contract = RowSource(Rows("r", [row, other], tuple(row))).propose()
    assert contract == Contract(
        {
            "image": ImageField(),
            "label": LabelField(num_classes=3),
            "blob": BytesField(),
            "truth": ScalarField("bool"),
            "count": ScalarField("int64"),
            "weight": ScalarField("float64"),
            "word": TextField(),
            "extra": JsonField(),
            "vector": ArrayField("float32", (2, -1)),
        }
    )


def test_columns_that_share_a_better_name_keep_their_own() -> None:
    rows = [{"jpg": PNG, "png": PNG, "label": 0, "cls": 0}]
    assert list(RowSource(Rows("r", rows, ("jpg", "png", "label", "cls"))).propose().fields) == [
        "jpg",
        "png",
        "label",
        "cls",
    ]


def test_one_damaged_picture_does_not_make_a_column_bytes() -> None:
    rows = [{"photo": PNG}, {"photo": b"<html>"}, {"photo": PNG}, {"photo": None}]
    assert RowSource(Rows("r", rows, ("photo",))).propose() == Contract({"photo": ImageField()})


def test_values_behind_the_first_rows_count_too() -> None:
    rows: list[dict[str, Any]] = [{"x": 1, "data": b"1"}] * 100 + [{"x": 1.5, "data": b"1"}]
    assert RowSource(Rows("r", rows, ("x", "data"))).propose() == Contract(
        {"x": ScalarField("float64"), "data": BytesField()}
    )


def test_an_array_of_a_type_that_no_contract_has_is_refused_as_one() -> None:
    rows = [{"x": np.zeros(2, np.complex64)}]
    assert RowSource(Rows("r", rows, ("x",))).propose() == Contract({"x": JsonField()})


def test_arrays_among_other_values_are_json() -> None:
    rows = [{"x": np.zeros(2)}, {"x": [1, None]}]
    assert RowSource(Rows("r", rows, ("x",))).propose() == Contract({"x": JsonField()})


def test_columns_whose_names_cannot_name_a_field_are_remarked() -> None:
    row: dict[str, Any] = {"my col": 1, "2x": 1, "é": 1, "checksum": 1, "a.b": 1, "": 1, "x": 1}
    source = RowSource(Rows("r", [row], tuple(row)))
    assert source.remarks == {}
    assert source.propose() == Contract({"x": ScalarField("int64")})
    assert list(source.remarks) == ["my col", "2x", "é", "checksum", "a.b", ""]
    for column, remark in source.remarks.items():
        assert remark.startswith(f"left out: field name {column!r} is not allowed: use a letter")
        assert remark.endswith("rename it")


def test_where_no_column_can_name_a_field_the_error_says_why() -> None:
    with pytest.raises(
        SourceError, match=r"no column to make a field of; found 'my col'; 'my col' is left out: field"
    ):
        RowSource(Rows("r", [{"my col": 1}], ("my col",))).propose()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["18446744073709551615", "18446744073709551613"], ScalarField("uint64")),
        ([2**64 - 1, 2**64 - 3], ScalarField("uint64")),
        ([2**63], ScalarField("uint64")),
        ([2**63 - 1, -(2**63)], ScalarField("int64")),
        ([2**63, -1], JsonField()),
        (["9223372036854775808", "-1"], TextField()),
        (["18446744073709551616"], TextField()),
        ([2**64], JsonField()),
        (["9" * 5000], TextField()),
        ([10**5000], JsonField()),
        (["0.5", "9007199254740993"], TextField()),
        ([0.5, 2**53 + 1], JsonField()),
        (["0.5", "9007199254740992"], ScalarField("float64")),
        (["0.5", 2**70], ScalarField("float64")),
    ],
)
def test_no_number_is_proposed_a_type_that_loses_its_digits(values: list[Any], expected: Field) -> None:
    rows = [{"x": value} for value in values]
    source = RowSource(Rows("r", rows, ("x",)))
    assert source.propose() == Contract({"x": expected})
    assert ("x" in source.remarks) is (expected.kind != "scalar")


@pytest.mark.parametrize("replaces", [False, True])
def test_a_file_that_changes_while_it_is_ingested_is_refused(tmp_path: Path, replaces: bool) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,label\n" + "".join(f"{row},cat\n" for row in range(6)))
    source = open_source(str(table))
    contract = Contract.from_dict({"fields": {"label": {"type": "label", "classes": ["cat", "dog"]}}})
    source.require(contract)
    parts = source.parts(2)
    first, second = next(parts), next(parts)
    assert len(list(source.read(first, contract))) == 2
    changed = table.read_text().replace("cat", "dog")
    if replaces:
        (tmp_path / "new.csv").write_text(changed)
        (tmp_path / "new.csv").rename(table)
    else:
        table.write_text(changed)
    with pytest.raises(SourceError, match="changed while it was ingested; start again"):
        list(source.read(second, contract))
    with pytest.raises(SourceError, match="changed while it was ingested; start again"):
        next(parts)
