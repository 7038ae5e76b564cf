"""Tar files as a source: which members make a record, and which serve which field."""

import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tars import END, header, judged, member, outcomes, packed, write, write_both

from shardkit.contract import (
    ArrayField,
    BytesField,
    CheckedRecord,
    Contract,
    FileContent,
    ImageField,
    LabelField,
    Reason,
    RecordRules,
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, open_source
from shardkit.sources.recognition import is_tar_folder
from shardkit.sources.tar.source import TarSource

FIXTURES = Path(__file__).parent.parent / "fixtures" / "webdataset"
AB = Contract({"a": BytesField(), "b": BytesField()})
LABELS = Contract({"label": LabelField(classes=("cat", "dog"))})


def test_the_contract_that_the_extensions_suggest_takes_webdatasets_shards() -> None:
    contract = TarSource(str(FIXTURES / "shard-000.tar")).propose()
    assert {name: spec.kind for name, spec in contract.fields.items()} == {
        "label": "label",
        "json": "json",
        "mean_npy": "array",
        "image": "image",
        "text": "text",
    }
    assert contract.fields["label"] == LabelField(num_classes=3)
    assert contract.fields["mean_npy"] == ArrayField("float32", (2, 3))
    assert all(
        isinstance(verdict, CheckedRecord)
        for verdict in judged(TarSource(str(FIXTURES / "shard-000.tar")), contract)
    )


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_key_ends_at_the_first_dot_of_the_base_name(tmp_path: Path, tar_format: int) -> None:
    keys = ["a", "v1.0/b", "./c", "../d", "/e", "f g", "é", "x" * 60 + "/" + "y" * 90, "z/" * 300 + "ä"]
    if tar_format == tarfile.USTAR_FORMAT:
        keys = keys[:-1]
    data = packed([(f"{key}.left.A", key.encode()) for key in keys], tar_format)
    for source in write_both(tmp_path, data):
        expected = [("c" if key == "./c" else key, key) for key in keys]
        assert outcomes(source, Contract({"left": BytesField()})) == expected


def test_interleaved_members_are_put_together_in_the_order_of_the_first_ones(tmp_path: Path) -> None:
    data = packed(
        [("1.a", b"1a"), ("0.a", b"0a"), ("0.b", b"0b"), ("2.a", b"2a"), ("1.b", b"1b"), ("2.b", b"2b")]
    )
    for source in write_both(tmp_path, data):
        verdicts = judged(source, AB)
        assert [verdict.id for verdict in verdicts] == ["1", "0", "2"]
        assert [[v.payload for v in verdict.values] for verdict in verdicts] == [
            [b"1a", b"1b"],
            [b"0a", b"0b"],
            [b"2a", b"2b"],
        ]


@given(
    order=st.permutations([(key, extension) for key in "0123" for extension in "abc"]),
    missing=st.sets(st.tuples(st.sampled_from("0123"), st.sampled_from("abc")), max_size=5),
    size=st.integers(1, 5),
)
def test_however_members_lie_each_record_comes_whole_and_once(
    tmp_path_factory: pytest.TempPathFactory,
    order: list[tuple[str, str]],
    missing: set[tuple[str, str]],
    size: int,
) -> None:
    there = [pair for pair in order if pair not in missing]
    data = packed([(f"{key}.{extension}", (key + extension).encode()) for key, extension in there])
    folder = tmp_path_factory.mktemp("tar")
    contract = Contract({name: BytesField(default="none") for name in "abc"})
    for source in write_both(folder, data):
        found = {}
        verdicts = judged(source, contract, size)
        for verdict in verdicts:
            assert isinstance(verdict, CheckedRecord)
            found[verdict.id] = [bytes(value.payload) for value in verdict.values]
        expected = {
            key: [(key + name).encode() if (key, name) in there else b"none" for name in "abc"]
            for key, _ in there
        }
        assert (len(verdicts), found) == (len(expected), expected)


def test_a_record_that_lacks_a_member_is_rejected_by_name(tmp_path: Path) -> None:
    data = packed([("0.a", b"0"), ("0.b", b"0"), ("1.a", b"1"), ("2.b", b"2"), ("2.a", b"2")])
    for source in write_both(tmp_path, data):
        first, second, third = judged(source, AB)
        assert isinstance(second, Rejection)
        assert (second.id, second.reason, second.field) == ("1", Reason.MISSING_FIELD, "b")
        assert second.source == f"{source.name} at byte 2048"
        assert isinstance(first, CheckedRecord)
        assert isinstance(third, CheckedRecord)


def test_two_members_of_one_name_reject_the_record_and_are_both_told(tmp_path: Path) -> None:
    data = packed([("0.a", b"0"), ("1.a", b"1"), ("0.A", b"2"), ("2.a", b"3")])
    for source in write_both(tmp_path, data):
        first, second, third = judged(source, Contract({"a": BytesField()}))
        assert isinstance(first, Rejection)
        assert (first.id, first.reason) == ("0", Reason.BAD_ROW)
        assert "'0.a', at bytes 0 and 2048" in first.sentence
        assert (second.id, third.id) == ("1", "2")


def test_what_is_no_file_is_ignored_and_counted(tmp_path: Path) -> None:
    data = b"".join(
        [
            header("d.a/", 0, tarfile.DIRTYPE),
            member("1.a", b"1"),
            header("2.a", 0, tarfile.SYMTYPE),
            header("3.a", 0, tarfile.LNKTYPE),
            header("4.a", 0, tarfile.CHRTYPE),
            header("5.a", 0, tarfile.FIFOTYPE),
            member("6.a", b"a volume label", b"V"),
            member("README", b"text"),
            member("__meta__/7.a", b"1"),
            member("x/._8.a", b"1"),
            member(".DS_Store", b"1"),
            member("__MACOSX/9.a", b"1"),
            END,
        ]
    )
    for source in write_both(tmp_path, data):
        assert outcomes(source, Contract({"a": BytesField()})) == [("1", "1")]
        assert source.ignored == {
            "folder in a tar": 1,
            "link in a tar": 2,
            "special member in a tar": 3,
            "member without an extension": 1,
            "WebDataset metadata (__NAME__)": 1,
            "macOS metadata file (._*)": 1,
            "macOS folder settings (.DS_Store)": 1,
            "macOS metadata folder (__MACOSX)": 1,
        }


def test_a_name_that_is_not_utf8_is_a_bad_id(tmp_path: Path) -> None:
    name = b"caf\xe9.a".decode("utf-8", "surrogateescape")
    for source in write_both(tmp_path, packed([(name, b"1"), ("b.a", b"2")], tarfile.GNU_FORMAT)):
        assert outcomes(source, Contract({"a": BytesField()})) == [("caf\\xe9", "bad-id"), ("b", "2")]


def test_class_names_and_numbers_are_read_from_text(tmp_path: Path) -> None:
    texts = [b"dog", b"cat\n", b"1", b"dog\r\n", b"dog ", b"", b"\xff", b"bird"]
    data = packed([(f"{number}.cls", text) for number, text in enumerate(texts)])
    verdicts = judged(write(tmp_path, data), LABELS)
    assert [v.reason.value if isinstance(v, Rejection) else v.values[0].seen for v in verdicts] == [
        "dog",
        "cat",
        "dog",
        "dog",
        "label-unknown",
        "missing-field",
        "label-type",
        "label-unknown",
    ]


def test_a_number_is_read_from_text(tmp_path: Path) -> None:
    source = write(tmp_path, packed([("0.score", b"0.5\n"), ("1.score", b"high")]))
    first, second = judged(source, Contract({"score": ScalarField("float64")}))
    assert isinstance(first, CheckedRecord)
    assert np.frombuffer(first.values[0].payload)[0] == 0.5
    assert isinstance(second, Rejection)
    assert second.reason == Reason.WRONG_TYPE


def test_pictures_of_several_formats_mix_but_not_within_a_record(tmp_path: Path) -> None:
    with_both = packed([("0.jpg", b"0"), ("0.png", b"0")])
    contract = Contract({"image": ImageField()})
    with pytest.raises(SourceError, match=r"both 'jpg' and 'png' could serve field 'image'"):
        write(tmp_path, with_both).require(contract)
    write(tmp_path / "raw", packed([("0.jpg", b"no picture"), ("1.png", b"no picture")]), "0.tar")
    write(tmp_path / "raw", packed([("2.jpg", b"1"), ("2.png", b"1")]), "1.tar")
    verdicts = judged(TarSource(str(tmp_path / "raw")), contract)
    assert [v.reason.value for v in verdicts if isinstance(v, Rejection)] == ["not-an-image"] * 2 + [
        "bad-row"
    ]
    assert isinstance(verdicts[2], Rejection)
    assert "'jpg', 'png'" in verdicts[2].sentence


def test_a_field_without_an_extension_is_told_of_those_there_are(tmp_path: Path) -> None:
    source = write(tmp_path, packed([("0.left.jpg", b"0"), ("0.right.jpg", b"0")]))
    source.require(Contract({"left": ImageField(), "right_jpg": ImageField()}))
    with pytest.raises(SourceError, match=r"field 'depth'.*'left.jpg', 'right.jpg'"):
        source.require(Contract({"left": ImageField(), "depth": ImageField()}))
    source.require(Contract({"left": ImageField(), "depth": BytesField(default="")}))
    with pytest.raises(SourceError, match="leave it out"):
        source.require(Contract({"left": ImageField()}, RecordRules(id="left")))


def test_names_with_dots_that_make_no_columns_are_explained(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"over 256 different extensions.*first dot"):
        write(tmp_path, packed([(f"scene.{number}.jpg", b"") for number in range(257)]))


@pytest.mark.parametrize("name", ["t.tar.gz", "t.tar"])
def test_what_a_tar_is_shows_in_its_content_not_in_its_name(tmp_path: Path, name: str) -> None:
    plain = packed([("0.a", b"0"), ("1.a", b"1")])
    for source in write_both(tmp_path, plain):
        swapped = Path(source.name).read_bytes()
        assert outcomes(write(tmp_path / "x", swapped, name), Contract({"a": BytesField()})) == [
            ("0", "0"),
            ("1", "1"),
        ]


def test_a_folder_of_tars_is_read_in_the_order_of_the_bytes_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/1.tar", "b.tar", "a/é.tar", "a/z.tgz", ".hidden.tar"):
        write(tmp_path, packed([(f"{name.removeprefix('.')}/k.a", b"1")]), name)
    assert is_tar_folder(str(tmp_path))
    found = [verdict.id for verdict in judged(TarSource(str(tmp_path)), Contract({"a": BytesField()}))]
    assert found == ["a/z.tgz/k", "a/é.tar/k", "b.tar/k", "b/1.tar/k"]
    (tmp_path / "a" / "notes.txt").write_text("x")
    assert not is_tar_folder(str(tmp_path))


def test_a_folder_without_tars_is_none_of_tars(tmp_path: Path) -> None:
    assert not is_tar_folder(str(tmp_path))


def test_the_start_that_packing_a_folder_as_a_point_adds_is_no_part_of_the_key(tmp_path: Path) -> None:
    data = packed([("./a.x", b"1"), ("././/b/c.x", b"2"), ("./__meta__/d.x", b"3"), (".././e.x", b"4")])
    source = write(tmp_path, data)
    assert outcomes(source, Contract({"x": BytesField()})) == [("a", "1"), ("b/c", "2"), (".././e", "4")]
    assert source.ignored == {"WebDataset metadata (__NAME__)": 1}


def test_an_extension_that_only_a_later_tar_has_is_found(tmp_path: Path) -> None:
    write(tmp_path / "raw", packed([("a.jpg", b"j"), ("b.jpg", b"j")]), "1.tar")
    write(tmp_path / "raw", packed([("c.png", b"p"), ("c.w", b"5")]), "2.tar")
    image = ImageField()
    for w in (BytesField(default="00"), BytesField()):
        source = TarSource(str(tmp_path / "raw"))
        contract = Contract({"image": image, "w": w})
        source.require(contract)
        found = [record for part in source.parts(9) for record in source.read(part, contract)]
        values = [record.values.get("w") for record in found if isinstance(record, RawRecord)]
        assert values == [None, None, FileContent(b"5", "c.w")]
    source = TarSource(str(tmp_path / "raw"))
    source.require(Contract({"image": image}))
    found = [record for part in source.parts(9) for record in source.read(part, Contract({"image": image}))]
    names = [record.values["image"].name for record in found if isinstance(record, RawRecord)]
    assert names == ["a.jpg", "b.jpg", "c.png"]
    with pytest.raises(SourceError, match=r"no member extension serves field 'z'.*found 'jpg', 'png', 'w'"):
        source.require(Contract({"z": BytesField(), "y": BytesField()}))


def test_notes_beside_tars_are_passed_over_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "raw", packed([("a.x", b"1")]))
    for name in ("README.md", "00000_stats.json"):
        (tmp_path / "raw" / name).write_text("{}")
    source = open_source(tmp_path / "raw")
    assert outcomes(source, Contract({"x": BytesField()})) == [("a", "1")]
    assert source.ignored == {"file of notes beside the data": 2}


def test_a_linked_file_is_read_wherever_it_lies(tmp_path: Path) -> None:
    write(tmp_path, packed([("out.a", b"1")]), "outside.tar")
    write(tmp_path / "raw", packed([("in.a", b"1")]), "sub/real.tar")
    os.rename(tmp_path / "raw" / "sub" / "real.tar", tmp_path / "raw" / "sub" / ".real")
    (tmp_path / "raw" / "link.tar").symlink_to("sub/.real")
    assert outcomes(TarSource(str(tmp_path / "raw")), Contract({"a": BytesField()})) == [("in", "1")]
    (tmp_path / "raw" / "out.tar").symlink_to("../outside.tar")
    found = outcomes(TarSource(str(tmp_path / "raw")), Contract({"a": BytesField()}))
    assert found == [("in", "1"), ("out", "1")]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.tar")
    with pytest.raises(SourceError, match="not a regular file"):
        TarSource(str(tmp_path / "p.tar"))


def test_a_tar_that_changes_between_scan_and_read_is_noticed(tmp_path: Path) -> None:
    contract = Contract({"a": BytesField()})
    source = write(tmp_path, packed([("0.a", b"0"), ("1.a", b"1")]))
    source.require(contract)
    (part,) = source.parts(5)
    before = source.stamps(part, contract)
    assert [stamp.bytes for stamp in before] == [1, 1]
    (tmp_path / "t.tar").write_bytes(packed([("0.a", b"0"), ("1.a", b"2")]))
    os.utime(tmp_path / "t.tar", ns=(1, 1))
    with pytest.raises(SourceError, match="changed while it was ingested"):
        list(source.read(part, contract))
    assert source.stamps(part, contract) != before


def test_a_part_of_a_plain_tar_carries_no_bytes_and_one_of_gzip_data_a_bounded_number(tmp_path: Path) -> None:
    data = packed([(f"{number}.a", bytes(1 << 20)) for number in range(70)])
    plain, compressed = write_both(tmp_path, data)
    for source in (plain, compressed):
        source.require(Contract({"a": BytesField()}))
    assert [len(part.ids) for part in plain.parts(1000)] == [70]
    assert all(len(pickle.dumps(part)) < 20_000 for part in plain.parts(1000))
    assert [len(part.ids) for part in compressed.parts(1000)] == [64, 6]


def test_a_data_set_of_tars_needs_no_memory_for_what_was_gone_through(tmp_path: Path) -> None:
    source = write(tmp_path, packed([(f"{number}.a", b"") for number in range(2000)]))
    assert len(pickle.dumps(source)) < 2000


def test_members_whose_extensions_cannot_name_a_field_are_remarked(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(packed([("a.2x", b"1"), ("a.checksum", b"2"), ("a.txt", b"t")]))
    source = TarSource(str(tmp_path / "a.tar"))
    assert source.propose() == Contract({"text": TextField()})
    assert [(extension, remark[:31]) for extension, remark in source.remarks.items()] == [
        ("2x", "left out: field name '2x' is no"),
        ("checksum", "left out: field name 'checksum'"),
    ]
