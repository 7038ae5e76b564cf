import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import (
    ArrayField,
    BytesField,
    CheckedRecord,
    Contract,
    FileContent,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, TableSource, open_source

LABELS = Contract({"label": LabelField(num_classes=3)})
FILES = Contract({"data": BytesField(), "label": LabelField(num_classes=3)})


def write(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> TableSource:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return TableSource(str(path))


def judged(source: TableSource, contract: Contract, size: int = 2) -> list[CheckedRecord | Rejection]:
    """Return the verdict on every record, read part by part as workers do."""
    source.require(contract)
    verdicts: list[CheckedRecord | Rejection] = []
    for part in source.parts(size):
        for raw in pickle.loads(pickle.dumps(source)).read(pickle.loads(pickle.dumps(part)), contract):
            is_raw = isinstance(raw, RawRecord)
            verdicts.append(contract.judge(raw.id, raw.source, raw.values) if is_raw else raw)
    return verdicts


def outcome(verdict: CheckedRecord | Rejection) -> str:
    return verdict.reason.value if isinstance(verdict, Rejection) else verdict.values[-1].seen


def outcomes(tmp_path: Path, text: str | bytes, contract: Contract = LABELS) -> list[tuple[str, str]]:
    return [(verdict.id, outcome(verdict)) for verdict in judged(write(tmp_path, text), contract)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,label\na.jpg,0\nb.jpg,2\n", [("a.jpg", "0"), ("b.jpg", "2")]),
        (b"\xef\xbb\xbfid,label\r\na.jpg,0\r\nb.jpg,1\r\n", [("a.jpg", "0"), ("b.jpg", "1")]),
        (
            'id,label\n"a, b.jpg",0\n"say ""hi"".jpg",1\n"two\nlines.jpg",2\n',
            [("a, b.jpg", "0"), ('say "hi".jpg', "1"), ("two\nlines.jpg", "2")],
        ),
        ("id,label\na,0.0\nb,1.5\nc,\n", [("a", "label-type"), ("b", "label-type"), ("c", "missing-field")]),
        (
            "id,label\na,nan\nb,1e0\nc,+1\nd, 1\ne,0x1\nf,1_0\ng,\u0661\n",
            [(name, "label-type") for name in "abcdefg"],
        ),
        (
            "id,label\na,-1\nb,9223372036854775808\nc,1\n",
            [("a", "label-range"), ("b", "label-range"), ("c", "1")],
        ),
        ("id,label\na,1\nb,2\nc,3\n", [("a", "1"), ("b", "2"), ("c", "label-range")]),
        ("id,label\na\0b,0\n", [("a\\x00b", "bad-id")]),
        ("id,label\ncafé,0\ncafe\u0301,1\n", [("café", "0"), ("cafe\u0301", "1")]),
        ('id,label\n"=HYPERLINK(""http://x"")",0\n', [('=HYPERLINK("http://x")', "0")]),
    ],
)
def test_every_row_is_judged(tmp_path: Path, text: str | bytes, expected: list[tuple[str, str]]) -> None:
    assert outcomes(tmp_path, text) == expected


def test_ragged_rows_and_blank_ids_are_rejected_by_line_and_blank_lines_counted(tmp_path: Path) -> None:
    source = write(tmp_path, "id,label\na.jpg\nb.jpg,1,extra\n\n,2\n   ,1\nz,0\n")
    name = source.name
    assert [(verdict.id, verdict.source, outcome(verdict)) for verdict in judged(source, LABELS)] == [
        ("a.jpg", f"{name} line 2", "bad-row"),
        ("b.jpg", f"{name} line 3", "bad-row"),
        (f"{name} line 5", f"{name} line 5", "bad-id"),
        (f"{name} line 6", f"{name} line 6", "bad-id"),
        ("z", f"{name} line 7", "0"),
    ]
    assert source.ignored == {"blank line": 1}
    assert source.count() == 5


def test_an_id_over_the_limit_is_rejected_and_not_repeated_whole(tmp_path: Path) -> None:
    (verdict,) = judged(write(tmp_path, "id,label\n" + "a" * 140_000 + ",0\n"), LABELS)
    assert isinstance(verdict, Rejection)
    assert verdict.reason is Reason.BAD_ID
    assert len(verdict.id) < 300


def test_the_line_of_a_record_counts_lines_of_quoted_cells(tmp_path: Path) -> None:
    source = write(tmp_path, 'id,label\n"a\nb",0\nc,1\n')
    (part,) = source.parts(10)
    assert [source.place(mark) for mark in part.marks] == [
        f"{source.name} line 2",
        f"{source.name} line 4",
    ]


def test_files_are_read_from_the_path_column_and_relative_to_the_table(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "1.bin").write_bytes(b"one")
    source = write(tmp_path, "id,path,label\na,x/1.bin,0\nb,x/2.bin,0\nc,,0\n")
    source.require(FILES)
    (part,) = source.parts(10)
    first, second, third = source.read(part, FILES)
    assert isinstance(first, RawRecord)
    assert first.values == {"data": FileContent(b"one", "x/1.bin"), "label": "0"}
    assert isinstance(second, Rejection)
    assert (second.id, second.reason, second.field) == ("b", Reason.MISSING_FILE, "data")
    assert isinstance(third, RawRecord)
    assert third.values["data"] == ""


@pytest.mark.parametrize("header", ["path,label", "data,label", "id,label"])
def test_one_column_may_be_both_id_and_path(tmp_path: Path, header: str) -> None:
    (tmp_path / "1.bin").write_bytes(b"one")
    (verdict,) = judged(write(tmp_path, f"{header}\n1.bin,2\n"), FILES)
    assert isinstance(verdict, CheckedRecord)
    assert (verdict.id, verdict.values[0].payload) == ("1.bin", b"one")


def test_paths_must_not_leave_the_tables_folder_but_absolute_ones_may_stand_in_a_path_column(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_bytes(b"out")
    (tmp_path / "in").mkdir()
    absolute = str(tmp_path / "secret")
    rows = f"../secret,1\nsub/../../secret,1\n{absolute},1\nC:\\x,1\n..\\x,1\n"
    by_id = [outcome(verdict) for verdict in judged(write(tmp_path / "in", f"id,label\n{rows}"), FILES)]
    assert by_id == ["outside-source"] * 5
    by_path = [outcome(verdict) for verdict in judged(write(tmp_path / "in", f"path,label\n{rows}"), FILES)]
    assert by_path == ["outside-source"] * 2 + ["1"] + ["outside-source"] * 2


def test_several_file_fields_each_have_their_column(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"left")
    (tmp_path / "r").write_bytes(b"right")
    contract = Contract({"left": BytesField(), "right": BytesField()})
    (verdict,) = judged(write(tmp_path, "id,right,left\na,r,l\n"), contract)
    assert isinstance(verdict, CheckedRecord)
    assert [checked.payload for checked in verdict.values] == [b"left", b"right"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "id;label\na;0\n",
            "no column 'label' for field 'label'; found 'id;label'; it looks separated by semicolons",
        ),
        ("id, label \na, 0 \n", "found 'id', ' label '; spaces around a name count"),
        ("id,x\na,0\n", "no column 'label' for field 'label'; found 'id', 'x'"),
        ("label\n0\n", "no column 'id' or 'path' that names the records; found 'label'"),
    ],
)
def test_a_missing_column_is_refused_naming_those_there_are(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SourceError) as caught:
        write(tmp_path, text).require(LABELS)
    assert expected in str(caught.value)


def test_a_missing_file_column_names_its_stand_in(tmp_path: Path) -> None:
    contract = Contract({"left": BytesField(), "right": BytesField()})
    with pytest.raises(SourceError, match="no column 'left' or 'path' for field 'left'"):
        write(tmp_path, "id,path\na,b\n").require(contract)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_table_with_a_header_alone_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="the table has no rows"):
        write(tmp_path, "id\n\n", name)


def test_an_empty_json_lines_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the table has no rows"):
        write(tmp_path, "", "t.jsonl")


def test_tabs_separate_a_tsv(tmp_path: Path) -> None:
    (verdict,) = judged(write(tmp_path, "id\tlabel\na,b\t1\n", "t.tsv"), LABELS)
    assert (verdict.id, outcome(verdict)) == ("a,b", "1")


def test_json_lines_hold_values_of_their_own_types(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.array([5, 6], np.int32))
    (tmp_path / "v.npy").write_bytes(file.getvalue())
    contract = Contract(
        {
            "vector": ArrayField("int32", (2,)),
            "meta": JsonField(),
            "caption": TextField(),
            "weight": ScalarField("float64"),
            "label": LabelField(num_classes=3),
        }
    )
    lines = [
        {"id": "a", "vector": [1, 2], "meta": {"k": None}, "caption": "", "weight": 0.5, "label": 1},
        {"id": 7, "vector": "v.npy", "meta": "text", "caption": "é", "weight": 1, "label": "2"},
        {"id": "c", "vector": [1, 2], "meta": None, "caption": "", "weight": 0.5, "label": 1},
        {"id": True, "vector": [1, 2], "meta": 1, "caption": "", "weight": 0.5, "label": 1},
        {"id": "e", "vector": [1, 2], "meta": 1, "caption": 3, "weight": 0.5, "label": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    source = write(tmp_path, text + "[]\n", "t.jsonl")
    verdicts = judged(source, contract)
    assert [(verdict.id, outcome(verdict)) for verdict in verdicts] == [
        ("a", "1"),
        ("7", "2"),
        ("c", "missing-field"),
        (f"{source.name} line 4", "bad-id"),
        ("e", "wrong-type"),
        (f"{source.name} line 6", "bad-row"),
    ]
    decoded = [
        [
            spec.decode(checked.payload)
            for spec, checked in zip(contract.fields.values(), verdict.values, strict=True)
        ]
        for verdict in verdicts
        if isinstance(verdict, CheckedRecord)
    ]
    assert [
        [value.tolist() if isinstance(value, np.ndarray) else value for value in row] for row in decoded
    ] == [
        [[1, 2], {"k": None}, "", 0.5, 1],
        [[5, 6], "text", "é", 1.0, 2],
    ]


def test_a_table_that_changed_since_its_scan_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, "id,label\na,0\nb,1\nc,2\n")
    source.require(LABELS)
    parts = list(source.parts(2))
    write(tmp_path, "id,label\na,0\nx,1\nc,2\n")
    with pytest.raises(SourceError, match="line 3: expected the row of 'b'; the table changed"):
        list(source.read(parts[0], LABELS))
    write(tmp_path, "id,label\na,0\n")
    with pytest.raises(SourceError, match="the table changed"):
        list(source.read(parts[1], LABELS))


def test_a_record_marked_bad_by_the_plan_comes_as_that_rejection(tmp_path: Path) -> None:
    source = write(tmp_path, "id,label\na,0\na,1\n")
    (part,) = source.parts(10)
    repeat = Rejection("a", source.place(part.marks[1]), Reason.DUPLICATE_ID, "again")
    part.bad[1] = repeat
    assert list(source.read(part, LABELS))[1] == repeat


_IDS = st.text(st.sampled_from('ab,"\n\ré '), min_size=1, max_size=4)


@given(st.lists(_IDS | st.none(), min_size=1, max_size=9), st.integers(1, 4), st.sampled_from(["\n", "\r\n"]))
def test_parts_of_any_size_hold_the_whole_table_once(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str | None], size: int, end: str
) -> None:
    lines = ["id,label"] + [
        "" if record_id is None else '"{}",{}'.format(record_id.replace('"', '""'), number % 3)
        for number, record_id in enumerate(ids)
    ]
    kept = [record_id for record_id in ids if record_id is not None]
    path = tmp_path_factory.getbasetemp() / "parts.csv"
    path.write_bytes((end.join(lines) + end).encode())
    if not kept:
        with pytest.raises(SourceError, match="no rows"):
            TableSource(str(path))
        return
    source = TableSource(str(path))
    verdicts = judged(source, LABELS, size)
    expected = [
        (record_id, str(number % 3))
        for number, record_id in enumerate(ids)
        if record_id and record_id.strip()
    ]
    assert [(v.id, v.values[0].seen) for v in verdicts if isinstance(v, CheckedRecord)] == expected
    assert len(verdicts) == len(kept) == source.count()


def test_the_proposal_follows_the_columns(tmp_path: Path) -> None:
    text = "id,path,label,age,height,note,my col\na,x.jpg,0,3,1.5,hi,1\nb,y.jpg,9,-4,2,5,1\n"
    assert write(tmp_path, text).propose() == Contract(
        {
            "image": ImageField(),
            "label": LabelField(num_classes=10),
            "age": ScalarField("int64"),
            "height": ScalarField("float64"),
            "note": TextField(),
        }
    )


def test_the_proposal_takes_names_as_classes_in_byte_order(tmp_path: Path) -> None:
    source = write(tmp_path, "path,label\n1,dog\n2,Cat\n3,\n4,dog\n")
    assert source.propose().fields["label"] == LabelField(classes=("Cat", "dog"))


def test_the_proposal_takes_ids_that_are_files_as_images(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    assert list(write(tmp_path, "id,label\na.jpg,0\n").propose().fields) == ["image", "label"]
    assert list(write(tmp_path, "id,label\nb.jpg,0\n").propose().fields) == ["label"]


@pytest.mark.parametrize("labels", [("0.0", "1.0"), ("-1", "1"), ("", "")])
def test_the_proposal_guesses_no_meaning_into_numbers(tmp_path: Path, labels: tuple[str, str]) -> None:
    source = write(tmp_path, f"id,label\na,{labels[0]}\nb,{labels[1]}\n")
    with pytest.raises(SourceError, match="neither whole numbers from 0 nor names"):
        source.propose()


def test_a_pipe_in_place_of_a_table_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(SourceError, match="not a regular file"):
        open_source(tmp_path / "t.csv")


def test_a_key_that_appears_behind_the_first_hundred_rows_is_found(tmp_path: Path) -> None:
    text = "".join(json.dumps({"id": str(number)}) + "\n" for number in range(120)) + '{"id": "x", "w": 5}\n'
    for spec in (ScalarField("int64", default=0), ScalarField("int64")):
        verdicts = judged(write(tmp_path, text, "t.jsonl"), Contract({"w": spec}), 50)
        last = verdicts[-1]
        assert isinstance(last, CheckedRecord)
        assert last.values[0].payload == (5).to_bytes(8, "little")
        is_kept = spec.default is not None
        assert [isinstance(verdict, CheckedRecord) for verdict in verdicts[:-1]] == [is_kept] * 120
        assert is_kept or {v.reason for v in verdicts if isinstance(v, Rejection)} == {Reason.MISSING_FIELD}
    with pytest.raises(SourceError, match="no column 'v' for field 'v'; found 'id', 'w'"):
        write(tmp_path, text, "t.jsonl").require(Contract({"v": ScalarField("int64")}))
