"""Edits of a data set that are killed or refused at a call: the old generation stands whole, or the new one."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fault_scenes import STEP
from faulty_runs import Ended, Fault, Runner, Scene, check_message, make_scene

EDITS = {
    "delete": ("r0", "r3", "--workers", "0"),
    "compact": ("--records-per-shard", "3", "--workers", "0"),
    "prune": (),
}
BACKENDS = pytest.mark.parametrize("backend", ["memmap", "lmdb"])
COMMANDS = pytest.mark.parametrize("command", EDITS)


@pytest.fixture(scope="session")
def edits(
    runner: Runner, workshop: Path, scenes: Callable[[str], Scene]
) -> Callable[[str, str], tuple[Scene, Scene]]:
    """Return a function that returns the scene of an edit of two generations, and that of pruning what it leaves."""
    made: dict[tuple[str, str], tuple[Scene, Scene]] = {}

    def find(backend: str, command: str) -> tuple[Scene, Scene]:
        if (backend, command) not in made:
            folder = workshop / f"{backend}-{command}"
            shutil.copytree(scenes(f"{backend} appended").after, folder / "out")
            out = str(folder / "out")
            edit = make_scene(runner, folder, (command, out, *EDITS[command]), before=True)
            (folder / "pruned").mkdir()
            shutil.copytree(edit.after, folder / "pruned" / "out")
            pruned = make_scene(
                runner, folder / "pruned", ("prune", str(folder / "pruned" / "out")), before=True
            )
            made[backend, command] = edit, replace(edit, arguments=("prune", out), after=pruned.after)
        return made[backend, command]

    return find


def check_fault(runner: Runner, edit: Scene, pruning: Scene, fault: Fault) -> Ended:
    """Try a fault, then the same edit again, or prune if the edit was done."""
    edit.set_up()
    ended = runner.run(edit.arguments, edit.out, fault)
    assert ended.was_hit
    is_done = edit.check_state() == "new" and edit.arguments[0] != "prune"
    again = pruning if is_done else edit
    assert runner.run(again.arguments, again.out).status == 0
    again.check_end()
    return ended


@BACKENDS
@COMMANDS
def test_killed(
    runner: Runner, edits: Callable[[str, str], tuple[Scene, Scene]], backend: str, command: str
) -> None:
    edit, pruning = edits(backend, command)
    for number in edit.numbers(STEP // 2):
        assert check_fault(runner, edit, pruning, Fault("SIGKILL", number)).status == -9


@pytest.mark.parametrize("refusal", ["EIO", "ENOSPC"])
@BACKENDS
@COMMANDS
def test_refused(
    runner: Runner, edits: Callable[[str, str], tuple[Scene, Scene]], backend: str, command: str, refusal: str
) -> None:
    edit, pruning = edits(backend, command)
    for number in edit.numbers(STEP, 3):
        if refusal == "ENOSPC" and edit.calls[number - 1].name in ("unlink", "unlinkat", "rmdir"):
            continue  # a full disk lets files be removed
        ended = check_fault(runner, edit, pruning, Fault(refusal, number))
        if ended.status != 0:
            check_message(ended)


@pytest.mark.slow
@pytest.mark.timeout(600)
@BACKENDS
@COMMANDS
def test_killed_at_every_call(
    runner: Runner, edits: Callable[[str, str], tuple[Scene, Scene]], backend: str, command: str
) -> None:
    edit, pruning = edits(backend, command)
    for number in edit.numbers(1):
        assert check_fault(runner, edit, pruning, Fault("SIGKILL", number)).status == -9
