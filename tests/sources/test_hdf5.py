import os
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from row_containers import records

from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    Field,
    ImageField,
    LabelField,
    Reason,
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, open_source
from shardkit.sources.arrays import hdf5
from shardkit.sources.arrays.hdf5 import Hdf5Container

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.h5"


def write(path: Path, **data: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file[name.replace("__", "/")] = values
    return path


def values(path: Path, fields: dict[str, Field], size: int = 2) -> list[dict[str, Any]]:
    found = records(open_source(path), Contract(fields), size)
    assert all(isinstance(record, RawRecord) for record in found)
    return [record.values for record in found if isinstance(record, RawRecord)]


def refusal(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_data_sets_with_the_same_first_axis_are_columns(path: Path) -> None:
    pixels = np.arange(5 * 4 * 3 * 3, dtype="uint8").reshape(5, 4, 3, 3)
    write(path, images=pixels, meta__label=np.arange(5) % 2, meta__score=np.arange(5, dtype=">f4") / 2)
    source = open_source(path)
    assert source.propose() == Contract(
        {
            "images": ArrayField("uint8", (4, 3, 3)),
            "label": LabelField(num_classes=2),
            "score": ScalarField("float32"),
        }
    )
    found = records(source, Contract({"images": ImageField(), "meta_label": LabelField(num_classes=2)}))
    assert [record.id for record in found] == [f"train/{number}" for number in range(5)]
    assert found[3].source == f"{path} row 3"
    assert isinstance(found[3], RawRecord)
    assert np.array_equal(found[3].values["images"], pixels[3])
    assert found[3].values["meta_label"] == 1


def test_text_of_fixed_and_varying_length_comes_as_text(path: Path) -> None:
    write(path, id=["a", "ü", "c"], fixed=np.array([b"x", b"yz", b"\xff"]), several=[["a", "b"]] * 3)
    found = records(open_source(path), Contract({"fixed": TextField(), "several": TextField()}))
    assert [record.id for record in found] == ["a", "ü", "c"]
    assert [record.values["fixed"] for record in found if isinstance(record, RawRecord)] == [
        "x",
        "yz",
        b"\xff",
    ]
    assert isinstance(found[0], RawRecord)
    assert found[0].values["several"] == ["a", "b"]


def test_arrays_of_varying_length_are_arrays_or_the_bytes_of_files(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, dtype in (("jpeg", "uint8"), ("tokens", "int32")):
            data = file.create_dataset(name, (2,), h5py.vlen_dtype(dtype))
            data[0], data[1] = np.arange(3, dtype=dtype), np.arange(1, dtype=dtype)
    found = values(path, {"jpeg": BytesField(), "tokens": ArrayField("int32", (-1,))})
    assert [value["jpeg"] for value in found] == [b"\x00\x01\x02", b"\x00"]
    assert [value["tokens"].tolist() for value in found] == [[0, 1, 2], [0]]


def test_enumerations_come_as_the_names_of_their_values(path: Path) -> None:
    kind = h5py.enum_dtype({"dog": 1, "cat": 0}, "i1")
    with h5py.File(path, "w") as file:
        file.create_dataset("kind", data=np.array([1, 0, 1], "i1"), dtype=kind)
        file.create_dataset("pair", data=np.array([[1, 0]] * 3, "i1"), dtype=kind)
        file["ok"] = np.array([True, False, True])
    assert open_source(path).propose().fields["kind"] == LabelField(classes=("cat", "dog"))
    found = values(
        path, {"kind": LabelField(classes=("cat", "dog")), "ok": ScalarField("bool"), "pair": TextField()}
    )
    assert [value["kind"] for value in found] == ["dog", "cat", "dog"]
    assert found[0] == {"kind": "dog", "ok": True, "pair": ["dog", "cat"]}


def test_members_of_compound_data_sets_are_columns(path: Path) -> None:
    dtype = np.dtype([("id", "S4"), ("at", [("x", "f4"), ("y", "f8")]), ("box", "i2", (2,))])
    write(path, rows=np.array([(b"a", (1, 2), (3, 4)), (b"b", (5, 6), (7, 8))], dtype))
    found = values(
        path, {"rows_at_y": ScalarField("float64"), "box": ArrayField("int16", (2,)), "rows_id": TextField()}
    )
    assert (found[1]["rows_at_y"], found[1]["box"].tolist(), found[1]["rows_id"]) == (6.0, [7, 8], b"b")


def test_a_file_of_pytables_is_read() -> None:
    source = open_source(FIXTURES / "hdf5" / "tables.h5")
    contract = Contract(
        {
            "images": ArrayField("uint8", (4, 3, 3)),
            "label": LabelField(num_classes=2),
            "box": ArrayField("float32", (4,)),
        }
    )
    found = records(source, contract)
    assert isinstance(found[4], RawRecord)
    assert found[4].values["images"].ravel().tolist() == list(range(144, 180))
    assert (found[4].values["label"], found[4].values["box"].tolist()) == (0, [4.0, 0.0, 1.0, 2.0])
    assert source.ignored == Counter({"data set 'extra/names' with another number of rows": 1})


def test_what_holds_no_rows_or_no_plain_values_is_passed_over_and_counted(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(3)
        file["version"] = 7
        file["wave"] = np.zeros(3, "complex64")
        file["target"] = file["x"].ref
        file.create_dataset("refs", (3,), h5py.ref_dtype)[:] = [file["x"].ref] * 3
        file["again"] = h5py.SoftLink("/x")
    source = open_source(path)
    assert source.propose() == Contract({"x": ScalarField("float64")})
    list(source.parts(3))
    assert source.ignored == Counter(
        {
            "data set 'refs' of references into the file, which no field takes": 1,
            "data set 'target' without rows": 1,
            "data set 'version' without rows": 1,
            "data set 'wave' of type complex64, which no field takes": 1,
        }
    )


def test_the_length_of_most_data_sets_counts_and_a_tie_is_refused(path: Path) -> None:
    write(path, x=np.zeros(4), y=np.zeros(4), classes=np.zeros(2))
    assert open_source(path).count() == 4
    write(path, x_train=np.zeros(4), x_test=np.zeros(2))
    assert refusal(path) == (
        "the data sets differ in their number of rows ('x_test' 2, 'x_train' 4); save those of one split in a file of "
        "their own"
    )


def test_a_file_without_data_sets_is_refused(path: Path) -> None:
    write(path, version=1)
    assert (
        refusal(path) == "the file holds no data sets with rows; passed over: data set 'version' without rows"
    )


def test_what_leads_out_of_the_file_is_refused(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.h5", x=np.zeros(3))
    with h5py.File(path, "w") as file:
        file["deep/link"] = h5py.ExternalLink(str(other), "/x")
    assert refusal(path) == f"/deep/link is a link into the file '{other}'; copy the data into this one"
    (tmp_path / "raw").write_bytes(bytes(24))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (3,), "f8", external=[(str(tmp_path / "raw"), 0, 24)])
    assert refusal(path) == "data set 'x' lies in other files; copy the data into this one"
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(other), "x", (3,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    assert refusal(path) == "data set 'x' is assembled from other data sets; copy the data into this one"


def test_groups_that_contain_themselves_end(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a/x"] = np.zeros(2)
        file["a/loop"] = file["/"]
    assert open_source(path).count() == 2


def test_values_that_were_never_written_are_not_made_up(path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (100,), "f8", chunks=(10,))
        data[:35] = 1
    assert refusal(path).startswith(
        "of data set 'x', 6 of 10 chunks were never written, so its values would be made up"
    )
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (10**12, 10**3), "f8")
    assert refusal(path).startswith("of data set 'x', 1 of 1 chunks were never written")


def test_chunks_and_rows_beyond_memory_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, x=np.zeros((2, 100)))
    monkeypatch.setattr("shardkit.sources.arrays.columns.MAX_FILE_BYTES", 799)
    assert refusal(path) == "a row of 'x' has 800 bytes; expected are 1 to 799"
    monkeypatch.setattr(hdf5, "MAX_CHUNK_BYTES", 799)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((2, 100)), chunks=(1, 100))
    assert refusal(path) == "data set 'x' has chunks of 800 bytes; at most 799 are read"


def test_a_damaged_chunk_costs_its_rows_and_no_others(path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", data=np.arange(40.0), chunks=(10,), fletcher32=True)
        file["id"] = [f"r{number}" for number in range(40)]
        offset = data.id.get_chunk_info(1).byte_offset
    with open(path, "r+b") as raw:
        raw.seek(offset + 3)
        raw.write(b"\xff")
    found = records(open_source(path), Contract({"x": ScalarField("float64")}), 7)
    assert [item.id for item in found] == [f"r{number}" for number in range(40)]
    bad = [item for item in found if isinstance(item, Rejection)]
    assert [item.id for item in bad] == [f"r{number}" for number in range(10, 20)]
    assert bad[0].reason is Reason.BAD_ROW
    assert bad[0].sentence.startswith("data set 'x' cannot be read: ")


@pytest.mark.parametrize("cut", [0, 1, 8, 100, 1000, 4095])
def test_a_file_that_is_cut_short_is_refused_in_one_line(path: Path, cut: int) -> None:
    write(path, x=np.arange(1000.0), label=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:cut])
    assert refusal(path).startswith("no HDF5 file, damaged or cut short: ")


def test_what_is_no_file_is_refused_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.h5")
    assert refusal(tmp_path / "a.h5") == "not a regular file"


def test_rows_are_read_in_batches_of_bounded_memory(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=np.zeros((200, 2**16), "float32"), chunks=(1, 2**16), compression="gzip"
        )
    tracemalloc.start()
    try:
        source = open_source(path)
        for part in source.parts(100):
            for _ in source.read(part, Contract({"x": ArrayField("float32", (2**16,))})):
                pass
        assert tracemalloc.get_traced_memory()[1] < 24_000_000
    finally:
        tracemalloc.stop()


def test_no_file_stays_open_between_calls(path: Path) -> None:
    write(path, x=np.zeros(3))
    before = os.listdir("/proc/self/fd")
    source = open_source(path)
    records(source, source.propose())
    assert os.listdir("/proc/self/fd") == before


def test_without_h5py_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, x=np.zeros(3))
    monkeypatch.setattr(hdf5, "h5py", None)
    assert refusal(path) == 'reading it takes h5py: pip install "shardkit[hdf5]"'


def test_a_flip_in_the_structures_ends_in_a_source_error_or_rows(path: Path) -> None:
    write(path, x=np.arange(3, dtype="u1"), id=np.array([b"a", b"b", b"c"]))
    whole = path.read_bytes()
    for position in range(0, len(whole), 29):
        hurt = bytearray(whole)
        hurt[position] ^= 0x55
        path.write_bytes(hurt)
        try:
            container = Hdf5Container(str(path))
            for _ in zip(range(100), container.scan(container.columns, Counter()), strict=False):
                pass
        except SourceError:
            continue


def test_large_values_of_varying_length_are_read_a_few_at_a_time(path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (60,), h5py.vlen_dtype("uint8"))
        for number in range(60):
            data[number] = np.full(2**20 if number > 20 else 10, number, "uint8")
    contract = Contract({"x": BytesField()})
    tracemalloc.start()
    try:
        source = open_source(path)
        part = next(source.parts(60))
        sizes = [
            len(record.values["x"]) for record in source.read(part, contract) if isinstance(record, RawRecord)
        ]
        assert sizes == [10] * 21 + [2**20] * 39
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
