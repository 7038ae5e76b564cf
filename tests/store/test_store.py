"""The raw reader in other processes and threads, and over generations."""

import mmap
import multiprocessing
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest
from small_datasets import ROWS, Row, row, write_dataset

from shardkit.errors import CorruptShardError, DatasetNotFoundError, FormatError, UnsupportedVersionError
from shardkit.store import STORE_NAMES, Store, folder, load_manifest, remove_unreferenced

BLOBS = [payloads[0] for shard in ROWS for _, payloads in shard]


def read_all(store: Store) -> list[bytes]:
    return [bytes(store.payload(number, 0)) for number in range(len(store))]


def test_pickles_small_and_reads_after_it(store: Store) -> None:
    store.payload(0, 0)
    pickled = pickle.dumps(store)
    assert len(pickled) < 500
    assert read_all(pickle.loads(pickled)) == BLOBS


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_reads_in_child_processes_though_the_parent_has_read(store: Store, method: str) -> None:
    assert read_all(store) == BLOBS
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(read_all, [store, store]) == [BLOBS, BLOBS]
    assert read_all(store) == BLOBS


def test_a_forked_child_reads_through_what_it_inherited(store: Store) -> None:
    assert read_all(store) == BLOBS
    child = os.fork()
    if child == 0:
        os._exit(0 if read_all(store) == BLOBS and store.row_of("ü/3") == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read_all(store) == BLOBS


def test_many_threads_read_at_once(tmp_path: Path, backend: str) -> None:
    rows = [row(str(number), str(number).encode() * 50) for number in range(400)]
    store = Store(write_dataset(tmp_path, backend, [rows[:200], rows[200:]]))

    def read(number: int) -> bool:
        payload = store.payload(number % 400, 0)
        store.check(number % 400, 0, payload)
        return bytes(payload) == rows[number % 400][1][0]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4000)))


def test_a_forked_child_reads_on_in_the_lmdb_file_that_was_checked_whatever_took_its_place(
    tmp_path: Path,
) -> None:
    store = Store(write_dataset(tmp_path / "data", "lmdb", ROWS))
    assert read_all(store) == BLOBS
    path = tmp_path / "data/shards/00000.lmdb"
    (tmp_path / "other").write_bytes(bytes(path.stat().st_size))
    (tmp_path / "other").rename(path)
    child = os.fork()
    if child == 0:
        os._exit(0 if read_all(store) == BLOBS else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_lmdb_file_whose_pages_are_altered_while_in_use_is_corrupt(tmp_path: Path) -> None:
    store = Store(write_dataset(tmp_path / "data", "lmdb", ROWS))
    assert read_all(store) == BLOBS
    with (tmp_path / "data/shards/00000.lmdb").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(2 * mmap.PAGESIZE)  # behind the two headers
        file.write(b"\xff" * (size - file.tell()))
    with pytest.raises(CorruptShardError, match=r"00000\.lmdb: row 0 leads out of the file"):
        store.payload(0, 0)
    with pytest.raises(CorruptShardError, match=r"00000\.lmdb: row 0 leads out of the file"):
        store.stored_id(0)


def test_an_lmdb_file_can_be_open_elsewhere_in_the_process(tmp_path: Path) -> None:
    store = Store(write_dataset(tmp_path / "data", "lmdb", ROWS))
    path = str(tmp_path / "data/shards/00000.lmdb")
    with lmdb.open(path, subdir=False, readonly=True, lock=False) as environment:
        assert read_all(store) == BLOBS
        assert environment.stat()["entries"] == len(ROWS[0])


def test_a_manifest_half_written_is_a_name_of_the_store() -> None:
    assert {"manifest.json", "manifest.json.partial", "history", "index", "shards"} == STORE_NAMES


def test_opening_opens_each_file_of_a_shard_once(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    system_open = os.open

    def record_open(path: str | Path, flags: int) -> int:
        opened.append(os.fspath(path))
        return system_open(path, flags)

    monkeypatch.setattr(folder.os, "open", record_open)
    store = Store(dataset)
    of_shards = [path for path in opened if "/shards/" in path]
    files = [file.path for shard in store.manifest.shards for file in shard.files]
    assert sorted(of_shards) == sorted(str(dataset / path) for path in files)


def test_two_stores_of_one_data_set_live_in_one_process(dataset: Path) -> None:
    first, second = Store(dataset), Store(dataset)
    assert read_all(first) == read_all(second) == BLOBS
    first.close()
    assert read_all(second) == BLOBS


def test_a_pickled_store_refuses_a_data_set_that_was_replaced(dataset: Path, backend: str) -> None:
    pickled = pickle.dumps(Store(dataset))
    write_dataset(dataset, backend, [[row("other")]])
    with pytest.raises(FormatError, match="was replaced while in use"):
        pickle.loads(pickled)


@pytest.fixture
def relabelled() -> list[list[Row]]:
    """The records of ROWS, with other values of the same sizes."""
    return [
        [(record_id, [bytes(len(blob)), *payloads]) for record_id, (blob, *payloads) in shard]
        for shard in ROWS
    ]


def test_a_folder_made_anew_with_files_of_the_same_sizes_is_not_read_as_the_old_one(
    dataset: Path, backend: str, relabelled: list[list[Row]]
) -> None:
    store = Store(dataset)
    assert bytes(store.payload(1, 0)) == BLOBS[1]
    shutil.rmtree(dataset)
    write_dataset(dataset, backend, relabelled)
    for read in (lambda: store.payload(4, 0), lambda: store.column("label"), lambda: list(store.rejected())):
        with pytest.raises(FormatError, match="was replaced while in use"):
            read()
    assert bytes(store.payload(1, 0)) == BLOBS[1]
    assert bytes(Store(dataset).payload(4, 0)) == b"\0"


def test_a_column_first_read_after_the_folder_was_made_anew_is_refused(
    tmp_path: Path, relabelled: list[list[Row]]
) -> None:
    store = Store(write_dataset(tmp_path / "data", "memmap", ROWS))
    store.payload(0, 0)
    shutil.rmtree(tmp_path / "data")
    write_dataset(tmp_path / "data", "memmap", relabelled)
    with pytest.raises(FormatError, match="was replaced while in use"):
        store.payload(0, 1)


def test_a_folder_made_anew_with_the_same_content_is_read_on(dataset: Path, backend: str) -> None:
    store = Store(dataset)
    shutil.rmtree(dataset)
    write_dataset(dataset, backend, ROWS)
    assert read_all(store) == BLOBS


def test_a_file_that_an_overwrite_removed_is_said_to_be_replaced_and_not_missing(
    dataset: Path, backend: str
) -> None:
    store = Store(dataset)
    write_dataset(dataset, backend, [[row("other")]], generation=2)
    remove_unreferenced(dataset, load_manifest(dataset))
    for read in (lambda: store.payload(4, 0), lambda: store.column("label")):
        with pytest.raises(FormatError, match=r"was replaced while in use.*generation 2, and was"):
            read()


def test_a_column_over_all_rows_is_mapped_once(store: Store) -> None:
    assert store.column("label") is store.column("label")


def test_reading_no_column_does_not_touch_the_shards(dataset: Path) -> None:
    store = Store(dataset)
    shutil.rmtree(dataset / "shards")
    assert store.payloads(0, ()) == []
    with pytest.raises(IndexError, match=r"row 5 is not in \[0, 5\)"):
        store.payloads(5, ())


def test_an_id_that_is_no_text_is_a_type_error(store: Store) -> None:
    for wrong in (5, None, b"a/1.jpg"):
        with pytest.raises(TypeError, match=rf"an id is a str, not {type(wrong).__name__}"):
            store.row_of(wrong)  # type: ignore[arg-type]


def test_a_missing_data_set_is_told_from_an_unfinished_one(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="nowhere: does not exist"):
        Store(tmp_path / "nowhere")
    (dataset / "manifest.json").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"shards, index from an ingest that never finished"):
        Store(dataset)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetNotFoundError, match=r"empty: is not a data set: it has no manifest.json$"):
        Store(tmp_path / "empty")


def test_a_data_set_of_another_major_version_is_refused(dataset: Path) -> None:
    path = dataset / "manifest.json"
    path.write_text(path.read_text().replace('"version": "1.0"', '"version": "2.3"'))
    with pytest.raises(UnsupportedVersionError, match=r"version 2.3 .* reads 1.x"):
        Store(dataset)


def test_a_data_set_moves_and_is_copied_as_a_folder(dataset: Path, tmp_path: Path) -> None:
    dataset.rename(tmp_path / "moved")
    assert read_all(Store(tmp_path / "moved")) == BLOBS


def test_what_the_manifest_does_not_name_is_removed_and_nothing_else(dataset: Path, backend: str) -> None:
    (dataset / "shards" / "00009.partial").mkdir()
    (dataset / "shards" / "00008.lmdb").write_bytes(b"old")
    (dataset / "index" / "00002").mkdir()
    (dataset / "shards" / "notes.txt").write_text("mine")
    (dataset / "manifest.json.partial").write_text("{")
    (dataset / "README").write_text("mine")
    remove_unreferenced(dataset, load_manifest(dataset))
    kept = {
        path.relative_to(dataset).as_posix()
        for folder in ("shards", "index")
        for path in (dataset / folder).iterdir()
    }
    ending = ".lmdb" if backend == "lmdb" else ""
    assert kept == {f"shards/00000{ending}", f"shards/00001{ending}", "index/00001", "shards/notes.txt"}
    assert {path.name for path in dataset.iterdir()} == {"manifest.json", "README", "index", "shards"}
    assert read_all(Store(dataset)) == BLOBS
    remove_unreferenced(dataset, None)
    assert [path.name for path in (dataset / "shards").iterdir()] == ["notes.txt"]
