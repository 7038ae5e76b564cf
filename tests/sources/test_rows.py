import csv
import io
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.errors import SourceError
from shardkit.sources.container import Row
from shardkit.sources.tables import rows as rows_module
from shardkit.sources.tables.rows import CsvTable, JsonTable


def read_csv(path: Path, data: bytes) -> list[Row]:
    path.write_bytes(data)
    table = CsvTable.open(str(path), ",")
    return list(table.scan(table.columns, Counter()))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def test_each_row_knows_its_byte_and_its_line(table: Path) -> None:
    found = read_csv(table, b'id,x\r\na,1\r\n\r\n"b\r\nb",2\r\n\xc3\xa9,3')
    assert found == [
        Row(2, 6, {"id": "a", "x": "1"}),
        Row(4, 13, {"id": "b\r\nb", "x": "2"}),
        Row(6, 23, {"id": "é", "x": "3"}),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_name(table: Path) -> None:
    table.write_bytes(b"\xef\xbb\xbfid,x\na,1\n")
    rows = CsvTable.open(str(table), ",")
    assert (rows.columns, rows.start) == (("id", "x"), (8, 2))


def test_spaces_around_names_and_values_are_kept(table: Path) -> None:
    assert read_csv(table, b"id, x \na, 1 \n") == [Row(2, 7, {"id": "a", " x ": " 1 "})]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"a", "the row has 1 cell; the header has 2 columns"),
        (b"a,1,2", "the row has 3 cells; the header has 2 columns"),
        (b'"a"b,1', "line 2 cannot be split into cells"),
        (b'"a\nb"c,1', "lines 2 to 3 cannot be split into cells"),
    ],
)
def test_a_faulty_row_does_not_stop_the_rows_behind_it(table: Path, line: bytes, fault: str) -> None:
    first, second = read_csv(table, b"id,x\n" + line + b"\nz,9\n")
    assert first.fault is not None
    assert fault in first.fault
    assert (second.values, second.fault) == ({"id": "z", "x": "9"}, None)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "line 1: the table is empty"),
        (b"id,x,id\n", "line 1: two columns are named 'id'"),
        (b"id\na\ncaf\xe9\n", "line 3: not UTF-8 (byte 0xe9 at position 4)"),
        (b"\xff\xfei\0d\0", "line 1: the table is UTF-16"),
        (b"\xfe\xff\0i\0d", "line 1: the table is UTF-16"),
        (b'id,x\na,1\n"b,2\nc,3\n', "line 3: a quote opens in this row and never closes"),
        (b'"id,x\na,1\n', "line 1: a quote opens"),
    ],
)
def test_a_table_that_cannot_be_trusted_is_refused_naming_the_line(
    table: Path, data: bytes, text: str
) -> None:
    with pytest.raises(SourceError) as caught:
        read_csv(table, data)
    assert f"{table} {text}" in str(caught.value)


def test_unnamed_columns_may_come_more_than_once(table: Path) -> None:
    (row,) = read_csv(table, b",id,,\n0,a,,\n")
    assert (row.values["id"], row.fault) == ("a", None)


def test_a_cell_larger_than_the_limit_of_csv_is_read_and_one_over_ours_refused(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = csv.field_size_limit()
    (row,) = read_csv(table, b"id\n" + b"a" * 200_000 + b"\n")
    assert len(row.values["id"]) == 200_000
    monkeypatch.setattr(rows_module, "MAX_FIELD_CHARACTERS", 10)
    with pytest.raises(SourceError, match="line 3: a cell has over 10 characters"):
        read_csv(table, b"id\na\n" + b"a" * 11 + b"\n")
    assert csv.field_size_limit() == limit


def test_a_line_without_end_does_not_fill_the_memory(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 100)
    with pytest.raises(SourceError, match="line 2: the line has over 100 bytes"):
        read_csv(table, b"id\n" + b"a" * 101)


def test_a_lone_carriage_return_in_a_row_is_a_faulty_row(table: Path) -> None:
    first, second = read_csv(table, b"id,x\na\rb,1\nc,2\n")
    assert first.fault is not None
    assert second.values["id"] == "c"


_CELLS = st.lists(st.text(st.sampled_from('ab,"\n\ré😀 \t'), max_size=5), min_size=2, max_size=2)


@given(st.lists(_CELLS, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_reading_from_any_row_on_gives_the_same_rows_as_reading_the_whole(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]], end: str, has_mark: bool
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "x"], *cells])
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes((b"\xef\xbb\xbf" if has_mark else b"") + text.getvalue().encode())
    table = CsvTable.open(str(path), ",")
    whole = list(table.scan(table.columns, Counter()))
    assert [list(row.values.values()) for row in whole] == cells
    marks = [row.mark for row in whole]
    for position, row in enumerate(whole):
        assert list(table.read(row.locator, marks[position:], table.columns)) == whole[position:]
        assert list(table.read(row.locator, [row.mark], table.columns)) == [row]


def test_a_scan_holds_the_columns_asked_for_and_counts_blank_lines(table: Path) -> None:
    table.write_bytes(b"id,x,y\na,1,2\n\nb,3,4\n")
    ignored: Counter[str] = Counter()
    rows = list(CsvTable.open(str(table), ",").scan(("y",), ignored))
    assert [row.values for row in rows] == [{"y": "2"}, {"y": "4"}]
    assert ignored == {"blank line": 1}


def read_jsonl(path: Path, data: bytes) -> list[Row]:
    path.write_bytes(data)
    table = JsonTable.open(str(path))
    return list(table.scan(table.columns, Counter()))


def test_json_lines_are_objects_with_their_byte_and_line(tmp_path: Path) -> None:
    found = read_jsonl(
        tmp_path / "t.jsonl", b'\xef\xbb\xbf{"id": "a"}\r\n \n{"id": "\xc3\xa9", "x": [1, {}]}'
    )
    assert found == [Row(1, 3, {"id": "a"}), Row(3, 18, {"id": "é", "x": [1, {}]})]


def test_the_columns_of_json_lines_are_the_keys_of_the_first_hundred_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n\nnot json\n{"b": 1, "a": 2}\n' + '{"a": 1}\n' * 97 + '{"c": 1}\n')
    assert JsonTable.open(str(path)).columns == ("a", "b")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"[1]", "the line holds a JSON list; expected is an object"),
        (b'"a"', "the line holds a JSON str"),
        (b'{"id": "a", "id": "b"}', "same key twice"),
        (b'{"x": NaN}', "NaN"),
        (b'{"x": 1e999}', "too large"),
        (b'{"x": ', "not JSON at character"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"x": ' + b"9" * 5000 + b"}", "over 4300 digits"),
    ],
)
def test_a_line_that_is_no_strict_json_object_is_a_faulty_row(
    tmp_path: Path, line: bytes, fault: str
) -> None:
    first, second = read_jsonl(tmp_path / "t.jsonl", line + b'\n{"id": "z"}\n')
    assert first.fault is not None
    assert fault in first.fault
    assert second == Row(2, len(line) + 1, {"id": "z"})
