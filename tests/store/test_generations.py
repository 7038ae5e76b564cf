"""Readers of an older generation go on unharmed while newer ones are committed, until their files are removed."""

import json
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest
from small_datasets import CONTRACT, ROWS, append_rows, digest_of, row, succeed, write_dataset, write_shard

from shardkit.errors import CorruptShardError, DatasetNotFoundError, FormatError, ManifestError
from shardkit.store import (
    BACKENDS,
    Manifest,
    PastGeneration,
    Store,
    commit,
    durable,
    load_generation,
    load_manifest,
    make_manifest,
    remove_unreferenced,
)

FLAT = [each for shard in ROWS for each in shard]


def append(root: Path, backend: str) -> Manifest:
    return append_rows(root, backend, [row("new", b"new")])


def delete(root: Path, backend: str) -> Manifest:
    """Delete the middle row of the first shard, which is written again under a new number, in its old place."""
    before = load_manifest(root)
    shorter = write_shard(root, before.next_shard, backend, [ROWS[0][0], ROWS[0][2]])
    return succeed(root, [shorter, *before.shards[1:]])


def delete_shard(root: Path, _: str) -> Manifest:
    return succeed(root, load_manifest(root).shards[:-1])


def compact(root: Path, backend: str) -> Manifest:
    return succeed(root, [write_shard(root, load_manifest(root).next_shard, backend, FLAT)])


Change = Callable[[Path, str], Manifest]
changes = pytest.mark.parametrize("change", [append, delete, delete_shard, compact])


def require_whole(store: Store) -> None:
    """Read all that generation 1 holds."""
    assert store.manifest.generation == 1
    assert list(store.ids) == [record_id for record_id, _ in FLAT]
    assert store.column("label").tolist() == [1, 2, 299, 0, 7]
    assert list(store.rejected()) == [{"id": "bad", "reason": "empty"}]
    for number, (record_id, expected) in enumerate(FLAT):
        payloads = store.payloads(number, range(4))
        assert [bytes(payload) for payload in payloads] == expected
        store.check(number, 0, payloads[0])
        assert store.row_of(record_id) == number
        assert store.stored_id(number) == record_id
        assert store.source_digest(number) == digest_of(record_id)


@changes
def test_a_reader_goes_on_with_shards_and_columns_that_it_had_not_opened(
    dataset: Path, backend: str, change: Change
) -> None:
    untouched, begun = Store(dataset), Store(dataset)
    assert bytes(begun.payload(1, 0)) == b"x" * 5000
    assert change(dataset, backend).generation == 2
    require_whole(untouched)
    require_whole(begun)
    begun.close()
    require_whole(begun)


_held: list[Store] = []  # in a process of its own


def hold(store: Store, row: int | None) -> None:
    _held.append(store)
    if row is not None:
        store.payload(row, 0)


def require_held_whole() -> None:
    require_whole(_held[0])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_that_hold_an_older_generation_go_on(
    tmp_path: Path, method: str, request: pytest.FixtureRequest
) -> None:
    pools: list[tuple[Path, str, Store, Pool]] = []
    for backend in sorted(BACKENDS):
        root = write_dataset(tmp_path / backend, backend, ROWS)
        store = Store(root)
        pool = multiprocessing.get_context(method).Pool(1, hold, (store, 0))
        request.addfinalizer(pool.terminate)
        pool.apply(os.getpid)  # it holds the data set by now
        pools.append((root, backend, store, pool))
    for root, backend, store, pool in pools:
        delete(root, backend)
        pool.apply(require_held_whole)
        with multiprocessing.get_context(method).Pool(1, hold, (store, None)) as later:
            later.apply(require_held_whole)
        require_whole(store)


def test_a_child_forked_after_the_commit_goes_on(dataset: Path, backend: str) -> None:
    store = Store(dataset)
    store.payload(0, 0)
    append(dataset, backend)
    child = os.fork()
    if child == 0:
        try:
            require_whole(store)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@changes
def test_pickled_stores_and_ids_open_their_own_generation_though_another_is_current(
    dataset: Path, backend: str, change: Change
) -> None:
    store = Store(dataset)
    pickled = pickle.dumps((store, store.ids[:2]))
    del store
    change(dataset, backend)
    store, ids = pickle.loads(pickled)
    require_whole(store)
    assert ids == ["a/1.jpg", "a/2.jpg"]
    del store
    assert pickle.loads(pickled)[1] == ["a/1.jpg", "a/2.jpg"]


@changes
def test_an_older_generation_is_opened_by_its_number(dataset: Path, backend: str, change: Change) -> None:
    first = load_manifest(dataset)
    manifest = change(dataset, backend)
    require_whole(Store(dataset, generation=1))
    assert load_generation(dataset, 1) == first
    assert load_generation(dataset, 2) == manifest == Store(dataset).manifest
    assert len(Store(dataset, generation=2)) == len(Store(dataset)) == manifest.count


def test_what_a_change_makes_reads_as_a_data_set(dataset: Path, backend: str) -> None:
    delete(dataset, backend)
    append(dataset, backend)
    store = Store(dataset)
    assert list(store.ids) == ["a/1.jpg", "ü/3", "b/1.jpg", "b/2.jpg", "new"]
    assert [shard.number for shard in store.manifest.shards] == [2, 1, 3]
    assert [store.row_of(record_id) for record_id in store.ids] == [0, 1, 2, 3, 4]
    assert bytes(store.payload(4, 0)) == b"new"
    assert store.column("label").tolist() == [1, 299, 0, 7, 0]


def test_the_history_names_every_generation_and_keeps_the_last(dataset: Path, backend: str) -> None:
    manifests = [load_manifest(dataset), append(dataset, backend), delete(dataset, backend)]
    assert manifests[2].history == tuple(
        PastGeneration(manifest.generation, manifest.dataset_id) for manifest in manifests[:2]
    )
    assert [path.name for path in (dataset / "history").iterdir()] == ["00002.json"]
    assert Store(dataset, generation=2).manifest == manifests[1]


def test_a_removed_generation_says_so(dataset: Path, backend: str) -> None:
    store, pickled = Store(dataset), pickle.dumps(Store(dataset))
    store.payload(0, 0)
    compact(dataset, backend)
    delete_shard(dataset, backend)  # there are none left of generation 1 after this
    assert bytes(store.payload(1, 0)) == b"x" * 5000  # what is open stays
    for read in (lambda: store.payload(4, 0), lambda: store.column("label"), lambda: list(store.rejected())):
        with pytest.raises(
            CorruptShardError, match=r"was removed by a later generation: 3 is current, and 1 was"
        ):
            read()
    for reopen in (lambda: pickle.loads(pickled), lambda: Store(dataset, generation=1)):
        with pytest.raises(DatasetNotFoundError, match=r"generation 1 was removed .* its generations 2, 3$"):
            reopen()


def test_a_forked_child_is_told_that_its_generation_was_removed(dataset: Path, backend: str) -> None:
    store = Store(dataset)
    compact(dataset, backend)
    remove_unreferenced(dataset, load_manifest(dataset))
    child = os.fork()
    if child == 0:
        try:
            store.payload(4, 0)
        except CorruptShardError as error:
            os._exit(0 if "was removed by a later generation" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_missing_from_the_current_generation_is_not_said_to_be_removed(
    dataset: Path, backend: str
) -> None:
    append(dataset, backend)
    store = Store(dataset)
    shutil.rmtree(dataset / "shards")
    with pytest.raises(CorruptShardError, match="is missing, although the manifest names it"):
        store.payload(0, 0)


@pytest.mark.parametrize("generation", [0, -1, 3, 1 << 70])
def test_a_generation_that_there_never_was_is_not_found(dataset: Path, backend: str, generation: int) -> None:
    append(dataset, backend)
    for read in (Store, load_generation):
        with pytest.raises(
            DatasetNotFoundError, match=rf"has no generation {generation}; .* generations 1, 2$"
        ):
            read(dataset, generation)


def test_a_data_set_that_was_overwritten_has_no_earlier_generations(dataset: Path, backend: str) -> None:
    store, pickled = Store(dataset), pickle.dumps(Store(dataset))
    append(dataset, backend)
    write_dataset(dataset, backend, [[row("other")]], generation=3)
    remove_unreferenced(dataset, load_manifest(dataset))
    assert list((dataset / "history").iterdir()) == []
    for read in (lambda: store.payload(4, 0), lambda: pickle.loads(pickled)):
        with pytest.raises(FormatError, match=r"was replaced while in use: .* generation 3, and was"):
            read()
    with pytest.raises(DatasetNotFoundError, match=r"has no generation 1; .* generations 3$"):
        Store(dataset, generation=1)


def test_another_data_set_of_the_same_generation_is_not_taken_for_ours(dataset: Path, backend: str) -> None:
    """Its history has the number of our generation, but not its data set id."""
    store, pickled = Store(dataset), pickle.dumps(Store(dataset))
    shutil.rmtree(dataset)
    write_dataset(dataset, backend, [[row("other")], [row("more")]])
    append(dataset, backend)
    for read in (lambda: store.payload(4, 0), lambda: pickle.loads(pickled)):
        with pytest.raises(FormatError, match=r"was replaced while in use: .* generation 2, and was"):
            read()


def test_numbers_of_shards_never_come_again(dataset: Path, backend: str) -> None:
    delete_shard(dataset, backend)
    assert [shard.number for shard in append(dataset, backend).shards] == [0, 2]
    delete_shard(dataset, backend)
    assert load_manifest(dataset).next_shard == 3
    assert [shard.number for shard in compact(dataset, backend).shards] == [3]


def test_dropping_all_but_the_current_generation_leaves_it_whole(dataset: Path, backend: str) -> None:
    manifest = append(dataset, backend)
    remove_unreferenced(dataset, manifest)
    assert list((dataset / "history").iterdir()) == []
    assert [path.name for path in (dataset / "index").iterdir()] == ["00002"]
    assert list(Store(dataset).ids)[-1] == "new"
    assert Store(dataset).manifest.history[0].generation == 1


def test_a_copy_from_a_commit_that_failed_is_removed(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_manifest(dataset)
    successor = make_manifest(2, CONTRACT, before.shards, before.index, history=before.lineage)
    content = (dataset / "manifest.json").read_bytes()
    replace = os.replace

    def refuse(source: Path, target: Path) -> None:
        if target.name == "manifest.json":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(durable.os, "replace", refuse)
    with pytest.raises(KeyboardInterrupt):
        commit(dataset, successor)
    assert (
        (dataset / "manifest.json").read_bytes() == content == (dataset / "history/00001.json").read_bytes()
    )
    (dataset / "history/00007.json.partial").write_text("{")
    (dataset / "history/notes.txt").write_text("mine")
    remove_unreferenced(dataset, before, before)
    assert [path.name for path in (dataset / "history").iterdir()] == ["notes.txt"]


def test_the_copy_is_durable_before_the_manifest_is_replaced(dataset: Path, disk_events: list[str]) -> None:
    before = load_manifest(dataset)
    commit(dataset, make_manifest(2, CONTRACT, before.shards, before.index, history=before.lineage))
    assert disk_events == [
        "fsync data",
        "fsync 00001.json.partial",
        "rename to 00001.json",
        "fsync history",
        "fsync manifest.json.partial",
        "rename to manifest.json",
        "fsync data",
    ]


def test_a_manifest_of_another_lineage_is_not_kept(dataset: Path) -> None:
    before = load_manifest(dataset)
    for history in ((), (PastGeneration(1, "0" * 32),)):
        commit(dataset, make_manifest(2, CONTRACT, before.shards, before.index, history=history))
        assert not (dataset / "history").exists()


def test_a_damaged_manifest_is_replaced_by_a_new_data_set_and_by_no_later_generation(dataset: Path) -> None:
    before = load_manifest(dataset)
    (dataset / "manifest.json").write_text("{")
    with pytest.raises(ManifestError, match=r"manifest.json: is not valid JSON"):
        commit(dataset, make_manifest(2, CONTRACT, before.shards, before.index, history=before.lineage))
    commit(dataset, make_manifest(2, CONTRACT, before.shards, before.index))
    assert Store(dataset).manifest.generation == 2


def alter(key: str, value: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return change


def link_away(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def link_folder_away(path: Path) -> None:
    path.parent.rename(path.parent.parent.parent / "elsewhere")
    path.parent.symlink_to(path.parent.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_text("{"), r"history/00001.json: is not valid JSON"),
        (alter("generation", 2), r"history/00001.json: is of generation 2, .* kept for generation 1"),
        (alter("dataset_id", "0" * 32), r"history/00001.json: is of generation 1, data set 000"),
        (alter("shards", None), r"history/00001.json: shards: must be an array"),
        (alter("version", "2.0"), r"history/00001.json: was written in version 2.0"),
        (link_away, r"history/00001.json: cannot be read: .*symbolic links"),
        (link_folder_away, r"history/00001.json: leads out of the data set"),
        (Path.unlink, r"generation 1 was removed by a later generation"),
    ],
)
def test_a_damaged_copy_is_an_error_that_names_it(
    dataset: Path, backend: str, damage: Callable[[Path], None], said: str
) -> None:
    append(dataset, backend)
    damage(dataset / "history/00001.json")
    for read in (Store, load_generation):
        with pytest.raises((FormatError, DatasetNotFoundError), match=said):
            read(dataset, 1)
    assert len(Store(dataset)) == 6
