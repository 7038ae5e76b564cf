"""Runs of the command line with a fault in them, and what must be true of the data set after each."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fault_tracer import Call

from shardkit.ingestion.report import REPORTS

_OF_THE_RUN = ("seconds", "resumed_shards", "discarded_shards", "out")
"""Of a summary: what differs between a run and one that was resumed, or that wrote to another place."""

SECONDS_AT_MOST = 30


@dataclass(frozen=True)
class Fault:
    """What happens to a run.

    Attributes:
        action: A signal that all of the run gets, such as ``"SIGKILL"``; an errno, such as ``"EIO"``, with which the
            call fails; ``"kill-worker"`` for the process that makes the call, counted over the workers alone;
            ``"kill-parent"``; or ``"power-cut"``.
        number: At which call that changes the folder, from 1.
        lasting: Whether every later call fails too; with ``"ENOSPC"``, every one that takes space.
        mount: Where the file system is mounted whose power is cut.
        flags: Of FS_IOC_SHUTDOWN: 1 lets the file system write its journal first, 2 does not.
    """

    action: str
    number: int
    lasting: bool = False
    mount: str = ""
    flags: int = 2


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Attributes:
        status: Its exit status, or minus the signal that killed it.
        stdout: What it printed.
        stderr: What it said.
        seconds: How long it took.
        calls: Its calls that changed the folder, or would have.
        was_hit: Whether the fault happened.
        then: The run that was started the moment this one's first process was gone.
    """

    status: int
    stdout: str
    stderr: str
    seconds: float
    calls: tuple[Call, ...] = ()
    was_hit: bool = False
    then: "Ended | None" = None


class Runner:
    """A warm process that forks a run for each request.

    Attributes:
        hindrance: Why it cannot on this machine, or None.
        faults: How many faults have happened.
    """

    def __init__(self) -> None:
        server = Path(__file__).with_name("fault_server.py")
        root = Path(__file__).parents[2]
        self._server = subprocess.Popen(
            [sys.executable, str(server)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"},
        )
        self.faults = 0
        self.hindrance: str | None = json.loads(self._receive())

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        fault: Fault | None = None,
        *,
        limits: dict[str, int] | None = None,
        spawn: bool = False,
        then: Sequence[str] | None = None,
    ) -> Ended:
        """Run the command line.

        Args:
            arguments: What follows ``shardkit``.
            folder: Real path of the folder whose changes are counted.
            fault: What happens to it.
            limits: Name in `resource` -> the most that the run may use.
            spawn: Whether workers are spawned and not forked.
            then: Arguments of a run that is started as soon as the first process of this one is gone.
        """
        request: dict[str, Any] = {"arguments": list(arguments), "folder": str(folder), "spawn": spawn}
        request["limits"] = limits or {}
        if fault is not None:
            request["fault"] = vars(fault)
        if then is not None:
            request["then"] = list(then)
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._receive())
        ended = Ended(
            **{name: answer[name] for name in ("status", "stdout", "stderr", "seconds", "was_hit")},
            calls=tuple(Call(*call) for call in answer["calls"]),
        )
        self.faults += ended.was_hit
        return replace(ended, then=Ended(**answer["then"][0])) if answer["then"] else ended

    def _receive(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline()

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


@dataclass(frozen=True)
class Scene:
    """A command, and the data sets between which it leads.

    Attributes:
        arguments: The command, without ``--resume``.
        out: Where it writes.
        before: A copy of what stands there before, or None.
        after: What stands there after it.
        calls: Its calls that change the folder.
    """

    arguments: tuple[str, ...]
    out: Path
    before: Path | None
    after: Path
    calls: tuple[Call, ...]

    def set_up(self) -> None:
        """Put the folder back to what it was before the command."""
        shutil.rmtree(self.out, ignore_errors=True)
        if self.before is not None:
            shutil.copytree(self.before, self.out)

    def resume(self) -> tuple[str, ...]:
        """Return the command that goes on."""
        return (*self.arguments, "--resume")

    def numbers(self, step: int, start: int = 0) -> Iterator[int]:
        """Yield every `step`-th of the numbers of its calls."""
        yield from range(1 + start % step, len(self.calls) + 1, step)

    def check_state(self) -> str:
        """Make sure that there is nothing, or the old data set whole, or the new one, and return which."""
        manifest = _read(self.out / "manifest.json")
        if manifest is None:
            assert self.before is None, "the data set is gone"
            return "nothing"
        for name, folder in (("new", self.after), ("old", self.before)):
            if folder is not None and manifest == _read(folder / "manifest.json"):
                found = contents(self.out)
                expected = {
                    path: data for path, data in contents(folder).items() if not path.startswith(REPORTS)
                }
                assert found | expected == found, f"the {name} data set is not whole"
                return name
        raise AssertionError("a manifest that is neither the old one nor the new one")

    def check_end(self) -> None:
        """Make sure that everything is as the command, left alone, leaves it."""
        found, expected = contents(self.out), contents(self.after)
        differing = [path for path in expected if path in found and found[path] != expected[path]]
        assert not differing, f"they differ: {differing}"
        assert not found.keys() - expected.keys(), f"left over: {sorted(found.keys() - expected.keys())}"
        assert not expected.keys() - found.keys(), f"missing: {sorted(expected.keys() - found.keys())}"


def make_scene(runner: Runner, folder: Path, arguments: Sequence[str], *, before: bool = False) -> Scene:
    """Run a command to its end, once with nothing in its way; its folder is ``folder/out``.

    Args:
        runner: Runs it.
        folder: For this scene alone.
        arguments: The command.
        before: Whether what stands in ``out`` now is what it starts from.
    """
    out, standing, after = folder / "out", folder / "before", folder / "after"
    if before:
        shutil.copytree(out, standing)
    ended = runner.run(arguments, out)
    assert (ended.status, ended.stderr) == (0, "")
    assert runner.run(("verify", str(out), "--workers", "0"), out).status == 0
    shutil.copytree(out, after)
    return Scene(tuple(arguments), out, standing if before else None, after, ended.calls)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return the bytes of every file below a folder, and None for every folder; a summary without its times."""
    found: dict[str, bytes | None] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = path.read_bytes() if path.is_file() else None
        if name == f"{REPORTS}/summary.json":
            summary = json.loads(path.read_bytes())
            found[name] = json.dumps(
                {key: summary[key] for key in summary if key not in _OF_THE_RUN}
            ).encode()
    return found


def sweep(
    runner: Runner, scene: Scene, faults: Iterable[Fault], check: Callable[[Scene, Fault, Ended], None]
) -> None:
    """Try some faults, one run each; then go on, and make sure that all ends as if nothing had happened.

    Args:
        runner: Runs the command.
        scene: The command.
        faults: The faults.
        check: What to make sure of after the run with the fault.

    Raises:
        AssertionError: Names every fault after which something was not so.
    """
    problems = []
    for fault in faults:
        scene.set_up()
        ended = runner.run(scene.arguments, scene.out, fault)
        try:
            assert ended.was_hit
            check(scene, fault, ended)
            check_resume(runner, scene)
        except AssertionError as error:
            call = " ".join(vars(scene.calls[fault.number - 1]).values())
            problems.append(f"{fault.action} at call {fault.number} ({call.rstrip()}): {error}")
    assert not problems, "\n".join(["", *problems])


def check_message(ended: Ended, *statuses: int) -> None:
    """Make sure that a run which failed ended by itself, soon, and said why in one line."""
    assert ended.status in (statuses or (1, 2)), f"exit status {ended.status}: {ended.stderr}"
    assert ended.seconds < SECONDS_AT_MOST
    assert len(ended.stderr.splitlines()) == 1, f"not one line: {ended.stderr}"
    assert ended.stderr.startswith("shardkit: "), ended.stderr


def check_resume(runner: Runner, scene: Scene) -> None:
    """Go on, and make sure that all ends as if nothing had happened."""
    ended = runner.run(scene.resume(), scene.out)
    assert ended.status == 0, f"exit status {ended.status}: {ended.stderr}"
    scene.check_end()


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
