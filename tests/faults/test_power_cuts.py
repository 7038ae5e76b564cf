"""Power cuts: an ext4 in a file is shut down at a call and mounted again. Opt-in: SHARDKIT_POWER_CUTS=1, as root."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fault_scenes import PARTS, SCENES
from faulty_runs import Ended, Fault, Runner, Scene, check_resume
from loop_disk import LoopDisk, cut_power

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SHARDKIT_POWER_CUTS") != "1" or os.geteuid() != 0,
        reason="power cuts are opt-in: set SHARDKIT_POWER_CUTS=1, as root",
    ),
    pytest.mark.timeout(600),
]
FLAGS = pytest.mark.parametrize("flags", [2, 1], ids=["journal lost", "journal written"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path)
    yield disk
    disk.close()


def on(disk: LoopDisk, scene: Scene) -> Scene:
    """Return the scene with its folder on the disk."""
    out = disk.mount / "out"
    arguments = tuple(str(out) if argument == str(scene.out) else argument for argument in scene.arguments)
    return replace(scene, arguments=arguments, out=out)


def check_kept(scene: Scene, ended: Ended, number: int) -> None:
    """Make sure that every shard is there that was noted in the journal, durably, before the cut."""
    done = ended.calls[: number - 1]
    renamed = [place for place, call in enumerate(done) if call.target.startswith("ingest/0")]
    synced = max(
        (place for place, call in enumerate(done) if (call.name, call.path) == ("fsync", "ingest")), default=0
    )
    for place in renamed:
        assert place > synced or scene.check_state() == "new" or (scene.out / done[place].target).exists()


@FLAGS
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", SCENES)
def test_cut_at_every_call(
    runner: Runner, scenes: Callable[[str], Scene], disk: LoopDisk, name: str, part: int, flags: int
) -> None:
    scene = on(disk, scenes(name))
    for number in scene.numbers(PARTS, part):
        scene.set_up()
        disk.reboot()  # what stood before is on the disk
        ended = runner.run(
            scene.arguments, scene.out, Fault("power-cut", number, mount=str(disk.mount), flags=flags)
        )
        disk.reboot()
        assert ended.was_hit
        scene.check_state()
        check_kept(scene, ended, number)
        check_resume(runner, scene)


@FLAGS
@pytest.mark.parametrize("name", SCENES)
def test_cut_right_after_the_end(
    runner: Runner, scenes: Callable[[str], Scene], disk: LoopDisk, name: str, flags: int
) -> None:
    scene = on(disk, scenes(name))
    scene.set_up()
    disk.reboot()
    assert runner.run(scene.arguments, scene.out).status == 0
    cut_power(disk.mount, flags)
    runner.faults += 1
    disk.reboot()
    assert scene.check_state() == "new"
    check_resume(runner, scene)
    shutil.rmtree(scene.out)
