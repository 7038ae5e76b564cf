"""The id index: both ways, as a sequence, and over collisions."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from small_datasets import CONTRACT, ROWS, row, write_dataset

from shardkit.errors import CorruptShardError, FormatError, RecordNotFoundError
from shardkit.store import IdSequence, Store, commit, index_blocks, make_manifest, write_index
from shardkit.store import ids as ids_module

IDS = ["a/1.jpg", "a/2.jpg", "ü/3", "b/1.jpg", "b/2.jpg"]


@pytest.fixture(autouse=True, params=["mapped", "read"])
def access(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small indexes are mapped, large ones read piece by piece; all must hold for both."""
    if request.param == "read":
        monkeypatch.setattr(ids_module, "MAPPED_BYTES", 0)
    return str(request.param)


@pytest.fixture
def ids(tmp_path: Path) -> IdSequence:
    return Store(write_dataset(tmp_path, "memmap", ROWS)).ids


def test_finds_ids_and_rows_both_ways(store: Store) -> None:
    assert [store.id_of(number) for number in range(5)] == IDS
    assert [store.row_of(record_id) for record_id in IDS] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("record_id", ["", "a", "a/1.jp", "a/1.jpgx", "\ud800", "a/1.jpg\0"])
def test_an_unknown_id_is_an_error_that_names_it(store: Store, record_id: str) -> None:
    with pytest.raises(RecordNotFoundError) as caught:
        store.row_of(record_id)
    assert repr(record_id) in str(caught.value)


@pytest.mark.parametrize("number", [-1, 5, 1 << 70])
def test_a_row_past_the_ends_is_an_index_error(store: Store, number: int) -> None:
    for read in (store.id_of, store.locate, store.stored_id, lambda row: store.payloads(row, (0,))):
        with pytest.raises(IndexError, match=r"not in \[0, 5\)"):
            read(number)


def test_locates_rows_in_shards(store: Store) -> None:
    assert [(store.locate(number)[0].number, store.locate(number)[1]) for number in range(5)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
    ]


def test_ids_with_equal_hashes_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_blocks, "id_hash", lambda encoded: len(encoded) % 2)
    monkeypatch.setattr(ids_module, "id_hash", lambda encoded: len(encoded) % 2)
    store = Store(write_dataset(tmp_path, "memmap", ROWS))
    assert [store.row_of(record_id) for record_id in IDS] == [0, 1, 2, 3, 4]
    with pytest.raises(RecordNotFoundError):
        store.row_of("a/3.jpg")


def test_a_duplicate_id_is_refused_naming_both_places(tmp_path: Path, backend: str) -> None:
    with pytest.raises(FormatError, match=r"'twice'.*shards/00000\S* row 1 and shards/00001\S* row 0"):
        write_dataset(tmp_path, backend, [[row("once"), row("twice")], [row("twice")]])
    assert not (tmp_path / "index/00001").exists()


def test_ids_behave_as_a_list(ids: IdSequence) -> None:
    assert len(ids) == 5
    assert ids[-1] == "b/2.jpg"
    assert ids == IDS
    assert ids != IDS[:-1]
    assert list(ids) == IDS
    assert list(reversed(ids)) == IDS[::-1]
    assert "ü/3" in ids
    assert "nothing" not in ids
    assert 3 not in ids
    assert ids.index("ü/3") == 2
    with pytest.raises(IndexError):
        ids[5]


def test_slices_of_ids_are_ids(ids: IdSequence) -> None:
    assert ids[1::2] == ["a/2.jpg", "b/1.jpg"]
    assert ids[::-1][0] == "b/2.jpg"
    assert "a/1.jpg" not in ids[1:]
    assert len(ids[7:]) == 0


def test_ids_of_any_rows_in_any_order(ids: IdSequence) -> None:
    some = IdSequence(ids._index, np.array([4, 0, 4]))
    assert some == ["b/2.jpg", "a/1.jpg", "b/2.jpg"]
    assert pickle.loads(pickle.dumps(some)) == some


def test_ids_pickle_small(tmp_path: Path) -> None:
    rows = [row(f"some/long/name/{number:06d}.jpg") for number in range(3000)]
    ids = Store(write_dataset(tmp_path, "memmap", [rows])).ids
    assert len(pickle.dumps(ids)) < 500
    assert pickle.loads(pickle.dumps(ids[5:7])) == ["some/long/name/000005.jpg", "some/long/name/000006.jpg"]


def test_columns_of_single_values_cover_all_rows(store: Store) -> None:
    labels = store.column("label")
    assert labels.tolist() == [1, 2, 299, 0, 7]
    assert (labels.dtype, labels.flags.writeable) == (np.dtype("<i8"), False)
    assert store.column("flag").tolist() == [True, False, False, False, True]
    with pytest.raises(LookupError, match="'vector' is not kept over all rows; these are: label, flag"):
        store.column("vector")


def test_rejections_are_kept_with_the_index(store: Store) -> None:
    assert list(store.rejected()) == [{"id": "bad", "reason": "empty"}]


@pytest.mark.parametrize("line", [b"[" * 99_999, b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xff", b"[]", b""])
def test_a_line_of_the_rejections_that_is_no_strict_json_object_is_an_error(
    tmp_path: Path, line: bytes
) -> None:
    root = write_dataset(tmp_path, "memmap", ROWS)
    path, manifest = root / "index/00001/rejected.jsonl", root / "manifest.json"
    old = path.stat().st_size
    path.write_bytes(line + b"\n")
    sizes = manifest.read_text().rpartition(f'"bytes": {old},')
    manifest.write_text(f'{sizes[0]}"bytes": {len(line) + 1},{sizes[2]}')
    with pytest.raises(CorruptShardError, match=r"rejected\.jsonl: line 1 is not a JSON object"):
        list(Store(root).rejected())


def test_a_data_set_without_records_is_readable(tmp_path: Path) -> None:
    index = write_index(tmp_path, 1, CONTRACT, []).entry
    commit(tmp_path, make_manifest(1, CONTRACT, [], index))
    store = Store(tmp_path)
    assert (len(store), list(store.ids), store.column("label").shape) == (0, [], (0,))
    with pytest.raises(RecordNotFoundError):
        store.row_of("a")


def test_an_index_file_cut_while_it_is_read_piece_by_piece_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids_module, "MAPPED_BYTES", 0)
    store = Store(write_dataset(tmp_path, "memmap", ROWS))
    os.truncate(tmp_path / "index/00001/ids.bin", 3)
    with pytest.raises(CorruptShardError, match=r"ids.bin: was cut while in use"):
        store.id_of(4)
