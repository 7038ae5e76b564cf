"""Runs of several processes, of which one is killed: the others neither wait for it nor write on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fault_scenes import write_table
from faulty_runs import Fault, Runner, Scene, check_message, check_resume, make_scene

RECORDS = 16
METHODS = pytest.mark.parametrize("spawn", [False, True], ids=["fork", "spawn"])


@pytest.fixture(scope="session")
def crowds(runner: Runner, workshop: Path, raw: dict[str, Path]) -> Callable[[str], Scene]:
    """Return a function that returns the scene of a backend: eight shards, written by two workers."""
    made: dict[str, Scene] = {}

    def find(backend: str) -> Scene:
        if backend not in made:
            folder = workshop / f"{backend}-workers"
            folder.mkdir()
            write_table(folder / "table.jsonl", 0, RECORDS)
            arguments = ("ingest", str(folder / "table.jsonl"), str(folder / "out"), "--backend", backend)
            settings = ("--contract", str(raw["contract"]), "--records-per-shard", "2", "--workers")
            alone = make_scene(runner, folder, (*arguments, *settings, "0"))
            made[backend] = replace(alone, arguments=(*arguments, *settings, "2"))
        return made[backend]

    return find


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
@METHODS
def test_a_killed_worker_fails_the_run_soon_and_the_inputs_are_named(
    runner: Runner, crowds: Callable[[str], Scene], backend: str, spawn: bool
) -> None:
    scene = crowds(backend)
    for number in (5, 100):
        scene.set_up()
        ended = runner.run(scene.arguments, scene.out, Fault("kill-worker", number), spawn=spawn)
        assert ended.was_hit
        check_message(ended)
        assert "a worker process was killed" in ended.stderr
        assert "table.jsonl ('" in ended.stderr
        assert scene.check_state() == "nothing"
        check_resume(runner, scene)


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
@METHODS
def test_the_workers_of_a_killed_run_end_and_the_next_run_goes_on(
    runner: Runner, crowds: Callable[[str], Scene], backend: str, spawn: bool
) -> None:
    scene = crowds(backend)
    for number in (10, 90, 170):
        scene.set_up()
        fault = Fault("kill-parent", number)
        ended = runner.run(scene.arguments, scene.out, fault, spawn=spawn, then=scene.resume())
        assert ended.was_hit
        assert ended.status == -9
        assert ended.then is not None
        assert (ended.then.status, ended.then.stderr) == (0, "")
        scene.check_end()


@pytest.mark.parametrize("action", ["SIGINT", "SIGTERM"])
@METHODS
def test_a_signal_to_all_processes_ends_the_run(
    runner: Runner, crowds: Callable[[str], Scene], action: str, spawn: bool
) -> None:
    scene = crowds("memmap")
    for number in (30, 150):
        scene.set_up()
        ended = runner.run(scene.arguments, scene.out, Fault(action, number), spawn=spawn)
        assert ended.was_hit
        assert ended.status in ((130,) if action == "SIGINT" else (143, 2))
        assert (
            spawn or "Traceback" not in ended.stderr
        )  # one that is just being spawned cannot be silenced yet
        scene.check_state()
        check_resume(runner, scene)
