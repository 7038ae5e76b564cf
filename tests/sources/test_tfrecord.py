import gzip
import os
import shutil
import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from types import ModuleType

import google_crc32c
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from row_containers import records

from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    ImageField,
    LabelField,
    Reason,
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, open_source
from shardkit.sources.tfrecord import example as messages
from shardkit.sources.tfrecord import frames
from shardkit.sources.tfrecord.container import TfRecordContainer
from shardkit.sources.tfrecord.example import Example, ExampleFault

FIXTURES = Path(__file__).parent.parent / "fixtures" / "tfrecord"
SMALL = Contract({"text": TextField(), "number": ScalarField("int64")})
EXAMPLE = b"\x0a\x0d\x0a\x0b\x0a\x01n\x12\x06\x1a\x04\x0a\x02\x01\x02"  # n = int64_list [1, 2]


def mask(data: bytes) -> bytes:
    """Return the masked checksum as TensorFlow's record_writer.h says it is made."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32)


def frame(data: bytes, length: int | None = None) -> bytes:
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + mask(head) + data + mask(data)


def shown(path: Path) -> list[str]:
    found = records(open_source(path), SMALL, 3)
    return [item.id if isinstance(item, RawRecord) else f"{item.reason}: {item.id}" for item in found]


def starts_of(data: bytes) -> list[int]:
    """Return where each record starts, and where the last one ends."""
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 16 + struct.unpack_from("<Q", data, starts[-1])[0])
    return starts


def test_one_value_comes_as_itself_several_as_a_list_and_none_as_none() -> None:
    container = TfRecordContainer(str(FIXTURES / "kinds.tfrecord"))
    assert container.columns == ("bytes", "float", "frames", "int", "many", "name", "none")
    first, second, third = (row.values for row in container.scan(container.columns, Counter()))
    assert first == {
        "bytes": b"\x00\xff",
        "float": 0.5,
        "frames": None,
        "int": -7,
        "many": [1, 2, 3],
        "name": None,
        "none": None,
    }
    assert second["bytes"] == [b"a", b""]
    assert second["float"] == [1.5, 2.5]
    assert second["int"] == [2**63 - 1, -(2**63)]
    assert third == dict.fromkeys(container.columns) | {
        "name": b"clip",
        "frames": [b"\x00", b"\x01", b"\x02"],
    }


def test_features_with_slashes_serve_fields_of_their_last_component_or_with_underscores() -> None:
    source = open_source(FIXTURES / "records.tfrecord")
    assert source.propose() == Contract(
        {
            "caption": TextField(),
            "embedding": ArrayField("float64", (4,)),
            "label": LabelField(classes=("china", "flower")),
            "image": ImageField(),
        }
    )
    for image, label in (("image", "label"), ("encoded", "image_class_label"), ("image_encoded", "anything")):
        contract = Contract({image: ImageField(), label: LabelField(classes=("china", "flower"))})
        first = records(source, contract)[0]
        assert isinstance(first, RawRecord)
        assert first.id == "china/01.jpg"
        jpeg = (FIXTURES.parent / "records" / "china" / "01.jpg").read_bytes()
        assert first.values == {image: jpeg, label: "china"}


def test_a_field_without_a_feature_is_refused_by_name() -> None:
    with pytest.raises(SourceError, match=r"small\.tfrecord: no column 'other' .*found 'number', 'text'"):
        open_source(FIXTURES / "small.tfrecord").require(Contract({"other": TextField()}))


def test_a_list_of_one_serves_an_array_of_one(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(
        frame(EXAMPLE) + frame(EXAMPLE[:1] + b"\x0c\x0a\x0a" + EXAMPLE[4:8] + b"\x05\x1a\x03\x0a\x01\x07")
    )
    found = records(open_source(path), Contract({"n": ArrayField("int64", (-1,))}))
    assert [record.values["n"] for record in found if isinstance(record, RawRecord)] == [[1, 2], [7]]


@pytest.mark.parametrize("name", ["small.tfrecord", "packed.tfrecord.gz", "packed-without-suffix.tfrecord"])
def test_plain_and_compressed_files_give_the_same_told_by_content(name: str) -> None:
    found = records(open_source(FIXTURES / name), SMALL, 3)
    values = [record.values for record in found if isinstance(record, RawRecord)]
    assert values == [{"text": b"x" * number, "number": number} for number in range(7)]
    stem = name.partition(".")[0]
    assert (found[6].id, found[6].source) == (f"{stem}/6", f"{FIXTURES / name} record 6")


def test_a_folder_of_shards_is_one_source_in_the_order_of_names() -> None:
    source = open_source(FIXTURES / "folder")
    expected = [f"train-00000-of-00002/{number}" for number in range(4)]
    expected += [f"train-00001-of-00002/{number}" for number in range(3)]
    assert [record.id for record in records(source, SMALL, 3)] == expected
    assert source.ignored == Counter({"file of notes beside the data": 1})


def test_a_linked_file_is_read_wherever_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "small.tfrecord").symlink_to(FIXTURES / "small.tfrecord")
    assert shown(folder) == shown(FIXTURES / "small.tfrecord")


def feature(name: bytes, number: int) -> bytes:
    """Return an Example with one int64_list."""
    value = bytes((0x1A, 3, 0x0A, 1, number))
    entry = bytes((0x0A, len(name))) + name + bytes((0x12, len(value))) + value
    inside = bytes((0x0A, len(entry))) + entry
    return bytes((0x0A, len(inside))) + inside


def test_a_feature_that_appears_behind_the_first_hundred_records_is_found(tmp_path: Path) -> None:
    path = tmp_path / "late.tfrecord"
    path.write_bytes(frame(feature(b"n", 1)) * 120 + frame(feature(b"a/w", 5)))
    for fields in ({"w": ScalarField("int64", default=0)}, {"w": ScalarField("int64")}):
        source = open_source(path)
        found = records(source, Contract(fields), 50)
        assert [item.values for item in found if isinstance(item, RawRecord)] == [{"w": None}] * 120 + [
            {"w": 5}
        ]
    with pytest.raises(SourceError, match="no column 'x' for field 'x'; found 'a/w', 'n'"):
        open_source(path).require(Contract({"x": ScalarField("int64")}))


def test_a_stamp_tells_of_the_file_of_a_record_only(tmp_path: Path) -> None:
    for name in ("a.tfrecord", "b.tfrecord"):
        (tmp_path / name).write_bytes(frame(EXAMPLE))
    source = open_source(tmp_path)
    contract = Contract({"n": ArrayField("int64", (2,))})
    source.require(contract)
    first, second = source.parts(1)
    before = source.stamps(first, contract) + source.stamps(second, contract)
    os.utime(tmp_path / "b.tfrecord", ns=(1, 1))
    after = source.stamps(first, contract) + source.stamps(second, contract)
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


def test_a_file_cut_at_any_byte_gives_the_records_before_and_names_the_place(tmp_path: Path) -> None:
    data = (FIXTURES / "small.tfrecord").read_bytes()
    starts = starts_of(data)
    path = tmp_path / "cut.tfrecord"
    for cut in range(starts[1], len(data)):
        path.write_bytes(data[:cut])
        whole = sum(start <= cut for start in starts[1:])
        expected = [f"cut/{number}" for number in range(whole)]
        if cut not in starts:
            expected.append(f"incomplete-source: {path} byte {starts[whole]}")
        assert shown(path) == expected


def test_damage_in_one_file_of_a_folder_leaves_the_others_whole(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / "folder", tmp_path / "folder"))
    path = folder / "train.tfrecord-00000-of-00002"
    path.write_bytes(path.read_bytes()[:-1])
    found = shown(folder)
    assert found[2:5] == [
        "train-00000-of-00002/2",
        f"incomplete-source: {path} byte {starts_of((FIXTURES / 'folder' / path.name).read_bytes())[3]}",
        "train-00001-of-00002/0",
    ]
    assert len(found) == 7


def test_a_record_whose_data_fail_their_checksum_is_one_bad_row(tmp_path: Path) -> None:
    data = bytearray((FIXTURES / "small.tfrecord").read_bytes())
    start = starts_of(data)[2]
    data[start + 20] ^= 1
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    found = records(open_source(path), SMALL, 3)
    bad = found[2]
    assert isinstance(bad, Rejection)
    assert (bad.id, bad.reason) == ("a/2", Reason.BAD_ROW)
    assert bad.sentence == f"the data of the record fail their checksum, at byte {start}"
    assert [type(item) for item in found].count(RawRecord) == 6


@pytest.mark.parametrize("offset", [0, 3, 8, 11])
def test_a_length_that_fails_its_checksum_ends_the_file(tmp_path: Path, offset: int) -> None:
    data = bytearray((FIXTURES / "small.tfrecord").read_bytes())
    start = starts_of(data)[2]
    data[start + offset] ^= 0x80
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    assert shown(path) == ["a/0", "a/1", f"incomplete-source: {path} byte {start}"]


def test_a_hole_of_zeros_ends_the_file_where_it_begins(tmp_path: Path) -> None:
    data = (FIXTURES / "small.tfrecord").read_bytes()
    start = starts_of(data)[3]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data[:start] + bytes(len(data) - start))
    assert shown(path) == ["a/0", "a/1", "a/2", f"incomplete-source: {path} byte {start}"]


@pytest.mark.parametrize("cut", [10, 30, 100, 200, 226])
def test_a_compressed_file_that_is_cut_or_damaged_says_so_once_and_last(tmp_path: Path, cut: int) -> None:
    data = (FIXTURES / "packed.tfrecord.gz").read_bytes()
    path = tmp_path / "packed.tfrecord.gz"
    path.write_bytes(data[:cut])
    try:
        found = shown(path)
    except SourceError as error:
        found = [str(error)]
        assert f"{path} byte 0: " in found[0]
    assert ["byte" in item for item in found] == [False] * (len(found) - 1) + [True]


def test_a_record_that_is_no_example_is_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(EXAMPLE) + frame(b"no example") + frame(EXAMPLE))
    found = records(open_source(path), Contract({"n": ArrayField("int64", (2,))}))
    assert isinstance(found[1], Rejection)
    assert (found[1].id, found[1].reason) == ("a/1", Reason.BAD_ROW)
    assert found[1].sentence == f"the record holds no tf.train.Example, at byte {16 + len(EXAMPLE)}"
    assert isinstance(found[2], RawRecord)


@pytest.mark.parametrize("data", [b"id,label\na,1\n", frame(b"no example") * 3, frame(EXAMPLE)[:-1]])
def test_a_file_without_one_readable_example_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    with pytest.raises(
        SourceError, match=r"a\.tfrecord byte 0: .*; expected are TFRecord files of tf\.train\.Example"
    ):
        open_source(path)


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="has no rows"):
        open_source(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("length", [2**31 - 9, 2**31, 2**63])
def test_memory_follows_what_a_record_holds_not_what_it_says(
    tmp_path: Path, pack: type[bytes], length: int
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(pack(frame(EXAMPLE) + frame(b"x" * 100, length)))
    contract = Contract({"n": ArrayField("int64", (2,))})
    tracemalloc.start()
    try:
        found = records(open_source(path), contract)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert [item.id for item in found] == ["a/0", f"{path} byte {16 + len(EXAMPLE)}"]


def test_a_file_that_shrank_after_the_scan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes((FIXTURES / "small.tfrecord").read_bytes())
    source = open_source(path)
    last = list(source.parts(3))[-1]
    path.write_bytes(b"")
    with pytest.raises(SourceError, match=r"start again"):
        list(source.read(last, SMALL))


@pytest.mark.parametrize("module", [messages, frames])
def test_without_its_libraries_the_extra_is_named(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IS_INSTALLED", False)
    with pytest.raises(SourceError, match=r'small\.tfrecord: .* pip install "shardkit\[tfrecord\]"'):
        open_source(FIXTURES / "small.tfrecord")


def test_no_file_stays_open_between_calls() -> None:
    before = os.listdir("/proc/self/fd")
    shown(FIXTURES / "small.tfrecord")
    assert os.listdir("/proc/self/fd") == before


def test_text_serves_as_an_id_a_label_or_a_number_and_stays_bytes_for_bytes(tmp_path: Path) -> None:
    text = b"\x0a\x0c\x0a\x0a\x0a\x01n\x12\x05\x0a\x03\x0a\x0142"
    text = b"\x0a\x0d\x0a\x0b\x0a\x01n\x12\x06\x0a\x04\x0a\x0242"  # n = bytes_list [b"42"]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(text))
    source = open_source(path)
    kinds = {"n": ScalarField("int8")}, {"n": LabelField(classes=("42",))}, {"n": BytesField()}
    values = [records(source, Contract(fields))[0] for fields in kinds]
    assert [value.values["n"] for value in values if isinstance(value, RawRecord)] == ["42", "42", b"42"]


@given(st.binary(max_size=60))
@example(EXAMPLE)
def test_any_bytes_are_an_example_or_a_fault(data: bytes) -> None:
    try:
        found = Example(data)
    except ExampleFault:
        return
    for name in found:
        found.get(name)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tfrecord") / "a.tfrecord"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["small.tfrecord", "packed.tfrecord.gz"]),
    st.lists(st.tuples(st.integers(0, 363), st.integers(0, 255)), max_size=3),
    st.integers(0, 400),
    st.binary(max_size=20),
)
def test_any_damage_ends_in_a_source_error_or_rejections_and_never_in_a_wrong_value(
    damaged: Path, name: str, changes: list[tuple[int, int]], length: int, behind: bytes
) -> None:
    hurt = bytearray((FIXTURES / name).read_bytes())
    for position, value in changes:
        hurt[position % len(hurt)] = value
    damaged.write_bytes(bytes(hurt[:length]) + behind)
    try:
        container = TfRecordContainer(str(damaged))
    except SourceError:
        return
    for row in container.scan(container.columns, Counter()):
        if row.fault is None:
            assert row.values["text"] == b"x" * row.values["number"]
