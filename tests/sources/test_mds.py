import io
import json
import os
import re
import shutil
import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from row_containers import records

from shardkit.contract import (
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
from shardkit.sources.container import Row
from shardkit.sources.mds.container import MdsContainer
from shardkit.sources.mds.values import find_decoder

FIXTURES = Path(__file__).parent.parent / "fixtures" / "mds"
SMALL = Contract({"text": TextField(), "number": ScalarField("int64")})


def copy(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    shutil.copytree(FIXTURES / name, folder)
    return folder


def edit_index(folder: Path, **changes: Any) -> Path:
    """Change keys of the first shard's entry; a key of a table in it is written ``table__key``."""
    path = folder / "index.json"
    index = json.loads(path.read_text())
    for key, value in changes.items():
        table = index["shards"][0]
        *outer, last = key.split("__")
        for step in outer:
            table = table[step]
        table[last] = value
    path.write_text(json.dumps(index))
    return folder


def rows_of(folder: Path) -> list[Row]:
    container = MdsContainer(str(folder))
    return list(container.scan(container.columns, Counter()))


def ids_and_reasons(folder: Path) -> list[str]:
    found = records(open_source(folder), SMALL, 3)
    return [item.id if isinstance(item, RawRecord) else f"{item.reason}: {item.id}" for item in found]


def test_every_encoding_gives_the_value_that_was_written() -> None:
    first, second, third = (row.values for row in rows_of(FIXTURES / "kinds"))
    assert (first["bytes"], first["str"], first["int"]) == (b"\x00\x00\xff", "№ 0", 0)
    assert (second["uint8"], second["float16"], second["float64"]) == (254, 0.25, 1 / 3)
    assert (second["str_int"], second["str_float"], second["str_decimal"]) == (10**30 + 1, 1 / 7, "1.1")
    assert third["array"].dtype == np.uint16
    assert third["array"].tolist() == [[0, 1, 2]]
    assert third["typed"].dtype == np.int16
    assert third["typed"].shape == (300, 1)
    assert third["shaped"].tolist() == [[2.0] * 3] * 2
    assert third["json"] == {"number": 2, "none": None}
    jpeg = (FIXTURES.parent / "records" / "flower" / "04.jpg").read_bytes()
    assert third["jpeg"] == jpeg
    assert third["jpeg_array"] == [jpeg] * 3
    assert [len(third[name]) for name in ("jpegs", "pngs")] == [2, 2]
    for name in ("pil", "png"):
        assert np.array(Image.open(io.BytesIO(third[name]))).tolist() == [[[80] * 3] * 3] * 2


def test_a_column_id_names_the_records_and_the_proposal_follows_the_encodings() -> None:
    source = open_source(FIXTURES / "records")
    contract = source.propose()
    assert contract.fields["image"] == ImageField()
    assert contract.fields["label"] == LabelField(classes=("china", "flower"))
    assert [record.id for record in records(source, contract)][:2] == ["china/01.jpg", "china/03.jpg"]
    assert source.count() == 12
    assert source.ignored == Counter()


@pytest.mark.parametrize("name", ["gz", "bz2"])
def test_compressed_shards_give_the_same_as_plain_ones(name: str) -> None:
    found = records(open_source(FIXTURES / name), SMALL, 3)
    values = [record.values for record in found if isinstance(record, RawRecord)]
    assert values == [{"text": "x" * number, "number": number} for number in range(7)]
    assert found[0].id == "shard.00000/0"
    assert found[0].source.endswith(f"shard.00000.mds.{name} sample 0")


@pytest.mark.parametrize("name", ["zstd", "br", "snappy"])
def test_a_compression_that_needs_a_library_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(
        SourceError, match=rf"index.json shard 0: compressed with '{name}'.*unpack the shards"
    ):
        open_source(FIXTURES / name)


def test_a_shard_that_lies_there_unpacked_needs_no_decompression(tmp_path: Path) -> None:
    folder = edit_index(
        copy(tmp_path, "merged"), compression="zstd:3", zip_data={"basename": "gone", "bytes": 1}
    )
    assert len(ids_and_reasons(folder)) == 6


def test_shards_of_a_merged_index_are_named_with_their_subfolder() -> None:
    assert ids_and_reasons(FIXTURES / "merged") == [
        f"{part}/shard.00000/{n}" for part in "ab" for n in range(3)
    ]


def test_pickled_columns_are_refused_whole() -> None:
    with pytest.raises(SourceError, match="column 'object' holds pickled objects, which may run code"):
        open_source(FIXTURES / "pickled")


def test_a_folder_with_another_index_is_no_mds(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"chunks": []}')
    (tmp_path / "a.bin").write_bytes(b"x")
    assert [part.ids for part in open_source(tmp_path).parts(9)] == [["a.bin", "index.json"]]


def test_a_flipped_bit_costs_the_shard_whose_hash_it_breaks(tmp_path: Path) -> None:
    folder = copy(tmp_path, "gz")
    path = folder / "shard.00000.mds.gz"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = records(open_source(folder), SMALL, 3)
    assert isinstance(found[0], Rejection)
    assert found[0].reason is Reason.INCOMPLETE_SOURCE
    assert found[0].id == f"{path} byte 0"
    assert found[0].sentence == "the shard's md5 is not the one in the index; its 5 samples are left out"
    assert [item.id for item in found[1:]] == [f"shard.00001/{number}" for number in range(2)]


def test_a_shard_cut_at_any_byte_gives_the_samples_before_the_cut(tmp_path: Path) -> None:
    folder = copy(tmp_path, "merged")
    path = folder / "a" / "shard.00000.mds"
    data = path.read_bytes()
    ends = struct.unpack_from("<4I", data, 4)[1:]
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        expected = [f"a/shard.00000/{number}" for number in range(whole)]
        lost = struct.unpack_from("<I", data, 4 * (1 + whole))[0] if cut >= 20 else 0
        expected.append(f"incomplete-source: {path} byte {lost}")
        expected += [f"b/shard.00000/{number}" for number in range(3)]
        assert ids_and_reasons(folder) == expected


def test_a_compressed_shard_without_hash_that_is_cut_gives_the_samples_before_the_cut(tmp_path: Path) -> None:
    folder = edit_index(copy(tmp_path, "gz"), zip_data__hashes={})
    path = folder / "shard.00000.mds.gz"
    for cut in (0, 5, 120, 140):
        path.write_bytes((FIXTURES / "gz" / path.name).read_bytes()[:cut])
        found = ids_and_reasons(folder)
        assert [item.startswith(f"incomplete-source: {path} byte") for item in found].count(True) == 1
        assert found[-2:] == [f"shard.00001/{number}" for number in range(2)]


def test_a_compressed_shard_whose_own_checksum_fails_is_left_out(tmp_path: Path) -> None:
    folder = edit_index(copy(tmp_path, "gz"), zip_data__hashes={})
    path = folder / "shard.00000.mds.gz"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    assert ids_and_reasons(folder)[0] == f"incomplete-source: {path} byte 0"


@pytest.mark.parametrize(
    ("position", "raw", "sentence"),
    [
        (0, 4, "the shard says it has 4 samples; the index says 3; its 3 samples are left out"),
        (4, 2, "the shard's offsets do not rise; its 3 samples are left out"),
        (12, 2**32 - 1, "the shard's offsets do not rise; its 3 samples are left out"),
    ],
)
def test_a_table_of_offsets_that_cannot_be_costs_the_shard(
    tmp_path: Path, position: int, raw: int, sentence: str
) -> None:
    folder = copy(tmp_path, "merged")
    path = folder / "a" / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, position, raw)
    path.write_bytes(data)
    first, *others = records(open_source(folder), SMALL)
    assert isinstance(first, Rejection)
    assert (first.reason, first.sentence) == (Reason.INCOMPLETE_SOURCE, sentence)
    assert [item.id for item in others] == [f"b/shard.00000/{number}" for number in range(3)]


def test_a_sample_whose_sizes_do_not_add_up_is_one_bad_row(tmp_path: Path) -> None:
    folder = copy(tmp_path, "merged")
    path = folder / "a" / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    begin = struct.unpack_from("<I", data, 8)[0]
    struct.pack_into("<I", data, begin, 2**32 - 1)
    path.write_bytes(data)
    found = records(open_source(folder), SMALL)
    assert isinstance(found[1], Rejection)
    assert found[1].reason is Reason.BAD_ROW
    assert found[1].id == "a/shard.00000/1"
    assert found[1].sentence == "the sample has 13 bytes; its columns take 4294967307"
    assert [isinstance(item, RawRecord) for item in found] == [True, False, True, True, True, True]


def test_a_value_that_cannot_be_decoded_leaves_the_record_its_id(tmp_path: Path) -> None:
    folder = copy(tmp_path, "records")
    edit_index(folder, column_encodings=["json", "ndarray:float32:4", "str", "jpeg", "str"])
    first = records(open_source(folder), Contract({"caption": BytesField()}))[0]
    assert isinstance(first, Rejection)
    assert first.id == "china/01.jpg"
    assert first.sentence.startswith("column 'caption': it is not JSON")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "shard 0: of version 1, not 2"),
        ({"format": "json"}, "shard 0: of format 'json'; only 'mds' is read"),
        ({"raw_data": None}, "shard 0: raw_data names no file"),
        ({"raw_data__basename": "../shard.00000.mds"}, "'../shard.00000.mds' is not allowed"),
        ({"raw_data__basename": "/etc/passwd"}, "'/etc/passwd' is not allowed"),
        ({"raw_data__basename": "a/./b"}, "'a/./b' is not allowed"),
        ({"raw_data__bytes": -1}, "raw_data.bytes is -1; expected is a whole number up to"),
        ({"raw_data__bytes": 2**33}, "raw_data.bytes is 8589934592"),
        ({"raw_data__hashes": {"md5": 3}}, "hashes is no table of texts"),
        ({"samples": 10**9}, "samples is 1000000000; expected is a whole number up to 62"),
        ({"samples": True}, "samples is True"),
        ({"column_names": ["number"]}, "are no lists of the same length"),
        ({"column_names": ["text", "text"]}, "two columns have the same name"),
        ({"column_names": [1, 2]}, "a column name is no text"),
        ({"column_encodings": ["int", "pkl"]}, "column 'text' holds pickled objects"),
        ({"column_encodings": ["int", "ndarray:object"]}, "column 'text' has the encoding 'ndarray:object'"),
        ({"column_sizes": [8, "x"]}, "column_sizes is x"),
    ],
)
def test_an_index_that_says_what_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = edit_index(copy(tmp_path, "merged"), **changes)
    with pytest.raises(SourceError) as caught:
        open_source(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"shards": [], "version": 2}', '{"shards": [], "shards": []}', "\xff"]
)
def test_an_index_that_cannot_be_read_beside_shards_is_refused(tmp_path: Path, text: str) -> None:
    folder = copy(tmp_path, "gz")
    (folder / "index.json").write_text(text, encoding="latin-1")
    if text == "[]":
        (folder / "index.json").write_text("[1")
    with pytest.raises(SourceError, match=r"index\.json: the index"):
        open_source(folder)


def test_a_shard_that_is_missing_stops_the_run_and_is_named(tmp_path: Path) -> None:
    folder = copy(tmp_path, "merged")
    (folder / "b" / "shard.00000.mds").unlink()
    with pytest.raises(SourceError, match=r"b/shard\.00000\.mds: there is no such file"):
        ids_and_reasons(folder)


def test_a_linked_shard_is_read_wherever_it_lies_and_a_linked_folder_outside_refused(tmp_path: Path) -> None:
    folder = copy(tmp_path, "merged")
    expected = ids_and_reasons(folder)
    path = folder / "b" / "shard.00000.mds"
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert ids_and_reasons(folder) == expected
    shutil.move(folder / "b", tmp_path / "b")
    (folder / "b").symlink_to(tmp_path / "b")
    with pytest.raises(SourceError, match=r"the folder of 'b/shard\.00000\.mds' is a link that leads out"):
        open_source(folder)


def test_a_stamp_tells_of_the_index_and_of_the_shard_of_a_sample_only(tmp_path: Path) -> None:
    folder = copy(tmp_path, "merged")
    source = open_source(folder)
    source.require(SMALL)
    part = next(source.parts(1))
    before = source.stamps(part, SMALL)
    os.utime(folder / "b" / "shard.00000.mds", ns=(1, 1))
    assert source.stamps(part, SMALL) == before
    for path in ("a/shard.00000.mds", "index.json"):
        os.utime(folder / path, ns=(1, 1))
        assert source.stamps(part, SMALL) != before
        before = source.stamps(part, SMALL)


def test_memory_follows_what_a_shard_holds_not_what_it_says(tmp_path: Path) -> None:
    folder = edit_index(copy(tmp_path, "merged"), raw_data__bytes=2**32, samples=2**30 - 2)
    path = folder / "a" / "shard.00000.mds"
    path.write_bytes(struct.pack("<I", 2**30 - 2) + path.read_bytes()[4:])
    tracemalloc.start()
    try:
        assert ids_and_reasons(folder)[0] == f"incomplete-source: {path} byte 0"
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_no_file_stays_open_between_calls() -> None:
    before = os.listdir("/proc/self/fd")
    source = open_source(FIXTURES / "records")
    records(source, source.propose())
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("encoding", "data", "fault"),
    [
        ("str", b"\xff", "the text is not UTF-8 at byte 0"),
        ("int", b"1234567", "7 bytes hold no int64"),
        ("float32", b"", "0 bytes hold no float32"),
        ("str_int", b"1.5", "the text is no number"),
        ("str_int", b"9" * 5000, "the text is no number"),
        ("json", b"NaN", "it holds NaN, which is no JSON number"),
        ("ndarray", b"", "the array names no dtype that there is"),
        ("ndarray", b"\x07", "the array names no dtype that there is"),
        ("ndarray", b"\x08", "the array ends before its shape"),
        ("ndarray", b"\x08\xff" + b"\xff" * 8, "the array ends within its shape"),
        (
            "ndarray:uint8",
            b"\x0b" + b"\xff" * 16,
            "0 bytes hold no uint8 array of shape [18446744073709551615, ",
        ),
        ("ndarray:float32:2,3", bytes(23), "23 bytes hold no float32 array of shape [2, 3]"),
        ("pil", bytes(11), "the image ends within its header"),
        ("pil", struct.pack("<3I", 1, 1, 1) + b"P" + bytes(1), "the image is of mode P, whose colours"),
        ("pil", struct.pack("<3I", 1, 1, 1) + b"?" + bytes(1), "the image is of a mode that is not read"),
        (
            "pil",
            struct.pack("<3I", 2**31, 2**31, 1) + b"L" + bytes(1),
            "1 bytes hold no image of 2147483648x2147483648",
        ),
        ("list[jpeg]", bytes(7), "the list ends before its length"),
        (
            "jpegarray",
            b"\xff\xff\xff\xff",
            "the list says it has 4294967295 values, and ends within their sizes",
        ),
        ("jpegarray", struct.pack("<2I", 1, 9), "the list's 1 values take 9 bytes; there are 0"),
    ],
)
def test_bytes_that_are_no_such_value_are_told_why(encoding: str, data: bytes, fault: str) -> None:
    decode = find_decoder(encoding)
    assert decode is not None
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        decode(data)
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16", "RGB", "RGBA", "CMYK", "I", "F"])
def test_bare_samples_of_any_mode_become_a_file_of_the_same_samples(mode: str) -> None:
    image = Image.new(mode, (9, 2), 1)
    decode = find_decoder("pil")
    assert decode is not None
    name = mode.encode()
    again = Image.open(io.BytesIO(decode(struct.pack("<3I", 9, 2, len(name)) + name + image.tobytes())))
    assert again.mode == mode
    assert again.tobytes() == image.tobytes()


@pytest.mark.parametrize(
    "encoding", [None, "", "pkl", "int128", "ndarray:", "ndarray:uint8:", "ndarray:uint8:-1"]
)
def test_an_encoding_that_there_is_not_has_no_decoder(encoding: str | None) -> None:
    assert find_decoder(encoding) is None


@given(
    st.sampled_from(
        ["str", "int", "float16", "ndarray", "ndarray:uint8", "pil", "list[pil]", "jpegarray", "json"]
    ),
    st.binary(max_size=60),
)
def test_any_bytes_give_a_value_or_a_value_error(encoding: str, data: bytes) -> None:
    decode = find_decoder(encoding)
    assert decode is not None
    try:
        decode(data)
    except ValueError:
        return


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(FIXTURES / "merged", tmp_path_factory.mktemp("mds") / "merged"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["index.json", "a/shard.00000.mds"]),
    st.lists(st.tuples(st.integers(0, 621), st.integers(0, 255)), max_size=4),
    st.integers(0, 700),
)
def test_any_damage_ends_in_a_source_error_or_rejections(
    damaged: Path, name: str, changes: list[tuple[int, int]], length: int
) -> None:
    path = damaged / name
    data = (FIXTURES / "merged" / name).read_bytes()
    hurt = bytearray(data)
    for position, value in changes:
        hurt[position % len(hurt)] = value
    path.write_bytes(hurt[:length])
    try:
        container = MdsContainer(str(damaged))
        rows = list(container.scan(container.columns, Counter()))
        assert all(row.fault is None or row.name for row in rows)
    except SourceError:
        return
    finally:
        path.write_bytes(data)
