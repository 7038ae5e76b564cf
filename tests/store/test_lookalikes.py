"""Ids that differ only in case or in Unicode normal form are found, and no others."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_datasets import CONTRACT, row, write_shard

from shardkit.store import WrittenIndex, lookalikes, write_index
from shardkit.store.checksum import id_hash
from shardkit.store.lookalikes import LookalikeFinder, Lookalikes

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def find(ids: list[str], block: int = 3) -> Lookalikes:
    encoded = [record_id.encode() for record_id in ids]
    finder = LookalikeFinder()
    for first in range(0, len(ids), block):
        some = encoded[first : first + block]
        finder.add(first, b"".join(some), np.cumsum([len(each) for each in some], dtype=np.uint64))
    return finder.find(np.array([id_hash(each) for each in encoded], np.uint64), encoded.__getitem__)


@pytest.mark.parametrize(
    ("ids", "pairs"),
    [
        (["a", "b", "ab"], []),
        (["a", "b", "A"], [("a", "A")]),
        (["IMG.JPG", "img.jpg", "Img.jpg"], [("IMG.JPG", "img.jpg"), ("IMG.JPG", "Img.jpg")]),
        ([COMPOSED, "cafe", DECOMPOSED], [(COMPOSED, DECOMPOSED)]),
        ([DECOMPOSED, COMPOSED.upper()], [(DECOMPOSED, COMPOSED.upper())]),
        (["straße", "STRASSE", "strase"], [("straße", "STRASSE")]),
        (["k", "\u212a"], [("k", "\u212a")]),  # the sign for kelvin
        (["猫/1", "猫/2", "犬/1"], []),
        (["B", "A", "b", "C", "a"], [("B", "b"), ("A", "a")]),
        (["А", "A"], []),  # Cyrillic and Latin: alike to the eye alone
        ([], []),
    ],
)
def test_finds_ids_that_fold_to_the_same_text(ids: list[str], pairs: list[tuple[str, str]]) -> None:
    assert find(ids) == Lookalikes(tuple(pairs), len(pairs))


@given(st.lists(st.text("aAbBß\u00e9e\u0301Eſsi\u0130", min_size=1, max_size=3), unique=True, max_size=40))
def test_finds_what_comparing_all_with_all_finds(ids: list[str]) -> None:
    def fold(text: str) -> str:
        return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())

    first: dict[str, str] = {}
    pairs = [(first[fold(each)], each) for each in ids if first.setdefault(fold(each), each) != each]
    assert find(ids) == Lookalikes(tuple(pairs), len(pairs))


def test_folded_ids_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookalikes, "id_hash", lambda folded: len(folded) % 2)
    assert find(["A", "B", "C", "a", "D", "c"]).count == 0  # real hashes of lower-case ids meet no faked ones
    assert find(["Aa", "B", "aA", "bB", "b", "AA", "BB"]).pairs == (("Aa", "aA"), ("Aa", "AA"), ("bB", "BB"))


def test_many_are_counted_and_a_hundred_listed() -> None:
    ids = [f"{number}x" for number in range(250)] + [f"{number}X" for number in range(250)]
    found = find(ids, block=64)
    assert found.count == 250
    assert found.pairs == tuple((f"{number}x", f"{number}X") for number in range(100))


def write(root: Path, backend: str, shards: list[list[str]]) -> WrittenIndex:
    entries = [
        write_shard(root, number, backend, [row(each) for each in ids]) for number, ids in enumerate(shards)
    ]
    return write_index(root, 1, CONTRACT, entries)


def test_the_index_is_written_and_names_those_of_all_shards(tmp_path: Path, backend: str) -> None:
    written = write(tmp_path, backend, [["a/X", "b"], ["c", "A/x", COMPOSED], [DECOMPOSED]])
    assert written.lookalikes == (("a/X", "A/x"), (COMPOSED, DECOMPOSED))
    assert written.lookalike_count == 2
    assert write(tmp_path / "none", backend, [["a", "b"]]).lookalike_count == 0
