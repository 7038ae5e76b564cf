"""Ingestion that is killed at a call: nothing is committed or everything, and what goes on ends in the same bytes."""

from collections.abc import Callable

import pytest
from fault_scenes import PARTS, SCENES, STEP
from faulty_runs import Ended, Fault, Runner, Scene, check_message, sweep

_STATUSES = {  # 2: shutil.rmtree, interrupted, says EBADF; -2, -15: a busy machine hands it over as Python ends
    "SIGKILL": (-9,),
    "SIGINT": (130, 2, -2),
    "SIGTERM": (143, 2, -15),
}


def check_killed(scene: Scene, fault: Fault, ended: Ended) -> None:
    state = scene.check_state()
    if ended.status == 0:  # a signal that came too late to be heard
        assert fault.action != "SIGKILL"
        assert state == "new"
        return
    assert ended.status in _STATUSES[fault.action]
    if ended.status in (130, 2):
        check_message(ended, ended.status)


@pytest.mark.parametrize("action", _STATUSES)
@pytest.mark.parametrize("name", SCENES)
def test_killed_at_some_calls(runner: Runner, scenes: Callable[[str], Scene], name: str, action: str) -> None:
    scene = scenes(name)
    sweep(
        runner,
        scene,
        (Fault(action, number) for number in scene.numbers(STEP, SCENES.index(name))),
        check_killed,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", SCENES)
def test_killed_at_every_call(runner: Runner, scenes: Callable[[str], Scene], name: str, part: int) -> None:
    scene = scenes(name)
    sweep(runner, scene, (Fault("SIGKILL", number) for number in scene.numbers(PARTS, part)), check_killed)


@pytest.mark.parametrize("name", SCENES)
def test_killed_and_not_resumed(runner: Runner, scenes: Callable[[str], Scene], name: str) -> None:
    """The same command once more, without --resume, starts over; or says that the data set is there."""
    scene = scenes(name)
    for number in scene.numbers(2 * STEP, SCENES.index(name)):
        scene.set_up()
        assert runner.run(scene.arguments, scene.out, Fault("SIGKILL", number)).was_hit
        state = scene.check_state()
        ended = runner.run(scene.arguments, scene.out)
        if state != "new":
            assert (ended.status, ended.stderr) == (0, "")
            scene.check_end()
        elif scene.before is None:
            check_message(ended, 2)
            assert "already holds a data set" in ended.stderr
