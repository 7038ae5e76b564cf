import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardkit.contract import BytesField, Contract, FileContent, LabelField
from shardkit.sources import FolderSource, IterableSource, TableSource
from shardkit.sources.source import Stamp
from shardkit.sources.stamps import NO_FILE, bytes_in, combine, stamp_file, stamp_value

FILES = Contract({"data": BytesField()})


def test_a_file_that_was_written_again_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    first = stamp_file(str(path))
    assert first.bytes == 3
    assert stamp_file(str(path)) == first
    os.utime(path, ns=(5, 5))
    assert stamp_file(str(path)) != first


def test_a_missing_or_impossible_file_has_a_fixed_stamp(tmp_path: Path) -> None:
    assert stamp_file(str(tmp_path / "gone")) == stamp_file("a\0b") == NO_FILE


def test_the_order_of_stamps_matters_to_their_combination() -> None:
    one, other = Stamp(1, 10), Stamp(2, 20)
    assert combine([one, other]).bytes == 3
    assert combine([one, other]) != combine([other, one])


DISTINCT: list[Any] = [
    None,
    True,
    1,
    1.0,
    "1",
    b"1",
    [1],
    [[1]],
    ["ab", "c"],
    ["a", "bc"],
    {"a": 1},
    ["a", 1],
    FileContent(b"1", "x"),
    FileContent(b"1", "y"),
    np.array([1, 2], np.int32),
    np.array([1, 2], np.int64),
    np.array([[1, 2]], np.int32),
    np.float32(1),
    {1},
]


def test_values_that_differ_in_type_shape_or_content_have_different_stamps() -> None:
    assert len({stamp_value(value).changed for value in DISTINCT}) == len(DISTINCT)


@pytest.mark.parametrize(
    ("value", "size"),
    [("é", 2), (b"abc", 3), (np.zeros((2, 3), np.float32), 24), ({"a": [b"12", "3"]}, 4), (None, 0), (7, 0)],
)
def test_the_size_of_a_value_is_that_of_its_bytes(value: Any, size: int) -> None:
    assert stamp_value(value).bytes == size


def test_equal_values_have_equal_stamps() -> None:
    assert stamp_value({"x": np.arange(3), "y": [1, "a"]}) == stamp_value({"x": np.arange(3), "y": [1, "a"]})


def test_the_stamps_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    source = FolderSource(str(tmp_path))
    (part,) = source.parts(9)
    first, second = source.stamps(part, FILES)
    assert [first.bytes, second.bytes] == [1, 2]
    (tmp_path / "b").write_bytes(b"33")
    os.utime(tmp_path / "b", ns=(1, 1))
    assert [stamp == old for stamp, old in zip(source.stamps(part, FILES), (first, second), strict=True)] == [
        True,
        False,
    ]
    (tmp_path / "a").unlink()
    assert source.stamps(part, FILES)[0] == NO_FILE


def test_the_stamps_of_a_table_follow_its_rows_and_the_files_they_name_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1234")
    table = tmp_path / "t.csv"
    table.write_text("id,data,note\na,x,1\nb,gone,2\n")
    source = TableSource(str(table))
    (part,) = source.parts(9)
    before = source.stamps(part, FILES)
    assert before[0].bytes - before[1].bytes == 4 - len("gone") + len("x")
    table.write_text("id,data,note\na,x,1\nb,gone,3\nc,x,1\n")
    after = TableSource(str(table)).stamps(part, FILES)
    assert [before[0] == after[0], before[1] == after[1]] == [True, False]
    os.utime(tmp_path / "x", ns=(1, 1))
    assert TableSource(str(table)).stamps(part, FILES)[0] != after[0]


def test_the_stamps_of_records_of_a_program_are_those_of_their_values() -> None:
    contract = Contract({"label": LabelField(num_classes=9)})

    def stamps(label: Any) -> list[Stamp]:
        source = IterableSource([{"id": "a", "label": 1}, {"id": "b", "label": label}, {"id": ""}])
        (part,) = source.parts(9)
        return source.stamps(part, contract)

    one, other = stamps(1), stamps(2)
    assert len(one) == 3
    assert [one[0] == other[0], one[1] == other[1], one[2] == other[2]] == [True, False, True]


class Raising:
    """Raises whatever is asked of it."""

    def __init__(self, error: type[Exception]) -> None:
        self.__dict__["error"] = error

    def __repr__(self) -> str:
        raise self.__dict__["error"]

    def __getattr__(self, name: str) -> Any:
        raise self.__dict__["error"]


def test_a_value_that_cannot_be_shown_or_measured_has_a_stamp_all_the_same() -> None:
    huge = 10**5000
    assert stamp_value(huge) == stamp_value(10**5000) != stamp_value(huge + 1)
    assert stamp_value([huge, "a"]) != stamp_value([huge, "b"])
    for error in (ValueError, RuntimeError, KeyError, OSError):
        assert stamp_value(Raising(error)) == stamp_value(Raising(error)) != stamp_value(None)
    assert bytes_in(Raising(RuntimeError)) == 0
    assert bytes_in(torch.eye(2).to_sparse()) == 0
    assert bytes_in(torch.eye(2)) == 16


def test_a_list_that_holds_itself_has_a_stamp() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert stamp_value(endless).bytes == 0
