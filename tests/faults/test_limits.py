"""Disks that are full and limits of the system: the run ends by itself, and once there is room it goes on."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faulty_runs import Runner, Scene, check_message, check_resume, make_scene

BACKENDS = pytest.mark.parametrize("backend", ["memmap", "lmdb"])
_CONTRACT = '[fields.x]\ntype = "array"\ndtype = "int64"\nshape = [4096]\n'


@pytest.fixture(scope="session")
def disk(workshop: Path) -> Iterator[Path]:
    """A small disk in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = workshop / "disk"
    mount.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def move(scene: Scene, out: Path) -> Scene:
    """Return the scene at another place."""
    arguments = tuple(str(out) if argument == str(scene.out) else argument for argument in scene.arguments)
    return replace(scene, arguments=arguments, out=out)


@BACKENDS
def test_a_full_disk(runner: Runner, workshop: Path, disk: Path, backend: str) -> None:
    folder = workshop / f"{backend}-large"
    folder.mkdir()
    rows = [{"id": f"r{row}", "x": [row] * 4096} for row in range(60)]  # 32 KB each, 1.9 MB in all
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "contract.toml").write_text(_CONTRACT)
    arguments = ("ingest", str(folder / "table.jsonl"), str(folder / "out"), "--backend", backend)
    settings = ("--contract", str(folder / "contract.toml"), "--records-per-shard", "8", "--workers", "0")
    scene = move(make_scene(runner, folder, (*arguments, *settings)), disk / "out")
    for size in ("64k", "1m", "1900k"):
        resize(disk, "8m")
        scene.set_up()
        resize(disk, size)
        ended = runner.run(scene.arguments, scene.out)
        runner.faults += 1
        check_message(ended)
        assert "No space left on device" in ended.stderr
        assert scene.check_state() == "nothing"
        resize(disk, "8m")
        check_resume(runner, scene)


@BACKENDS
def test_a_limit_on_the_size_of_a_file(runner: Runner, scenes: Callable[[str], Scene], backend: str) -> None:
    scene = scenes(f"{backend} appended")
    for most in (0, 60, 150, 300, 1000, 9000):
        scene.set_up()
        ended = runner.run(scene.arguments, scene.out, limits={"RLIMIT_FSIZE": most})
        scene.check_state()
        if ended.status != 0:
            runner.faults += 1
            check_message(ended)
        check_resume(runner, scene)


@BACKENDS
def test_a_limit_on_open_files(runner: Runner, scenes: Callable[[str], Scene], backend: str) -> None:
    scene = scenes(f"{backend} appended")
    for most in range(9, 40, 3):
        scene.set_up()
        ended = runner.run(scene.arguments, scene.out, limits={"RLIMIT_NOFILE": most})
        scene.check_state()
        if ended.status != 0:
            runner.faults += 1
            check_message(ended)
        check_resume(runner, scene)
