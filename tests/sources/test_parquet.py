import datetime
import decimal
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_containers import records

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
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, open_source
from shardkit.sources.arrow.parquet import ParquetSource

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hf"
FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns) if isinstance(columns, dict) else columns
    pq.write_table(table, path, **options)
    return path


def values_of(path: Path, fields: dict[str, Field], size: int = 2) -> list[dict[str, Any]]:
    found = records(open_source(path), Contract(fields), size)
    assert all(isinstance(record, RawRecord) for record in found)
    return [record.values for record in found if isinstance(record, RawRecord)]


def test_the_hub_layout_of_hugging_face_is_read_with_its_images_and_classes() -> None:
    source = open_source(FIXTURES / "hub")
    contract = source.propose()
    assert contract == Contract(
        {
            "image": ImageField(),
            "label": LabelField(classes=("cat", "dog")),
            "score": ScalarField("float32"),
            "embedding": ArrayField("float32", (3,)),
            "tokens": ArrayField("int32", (-1,)),
            "matrix": ArrayField("int16", (2, 2)),
            "meta": JsonField(),
            "caption": TextField(),
            "flag": ScalarField("bool"),
        }
    )
    assert source.count() == 5
    found = records(source, contract)
    assert source.ignored == {"file of notes beside the data": 1}
    assert [record.id for record in found] == [
        "data/train-00000-of-00002/0",
        "data/train-00000-of-00002/1",
        "data/train-00000-of-00002/2",
        "data/train-00001-of-00002/0",
        "data/train-00001-of-00002/1",
    ]
    fourth = found[3]
    assert isinstance(fourth, RawRecord)
    assert fourth.source == f"{FIXTURES}/hub/data/train-00001-of-00002.parquet row 0"
    assert isinstance(fourth.values["image"], FileContent)
    assert fourth.values["image"].name == "picture 3.png"
    assert fourth.values["matrix"].tolist() == [[3, 1], [2, 3]]
    assert fourth.values["tokens"].tolist() == [0, 1, 2]
    assert fourth.values["meta"] == {"a": 3, "b": "x"}
    assert [fourth.values[name] for name in ("label", "score", "caption", "flag")] == [
        1,
        1.5,
        "number 3",
        True,
    ]
    assert contract.check({"id": "x"} | fourth.values).values[1].seen == "dog"


PLAIN: list[tuple[str, pa.Array, list[Any]]] = [
    ("bool", pa.array([True, None]), [True, None]),
    ("uint8", pa.array([255, None], pa.uint8()), [255, None]),
    ("int64", pa.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1]),
    ("uint64", pa.array([2**64 - 1, 0], pa.uint64()), [2**64 - 1, 0]),
    ("float16", pa.array(np.array([0.5, 1], np.float16)), [0.5, 1.0]),
    ("float64", pa.array([1.5, None]), [1.5, None]),
    ("text", pa.array(["é", None]), ["é", None]),
    ("large text", pa.array(["é", ""], pa.large_string()), ["é", ""]),
    ("bytes", pa.array([b"\0", None]), [b"\0", None]),
    ("fixed bytes", pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"]),
    ("null", pa.nulls(2), [None, None]),
    ("dictionary", pa.array(["x", None]).dictionary_encode(), ["x", None]),
    ("decimal", pa.array([decimal.Decimal("1.50"), None]), ["1.50", None]),
    ("date", pa.array([datetime.date(2020, 2, 29), None]), ["2020-02-29", None]),
    ("timestamp", pa.array([1, None], pa.timestamp("ms")), ["1970-01-01 00:00:00.001", None]),
    ("time", pa.array([1, None], pa.time32("s")), ["00:00:01.000", None]),
    ("file", pa.array([{"bytes": b"1", "path": None}, None], FILE), [FileContent(b"1", ""), None]),
    ("struct", pa.array([{"a": 1, "b": [1, 2]}, None]), [{"a": 1, "b": [1, 2]}, None]),
    ("texts", pa.array([["a", None], []]), [["a", None], []]),
    ("structs", pa.array([[{"a": 1}], None]), [[{"a": 1}], None]),
    ("numbers with nulls", pa.array([[1, None], [2]]), [[1, None], [2]]),
    ("ragged", pa.array([[[1], [2, 3]], None]), [[[1], [2, 3]], None]),
]


@pytest.mark.parametrize(("column", "expected"), [row[1:] for row in PLAIN], ids=[row[0] for row in PLAIN])
def test_each_arrow_type_becomes_plain_values(tmp_path: Path, column: pa.Array, expected: list[Any]) -> None:
    path = write(tmp_path / "t.parquet", {"x": column})
    found = values_of(path, {"x": JsonField()})
    assert [row["x"] for row in found] == expected
    for row, value in zip(found, expected, strict=True):
        assert type(row["x"]) is type(value)


ARRAYS: list[tuple[str, pa.Array, list[Any], str]] = [
    ("list", pa.array([[1, 2], []], pa.list_(pa.int16())), [[1, 2], []], "int16"),
    ("large list", pa.array([[1.5]], pa.large_list(pa.float32())), [[1.5]], "float32"),
    ("fixed list", pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8(), 2)), [[1, 2], [3, 4]], "uint8"),
    ("bools", pa.array([[True, False]]), [[True, False]], "bool"),
    ("matrix", pa.array([[[1, 2], [3, 4]]]), [[[1, 2], [3, 4]]], "int64"),
    (
        "tensor",
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype=np.int32).reshape(2, 2, 2)),
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        "int32",
    ),
]


@pytest.mark.parametrize(
    ("column", "expected", "dtype"), [row[1:] for row in ARRAYS], ids=[row[0] for row in ARRAYS]
)
def test_lists_of_numbers_become_arrays_of_their_dtype(
    tmp_path: Path, column: pa.Array, expected: list[Any], dtype: str
) -> None:
    path = write(tmp_path / "t.parquet", {"x": column})
    found = values_of(path, {"x": ArrayField(dtype, (-1,))}, size=1)  # each row is read on its own
    assert [row["x"].tolist() for row in found] == expected
    assert {row["x"].dtype.name for row in found} == {dtype}


def test_a_null_among_lists_is_none(tmp_path: Path) -> None:
    column = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.uint8(), 2))
    found = values_of(write(tmp_path / "t.parquet", {"x": column}), {"x": ArrayField("uint8", (2,))}, size=3)
    assert [None if row["x"] is None else row["x"].tolist() for row in found] == [[1, 2], None, [3, 4]]


@pytest.mark.parametrize(
    "column",
    [pa.array([1], pa.duration("s")), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))],
    ids=["duration", "map"],
)
def test_a_type_that_no_field_takes_is_refused_naming_the_column(tmp_path: Path, column: pa.Array) -> None:
    path = write(tmp_path / "t.parquet", {"ok": pa.array([1]), "x": column})
    assert values_of(path, {"ok": ScalarField("int64")}) == [{"ok": 1}]
    with pytest.raises(
        SourceError, match=r"t\.parquet: column 'x' is of Arrow type .*, which no field takes"
    ):
        values_of(path, {"x": JsonField()})


def test_paths_in_place_of_bytes_are_read_and_name_the_records(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    structs = pa.array([{"bytes": None, "path": "a.bin"}], FILE)
    for column in (structs, pa.array(["a.bin"])):
        source = open_source(write(tmp_path / "t.parquet", {"data": column}))
        (record,) = records(source, Contract({"data": BytesField()}))
        assert record == RawRecord(
            "a.bin", f"{tmp_path}/t.parquet row 0", {"data": FileContent(b"a", "a.bin")}
        )


def test_where_some_files_have_bytes_the_rows_have_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    column = pa.array([{"bytes": b"x", "path": "x.bin"}, {"bytes": None, "path": "a.bin"}], FILE)
    source = open_source(write(tmp_path / "t.parquet", {"data": column}))
    found = records(source, Contract({"data": BytesField()}))
    assert [record.id for record in found] == ["t/0", "t/1"]
    assert [record.values["data"].data for record in found if isinstance(record, RawRecord)] == [b"x", b"a"]


@pytest.mark.parametrize("group", [1, 3, 4, 100])
@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_parts_of_any_size_hold_all_rows_once_whatever_the_row_groups(
    tmp_path: Path, group: int, size: int
) -> None:
    for number, (first, last) in enumerate([(0, 4), (4, 4), (4, 11)]):
        write(
            tmp_path / f"{number}.parquet",
            {
                "id": pa.array([f"r{row}" for row in range(first, last)], pa.string()),
                "x": pa.array(range(first, last), pa.int64()),
            },
            row_group_size=group,
        )
    source = open_source(tmp_path)
    found = records(source, Contract({"x": ScalarField("int64")}), size)
    assert [(record.id, record.values["x"]) for record in found if isinstance(record, RawRecord)] == [
        (f"r{row}", row) for row in range(11)
    ]
    assert source.count() == 11


def test_rows_span_several_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {"x": pa.array(range(10_000))})
    assert [row["x"] for row in values_of(path, {"x": ScalarField("int64")}, 3000)] == list(range(10_000))


def test_files_are_in_the_order_of_the_bytes_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/1", "a/9", "a/10", "B/1", "é"):
        write(tmp_path / f"{name}.parquet", {"x": pa.array([1])})
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part.crc").touch()
    source = open_source(tmp_path)
    assert isinstance(source, ParquetSource)
    found = records(source, Contract({"x": ScalarField("int64")}))
    assert [record.id for record in found] == ["B/1/0", "a/10/0", "a/9/0", "b/1/0", "é/0"]
    assert source.ignored == {"file of notes beside the data (_*)": 1, "hidden file": 1}


def test_files_whose_columns_differ_are_refused_naming_both(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": pa.array([1])})
    write(tmp_path / "b.parquet", {"x": pa.array(["1"])})
    with pytest.raises(
        SourceError, match=r"a\.parquet and .*b\.parquet differ: column 'x' is int64 .* and string in"
    ):
        open_source(tmp_path)
    write(tmp_path / "b.parquet", {"x": pa.array([1]), "y": pa.array([1])})
    with pytest.raises(SourceError, match="column 'y' is missing in the first and int64 in the second"):
        open_source(tmp_path)


def test_a_column_without_any_value_agrees_with_any_type(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": pa.nulls(1)})
    write(tmp_path / "b.parquet", {"x": pa.array([1])})
    assert values_of(tmp_path, {"x": ScalarField("int64")}) == [{"x": None}, {"x": 1}]


def test_a_contract_that_asks_for_a_column_there_is_not_is_refused(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "t.parquet", {"x": pa.array([1])}))
    with pytest.raises(SourceError, match="no column 'y' for field 'y'; found 'x'"):
        source.require(Contract({"y": TextField()}))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(SourceError, match="two columns are named 'x'"):
        open_source(write(tmp_path / "t.parquet", table))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"t\.parquet: the file has no rows"):
        open_source(write(tmp_path / "t.parquet", {"x": pa.array([], pa.int64())}))


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_file_that_is_cut_is_refused_in_one_line(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "t.parquet", {"x": pa.array(range(100))})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(SourceError, match=r"t\.parquet: cannot be read as Parquet; it is damaged") as caught:
        open_source(path)
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_is_found_where_pages_have_checksums(tmp_path: Path) -> None:
    data = [bytes([number]) * 1000 for number in range(100)]
    path = write(
        tmp_path / "t.parquet",
        {"x": pa.array(data)},
        write_page_checksum=True,
        compression="none",
        use_dictionary=False,
    )
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(bytes([50]) * 100) + 500] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(
        SourceError, match=r"t\.parquet: cannot be read as Parquet; it is damaged.*[Cc][Rr][Cc]"
    ):
        values_of(path, {"x": BytesField()})


def test_a_file_that_changed_since_its_scan_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {"x": pa.array(range(10))})
    contract = Contract({"x": ScalarField("int64")})
    source = open_source(path)
    source.require(contract)
    (part,) = source.parts(100)
    write(path, {"x": pa.array(range(9))})
    with pytest.raises(SourceError, match=r"t\.parquet: has 9 rows now, and had 10; it changed"):
        list(source.read(part, contract))


def test_text_that_is_not_utf8_is_refused_naming_the_file(tmp_path: Path) -> None:
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(SourceError, match=r"t\.parquet: the file is damaged: .*UTF8"):
        values_of(write(tmp_path / "t.parquet", {"x": text}), {"x": TextField()})


def test_damage_anywhere_ends_in_values_or_one_error(tmp_path: Path) -> None:
    original = (FIXTURES / "hub" / "data" / "train-00000-of-00002.parquet").read_bytes()
    fields: dict[str, Field] = {
        "image": BytesField(),
        "meta": JsonField(),
        "tokens": ArrayField("int32", (-1,)),
    }
    path = tmp_path / "t.parquet"
    outcomes = set()
    for at in range(0, len(original), 23):
        path.write_bytes(original[:at] + bytes([original[at] ^ 0xFF]) + original[at + 1 :])
        try:
            records(open_source(path), Contract(fields))
            outcomes.add("values")
        except SourceError as error:
            outcomes.add("one line" if "\n" not in str(error) else str(error))
    assert outcomes == {"values", "one line"}


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {"x": pa.array([1])})
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from shardkit.sources import open_source\n"
        "from shardkit.errors import SourceError\n"
        "try: open_source(sys.argv[1])\n"
        "except SourceError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert run.stdout == (
        f'{path}: reading it takes pyarrow; install it with pip install "shardkit[parquet]"\n'
    )


def test_pyarrow_is_imported_only_for_what_needs_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,x\na,1\n")
    code = (
        "import sys\n"
        "from shardkit.sources import open_source\n"
        "open_source(sys.argv[1])\n"
        "print('pyarrow' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.csv")], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"


def test_the_stamps_change_when_a_file_that_holds_the_part_does(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "hub", tmp_path / "hub")
    contract = Contract({"caption": TextField()})
    source = open_source(tmp_path / "hub")
    source.require(contract)
    parts = list(source.parts(2))
    files = ["train-00000-of-00002", "train-00001-of-00002"]
    holders = [{row.split("/")[1] for row in part.ids} for part in parts]
    assert holders[0] == {files[0]}
    assert holders[-1] == {files[1]}
    before = [source.stamps(part, contract) for part in parts]
    assert len(before[0]) == 2
    os.utime(tmp_path / "hub" / "data" / f"{files[1]}.parquet", ns=(1, 1))
    after = [source.stamps(part, contract) for part in parts]
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        files[1] not in holder for holder in holders
    ]


def test_an_absolute_path_in_a_downloaded_file_opens_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "in").write_bytes(b"i")
    paths = [str(tmp_path / "secret"), str(tmp_path / "raw" / "in")]
    structs = [{"bytes": None, "path": path} for path in paths]
    path = write(tmp_path / "raw" / "t.parquet", {"id": ["a", "b"], "x": pa.array(structs, FILE), "y": paths})
    for field in ("x", "y"):
        first, second = records(open_source(path), Contract({field: BytesField()}))
        assert isinstance(first, Rejection)
        assert (first.id, first.reason) == ("a", Reason.OUTSIDE_SOURCE)
        assert isinstance(second, RawRecord)
        assert second.values[field].data == b"i"


def test_a_linked_folder_is_read_too(tmp_path: Path) -> None:
    write(tmp_path / "raw" / "a" / "x.parquet", {"n": [1]})
    (tmp_path / "raw" / "b").symlink_to("a")
    found = records(open_source(tmp_path / "raw"), Contract({"n": ScalarField("int64")}))
    assert [item.id for item in found] == ["a/x/0", "b/x/0"]
