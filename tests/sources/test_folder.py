import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from shardkit.sources import FolderSource, RawRecord

BYTES = Contract({"data": BytesField()})
PETS = Contract({"data": BytesField(), "label": LabelField(classes=("cat", "dog"))})


def make(root: Path, *paths: str | bytes) -> FolderSource:
    for path in paths:
        full = os.path.join(os.fsencode(root), os.fsencode(path))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(os.path.basename(full))
    return FolderSource(str(root))


def ids(source: FolderSource, size: int = 100) -> list[str]:
    return [record_id for part in source.parts(size) for record_id in part.ids]


def records(source: FolderSource, contract: Contract, size: int = 100) -> list[RawRecord | Rejection]:
    return [record for part in source.parts(size) for record in source.read(part, contract)]


def test_a_record_has_its_path_as_id_its_first_folder_as_label_and_its_content(tmp_path: Path) -> None:
    source = make(tmp_path, "dog/deep/1.jpg", "cat/2.jpg")
    source.require(PETS)
    first, second = records(source, PETS)
    assert isinstance(first, RawRecord)
    assert isinstance(second, RawRecord)
    assert (first.id, first.source, first.values["label"]) == ("cat/2.jpg", "cat/2.jpg", "cat")
    assert (second.id, second.values["label"]) == ("dog/deep/1.jpg", "dog")
    assert (first.values["data"].data, first.values["data"].name) == (b"2.jpg", "cat/2.jpg")


def test_a_file_beside_the_class_folders_has_no_label(tmp_path: Path) -> None:
    source = make(tmp_path, "cat/1.jpg", "README.txt")
    readme = records(source, PETS)[0]
    assert isinstance(readme, RawRecord)
    assert readme.values["label"] is None


def test_records_come_in_the_order_of_the_bytes_of_their_whole_paths(tmp_path: Path) -> None:
    source = make(tmp_path, "a/z", "a.x", "a-b/c", "a0", "B", "é", "a/b/c", "10", "9")
    expected = ["10", "9", "B", "a-b/c", "a.x", "a/b/c", "a/z", "a0", "é"]
    assert ids(source) == expected == sorted(expected, key=os.fsencode)


_NAME = st.text(st.sampled_from("ab-./0é"), min_size=1, max_size=3).filter(
    lambda n: "/" not in n and n[0] != "."
)


@given(
    st.sets(st.lists(_NAME, min_size=1, max_size=3).map("/".join), min_size=1, max_size=12), st.integers(1, 5)
)
def test_any_tree_comes_sorted_and_whole_in_parts_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str], size: int
) -> None:
    root = tmp_path_factory.mktemp("tree")
    kept = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    source = make(root, *kept)
    parts = list(source.parts(size))
    assert [record_id for part in parts for record_id in part.ids] == sorted(kept, key=os.fsencode)
    assert [part.first for part in parts] == list(range(0, len(kept), size))
    assert source.count() == len(kept)


def test_leftovers_are_ignored_and_counted(tmp_path: Path) -> None:
    source = make(
        tmp_path,
        "a.jpg",
        "._a.jpg",
        ".DS_Store",
        "x/Thumbs.db",
        "x/b.jpg",
        "__MACOSX/._b.jpg",
        ".git/config",
        ".jpg",
    )
    (tmp_path / "empty").mkdir()
    assert ids(source) == ["a.jpg", "x/b.jpg"]
    assert source.ignored == {
        "macOS metadata file (._*)": 1,
        "macOS folder settings (.DS_Store)": 1,
        "Windows thumbnails (Thumbs.db)": 1,
        "macOS metadata folder (__MACOSX)": 1,
        "hidden folder": 1,
        "hidden file": 1,
        "empty folder": 1,
    }


def test_counts_of_ignored_files_do_not_grow_with_each_scan(tmp_path: Path) -> None:
    source = make(tmp_path, "a.jpg", ".DS_Store")
    ids(source)
    ids(source)
    assert sum(source.ignored.values()) == 1


def test_macos_metadata_under_another_name_is_rejected_and_not_stored(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X")
    (verdict,) = records(FolderSource(str(tmp_path)), BYTES)
    assert isinstance(verdict, Rejection)
    assert (verdict.reason, verdict.field) == (Reason.WRONG_TYPE, "data")
    assert "macOS metadata (AppleDouble)" in verdict.sentence
    (verdict,) = records(FolderSource(str(tmp_path)), Contract({"image": ImageField()}))
    assert isinstance(verdict, Rejection)
    assert verdict.reason is Reason.NOT_AN_IMAGE


@pytest.mark.parametrize(
    ("name", "shown"), [(b"caf\xe9.jpg", "caf\\xe9.jpg"), (b"\xff\xfe.jpg", "\\xff\\xfe.jpg")]
)
def test_a_name_that_is_not_utf8_is_rejected_and_shown_with_escapes(
    tmp_path: Path, name: bytes, shown: str
) -> None:
    source = make(tmp_path, name, b"ok.jpg")
    verdicts = {record.id: record for record in records(source, BYTES)}
    assert set(verdicts) == {shown, "ok.jpg"}
    bad = verdicts[shown]
    assert isinstance(bad, Rejection)
    assert (bad.reason, bad.source) == (Reason.BAD_ID, shown)


@pytest.mark.parametrize(
    "name",
    [
        *("two\nlines.jpg", "a\tb.jpg", "-rf.jpg", "a.jpg.", "[a]*?.jpg", "100%#1.jpg", 'it\'s "x".jpg'),
        *("CON.jpg", "\u202egpj.exe", "a\u200bb.jpg", "e\u0301.jpg", "😀" * 60 + ".jpg", "n" * 255),
        *("a,b.jpg", "a\\b.jpg", " a "),
    ],
)
def test_any_name_that_is_utf8_is_an_id_as_it_stands(tmp_path: Path, name: str) -> None:
    (record,) = records(make(tmp_path, name), BYTES)
    assert isinstance(record, RawRecord)
    assert record.id == name


def test_a_part_reads_the_same_after_pickling(tmp_path: Path) -> None:
    source = make(tmp_path, "cat/1", "dog/2", "dog/3")
    part = list(source.parts(2))[1]
    again, part_again = pickle.loads(pickle.dumps((source, part)))
    assert list(again.read(part_again, PETS)) == list(source.read(part, PETS))


def test_a_file_that_vanished_is_a_rejection(tmp_path: Path) -> None:
    source = make(tmp_path, "a", "b")
    (part,) = source.parts(10)
    (tmp_path / "a").unlink()
    first, second = source.read(part, BYTES)
    assert isinstance(first, Rejection)
    assert (first.reason, first.field) == (Reason.MISSING_FILE, "data")
    assert isinstance(second, RawRecord)


def test_pipes_are_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (verdict,) = records(FolderSource(str(tmp_path)), BYTES)
    assert isinstance(verdict, Rejection)
    assert verdict.reason is Reason.NOT_A_FILE


def test_linked_folders_are_followed_inside_and_rejected_outside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"x")
    source = make(tmp_path / "root", "a/1")
    (tmp_path / "root" / "b").symlink_to("a")
    (tmp_path / "root" / "c").symlink_to(tmp_path / "outside")
    found = records(source, BYTES)
    assert [record.id for record in found] == ["a/1", "b/1", "c"]
    assert isinstance(found[2], Rejection)
    assert found[2].reason is Reason.OUTSIDE_SOURCE


def test_a_link_back_into_its_own_folder_ends_the_walk(tmp_path: Path) -> None:
    source = make(tmp_path, "a/b/1")
    (tmp_path / "a" / "b" / "loop").symlink_to("..")
    (tmp_path / "self").symlink_to("self")
    assert ids(source) == ["a/b/1", "self"]
    assert source.ignored["link that leads back into its own folder"] == 1


def test_folders_may_nest_deeper_than_python_recurses(tmp_path: Path) -> None:
    folders = [tmp_path / "/".join(["d"] * depth) for depth in range(1, 1201)]
    for folder in folders:
        folder.mkdir()
    (folders[-1] / "1").touch()
    try:
        assert ids(FolderSource(str(tmp_path))) == ["d/" * 1200 + "1"]
    finally:  # here, since what pytest cleans up with does recurse
        (folders[-1] / "1").unlink()
        for folder in reversed(folders):
            folder.rmdir()


def test_the_proposal_has_the_folders_as_classes_in_byte_order_empty_ones_too(tmp_path: Path) -> None:
    source = make(tmp_path, "dog/1", "Zebra/1", "é/1", ".hidden/1", "top.jpg")
    (tmp_path / "cat").mkdir()
    assert source.propose() == Contract(
        {"image": ImageField(), "label": LabelField(classes=("Zebra", "cat", "dog", "é"))}
    )


def test_the_proposal_for_a_flat_folder_has_no_label(tmp_path: Path) -> None:
    assert make(tmp_path, "1.jpg", "__MACOSX/2.jpg").propose() == Contract({"image": ImageField()})


@pytest.mark.parametrize(
    ("contract", "word"),
    [
        (Contract({"data": BytesField(), "age": ScalarField("int8")}), "'age'"),
        (Contract({"data": BytesField(), "caption": TextField()}), "'caption'"),
        (Contract({"a": BytesField(), "b": BytesField()}), "'b'"),
        (Contract({"label": LabelField(num_classes=2)}), "nothing that a file can hold"),
        (PETS, "no class folders for field 'label'"),
    ],
)
def test_a_contract_that_a_flat_folder_cannot_meet_is_refused(
    tmp_path: Path, contract: Contract, word: str
) -> None:
    with pytest.raises(SourceError) as caught:
        make(tmp_path, "1.jpg").require(contract)
    assert word in str(caught.value)


def test_a_text_field_may_take_the_files(tmp_path: Path) -> None:
    contract = Contract({"text": TextField(), "label": LabelField(classes=("pos",))})
    source = make(tmp_path, "pos/1.txt")
    source.require(contract)
    (record,) = records(source, contract)
    assert isinstance(record, RawRecord)
    verdict = contract.judge(record.id, record.source, record.values)
    assert not isinstance(verdict, Rejection)
    assert verdict.values[0].payload == b"1.txt"


@pytest.mark.parametrize("paths", [(), ("x/.DS_Store", "._a.jpg")])
def test_a_folder_without_files_is_refused(tmp_path: Path, paths: tuple[str, ...]) -> None:
    with pytest.raises(SourceError, match="holds no files to ingest"):
        make(tmp_path, *paths)


def test_a_folder_that_cannot_be_listed_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(tmp_path, "a/1", "b/1")
    scandir = os.scandir

    def refuse(folder: bytes) -> object:
        if folder.endswith(b"/b/"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SourceError, match="b/: cannot list the folder: Permission denied"):
        ids(source)


def test_the_place_of_a_record_is_the_folder_since_its_id_is_its_path(tmp_path: Path) -> None:
    source = make(tmp_path, "a.jpg", "b.jpg")
    (part,) = source.parts(9)
    assert [source.place(mark) for mark in part.marks] == [str(tmp_path)] * 2
