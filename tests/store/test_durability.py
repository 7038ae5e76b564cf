"""Writes that the system refuses are errors of ours, and what was committed stays."""

import os
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_datasets import CONTRACT, ROWS, row, write_dataset

from shardkit.errors import OutputError
from shardkit.store import Store, columns_of, create_shard, durable, write_atomically
from shardkit.store.durable import EarlySync

ROOM = 300_000
REFUSED = (
    "No space left on device|File too large|Input/output error"  # the last is LMDB's word for a short write
)


def mount_small_disk(request: pytest.FixtureRequest) -> Path:
    """Return the folder of a file system of one megabyte, outside of what pytest clears away."""
    folder = Path(tempfile.mkdtemp())

    def clear() -> None:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
        shutil.rmtree(folder)

    request.addfinalizer(clear)
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system takes root")
    return folder


Fill = Callable[[], None]


@pytest.fixture(params=["small disk", "limit of file sizes"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Fill]]:
    """A folder, and what leaves room for a file of `ROOM` bytes in it and no larger one."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = mount_small_disk(request) if request.param == "small disk" else tmp_path

    def fill_disk() -> None:
        (folder / "filler").write_bytes(bytes(shutil.disk_usage(folder).free - ROOM))

    def limit_sizes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, limits[1]))

    yield folder, fill_disk if request.param == "small disk" else limit_sizes
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_an_error_that_names_the_shard(full: tuple[Path, Fill], backend: str) -> None:
    folder, fill = full
    fill()
    rows = [row(str(number), os.urandom(100_000)) for number in range(30)]
    with pytest.raises(OutputError, match=rf"shards/00000.*({REFUSED})"):
        write_dataset(folder, backend, [rows])
    assert list((folder / "shards").iterdir()) == []


def test_a_full_disk_leaves_the_committed_data_set_as_it_was(full: tuple[Path, Fill], backend: str) -> None:
    folder, fill = full
    write_dataset(folder, backend, ROWS)
    before = (folder / "manifest.json").read_bytes()
    fill()
    with pytest.raises(OutputError, match=REFUSED):
        write_atomically(folder / "manifest.json", bytes(500_000))
    assert (folder / "manifest.json").read_bytes() == before
    assert not (folder / "manifest.json.partial").exists()
    assert len(Store(folder)) == 5


def test_a_failed_fsync_is_final(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durable.os, "fsync", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        write_dataset(tmp_path, backend, ROWS)
    assert len(calls) == 1
    assert not (tmp_path / "manifest.json").exists()


def test_a_shard_is_sent_to_disk_while_it_is_still_being_written(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = threading.Event()
    fsync = os.fsync

    def record(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(("00000.lmdb.partial", "blob.bin")):
            synced.set()
        fsync(descriptor)

    writer = create_shard(tmp_path, 0, backend, columns_of(CONTRACT))
    monkeypatch.setattr(durable.os, "fsync", record)
    for number in range(3):
        writer.append(*row(str(number), bytes(5 << 20)), [0] * 4, bytes(16))
    assert synced.wait(timeout=20)
    writer.finish()
    assert [path.name for path in (tmp_path / "shards").iterdir()] in (["00000"], ["00000.lmdb"])


def test_an_early_fsync_that_failed_ends_the_shard(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    writer = create_shard(tmp_path, 0, backend, columns_of(CONTRACT))
    for number in range(2):
        writer.append(*row(str(number), bytes(1 << 20)), [0] * 4, bytes(16))
    monkeypatch.setattr(durable, "SYNC_EVERY", 1 << 20)
    monkeypatch.setattr(durable.os, "fsync", fail)

    def go_on() -> None:
        for number in range(2, 5):
            writer.append(*row(str(number), bytes(3 << 20)), [0] * 4, bytes(16))
        monkeypatch.undo()  # the last fsync of all says nothing of the one that failed
        writer.finish()

    with pytest.raises(OutputError, match=r"shards/00000.*Input/output error"):
        go_on()
    writer.abort()
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_small_file_needs_no_early_fsync_and_so_no_handle(tmp_path: Path) -> None:
    early = EarlySync(tmp_path / "nowhere")
    early.advance(durable.SYNC_EVERY - 1)
    early.close()
    early.close()
    with pytest.raises(OutputError, match=r"nowhere: cannot be written: No such file"):
        early.advance(1)


def test_a_file_that_could_not_be_written_leaves_no_partial_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(durable.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "manifest.json", b"{}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, disk_events: list[str]
) -> None:
    write_atomically(tmp_path / "file", b"data")
    assert disk_events == ["fsync file.partial", "rename to file", f"fsync {tmp_path.name}"]


def test_new_folders_are_synced_in_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_file", synced.append)
    durable.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, backend: str) -> None:
    (tmp_path / "shards").write_text("a file where a folder should be")
    with pytest.raises(OutputError, match="shards"):
        write_dataset(tmp_path, backend, ROWS)
