import os
import socket
import unicodedata
from pathlib import Path
from typing import Literal

import pytest

from shardkit.contract import FileContent, Reason
from shardkit.sources.files import MAX_FILE_BYTES, FileFault, FileReader, find_junk


def reason(root: Path, path: str, *, may_be_absolute: bool = False) -> Reason:
    with pytest.raises(FileFault) as caught:
        FileReader(str(root)).read(path, may_be_absolute=may_be_absolute)
    assert "\n" not in caught.value.sentence
    return caught.value.reason


def test_a_file_comes_with_its_bytes_and_its_path_as_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "é 1.jpg").write_bytes(b"\0\xff")
    assert FileReader(str(tmp_path)).read("a/é 1.jpg") == FileContent(b"\0\xff", "a/é 1.jpg")


def test_an_empty_file_is_read_as_such(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert FileReader(str(tmp_path)).read("a").data == b""


def test_a_file_that_says_it_has_no_bytes_is_read_to_its_end() -> None:
    assert FileReader("/proc").read("self/status", may_be_absolute=True).data.startswith(b"Name:")


def test_links_are_followed_inside_of_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "x").write_bytes(b"in")
    (tmp_path / "secret").write_bytes(b"out")
    (root / "inner").symlink_to("a/x")
    (root / "folder").symlink_to(root / "a")
    (root / "outer").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("..")
    assert FileReader(str(root)).read("inner").data == b"in"
    assert FileReader(str(root)).read("folder/x").data == b"in"
    assert reason(root, "outer") is Reason.OUTSIDE_SOURCE
    assert reason(root, "up/secret") is Reason.OUTSIDE_SOURCE


def test_a_root_that_is_itself_a_link_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"in")
    (tmp_path / "root").symlink_to("real")
    assert FileReader(str(tmp_path / "root")).read("x").data == b"in"


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "..", "a/./../../root/x", "../root/x"])
def test_a_relative_path_must_not_leave_the_root_even_for_a_moment(tmp_path: Path, path: str) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "x").write_bytes(b"in")
    (tmp_path / "secret").write_bytes(b"out")
    assert reason(tmp_path / "root", path) is Reason.OUTSIDE_SOURCE


def test_dots_that_stay_inside_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "x").write_bytes(b"in")
    assert FileReader(str(tmp_path)).read("./a/../x").data == b"in"


def test_an_absolute_path_is_opened_only_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"there")
    (tmp_path / "root").mkdir()
    path = str(tmp_path / "x")
    assert reason(tmp_path / "root", path) is Reason.OUTSIDE_SOURCE
    assert FileReader(str(tmp_path / "root")).read(path, may_be_absolute=True).data == b"there"


@pytest.mark.parametrize("path", ["nothing", "x/y", "a\0b", "\ud800", "n" * 300, "C:x.jpg", "a\\..\\b"])
def test_what_no_file_has_as_its_path_is_a_missing_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "x").touch()
    assert reason(tmp_path, path) is Reason.MISSING_FILE


def test_a_link_that_leads_nowhere_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("gone")
    assert reason(tmp_path, "x") is Reason.MISSING_FILE


def test_a_link_that_leads_in_a_circle_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("x")
    assert reason(tmp_path, "x") is Reason.UNREADABLE


@pytest.mark.parametrize(
    "path", ["C:\\x.jpg", "c:/x.jpg", "..\\x.jpg", "a\\..\\..\\x.jpg", "\\\\server\\x.jpg"]
)
def test_a_path_that_leaves_the_root_as_windows_reads_it_is_told_as_such_unless_there_is_such_a_file(
    tmp_path: Path, path: str
) -> None:
    assert reason(tmp_path, path) is Reason.OUTSIDE_SOURCE
    (tmp_path / "c:").mkdir()
    (tmp_path / path).write_bytes(b"here")
    assert FileReader(str(tmp_path)).read(path).data == b"here"


def test_a_backslash_in_place_of_a_slash_is_hinted_at(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").touch()
    with pytest.raises(FileFault, match="if '/' stands for each backslash"):
        FileReader(str(tmp_path)).read("a\\x.jpg")


@pytest.mark.parametrize(("held", "asked"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_name_in_another_unicode_form_is_found_where_it_is_the_only_one(
    tmp_path: Path, held: Literal["NFC", "NFD"], asked: Literal["NFC", "NFD"]
) -> None:
    folder = tmp_path / unicodedata.normalize(held, "ü")
    folder.mkdir()
    (folder / unicodedata.normalize(held, "é.jpg")).write_bytes(b"there")
    files = FileReader(str(tmp_path))
    path = unicodedata.normalize(asked, "ü/é.jpg")
    assert files.read(path) == FileContent(b"there", path)
    assert files.stamp(path).bytes == 5
    assert reason(tmp_path, unicodedata.normalize(asked, "ü/è.jpg")) is Reason.MISSING_FILE


def test_a_name_that_two_unicode_forms_fit_is_taken_letter_by_letter(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "éé.jpg") for form in ("NFC", "NFD"))
    (tmp_path / composed).write_bytes(b"composed")
    (tmp_path / decomposed).write_bytes(b"decomposed")
    files = FileReader(str(tmp_path))
    assert files.read(composed).data == b"composed"
    assert files.read(decomposed).data == b"decomposed"
    assert reason(tmp_path, unicodedata.normalize("NFC", "é") + unicodedata.normalize("NFD", "é.jpg")) is (
        Reason.MISSING_FILE
    )


def test_folders_pipes_sockets_and_devices_are_no_files_and_never_waited_for(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert reason(tmp_path, "folder") is Reason.NOT_A_FILE
    assert reason(tmp_path, "pipe") is Reason.NOT_A_FILE
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        assert reason(tmp_path, "socket") is Reason.NOT_A_FILE
    assert reason(tmp_path, "/dev/zero", may_be_absolute=True) is Reason.NOT_A_FILE


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_a_file_that_the_system_refuses_to_open_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    (tmp_path / "x").write_bytes(b"1")

    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(os, "open", fail)
    assert reason(tmp_path, "x") is Reason.UNREADABLE


def test_a_file_too_large_for_memory_is_refused_by_its_size(tmp_path: Path) -> None:
    with open(tmp_path / "x", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert reason(tmp_path, "x") is Reason.TOO_LONG


@pytest.mark.parametrize(
    ("name", "is_folder", "is_junk"),
    [
        (b".DS_Store", False, True),
        (b"._a.jpg", False, True),
        (b"Thumbs.db", False, True),
        (b"THUMBS.DB", False, True),
        (b"desktop.ini", False, True),
        (b".jpg", False, True),
        (b"ehthumbs.db", False, True),
        (b"Icon\r", False, True),
        (b"__MACOSX", True, True),
        (b"@eaDir", True, True),
        (b"$RECYCLE.BIN", True, True),
        (b"System Volume Information", True, True),
        (b"lost+found", True, True),
        (b".ipynb_checkpoints", True, True),
        (b".git", True, True),
        (b"a.jpg", False, False),
        (b"a.jpg.part", False, False),
        (b"a.jpg~", False, False),
        (b"README.txt", False, False),
        (b"Icon", False, False),
        (b"@eaDir", False, False),
        (b"__MACOSX", False, False),
        (b"Thumbs.db", True, False),
    ],
)
def test_leftovers_are_known_by_name(name: bytes, is_folder: bool, is_junk: bool) -> None:
    assert (find_junk(name, is_folder) is not None) is is_junk
