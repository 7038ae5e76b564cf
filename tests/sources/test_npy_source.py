import io
import os
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy
from row_containers import records

from shardkit.contract import ArrayField, Contract, Field, ImageField, LabelField, ScalarField, TextField
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, open_source
from shardkit.sources.arrays import npz
from shardkit.sources.arrays.npy import NpyContainer
from shardkit.sources.arrays.npz import NpzContainer

Container = NpyContainer | NpzContainer


def save(path: Path, array: Any, **options: Any) -> Path:
    np.save(path, array, **options)
    return path


def raw_npy(shape: tuple[int, ...], descr: Any = "<f4", data: bytes = b"", fortran: bool = False) -> bytes:
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return file.getvalue() + data


def values(path: Path, fields: dict[str, Field], size: int = 2) -> list[Any]:
    found = records(open_source(path), Contract(fields), size)
    assert all(isinstance(record, RawRecord) for record in found)
    return [record.values for record in found if isinstance(record, RawRecord)]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "float64", "int16", "bool"])
def test_each_element_of_the_first_axis_is_a_record(tmp_path: Path, order: Any, dtype: str) -> None:
    array = np.asarray(np.arange(30).reshape(5, 3, 2) % 7, dtype=dtype, order=order)
    path = save(tmp_path / "train.npy", array)
    source = open_source(path)
    contract = source.propose()
    assert contract == Contract({"array": ArrayField(np.dtype(dtype).name, (3, 2))})
    found = records(source, contract)
    assert [record.id for record in found] == [f"train/{number}" for number in range(5)]
    assert found[3].source == f"{path} row 3"
    for record, expected in zip(found, array, strict=True):
        assert isinstance(record, RawRecord)
        assert np.array_equal(record.values["array"], expected)
        assert record.values["array"].base is None  # a copy: it must not keep the file mapped


def test_the_array_serves_the_one_field_whatever_it_is_called(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", np.arange(2 * 4 * 5 * 3, dtype="uint8").reshape(2, 4, 5, 3))
    assert values(path, {"picture": ImageField()})[1]["picture"].shape == (4, 5, 3)
    with pytest.raises(SourceError, match=r"a\.npy: no column 'picture' .*found 'array'"):
        open_source(path).require(Contract({"picture": ImageField(), "label": LabelField(num_classes=2)}))


def test_scalars_and_texts_come_as_plain_values(tmp_path: Path) -> None:
    assert values(save(tmp_path / "a.npy", np.array([3, 0])), {"label": LabelField(num_classes=4)}) == [
        {"label": 3},
        {"label": 0},
    ]
    assert values(save(tmp_path / "b.npy", np.array(["né", "x"])), {"text": TextField()})[0] == {"text": "né"}
    assert values(save(tmp_path / "c.npy", np.array([b"a", b"bc"])), {"text": TextField()})[1] == {
        "text": b"bc"
    }
    assert values(save(tmp_path / "d.npy", np.array([[b"a"], [b"b"]])), {"text": TextField()})[1] == {
        "text": [b"b"]
    }


def test_a_structured_dtype_has_a_column_for_each_member(tmp_path: Path) -> None:
    dtype = np.dtype(
        [("id", "U3"), ("label", "u1"), ("box", "<i2", (2,)), ("at", [("x", "f4"), ("y", ">f4")])]
    )
    path = save(tmp_path / "a.npy", np.array([("a", 1, (2, 3), (0.5, 4)), ("b", 0, (4, 5), (1, 2))], dtype))
    source = open_source(path)
    assert list(source.propose().fields) == ["label", "box", "x", "y"]
    found = records(source, Contract({"box": ArrayField("int16", (2,)), "at_y": ScalarField("float32")}))
    assert [record.id for record in found] == ["a", "b"]
    assert isinstance(found[0], RawRecord)
    assert (found[0].values["box"].tolist(), found[0].values["at_y"]) == ([2, 3], 4.0)


def test_columns_of_the_same_last_component_are_told_apart_by_their_full_names(tmp_path: Path) -> None:
    point = [("x", "u1")]
    path = save(tmp_path / "a.npy", np.array([((1,), (2,))], [("a", point), ("b", point)]))
    assert list(open_source(path).propose().fields) == ["a_x", "b_x"]
    with pytest.raises(SourceError, match="no column 'x'"):
        open_source(path).require(Contract({"x": ScalarField("uint8")}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no .npy array, or cut short: the file ends at byte 0"),
        (b"P4 1 1 ", "no .npy array, or cut short"),
        (b"PK\x03\x04abcdef", "no .npy array: it does not start with the bytes of one"),
        (raw_npy((3, 2), data=bytes(23)), "the array's header asks for 24 bytes; 23 follow it"),
        (raw_npy((3, 2), data=bytes(25)), "the array's header asks for 24 bytes; 25 follow it"),
        (raw_npy((2**62, 2**62)), "the array's header asks for 8507059173023461586"),
        (raw_npy((-1, 2)), "the array's header"),
        (
            raw_npy((), data=bytes(4)),
            "'array' is a single value; expected is an array whose first axis",
        ),
        (raw_npy((2**60, 0)), "a row of 'array' has 0 bytes"),
        (raw_npy((2**40,), "|S0"), "a row of 'array' has 0 bytes"),
        (raw_npy((1,), "|O", bytes(8)), "a.npy: holds pickled Python objects, which are never read"),
        (raw_npy((1,), [("a", "|O")], bytes(8)), "a.npy: holds pickled Python objects, which are never read"),
        (raw_npy((1,), "<c8", bytes(8)), "'array' is of dtype complex64, which no field takes"),
        (raw_npy((1,), "<M8[s]", bytes(8)), "'array' is of dtype datetime64[s], which no field takes"),
        (raw_npy((1,), "nonsense"), "the array's header cannot be read"),
        (b"\x93NUMPY\x01\x00\x04\x00{{{{", "the array's header cannot be read"),
        (
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
            "the array's header has 4294967295 bytes; at most 10000 are read",
        ),
        (b"\x93NUMPY\x03\x00\x00\x00\x00\x00", "the array is of .npy version 3; versions 1 and 2 are read"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused_in_one_line(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    for path in (tmp_path / "a.npy", tmp_path / "a.npz"):
        save_any = np.save if path.suffix == ".npy" else np.savez
        save_any(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
        with pytest.raises(SourceError, match="pickled Python objects"):
            open_source(path)


def test_an_array_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no rows"):
        open_source(save(tmp_path / "a.npy", np.empty((0, 3))))


def test_a_file_that_changed_after_the_scan_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", np.arange(4.0))
    source = open_source(path)
    part = next(source.parts(4))
    save(path, np.arange(3.0))
    with pytest.raises(SourceError, match="changed while it was ingested"):
        list(source.read(part, source.propose()))


def test_only_the_rows_that_are_asked_for_come_into_memory(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", np.zeros((100, 2**18), "float32"))
    contract = Contract({"array": ArrayField("float32", (2**18,))})
    tracemalloc.start()
    try:
        source = open_source(path)
        part = list(source.parts(10))[7]
        for _ in source.read(part, contract):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.fixture(params=["stored", "deflated"])
def save_npz(request: pytest.FixtureRequest) -> Any:
    return np.savez if request.param == "stored" else np.savez_compressed


def test_the_arrays_of_an_npz_are_columns(tmp_path: Path, save_npz: Any) -> None:
    path = tmp_path / "train.npz"
    images = np.arange(7 * 4 * 5 * 3, dtype="uint8").reshape(7, 4, 5, 3)
    save_npz(path, x=images, y=np.arange(7) % 2, by_column=np.asfortranarray(np.arange(14.0).reshape(7, 2)))
    source = open_source(path)
    fields: dict[str, Field] = {
        "x": ArrayField("uint8", (4, 5, 3)),
        "y": ScalarField("int64"),
        "by_column": ArrayField("float64", (2,)),
    }
    assert source.propose() == Contract(fields)
    found = records(source, Contract(fields), 3)
    assert [record.id for record in found] == [f"train/{number}" for number in range(7)]
    for number, record in enumerate(found):
        assert isinstance(record, RawRecord)
        assert np.array_equal(record.values["x"], images[number])
        assert record.values["y"] == number % 2
        assert record.values["by_column"].tolist() == [2 * number, 2 * number + 1]


def test_an_array_of_text_called_id_names_the_records(tmp_path: Path, save_npz: Any) -> None:
    for ids in (np.array(["a", "ü"]), np.array([b"a", "ü".encode()])):
        save_npz(tmp_path / "a.npz", id=ids, label=np.array([0, 1]))
        found = records(open_source(tmp_path / "a.npz"), Contract({"label": LabelField(num_classes=2)}))
        assert [record.id for record in found] == ["a", "ü"]


def test_arrays_of_different_lengths_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=np.zeros(3), x_test=np.zeros(2))
    with pytest.raises(SourceError, match=r"the arrays differ in length \('x_train' 3, 'x_test' 2\)"):
        open_source(tmp_path / "a.npz")


def test_other_members_are_counted_as_passed_over(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(1))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("readme.txt", "hello")
    source = open_source(tmp_path / "a.npz")
    list(source.parts(1))
    assert source.ignored == Counter({"member that is no .npy array": 1})


def test_a_compressed_array_by_columns_is_refused_beyond_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "MAX_INFLATED", 100)
    np.savez_compressed(tmp_path / "a.npz", x=np.asfortranarray(np.zeros((20, 2))))
    with pytest.raises(
        SourceError, match=r"its first axis varies fastest; save it with numpy\.ascontiguousarray"
    ):
        open_source(tmp_path / "a.npz")


def test_a_flipped_bit_in_an_array_is_found_before_any_record_is_read(tmp_path: Path, save_npz: Any) -> None:
    path = tmp_path / "a.npz"
    save_npz(path, x=np.arange(1000))
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.npz member 'x\.npy': "):
        open_source(path)


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive at all" * 9])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.npz: no \.npz archive, or damaged"):
        open_source(tmp_path / "a.npz")


def test_an_archive_without_arrays_and_one_with_a_name_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(SourceError, match=r"holds no \.npy arrays"):
        open_source(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", raw_npy((1,), data=bytes(4)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", raw_npy((1,), data=bytes(4)))
    with pytest.raises(SourceError, match=r"two members are named 'a\.npy'"):
        open_source(path)


def test_memory_follows_what_an_archive_holds_not_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", raw_npy((1000, 2**20)))
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="the array's header asks for 4194304000 bytes; 0 follow it"):
            open_source(path)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", raw_npy((40, 2**18), data=bytes(40 * 2**20)))
        for _ in records(open_source(path), Contract({"a": ArrayField("float32", (2**18,))}), 40)[:1]:
            assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_no_file_stays_open_between_calls(tmp_path: Path, save_npz: Any) -> None:
    save_npz(tmp_path / "a.npz", x=np.zeros((3, 2)))
    save(tmp_path / "a.npy", np.zeros((3, 2)))
    before = os.listdir("/proc/self/fd")
    for name in ("a.npz", "a.npy"):
        source = open_source(tmp_path / name)
        records(source, source.propose())
    assert os.listdir("/proc/self/fd") == before


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("npy")
    np.save(folder / "a.npy", np.arange(12, dtype="u1").reshape(4, 3))
    np.savez(folder / "b.npz", x=np.arange(4), y=np.arange(4.0))
    np.savez_compressed(folder / "c.npz", x=np.arange(4), y=np.arange(4.0))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["a.npy", "b.npz", "c.npz"]),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=4),
    st.integers(0, 1000),
)
def test_any_damage_ends_in_a_source_error_or_plain_rows(
    whole: dict[str, bytes], tmp_path: Path, name: str, changes: list[tuple[int, int]], length: int
) -> None:
    hurt = bytearray(whole[name])
    for position, value in changes:
        hurt[position % len(hurt)] = value
    path = tmp_path / name
    path.write_bytes(hurt[:length])
    try:
        container: Container = (NpyContainer if name.endswith("y") else NpzContainer)(str(path))
        list(container.scan(container.columns, Counter()))
    except SourceError:
        return


def test_an_array_that_no_field_takes_is_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3), spectrum=np.zeros((7, 2), "complex64"))
    source = open_source(path)
    assert source.propose() == Contract({"x": ScalarField("int64")})
    assert values(path, {"x": ScalarField("int64")}) == [{"x": 0}, {"x": 1}, {"x": 2}]
    list(source.parts(2))
    assert source.ignored == {"array 'spectrum' of dtype complex64, which no field takes": 1}
    with pytest.raises(SourceError, match="no column 'spectrum' or 'path' for field 'spectrum'; found 'x'"):
        source.require(Contract({"spectrum": ArrayField("float32", (2,))}))
    np.savez(path, spectrum=np.zeros((3, 2), "complex64"))
    with pytest.raises(SourceError, match="'spectrum' is of dtype complex64, which no field takes"):
        open_source(path)


def test_an_array_of_an_npz_whose_name_was_lost_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, id=np.array(["a", "b"]), x=np.arange(2))
    data = path.read_bytes()
    assert data.count(b"id.npy") == 2
    path.write_bytes(data.replace(b"id.npy", b"id.npx"))
    with pytest.raises(SourceError, match=r"'id\.npx' is an array.*damaged"):
        open_source(str(path))
    path.write_bytes(data[: data.rindex(b"id.npy")] + b"id.npx" + data[data.rindex(b"id.npy") + 6 :])
    with pytest.raises(SourceError, match=r"id\.np"):
        open_source(str(path))
