from pathlib import Path

import pytest

from shardkit.errors import SourceError
from shardkit.sources import FolderSource, TableSource, open_source


def test_folders_and_tables_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "t.CSV").write_text("id\na\n")
    assert isinstance(open_source(tmp_path), FolderSource)
    assert isinstance(open_source(str(tmp_path / "t.CSV")), TableSource)


def test_a_path_with_nothing_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.csv: there is no such file or folder"):
        open_source(tmp_path / "gone.csv")


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.tar", "a"])
def test_an_unknown_kind_of_file_is_refused_naming_what_is_supported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(SourceError, match=r"supported are folders and \.csv, \.tsv, \.jsonl"):
        open_source(tmp_path / name)


def test_a_table_that_is_a_broken_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").symlink_to("gone.csv")
    with pytest.raises(SourceError, match=r"t\.csv: not a regular file"):
        open_source(tmp_path / "t.csv")
