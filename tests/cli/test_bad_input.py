"""A user's mistake gets one clear line and an exit status, never a traceback."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shardkit import Contract, ShardkitError, delete, ingest
from shardkit.store import (
    columns_of,
    commit,
    create_shard,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)

NOBODY = 65534  # the user without rights, by custom
CONTRACT = '[fields.image]\ntype = "image"\n[fields.label]\ntype = "label"\nclasses = ["cat", "dog"]\n'


def shardkit(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardkit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def complaint(run: subprocess.CompletedProcess[str], status: int) -> str:
    """Return the one line on stderr, after checking that it is one and that the exit status is right."""
    lines = run.stderr.splitlines()
    assert run.returncode == status, run.stderr
    assert "Traceback" not in run.stderr
    assert len(lines) == 1, run.stderr
    assert run.stdout == ""
    return lines[0]


@pytest.fixture
def out(raw: Path, tmp_path: Path) -> Path:
    ingest(raw, tmp_path / "out", workers=0, records_per_shard=6)
    return tmp_path / "out"


@pytest.fixture
def lmdb_out(raw: Path, tmp_path: Path) -> Path:
    ingest(raw, tmp_path / "out", backend="lmdb", workers=0, records_per_shard=6)
    return tmp_path / "out"


def test_a_missing_folder(tmp_path: Path) -> None:
    line = complaint(shardkit("ingest", tmp_path / "nowhere", tmp_path / "out"), 2)
    assert "nowhere" in line
    assert not (tmp_path / "out").exists()


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    assert "no files" in complaint(shardkit("ingest", tmp_path / "raw", tmp_path / "out"), 2)


def test_a_kind_of_file_that_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert ".csv" in complaint(shardkit("ingest", tmp_path / "notes.txt", tmp_path / "out"), 2)


def test_an_output_that_cannot_be_written(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in complaint(shardkit("ingest", raw, tmp_path / "file" / "out"), 2)
    assert "file" in complaint(shardkit("ingest", raw, tmp_path / "file"), 2)
    assert "/proc" in complaint(shardkit("ingest", raw, "/proc/shardkit-out"), 2)


def test_an_output_that_is_a_data_set_already(raw: Path, out: Path) -> None:
    assert "--overwrite" in complaint(shardkit("ingest", raw, out), 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[fields.image]\ntype = "image"\ngrayscale = "maybe"\n',
            'line 3: [fields.image] grayscale = "maybe"',
        ),
        ('[fields.image]\ntype = "picture"\n', "line 2"),
        ('[fields.image]\ntype = "image"\ngreyscale = "reject"\n', 'did you mean "grayscale"'),
        ("[fields.image\n", "line 1"),
        ("", "no fields"),
    ],
)
def test_a_wrong_contract_names_line_and_key(raw: Path, tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "contract.toml").write_text(text)
    run = shardkit("ingest", raw, tmp_path / "out", "--contract", tmp_path / "contract.toml")
    assert expected in complaint(run, 2)


def test_a_missing_contract(raw: Path, tmp_path: Path) -> None:
    run = shardkit("ingest", raw, tmp_path / "out", "--contract", tmp_path / "none.toml")
    assert "none.toml" in complaint(run, 2)


def test_a_table_that_lacks_a_column(raw: Path, tmp_path: Path) -> None:
    (raw / "items.csv").write_text("id,path\na,cat/01.jpg\n")
    (tmp_path / "contract.toml").write_text(CONTRACT)
    run = shardkit("ingest", raw / "items.csv", tmp_path / "out", "--contract", tmp_path / "contract.toml")
    assert "label" in complaint(run, 2)


def test_a_label_outside_the_classes(raw: Path, tmp_path: Path) -> None:
    (raw / "items.csv").write_text("id,path,label\na,cat/01.jpg,cow\n")
    (tmp_path / "contract.toml").write_text(CONTRACT)
    run = shardkit("ingest", raw / "items.csv", tmp_path / "out", "--contract", tmp_path / "contract.toml")
    line = complaint(run, 1)
    assert "label-unknown" in line
    assert "'a'" in line


def test_duplicate_ids(raw: Path, tmp_path: Path) -> None:
    (raw / "items.csv").write_text("id,path,label\na,cat/01.jpg,0\na,cat/03.jpg,1\n")
    assert "duplicate-id" in complaint(shardkit("ingest", raw / "items.csv", tmp_path / "out"), 1)


def test_an_unreadable_file(raw: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        root = Path(folder)
        shutil.copytree(raw, root / "raw")
        (root / "raw" / "cat" / "01.jpg").chmod(0)
        root.chmod(0o777)
        status, said = as_nobody(lambda: ingest(root / "raw", root / "out", workers=0))
    assert status == 1
    assert "unreadable" in said
    assert "cat/01.jpg" in said


def as_nobody(run: Callable[[], object]) -> tuple[int, str]:
    """Run in a forked child that the superuser's rights are taken from; return exit status and what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status, said = 0, ""
        try:
            if os.geteuid() == 0:
                os.seteuid(NOBODY)
            run()
        except ShardkitError as error:
            status, said = error.exit_status, str(error)
        except BaseException as error:
            status, said = 99, repr(error)
        os.write(writer, said.encode())
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def test_a_link_to_nowhere(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "zz.jpg").symlink_to(raw / "cat" / "nothing.jpg")
    line = complaint(shardkit("ingest", raw, tmp_path / "out"), 1)
    assert "missing-file" in line
    assert "cat/zz.jpg" in line


def test_a_fifo_is_not_waited_for(raw: Path, tmp_path: Path) -> None:
    os.mkfifo(raw / "cat" / "pipe.jpg")
    assert "not-a-file" in complaint(shardkit("ingest", raw, tmp_path / "out"), 1)


@pytest.mark.parametrize("command", ["verify", "info", "get", "bench", "doctor"])
def test_a_folder_without_a_manifest(tmp_path: Path, command: str) -> None:
    more = ["some-id"] if command == "get" else []
    assert str(tmp_path) in complaint(shardkit(command, tmp_path, *more), 2)


@pytest.mark.parametrize("command", ["verify", "info"])
def test_another_format_version(out: Path, command: str) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"version": "7.0"}))
    line = complaint(shardkit(command, out), 1)
    assert "7.0" in line


@pytest.mark.parametrize("command", ["verify", "info"])
@pytest.mark.parametrize("cut", [1, 4096])
def test_a_truncated_memmap_shard(out: Path, command: str, cut: int) -> None:
    shard = out / "shards" / "00001" / "image.bin"
    os.truncate(shard, shard.stat().st_size - cut)
    assert "shards/00001/image.bin" in complaint(shardkit(command, out), 1)


@pytest.mark.parametrize("command", ["verify", "info"])
@pytest.mark.parametrize("cut", [1, 4096])
def test_a_truncated_lmdb_shard(lmdb_out: Path, command: str, cut: int) -> None:
    shard = lmdb_out / "shards" / "00001.lmdb"
    os.truncate(shard, shard.stat().st_size - cut)
    assert "shards/00001.lmdb" in complaint(shardkit(command, lmdb_out), 1)


def test_a_manifest_that_points_outside(out: Path) -> None:
    text = (out / "manifest.json").read_text().replace("shards/00001/image.bin", "../../../../etc/passwd")
    (out / "manifest.json").write_text(text)
    line = complaint(shardkit("info", out), 1)
    assert "etc/passwd" in line


def test_an_unknown_id(out: Path, tmp_path: Path) -> None:
    assert "'nobody'" in complaint(shardkit("get", out, "nobody", "-o", tmp_path / "x"), 1)
    assert not (tmp_path / "x").exists()


def test_an_id_that_was_rejected_or_deleted(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "empty.jpg").write_bytes(b"")
    ingest(raw, tmp_path / "out", on_bad="skip", workers=0)
    delete(tmp_path / "out", ["cat/01.jpg"], workers=0)
    assert "left out (empty: " in complaint(shardkit("get", tmp_path / "out", "cat/empty.jpg"), 1)
    line = complaint(shardkit("get", tmp_path / "out", "cat/01.jpg"), 1)
    assert "left out (deleted: deleted in generation 2)" in line


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_stored_text_that_is_none(tmp_path: Path, kind: str) -> None:
    contract, payloads = Contract.from_dict({"fields": {"t": {"type": kind}}}), [b"\xff"]
    columns = columns_of(contract)
    writer = create_shard(tmp_path, 0, "memmap", columns)
    writer.append("a", payloads, record_checksums("a", payloads), bytes(16))
    writer.finish()
    shards = [seal_shard(tmp_path, 0, "memmap", columns, 1)]
    index = write_index(tmp_path, 1, contract, shards).entry
    commit(tmp_path, make_manifest(1, contract, shards, index))
    assert f"a {kind} payload" in complaint(shardkit("get", tmp_path, "a"), 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest",),
        ("ingest", "a", "b", "--backend", "tape"),
        ("ingest", "a", "b", "--workers", "-1"),
        ("bench", "a", "--workers", "-1"),
        ("fly",),
    ],
)
def test_wrong_use_exits_with_2(arguments: tuple[str, ...]) -> None:
    run = shardkit(*arguments)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert run.stdout == ""


def test_a_contract_that_is_no_regular_file(raw: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        assert str(path) in complaint(shardkit("ingest", raw, tmp_path / "out", "--contract", path), 2)


@pytest.mark.parametrize(
    ("pattern", "altered"),
    [
        ('"cat"', '"cow"'),
        ('"dataset_id": "[0-9a-f]{32}', '"dataset_id": "' + "0" * 32),
        ('"rejected": 0', '"rejected": 5'),
    ],
)
def test_an_altered_manifest_is_noticed(out: Path, pattern: str, altered: str) -> None:
    text, count = re.subn(pattern, altered, (out / "manifest.json").read_text(), count=1)
    assert count == 1
    (out / "manifest.json").write_text(text)
    run = shardkit("verify", out)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr


def test_results_that_cannot_be_written(out: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "shardkit", "info", str(out)]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines() == ["shardkit: the system refused: No space left on device"]


def test_a_contract_with_decisions_is_not_overwritten(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("# mine\n")
    line = complaint(shardkit("contract", "infer", raw, "-o", tmp_path / "c.toml"), 2)
    assert "--overwrite" in line
    assert (tmp_path / "c.toml").read_text() == "# mine\n"
