"""Damaged files are typed errors or are caught by a checksum; never a signal, a hang, or another exception.

Each case is read in a forked child, so that a signal would be noticed.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_datasets import ROWS, row, write_dataset

from shardkit.errors import CorruptShardError, ShardkitError
from shardkit.store import Store

FLAT = [each for shard in ROWS for each in shard]
SOUND, REFUSED, SILENT, OTHER = 0, 10, 20, 30
NAMES = {SOUND: "sound", REFUSED: "refused", SILENT: "silently wrong", OTHER: "another exception"}


def read_everything(root: Path) -> int:
    """Read all that there is, and say how it went."""
    try:
        store = Store(root)
        same = len(store) >= len(FLAT)
        for number in range(len(FLAT), len(store)):
            store.check(number, 0, store.payload(number, 0))
        for number, (record_id, expected) in enumerate(FLAT):
            payloads = store.payloads(number, range(len(expected)))
            for column, payload in enumerate(payloads):
                store.check(number, column, payload)
            same &= [bytes(payload) for payload in payloads] == expected
            same &= store.id_of(number) == record_id
            same &= store.row_of(record_id) == number
            same &= len(store.source_digest(number)) == 16
            if store.stored_id(number) != store.id_of(number):  # what verification compares
                return REFUSED
        list(store.rejected())
    except ShardkitError as error:
        return REFUSED if "\n" not in str(error) else OTHER
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        return OTHER
    return SOUND if same else SILENT


def read_in_child(root: Path) -> str:
    return read_in_children(root, [lambda: nullcontext()])[0]


def read_in_children(root: Path, cases: Sequence[Callable[[], AbstractContextManager[None]]]) -> list[str]:
    """Read everything under each case, in one child as long as it lives; the next child takes the cases after."""
    outcomes: list[str] = []
    while len(outcomes) < len(cases):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for case in cases[len(outcomes) :]:
                os.write(writing, b"?")
                with case():
                    os.write(writing, bytes([read_everything(root)]))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            said = stream.read()
        outcomes += [NAMES[byte] for byte in said if byte in NAMES]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            outcomes.append(f"signal {-status}")
    return outcomes


def read_changed(root: Path, changes: dict[Any, tuple[Path, Callable[[bytearray], None]]]) -> dict[Any, str]:
    """Return the outcome for each change of one file."""
    originals = {path: path.read_bytes() for path, _ in changes.values()}
    cases = [partial(changed, path, change) for path, change in changes.values()]
    try:
        return dict(zip(changes, read_in_children(root, cases), strict=True))
    finally:
        for path, original in originals.items():  # a child that died could not put it back
            path.write_bytes(original)


@contextmanager
def changed(path: Path, change: Callable[[bytearray], None]) -> Iterator[None]:
    original = path.read_bytes()
    data = bytearray(original)
    change(data)
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(original)


def flip(offset: int, bit: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[offset] ^= 1 << bit

    return change


@pytest.fixture(scope="module")
def memmap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("damage") / "memmap", "memmap", ROWS)


@pytest.fixture(scope="module")
def lmdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("damage") / "lmdb", "lmdb", ROWS)


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != "manifest.json")


def test_what_is_whole_is_sound(dataset: Path) -> None:
    assert read_in_child(dataset) == "sound"


@pytest.mark.parametrize("kind", ["memmap", "lmdb"])
def test_a_file_of_any_other_length_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    changes = {}
    for path in files_of(root):
        size = path.stat().st_size
        for length in {0, 1, 127, 128, size // 2, size - 4096, size - 1, size + 1, size + 4096} - {size}:
            if length >= 0:
                changes[path.name, length] = (path, partial(resize, length))
    outcomes = read_changed(root, changes)
    assert {place: outcome for place, outcome in outcomes.items() if outcome != "refused"} == {}


def resize(length: int, data: bytearray) -> None:
    del data[length:]
    data.extend(bytes(length - len(data)))


@pytest.mark.parametrize("kind", ["memmap", "lmdb"])
def test_a_missing_file_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(kind)
    for path in files_of(root):
        path.rename(path.with_name("elsewhere"))
        assert read_in_child(root) == "refused", path
        path.with_name("elsewhere").rename(path)


def test_a_flipped_bit_in_any_memmap_or_index_file_is_refused(memmap: Path) -> None:
    changes = {}
    for path in files_of(memmap):
        size = path.stat().st_size
        for offset in sorted({*range(0, size, max(1, size // 40)), size - 1}):
            changes[path.name, offset] = (path, flip(offset, offset % 8))
    outcomes = read_changed(memmap, changes)
    # what reading every record does not touch: the index's copy of columns, and hashes on the way of no search;
    # and what has no checksum but that of its file
    untouched = {"label.npy", "flag.npy", "rejected.jsonl", "hashes.npy", "source-digest.npy"}
    assert {(name, outcome) for (name, _), outcome in outcomes.items() if outcome != "refused"} <= {
        (name, "sound") for name in untouched
    }


def test_a_flipped_bit_in_the_manifest_is_refused_or_harmless(memmap: Path) -> None:
    path = memmap / "manifest.json"
    changes = {offset: (path, flip(offset, offset % 7)) for offset in range(0, path.stat().st_size, 7)}
    outcomes = list(read_changed(memmap, changes).values())
    assert set(outcomes) <= {"refused", "sound"}  # a digest or a version that differs does no harm here
    assert outcomes.count("refused") > len(outcomes) // 3


def interesting_lmdb_offsets(data: bytes) -> list[int]:
    """Both headers, and every page that is a branch or a leaf: its header, its pointers and its nodes."""
    offsets = list(range(160)) + list(range(4096, 4096 + 160))
    for page in range(2, len(data) // 4096):
        head = np.frombuffer(data, "<u2", 8, page * 4096)
        if int.from_bytes(data[page * 4096 : page * 4096 + 8], "little") == page and head[5] in (1, 2):
            offsets += range(page * 4096, page * 4096 + 32)
            offsets += range(page * 4096 + int(head[7]), page * 4096 + min(int(head[7]) + 48, 4096))
    return offsets


def test_a_flipped_bit_in_the_structure_of_an_lmdb_file_never_ends_the_process(lmdb: Path) -> None:
    path = lmdb / "shards/00000.lmdb"
    offsets = interesting_lmdb_offsets(path.read_bytes())
    changes = {(offset, bit): (path, flip(offset, bit)) for offset in offsets for bit in range(0, 8, 2)}
    outcomes = read_changed(lmdb, changes)
    assert {
        place: outcome for place, outcome in outcomes.items() if outcome not in ("refused", "sound")
    } == {}
    assert sum(outcome == "refused" for outcome in outcomes.values()) > len(outcomes) // 4


def test_a_flipped_bit_in_a_deep_lmdb_tree_never_ends_the_process(tmp_path: Path) -> None:
    many = [row(str(number), bytes([number % 256]) * 1500) for number in range(400)]
    root = write_dataset(tmp_path, "lmdb", [*ROWS, many])
    path = root / "shards/00002.lmdb"
    offsets = interesting_lmdb_offsets(path.read_bytes())
    chosen = np.random.default_rng(0).choice(offsets, 300).tolist()
    branches = [offset for offset in offsets if path.read_bytes()[offset // 4096 * 4096 + 10] == 1]
    assert len(branches) > 30
    changes = {offset: (path, flip(offset, offset % 8)) for offset in chosen + branches}
    assert set(read_changed(root, changes).values()) <= {"refused", "sound"}


def test_a_flipped_bit_in_a_stored_value_is_caught_by_its_checksum(dataset: Path, backend: str) -> None:
    path = dataset / ("shards/00001.lmdb" if backend == "lmdb" else "shards/00001/blob.bin")
    with changed(path, flip(path.read_bytes().index(b"y" * 50_000) + 40_000, 2)):
        store = Store(dataset)
        with pytest.raises(
            CorruptShardError,
            match=r"shards/00001.*row 0 \(id 'b/1.jpg', ingested from [^)]+\), field 'blob'",
        ):
            store.check(3, 0, store.payload(3, 0))


def test_a_shard_replaced_by_a_link_or_a_pipe_is_refused(dataset: Path, tmp_path: Path) -> None:
    path = files_of(dataset)[-1]
    shutil.copy(path, tmp_path / "copy")
    path.unlink()
    path.symlink_to(tmp_path / "copy")
    with pytest.raises(CorruptShardError, match="symbolic link"):
        Store(dataset)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptShardError, match="not a regular file"):
        Store(dataset)


def test_a_folder_that_is_a_link_out_of_the_data_set_is_refused(dataset: Path, tmp_path: Path) -> None:
    (dataset / "index").rename(tmp_path / "elsewhere")
    (dataset / "index").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptShardError, match="leads out of the data set"):
        Store(dataset)


def read(store: Store) -> list[bytes]:
    return [bytes(store.payload(number, 0)) for number in range(len(store))]


def test_a_file_cut_while_the_store_is_open_is_refused_when_its_shard_is_first_read(dataset: Path) -> None:
    store = Store(dataset)
    path = next(path for path in files_of(dataset) if path.name in ("00001.lmdb", "blob.bin"))
    os.truncate(path, 0)
    with pytest.raises(CorruptShardError, match="0 bytes long"):
        read(store)


@pytest.mark.parametrize("crafted", [[0, 5000, 0, 5002], [0, 1 << 63, 5000, 5002], [0, 0, 6000, 5002]])
def test_crafted_offsets_are_refused(memmap: Path, crafted: list[int]) -> None:
    def craft(data: bytearray) -> None:
        data[-32:] = np.array(crafted, "<u8").tobytes()

    with changed(memmap / "shards/00000/blob.offsets.npy", craft):
        assert read_in_child(memmap) == "refused"
