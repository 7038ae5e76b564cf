"""What every shard backend must do; a new one joins by being listed in BACKENDS."""

import tempfile
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_datasets import CONTRACT, ROWS, digest_of, row, write_dataset

from shardkit.errors import CorruptShardError, OutputError
from shardkit.store import (
    BACKENDS,
    Column,
    Store,
    columns_of,
    commit,
    create_shard,
    lmdb_backend,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)

COLUMNS = columns_of(CONTRACT)
FLAT = [each for shard in ROWS for each in shard]

ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
records = st.lists(
    st.tuples(ids, st.binary(max_size=9000), st.integers(0, 299), st.booleans()),
    min_size=1,
    max_size=20,
    unique_by=lambda record: record[0],
)


def test_reads_back_every_row_as_it_was_written(store: Store) -> None:
    assert len(store) == 5
    for number, (record_id, payloads) in enumerate(FLAT):
        assert store.id_of(number) == record_id
        assert store.stored_id(number) == record_id
        assert [bytes(payload) for payload in store.payloads(number, range(4))] == payloads
        assert bytes(store.payload(number, 1)) == payloads[1]


def test_source_digests_are_kept_beside_the_records(store: Store) -> None:
    assert [store.source_digest(number) for number in range(5)] == [
        digest_of(record_id) for record_id, _ in FLAT
    ]
    with pytest.raises(IndexError):
        store.source_digest(5)


def test_source_digests_of_memmap_shards_open_with_numpy_alone(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, "memmap", [[row("a"), row("b")]])
    digests = np.load(root / "shards/00000/source-digest.npy", allow_pickle=False)
    assert (digests.dtype, digests.shape) == (np.dtype("u1"), (2, 16))
    assert digests[1].tobytes() == digest_of("b")


@pytest.mark.parametrize("digest", [b"", bytes(15), bytes(17)])
def test_a_source_digest_of_another_size_is_refused(tmp_path: Path, backend: str, digest: bytes) -> None:
    writer = create_shard(tmp_path, 0, backend, [Column("label", COLUMNS[1].layout)])
    with pytest.raises(OutputError, match=rf"source.digest.*has {len(digest)} bytes, not 16"):
        writer.append("a", [bytes(8)], [0], digest)
    writer.abort()


@pytest.mark.parametrize("digest", [bytes(15), "text", None])
def test_an_lmdb_record_with_a_wrong_source_digest_is_corrupt(
    tmp_path: Path, digest: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = msgpack.packb
    monkeypatch.setattr(msgpack, "packb", lambda record: pack({**record, "source-digest": digest}))
    store = Store(write_dataset(tmp_path, "lmdb", ROWS))
    with pytest.raises(
        CorruptShardError, match=r"00000.lmdb: row 1 does not hold a source digest of 16 bytes"
    ):
        store.source_digest(1)


def test_every_value_passes_its_checksum(store: Store) -> None:
    for number, (_, payloads) in enumerate(FLAT):
        for column, payload in enumerate(payloads):
            store.check(number, column, payload)


def test_a_changed_value_fails_its_checksum_and_is_named(store: Store) -> None:
    with pytest.raises(
        CorruptShardError, match=r"shards/00000.*row 1 \(id 'a/2.jpg', ingested from [^)]+\), field 'blob'"
    ):
        store.check(1, 0, b"x" * 4999 + b"y")


def test_a_value_moved_to_another_id_fails_its_checksum(tmp_path: Path, backend: str) -> None:
    _, payloads = row("a")
    writer = create_shard(tmp_path, 0, backend, COLUMNS)
    writer.append("b", payloads, record_checksums("a", payloads), bytes(16))
    writer.finish()
    shards = [seal_shard(tmp_path, 0, backend, COLUMNS, 1)]
    commit(tmp_path, make_manifest(1, CONTRACT, shards, write_index(tmp_path, 1, CONTRACT, shards).entry))
    with pytest.raises(CorruptShardError, match=r"row 0 \(id 'b'\), field 'blob': has checksum"):
        Store(tmp_path).check(0, 0, payloads[0])


def test_payloads_outlive_the_store_that_gave_them(dataset: Path) -> None:
    store = Store(dataset)
    payloads = store.payloads(3, (0, 2))
    store.close()
    del store
    assert [bytes(payload) for payload in payloads] == [b"y" * 100_000, bytes(range(24))]


def test_a_closed_store_opens_its_shards_anew(store: Store) -> None:
    store.payload(0, 0)
    store.close()
    assert bytes(store.payload(1, 0)) == b"x" * 5000


def test_fixed_columns_of_memmap_shards_open_with_numpy_alone(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, "memmap", ROWS)
    vectors = np.load(root / "shards/00000/vector.npy", allow_pickle=False)
    assert (vectors.dtype, vectors.shape) == (np.dtype("<f4"), (3, 2, 3))
    assert np.load(root / "shards/00000/label.npy").tolist() == [1, 2, 299]
    array = Store(root).array(0, 2)
    assert array is not None
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, vectors)


def test_there_is_no_array_where_records_lie_apart(tmp_path: Path) -> None:
    assert Store(write_dataset(tmp_path / "lmdb", "lmdb", ROWS)).array(0, 2) is None
    assert Store(write_dataset(tmp_path / "memmap", "memmap", ROWS)).array(0, 0) is None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=records, cut=st.integers(0, 20))
def test_any_records_come_back(backend: str, records: list[tuple[str, bytes, int, bool]], cut: int) -> None:
    rows = [row(*record) for record in records]
    with tempfile.TemporaryDirectory() as folder:
        shards = [shard for shard in (rows[:cut], rows[cut:]) if shard]
        with Store(write_dataset(Path(folder) / "data", backend, shards)) as store:
            assert list(store.ids) == [record_id for record_id, _ in rows]
            for number, (record_id, payloads) in enumerate(rows):
                assert store.row_of(record_id) == number
                found = store.payloads(number, range(4))
                assert store.source_digest(number) == digest_of(record_id)
                assert [bytes(payload) for payload in found] == payloads
                for column, payload in enumerate(found):
                    store.check(number, column, payload)
            assert store.column("label").tolist() == [label for _, _, label, _ in records]
            assert store.column("flag").tolist() == [flag for _, _, _, flag in records]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path, backend: str) -> None:
    rows = [
        [
            row(f"{number}", bytes([number % 256]) * (number * 37 % 6000), number % 300)
            for number in range(200)
        ]
    ]
    first, second = (write_dataset(tmp_path / name, backend, rows) for name in ("first", "second"))
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(second) for path in second.rglob("*") if path.is_file())
    for path in files:
        assert (first / path).read_bytes() == (second / path).read_bytes(), path


def test_a_shard_being_written_has_another_name(tmp_path: Path, backend: str) -> None:
    writer = create_shard(tmp_path, 7, backend, COLUMNS)
    record_id, payloads = row("a")
    writer.append(record_id, payloads, [1, 2, 3, 4], bytes(16))
    path = tmp_path / BACKENDS[backend].shard_path(7)
    assert not path.exists()
    writer.finish()
    assert [each.name for each in (tmp_path / "shards").iterdir()] == [path.name]


def test_an_aborted_shard_leaves_nothing(tmp_path: Path, backend: str) -> None:
    writer = create_shard(tmp_path, 7, backend, COLUMNS)
    record_id, payloads = row("a")
    writer.append(record_id, payloads, [1, 2, 3, 4], bytes(16))
    writer.abort()
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_shard_replaces_what_an_unfinished_run_left_under_its_number(tmp_path: Path, backend: str) -> None:
    write_dataset(tmp_path, backend, [[row("old"), row("older")]])
    (tmp_path / "manifest.json").unlink()
    partial = tmp_path / (BACKENDS[backend].shard_path(0) + ".partial")
    partial.mkdir()
    (partial / "blob.bin").write_bytes(b"half")
    store = Store(write_dataset(tmp_path, backend, [[row("new")]]))
    assert list(store.ids) == ["new"]


def test_more_than_one_transaction_and_a_growing_map_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_backend, "_BATCH_BYTES", 100_000)
    rows = [row(str(number), bytes([number % 256]) * 3000, number % 300) for number in range(1000)]
    store = Store(write_dataset(tmp_path, "lmdb", [rows]))
    assert all(bytes(store.payload(number, 0)) == rows[number][1][0] for number in range(1000))
    assert (tmp_path / "shards/00000.lmdb").stat().st_size < 3_000_000 * 1.6


def test_a_map_that_is_full_after_all_is_grown_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_backend.LmdbWriter, "_needed_map_size", lambda _: 1 << 20)
    rows = [row(str(number), bytes([number % 256]) * 5000) for number in range(600)]
    store = Store(write_dataset(tmp_path, "lmdb", [rows]))
    assert [bytes(store.payload(number, 0)) for number in range(600)] == [blob for _, (blob, *_) in rows]


def test_a_record_that_lmdb_cannot_hold_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_backend, "MAX_RECORD_BYTES", 1000)
    writer = create_shard(tmp_path, 0, "lmdb", COLUMNS)
    with pytest.raises(OutputError, match=r"'big' has 1034 bytes.*memmap"):
        writer.append(*row("big", bytes(1001)), [0] * 4, bytes(16))
    writer.abort()


def test_a_value_of_the_wrong_size_for_a_fixed_column_is_refused(tmp_path: Path, backend: str) -> None:
    writer = create_shard(tmp_path, 0, backend, [Column("label", COLUMNS[1].layout)])
    with pytest.raises(OutputError, match="7 bytes"):
        writer.append("a", [bytes(7)], [0], bytes(16))
    writer.abort()


def test_offsets_past_four_gibibytes_are_kept(tmp_path: Path) -> None:
    root = write_dataset(tmp_path, "memmap", [[row("a", b"first"), row("b", b"second")]])
    data, offsets = root / "shards/00000/blob.bin", root / "shards/00000/blob.offsets.npy"
    begin = (5 << 30) + 3
    with data.open("r+b") as stream:  # sparse: takes no room
        stream.truncate(begin)
        stream.seek(begin)
        stream.write(b"second")
    old = np.load(offsets)
    new = np.array([0, begin, begin + 6], "<u8")
    offsets.write_bytes(offsets.read_bytes()[: -old.nbytes] + new.tobytes())
    manifest = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(manifest.replace('"bytes": 11,', f'"bytes": {begin + 6},', 1))
    assert bytes(Store(root).payload(1, 0)) == b"second"
