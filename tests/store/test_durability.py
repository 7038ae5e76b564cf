"""Writes that the system refuses are errors of ours, and what was committed stays."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_datasets import ROWS, row, write_dataset

from shardkit.errors import OutputError
from shardkit.store import Store, files, write_atomically


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system takes root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_an_error_that_names_the_shard(small_disk: Path, backend: str) -> None:
    rows = [row(str(number), os.urandom(100_000)) for number in range(30)]
    with pytest.raises(OutputError, match=r"shards/00000.*No space left on device"):
        write_dataset(small_disk, backend, [rows])


def test_a_full_disk_leaves_the_committed_data_set_as_it_was(small_disk: Path, backend: str) -> None:
    write_dataset(small_disk, backend, ROWS)
    before = (small_disk / "manifest.json").read_bytes()
    (small_disk / "filler").write_bytes(bytes(700_000))
    with pytest.raises(OutputError, match="No space left on device"):
        write_atomically(small_disk / "manifest.json", bytes(500_000))
    assert (small_disk / "manifest.json").read_bytes() == before
    assert len(Store(small_disk)) == 5


def test_a_failed_fsync_is_final(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        write_dataset(tmp_path, backend, ROWS)
    assert len(calls) == 1
    assert not (tmp_path / "manifest.json").exists()


def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        events.append("fsync " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        events.append(f"rename to {target.name}")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", record_fsync)
    monkeypatch.setattr(files.os, "replace", record_replace)
    write_atomically(tmp_path / "file", b"data")
    assert events == ["fsync file.partial", "rename to file", f"fsync {tmp_path.name}"]


def test_new_folders_are_synced_in_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_file", synced.append)
    files.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, backend: str) -> None:
    (tmp_path / "shards").write_text("a file where a folder should be")
    with pytest.raises(OutputError, match="shards"):
        write_dataset(tmp_path, backend, ROWS)
