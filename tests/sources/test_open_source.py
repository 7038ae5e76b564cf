from collections import Counter
from pathlib import Path

import pytest

from shardkit.errors import SourceError
from shardkit.sources import (
    FILE_SOURCES,
    FOLDER_SOURCES,
    FolderSource,
    IterableSource,
    TableSource,
    open_source,
)
from shardkit.sources.recognition import find_files, is_parquet_folder, is_tfrecord


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
    }
    (tmp_path / "b" / "other").touch()
    with pytest.raises(SourceError, match="holds 'other' beside files of the kind expected"):
        find_files(str(tmp_path), is_tfrecord, passed_over)
