import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from row_containers import records

from shardkit import ShardDataset, ingest
from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    FileContent,
    ImageField,
    JsonField,
    LabelField,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, open_source
from shardkit.sources.arrow.hf_dataset import HfDatasetSource

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hf"
CAPTION = Contract({"caption": TextField()})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURES / "selected", tmp_path / "saved")


def rewrite(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def make(folder: Path, table: pa.Table, batch: int = 1000) -> Path:
    """Lay a table out as `Dataset.save_to_disk` does."""
    folder.mkdir()
    with pa.ipc.new_stream(folder / "data.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_saved_data_set_is_read_with_its_images_and_classes() -> None:
    source = open_source(FIXTURES / "plain")
    assert isinstance(source, HfDatasetSource)
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
    assert [record.id for record in found] == [f"data-00000-of-00001/{row}" for row in range(5)]
    second = found[1]
    assert isinstance(second, RawRecord)
    assert second.source == f"{FIXTURES}/plain/data-00000-of-00001.arrow row 1"
    assert isinstance(second.values["image"], FileContent)
    assert second.values["image"].name == "picture 1.png"
    assert second.values["meta"] == {"a": 1, "b": None}
    assert second.values["embedding"].tolist() == [1, 1, 2]
    assert contract.check({"id": "x"} | second.values).values[1].seen == "dog"


def test_the_rows_of_several_files_follow_one_another() -> None:
    found = records(open_source(FIXTURES / "selected"), CAPTION, 5)
    assert [(record.id, record.values["caption"]) for record in found if isinstance(record, RawRecord)] == [
        ("data-00000-of-00002/0", "number 3"),
        ("data-00000-of-00002/1", "number 0"),
        ("data-00001-of-00002/0", "number 4"),
    ]


def test_a_folder_of_splits_is_refused_naming_them() -> None:
    with pytest.raises(SourceError) as caught:
        open_source(FIXTURES / "splits")
    path = FIXTURES / "splits"
    assert str(caught.value) == f"{path}: holds several splits; ingest one of them: {path}/train, {path}/test"
    assert open_source(path / "test").count() == 1


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_parts_of_any_size_hold_all_rows_once_whatever_the_batches(
    tmp_path: Path, batch: int, size: int
) -> None:
    path = make(tmp_path / "d", pa.table({"id": [f"r{row}" for row in range(10)], "x": range(10)}), batch)
    found = records(open_source(path), Contract({"x": ScalarField("int64")}), size)
    assert [(record.id, record.values["x"]) for record in found if isinstance(record, RawRecord)] == [
        (f"r{row}", row) for row in range(10)
    ]


def test_a_large_batch_is_made_plain_piece_by_piece(tmp_path: Path) -> None:
    path = make(tmp_path / "d", pa.table({"x": [[row] for row in range(1000)]}))
    found = records(open_source(path), Contract({"x": ArrayField("int64", (1,))}), 300)
    assert [record.values["x"].tolist() for record in found if isinstance(record, RawRecord)] == [
        [row] for row in range(1000)
    ]


def test_a_dictionary_encoded_column_is_read(tmp_path: Path) -> None:
    path = make(tmp_path / "d", pa.table({"x": pa.array(["a", "b", "a"]).dictionary_encode()}), 1)
    assert [
        record.values
        for record in records(open_source(path), Contract({"x": TextField()}))
        if isinstance(record, RawRecord)
    ] == [
        {"x": "a"},
        {"x": "b"},
        {"x": "a"},
    ]


def test_paths_without_bytes_name_the_records_and_are_read(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    path = make(tmp_path / "d", pa.table({"data": pa.array([{"bytes": None, "path": "a.bin"}], kind)}))
    (path / "a.bin").write_bytes(b"a")
    (record,) = records(open_source(path), Contract({"data": BytesField()}))
    assert record == RawRecord("a.bin", f"{path}/data.arrow row 0", {"data": FileContent(b"a", "a.bin")})


def test_class_names_that_are_no_classes_are_passed_over(tmp_path: Path) -> None:
    path = make(tmp_path / "d", pa.table({"label": [0, 1]}))
    feature = {"label": {"_type": "ClassLabel", "names": ["a", "a"]}}
    (path / "dataset_info.json").write_text(json.dumps({"features": feature}))
    assert open_source(path).propose() == Contract({"label": LabelField(num_classes=2)})


def test_an_indices_mapping_is_refused(saved: Path) -> None:
    rewrite(saved, {"_indices_data_files": [{"filename": "indices.arrow"}]})
    with pytest.raises(SourceError, match=r"reordered by an indices mapping.*flatten_indices\(\)"):
        open_source(saved)
    rewrite(saved, {"_indices_data_files": None})
    assert open_source(saved).count() == 3


@pytest.mark.parametrize(
    "listed", [None, [], [{}], [{"filename": "../x.arrow"}], [{"filename": "/x"}], {"a": 1}, [1]]
)
def test_a_state_that_lists_no_files_of_the_folder_is_refused(saved: Path, listed: Any) -> None:
    rewrite(saved, {"_data_files": listed})
    with pytest.raises(SourceError, match=r"state\.json: lists "):
        open_source(saved)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\udcff"])
def test_a_state_that_is_no_json_object_is_refused(saved: Path, text: str) -> None:
    (saved / "state.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=r"state\.json: holds "):
        open_source(saved)


def test_a_missing_file_is_refused(saved: Path) -> None:
    (saved / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(
        SourceError, match=r"data-00001-of-00002\.arrow: the file, which state.json lists, is missing"
    ):
        open_source(saved)


def test_a_file_that_is_cut_anywhere_is_refused(saved: Path) -> None:
    path = saved / "data-00000-of-00002.arrow"
    whole = path.read_bytes()
    for kept in range(0, len(whole), 41):
        path.write_bytes(whole[:kept])
        with pytest.raises(SourceError, match=r"data-00000-of-00002\.arrow: ") as caught:
            records(open_source(saved), CAPTION)
        assert "\n" not in str(caught.value)


def test_a_flipped_byte_anywhere_ends_in_values_or_one_error(saved: Path) -> None:
    path = saved / "data-00000-of-00002.arrow"
    whole = path.read_bytes()
    contract = Contract({"image": BytesField(), "meta": JsonField(), "tokens": ArrayField("int32", (-1,))})
    outcomes = set()
    for at in range(0, len(whole), 23):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            records(open_source(saved), contract)
            outcomes.add("values")
        except SourceError as error:
            outcomes.add("one line" if "\n" not in str(error) else str(error))
    assert outcomes == {"values", "one line"}


def test_files_whose_columns_differ_are_refused_naming_both(tmp_path: Path) -> None:
    path = make(tmp_path / "d", pa.table({"x": [1]}))
    other = make(tmp_path / "e", pa.table({"y": [1]}))
    shutil.copy(other / "data.arrow", path / "more.arrow")
    rewrite(path, {"_data_files": [{"filename": "data.arrow"}, {"filename": "more.arrow"}]})
    with pytest.raises(SourceError, match=r"data\.arrow and .*more\.arrow differ in their columns"):
        open_source(path)


def test_a_file_that_changed_since_its_scan_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "d", pa.table({"x": range(10)}))
    contract = Contract({"x": ScalarField("int64")})
    source = open_source(path)
    source.require(contract)
    (part,) = source.parts(100)
    shutil.rmtree(path)
    make(path, pa.table({"x": range(9)}))
    with pytest.raises(SourceError, match=r"data\.arrow: ends before row 10, which it had; it changed"):
        list(source.read(part, contract))


@pytest.mark.parametrize("folder", ["plain", "hub"])
def test_workers_that_were_forked_read_what_the_parent_would(tmp_path: Path, folder: str) -> None:
    for workers in (0, 2):
        ingest(FIXTURES / folder, tmp_path / str(workers), workers=workers, records_per_shard=2)
    one, other = (ShardDataset(str(tmp_path / str(workers))) for workers in (0, 2))
    assert list(one.ids) == list(other.ids)
    assert len(one.ids) == 5
    assert [one.read(row)["image"] for row in range(5)] == [other.read(row)["image"] for row in range(5)]
    assert [one[row]["label"] for row in range(5)] == [0, 1, 0, 1, 0]


def test_a_stamp_has_the_bytes_of_binary_columns_and_tells_of_the_files_of_a_part(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    files = pa.array([{"bytes": b"12345", "path": "p"}, {"bytes": None, "path": "p"}, None], kind)
    blobs = pa.array([b"12", None, b"1"], pa.large_binary())
    folder = make(tmp_path / "x", pa.table({"file": files, "blob": blobs, "caption": ["a", "b", "c"]}))
    source = open_source(folder)
    source.require(CAPTION)
    for size in (1, 9):
        stamps = [stamp for part in source.parts(size) for stamp in source.stamps(part, CAPTION)]
        assert [stamp.bytes for stamp in stamps] == [7, 0, 1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", '{"_data_files": 5}'),
        ("state.json", '{"_data_files": [5]}'),
        ("dataset_dict.json", '{"splits": 5}'),
    ],
)
def test_a_description_that_lists_no_files_is_refused_in_one_line(
    tmp_path: Path, name: str, content: str
) -> None:
    for each in ("state.json", "dataset_info.json"):
        (tmp_path / each).write_text("{}")
    (tmp_path / name).write_text(content)
    with pytest.raises(SourceError, match=r"lists|splits"):
        open_source(str(tmp_path))
