"""Ingestion that the system refuses a call: it ends by itself and says why, and what goes on ends in the same bytes."""

from collections.abc import Callable, Iterator

import pytest
from fault_scenes import PARTS, SCENES, STEP
from faulty_runs import Ended, Fault, Runner, Scene, check_message, contents, sweep

_REMOVALS = {"unlink", "unlinkat", "rmdir"}
_EVERY_CALL = ("memmap photos quarantined", "memmap appended", "lmdb shuffled")


def check_refused(scene: Scene, fault: Fault, ended: Ended) -> None:
    state = scene.check_state()
    if ended.status == 0:  # what failed does no harm
        assert state == "new"
        assert ended.stderr == ""
        return
    check_message(ended)
    failed = ended.calls[fault.number - 1]  # threads may come in another order than the last time
    if failed.name in ("fsync", "fdatasync"):
        after = {call.name for call in ended.calls[fault.number :] if call.path == failed.path}
        assert not after - _REMOVALS, f"it is not given up: {after}"
    if state == "nothing" and not fault.lasting and not list(scene.out.glob("ingest/0*.json")):
        assert not scene.out.exists(), (
            f"no shard was finished, and yet not all was removed: {sorted(contents(scene.out))}"
        )


def refusals(scene: Scene, refusal: str, numbers: Iterator[int], lasting: int) -> Iterator[Fault]:
    """Yield a fault for each number, save where a full disk is to refuse a removal: it never does.

    Args:
        scene: The command.
        refusal: The errno.
        numbers: Of the calls.
        lasting: Which half of the numbers, 0 or 1, are the first to fail of many; the other half fail alone.
    """
    for number in numbers:
        if refusal != "ENOSPC" or scene.calls[number - 1].name not in _REMOVALS:
            yield Fault(refusal, number, lasting=number // PARTS % 2 == lasting)


@pytest.mark.parametrize("lasting", [0, 1])
@pytest.mark.parametrize("refusal", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("name", SCENES)
def test_refused_some_calls(
    runner: Runner, scenes: Callable[[str], Scene], name: str, refusal: str, lasting: int
) -> None:
    scene = scenes(name)
    numbers = scene.numbers(2 * STEP + 1, SCENES.index(name) + lasting * STEP)
    sweep(runner, scene, refusals(scene, refusal, numbers, lasting), check_refused)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("refusal", "lasting"), [("EIO", 0), ("ENOSPC", 1)])
@pytest.mark.parametrize("name", _EVERY_CALL)
def test_refused_every_call(
    runner: Runner, scenes: Callable[[str], Scene], name: str, refusal: str, lasting: int, part: int
) -> None:
    scene = scenes(name)
    sweep(runner, scene, refusals(scene, refusal, scene.numbers(PARTS, part), lasting), check_refused)
