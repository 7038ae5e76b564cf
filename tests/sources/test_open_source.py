import os
from collections import Counter
from pathlib import Path

import pytest

from shardkit.contract import BytesField, Contract, ImageField
from shardkit.errors import SourceError
from shardkit.sources import (
    FILE_SOURCES,
    FOLDER_SOURCES,
    FolderSource,
    IterableSource,
    TableSource,
    open_source,
)
from shardkit.sources.container_folder import find_files
from shardkit.sources.raw_images import require_raw_images
from shardkit.sources.recognition import (
    is_parquet,
    is_parquet_folder,
    is_tar,
    is_tar_folder,
    is_tfrecord,
)


def test_folders_and_tables_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "t.CSV").write_text("id\na\n")
    assert isinstance(open_source(tmp_path), FolderSource)
    assert isinstance(open_source(str(tmp_path / "t.CSV")), TableSource)


def test_a_path_with_nothing_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.csv: there is no such file or folder"):
        open_source(tmp_path / "gone.csv")


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.zip", "a"])
def test_an_unknown_kind_of_file_is_refused_naming_what_is_supported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(SourceError, match=r"supported are folders and \.csv, \.tsv, \.jsonl"):
        open_source(tmp_path / name)


def test_a_table_that_is_a_broken_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").symlink_to("gone.csv")
    with pytest.raises(SourceError, match=r"t\.csv: not a regular file"):
        open_source(tmp_path / "t.csv")


def test_a_source_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id\na\n")
    for source in (TableSource(str(tmp_path / "t.csv")), FolderSource(str(tmp_path)), IterableSource([])):
        assert open_source(source) is source


def kind_of(name: str) -> str | None:
    return next((kind.shown for kind in FILE_SOURCES if kind.recognise(name)), None)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.csv", ".csv, .tsv, .jsonl"),
        ("A.TSV", ".csv, .tsv, .jsonl"),
        ("a.b.jsonl", ".csv, .tsv, .jsonl"),
        ("a.parquet", ".parquet"),
        ("a.tar", ".tar, .tar.gz, .tgz"),
        ("a.tar.gz", ".tar, .tar.gz, .tgz"),
        ("a.tgz", ".tar, .tar.gz, .tgz"),
        ("a.tfrecord", ".tfrecord"),
        ("a.tfrecord-00000-of-00010", ".tfrecord"),
        ("a.tfrecords.gz", ".tfrecord"),
        ("a.csv.gz", None),
        ("tfrecord", None),
        ("a.jsonl.txt", None),
    ],
)
def test_the_suffixes_tell_the_kind_of_a_file(name: str, shown: str | None) -> None:
    assert kind_of(name) == shown


def test_a_folder_of_raw_files_fits_no_other_kind(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"x")
    (tmp_path / "t.parquet").write_bytes(b"x")
    assert not any(kind.recognise(str(tmp_path)) for kind in FOLDER_SOURCES)


def test_an_empty_folder_is_no_folder_of_parquet_files(tmp_path: Path) -> None:
    assert not is_parquet_folder(str(tmp_path))
    assert not is_parquet_folder(str(tmp_path / "gone"))


def test_files_of_one_kind_are_found_at_any_depth_and_notes_counted(tmp_path: Path) -> None:
    for name in ("b/x.tfrecord", "a.tfrecord-1-of-2", "README.md", "_log", ".DS_Store", "__MACOSX/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    passed_over: Counter[str] = Counter()
    assert find_files(str(tmp_path), is_tfrecord, passed_over) == ["a.tfrecord-1-of-2", "b/x.tfrecord"]
    assert passed_over == {
        "file of notes beside the data": 1,
        "file of notes beside the data (_*)": 1,
        "macOS folder settings (.DS_Store)": 1,
        "macOS metadata folder (__MACOSX)": 1,
    }
    (tmp_path / "b" / "other").touch()
    with pytest.raises(SourceError, match="holds 'b/other' beside files of the kind expected"):
        find_files(str(tmp_path), is_tfrecord, passed_over)


@pytest.mark.parametrize(
    "name", ["README", "readme.txt", "LICENSE", "LICENCE.md", "card.md", "00000_stats.json", "_SUCCESS"]
)
def test_notes_beside_the_data_are_passed_over_and_counted(tmp_path: Path, name: str) -> None:
    for other in ("a.tar", name):
        (tmp_path / other).touch()
    assert is_tar_folder(str(tmp_path))
    passed_over: Counter[str] = Counter()
    assert find_files(str(tmp_path), is_tar, passed_over) == ["a.tar"]
    assert passed_over.total() == 1


@pytest.mark.parametrize("name", ["1.jpg", "labels.csv", "more.jsonl", "notes.txt"])
def test_what_may_be_data_is_no_note(tmp_path: Path, name: str) -> None:
    for other in ("a.tar", name):
        (tmp_path / other).touch()
    assert not is_tar_folder(str(tmp_path))


def test_linked_folders_are_followed_inside_of_the_source_and_refused_outside(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    (root / "a").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for path in ("raw/a/1.parquet", "out/2.parquet"):
        (tmp_path / path).touch()
    (root / "b").symlink_to("a")
    (root / "a" / "up").symlink_to("..")
    passed_over: Counter[str] = Counter()
    assert find_files(str(root), is_parquet, passed_over) == ["a/1.parquet", "b/1.parquet"]
    assert passed_over == {"link that leads back into its own folder": 2}
    (root / "c").symlink_to(tmp_path / "out")
    assert is_parquet_folder(str(root))
    with pytest.raises(SourceError, match=r"raw/c: the link leads to a folder out of the source"):
        find_files(str(root), is_parquet, Counter())


def test_linked_files_are_data_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "blob").touch()
    (tmp_path / "snapshot" / "train.parquet").symlink_to("../blob")
    assert find_files(str(tmp_path / "snapshot"), is_parquet, Counter()) == ["train.parquet"]


def make(root: Path, *names: str) -> FolderSource:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"\xff\xd8\xff\xe0" if "photo" in name else b"x")
    source = open_source(root)
    assert isinstance(source, FolderSource)
    return source


@pytest.mark.parametrize(
    ("names", "instead"),
    [
        (
            ("train/index.json", "train/shard.00000.mds", "val/shard.00000.mds.zstd"),
            "{0}/train, {0}/val; add",
        ),
        (("a.csv", "b.jsonl", "README.md"), "{0}/a.csv, {0}/b.jsonl; add the others with --append"),
        (("a.npy", "b.npz"), "{0}/a.npy, {0}/b.npz; add"),
        (("a/x.h5", "b.lmdb"), "{0}/a/x.h5, {0}/b.lmdb; add"),
        (("a/data.mdb", "a/lock.mdb"), "{0}/a"),
        (("x.tar", "labels.tsv"), "{0}/labels.tsv, {0}/x.tar; add"),
        (("tars/1.tar", "tables/1.parquet"), "{0}/tables, {0}/tars; add"),
        (("a/data-0.arrow", "a/state.json", "checksums"), "{0}/a"),
        (tuple(f"{number}.csv" for number in range(9)), "{0}/4.csv, … (9 in all); add"),
    ],
)
def test_a_folder_of_other_data_than_images_is_refused_naming_what_to_give(
    tmp_path: Path, names: tuple[str, ...], instead: str
) -> None:
    source = make(tmp_path, *names)
    with pytest.raises(SourceError, match="holds no images, but data") as caught:
        source.require(Contract({"image": ImageField()}))
    assert instead.format(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(SourceError, match="holds no images, but data"):
        source.propose()
    source.require(Contract({"data": BytesField()}))


@pytest.mark.parametrize(
    "names",
    [
        ("cat/1.jpg", "labels.csv"),
        ("a.npy", "z/photo without a suffix"),
        ("a.csv", "b.JPEG"),
        ("cat/1", "cat/2"),
    ],
)
def test_a_table_beside_images_is_one_record_among_them(tmp_path: Path, names: tuple[str, ...]) -> None:
    source = make(tmp_path, *names)
    source.require(Contract({"image": ImageField()}))
    assert source.count() == len(names)


def test_every_kind_of_file_is_known_as_no_image(tmp_path: Path) -> None:
    suffixes = [suffix for kind in FILE_SOURCES for suffix in kind.shown.split(", ")]
    for suffix in suffixes:
        with pytest.raises(SourceError, match="holds no images"):
            require_raw_images(str(tmp_path), [os.fsencode(f"a{suffix}")])
