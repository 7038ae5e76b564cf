"""New generations of a data set: appended to, without some records, in other shards, and pruned."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkit import (
    ArrayField,
    Contract,
    LabelField,
    ShardDataset,
    Store,
    TextField,
    compact,
    delete,
    ingest,
    prune,
    verify,
)
from shardkit.errors import CorruptShardError, IngestError, OutputError, RecordNotFoundError

BACKENDS = ("memmap", "lmdb")
CONTRACT = Contract(
    {"x": ArrayField("int64", (2,)), "note": TextField(), "label": LabelField(classes=("cat", "dog"))}
)


def record(name: str) -> dict[str, Any]:
    return {"id": name, "x": np.array([len(name), 7]), "note": f"of {name}", "label": "dog"}


def records(*names: str) -> list[dict[str, Any]]:
    return [record(name) for name in names]


def start(out: Path, *names: str, backend: str = "memmap", size: int = 2) -> None:
    ingest(records(*names), out, CONTRACT, backend=backend, workers=0, records_per_shard=size)


def stored(store: Store) -> dict[str, str]:
    """Return id -> note in row order, each read through its shard."""
    note = list(store.contract.fields).index("note")
    return {record_id: bytes(store.payload(row, note)).decode() for row, record_id in enumerate(store.ids)}


def expected(*names: str) -> dict[str, str]:
    return {name: f"of {name}" for name in names}


@pytest.mark.parametrize("backend", BACKENDS)
def test_appending_adds_records_behind_those_that_are_there(tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    start(out, "a", "b", "c", backend=backend)
    report = ingest(records("d", "e"), out, CONTRACT, backend=backend, workers=0, append=True)
    assert report.stored == 2
    with Store(out) as store:
        assert list(stored(store)) == list("abcde")
        assert stored(store) == expected(*"abcde")
        assert store.manifest.generation == 2
    assert verify(out, workers=0).ok
    assert verify(out, [*records("a", "b", "c"), *records("d", "e")], workers=0).ok


def test_shards_of_both_backends_may_stand_in_one_data_set(tmp_path: Path) -> None:
    start(tmp_path / "out", "a", "b", "c")
    ingest(records("d"), tmp_path / "out", workers=0, append=True, backend="lmdb")
    assert [sample["note"] for sample in ShardDataset(tmp_path / "out")] == [f"of {name}" for name in "abcd"]
    assert verify(tmp_path / "out", workers=0).ok


def test_appending_takes_the_contract_of_the_data_set(tmp_path: Path) -> None:
    start(tmp_path / "out", "a")
    assert ingest(records("b"), tmp_path / "out", workers=0, append=True).stored == 1


def test_another_contract_is_refused_with_the_field_that_differs(tmp_path: Path) -> None:
    start(tmp_path / "out", "a")
    other = Contract(dict(CONTRACT.fields) | {"label": LabelField(classes=("dog", "cat"))})
    with pytest.raises(OutputError, match="field 'label' differs"):
        ingest(records("b"), tmp_path / "out", other, workers=0, append=True)
    swapped = Contract(dict(reversed(CONTRACT.fields.items())))
    with pytest.raises(OutputError, match="order of the fields differs"):
        ingest(records("b"), tmp_path / "out", swapped, workers=0, append=True)


def test_an_id_that_is_there_already_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start(out, "a", "b")
    with pytest.raises(IngestError, match=r"'b' \(duplicate-id"):
        ingest(records("c", "b"), out, workers=0, append=True)
    with Store(out) as store:
        assert (list(store.ids), store.manifest.generation) == (["a", "b"], 1)
    report = ingest(records("c", "b"), out, workers=0, append=True, on_bad="skip")
    assert (report.stored, [each.id for each in report.rejections]) == (1, ["b"])


def test_appending_to_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ingest(records("a"), tmp_path / "out", CONTRACT, workers=0, append=True)
    assert not (tmp_path / "out").exists()


def test_what_an_earlier_generation_rejected_is_still_accounted_for(tmp_path: Path) -> None:
    out, bad = tmp_path / "out", {**record("bad"), "label": "bird"}
    first = [record("a"), bad]
    ingest(first, out, CONTRACT, workers=0, on_bad="skip")
    ingest(records("b"), out, workers=0, append=True)
    with Store(out) as store:
        assert [line["id"] for line in store.rejected()] == ["bad"]
    assert verify(out, [*first, record("b")], workers=0).ok


@pytest.mark.parametrize("backend", BACKENDS)
def test_deleting_leaves_records_out_and_all_others_in_their_order(tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    start(out, *"abcdefg", backend=backend)
    report = delete(out, ["d", "a", "d", "e", "f"], workers=0)
    assert (report.records, report.deleted, report.shards_written) == (3, 4, 2)
    with Store(out) as store:
        assert stored(store) == expected("b", "c", "g")
        assert "d" not in store.ids
    assert verify(out, workers=0).ok
    assert verify(out, records(*"abcdefg"), workers=0).ok


def test_deleted_ids_may_be_appended_again(tmp_path: Path) -> None:
    start(tmp_path / "out", "a", "b")
    delete(tmp_path / "out", ["a"], workers=0)
    assert ingest(records("a", "c"), tmp_path / "out", workers=0, append=True).restored == 1
    with Store(tmp_path / "out") as store:
        assert list(store.ids) == ["b", "a", "c"]
    assert verify(tmp_path / "out", records("b", "a", "c"), workers=0).ok


def test_a_single_str_is_no_list_of_ids(tmp_path: Path) -> None:
    start(tmp_path / "out", "1", "0", "10")
    with pytest.raises(TypeError, match="not a str"):
        delete(tmp_path / "out", "10", workers=0)
    with pytest.raises(ValueError, match="empty"):
        delete(tmp_path / "out", [], workers=0)


def write_table(path: Path, *rows: str) -> str:
    path.write_text("id,note\n" + "".join(f"{row}\n" for row in rows))
    return str(path)


def test_a_record_that_was_replaced_is_vouched_for_by_the_source_it_came_from(tmp_path: Path) -> None:
    out, contract = tmp_path / "out", Contract({"note": TextField(max_length=5)})
    first = write_table(tmp_path / "first.csv", "a,one", "b,far too long", "c,three")
    ingest(first, out, contract, workers=0, on_bad="skip")
    delete(out, ["c"], workers=0)
    second = write_table(tmp_path / "second.csv", "a,one", "b,two", "c,third")
    ingest(second, out, workers=0, append=True, on_bad="skip")
    with Store(out) as store:
        assert list(store.ids) == ["a", "b", "c"]
    assert verify(out, [first, second], workers=0).ok
    assert verify(out, [second, first], workers=0).ok
    third = write_table(tmp_path / "second.csv", "a,one", "b,two", "c,other")
    report = verify(out, [first, third], workers=0)
    assert {problem.id for problem in report.problems} == {"c"}


def test_an_unknown_id_deletes_nothing(tmp_path: Path) -> None:
    start(tmp_path / "out", "a", "b")
    with pytest.raises(RecordNotFoundError, match="'nobody'"):
        delete(tmp_path / "out", ["a", "nobody"], workers=0)
    with Store(tmp_path / "out") as store:
        assert (list(store.ids), store.manifest.generation) == (["a", "b"], 1)


def test_the_last_record_is_not_deleted(tmp_path: Path) -> None:
    start(tmp_path / "out", "a")
    with pytest.raises(OutputError, match="no record would be left"):
        delete(tmp_path / "out", ["a"], workers=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compacting_fills_the_shards_evenly_and_keeps_the_order(tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    start(out, "a", "b", "c")
    for name in "defg":
        ingest(records(name), out, workers=0, append=True)
    report = compact(out, backend=backend, records_per_shard=3, workers=2)
    assert (report.records, report.shards_written) == (7, 3)
    with Store(out) as store:
        assert [(shard.backend, shard.count) for shard in store.manifest.shards] == [
            (backend, 3),
            (backend, 3),
            (backend, 1),
        ]
        assert stored(store) == expected(*"abcdefg")
    assert verify(out, records(*"abcdefg"), workers=0).ok


def test_compacting_may_shuffle(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(50)]
    start(tmp_path / "out", *names, size=10)
    compact(tmp_path / "out", shuffle_seed=5, workers=0)
    with Store(tmp_path / "out") as store:
        assert list(store.ids) != names
        assert stored(store) == {name: f"of {name}" for name in store.ids}
        assert sorted(store.ids) == sorted(names)


@pytest.mark.parametrize("backend", BACKENDS)
def test_damage_is_not_copied_in_silence(tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    start(out, "a", "b", "c", backend=backend)
    shard = out / "shards" / ("00000/note.bin" if backend == "memmap" else "00000.lmdb")
    data = shard.read_bytes()
    assert data.count(b"of b") == 1
    shard.write_bytes(data.replace(b"of b", b"of X"))
    with pytest.raises(CorruptShardError, match=r"'b'.*'note'"):
        compact(out, workers=0)
    with pytest.raises(CorruptShardError, match="'b'"):
        delete(out, ["a"], workers=0)
    delete(out, ["b"], workers=0)
    assert verify(out, workers=0).ok


def read_all(dataset: ShardDataset, connection: Any) -> None:
    connection.send([(sample["id"], sample["note"]) for sample in dataset])
    connection.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reader_of_the_old_generation_goes_on_unharmed(tmp_path: Path, backend: str, method: str) -> None:
    out = tmp_path / "out"
    start(out, *"abcdef", backend=backend)
    for edit in (
        lambda: ingest(records("g"), out, workers=0, append=True),
        lambda: delete(out, ["a", "g"], workers=0),
        lambda: compact(out, workers=0),
    ):
        dataset = ShardDataset(out)  # opened, and not a record read yet
        before = list(dataset.ids)
        edit()
        context = multiprocessing.get_context(method)
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=read_all, args=(dataset, sending))
        process.start()
        assert receiving.recv() == [(name, f"of {name}") for name in before]
        process.join()
        assert [sample["id"] for sample in dataset] == before
        assert dataset.get(before[1])["note"] == f"of {before[1]}"


def test_pruning_removes_what_only_earlier_generations_need(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start(out, *"abcdef")
    delete(out, ["a", "b", "c"], workers=0)
    assert sorted(path.name for path in (out / "shards").iterdir()) == ["00000", "00001", "00002", "00003"]
    assert prune(out) > 0
    assert sorted(path.name for path in (out / "shards").iterdir()) == ["00002", "00003"]
    assert [path.name for path in (out / "index").iterdir()] == ["00002"]
    assert verify(out, workers=0).ok
    assert prune(out) == 0


def test_the_generation_before_the_last_goes_with_the_next_commit(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start(out, "a", "b")
    for name in "cde":
        ingest(records(name), out, workers=0, append=True)
    assert sorted(path.name for path in (out / "index").iterdir()) == ["00003", "00004"]


def test_a_number_of_a_deleted_shard_is_not_given_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    start(out, *"abcd")
    delete(out, ["c", "d"], workers=0)
    ingest(records("e", "f"), out, workers=0, append=True)
    with Store(out) as store:
        assert [shard.number for shard in store.manifest.shards] == [0, 2]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.just("delete"), st.integers(0, 1000)),
            st.tuples(st.just("compact"), st.integers(1, 7)),
            st.tuples(st.just("prune"), st.just(0)),
        ),
        max_size=6,
    )
)
def test_any_sequence_of_edits_keeps_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, int]]
) -> None:
    out = tmp_path_factory.mktemp("edits") / "out"
    names = ["0", "1", "2"]
    start(out, *names)
    made = len(names)
    for kind, number in edits:
        if kind == "append":
            fresh = [str(made + offset) for offset in range(number)]
            made += number
            ingest(records(*fresh), out, workers=0, append=True, records_per_shard=2)
            names += fresh
        elif kind == "delete" and len(names) > 1:
            gone = names.pop(number % len(names))
            delete(out, [gone], workers=0)
        elif kind == "compact":
            compact(out, records_per_shard=number, workers=0)
        else:
            prune(out)
        with Store(out) as store:
            assert stored(store) == expected(*names)
    assert verify(out, workers=0).ok


def test_a_record_that_was_rejected_or_deleted_and_is_stored_now_is_not_listed_any_more(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    ingest(
        [record("a"), record("b"), {**record("c"), "label": "bird"}], out, CONTRACT, workers=0, on_bad="skip"
    )
    delete(out, ["a"], workers=0)
    with Store(out) as store:
        assert [(line["id"], line["reason"]) for line in store.rejected()] == [
            ("c", "label-unknown"),
            ("a", "deleted"),
        ]
    ingest(records("a", "c"), out, workers=0, append=True)
    with Store(out) as store:
        assert list(store.rejected()) == []
    assert verify(out, records("a", "b", "c"), workers=0).ok


def test_editing_what_is_no_data_set_makes_no_folder(tmp_path: Path) -> None:
    for edit in (lambda: delete(tmp_path / "no" / "where", ["a"]), lambda: prune(tmp_path / "no" / "where")):
        with pytest.raises(FileNotFoundError):
            edit()
    assert list(tmp_path.iterdir()) == []
