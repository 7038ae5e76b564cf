"""Runs shardkit's command line again and again in forks of one warm process, with a fault in each.

Reads requests as JSON lines on standard input and answers each with a line; `faulty_runs.py` is the other end. Python
and its modules are loaded once, which leaves about a thirtieth of what a run costs else.
"""

import atexit
import contextlib
import errno
import gc
import importlib
import json
import multiprocessing
import os
import resource
import runpy
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fault_tracer import Call, follow, fork_stopped, group_of, why_not
from loop_disk import cut_power
from PIL import Image

from shardkit.ingestion import executor

_TIMEOUT_SECONDS = 60
_REMOVALS = ("unlink", "unlinkat", "rmdir")


class _Fault:
    """What happens at the calls of one run.

    The request gives ``number``, the call (from 1) at which it happens; ``action``, a signal for the whole run, an
    errno, ``"kill-parent"``, ``"kill-worker"`` or ``"power-cut"``; ``lasting``, whether all later calls fail too; and
    ``mount`` of a power cut, with the ``flags`` of the system's shutdown.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table
        self._seen = 0
        self.process = 0
        self.was_hit = False

    def __call__(self, number: int, call: Call, thread: int) -> int | None:
        action = self._table["action"]
        if action == "kill-worker":
            if group_of(thread) == self.process:
                return None
            self._seen += 1
            number = self._seen
        first = self._table["number"]
        if number != first and not (self._table.get("lasting") and number > first):
            return None
        if action == "ENOSPC" and call.name in _REMOVALS:
            return None  # a full disk lets files be removed
        self.was_hit = True
        return self._act(action, thread)

    def _act(self, action: str, thread: int) -> int | None:
        if action.startswith("E"):
            return int(getattr(errno, action))
        if action == "power-cut":
            cut_power(self._table["mount"], self._table["flags"])
            action = "SIGKILL"
        if action == "kill-worker":
            os.kill(group_of(thread), signal.SIGKILL)
        elif action == "kill-parent":
            os.kill(self.process, signal.SIGKILL)
        else:
            os.killpg(self.process, getattr(signal, action))
        return None


class _Run:
    """One run of the command line, which prints into pipes: no limit on files holds for them."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._pipes = os.pipe(), os.pipe()
        self._started = time.monotonic()
        self.process = fork_stopped(self._become)
        for _, writing in self._pipes:
            os.close(writing)

    def _become(self) -> None:
        """Be the command line, to the very end of the interpreter."""
        inputs = (os.open(os.devnull, os.O_RDONLY), *(writing for _, writing in self._pipes))
        for place, descriptor in enumerate(inputs):
            os.dup2(descriptor, place)
            os.close(descriptor)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as Python opens them at its start
        sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
        for name, most in self._request.get("limits", {}).items():
            resource.setrlimit(getattr(resource, name), (most, most))
        if self._request.get("spawn"):
            executor._context = lambda: multiprocessing.get_context("spawn")  # type: ignore[assignment]
        _be_the_command_line(self._request["arguments"])

    def result(self, status: int) -> dict[str, Any]:
        """Return how it ended, once all of its processes have."""
        seconds = time.monotonic() - self._started
        printed = []
        for reading, _ in self._pipes:
            with open(reading, "rb") as stream:
                printed.append(stream.read().decode(errors="replace"))
        return {"status": status, "stdout": printed[0], "stderr": printed[1], "seconds": seconds}


def _carry_out(request: dict[str, Any]) -> dict[str, Any]:
    run = _Run(request)
    fault = _Fault(request.get("fault") or {"number": -1, "action": "none"})
    fault.process = run.process.pid
    later: list[_Run] = []

    def go_on() -> None:
        if "then" in request:
            later.append(_Run({"arguments": request["then"]}))
            later[0].process.attach()

    signal.signal(
        signal.SIGALRM, lambda *_: [os.killpg(each.process.pid, signal.SIGKILL) for each in (run, *later)]
    )
    signal.alarm(_TIMEOUT_SECONDS)
    trace = follow(run.process, Path(request["folder"]), fault, go_on)
    signal.alarm(0)
    answer = run.result(trace.ends[run.process.pid])
    answer["calls"] = [[call.name, call.path, call.target] for call in trace.calls]
    answer["was_hit"] = fault.was_hit
    answer["then"] = [each.result(trace.ends[each.process.pid]) for each in later]
    return answer


def _be_the_command_line(arguments: list[str]) -> None:
    """Run the command line; the interpreter ends with it."""
    sys.argv = ["shardkit", *arguments]
    runpy.run_module("shardkit", run_name="__main__", alter_sys=True)


def _load_what_runs_load() -> None:
    """Import here whatever modules a trial run imports on its way, so that the others need not."""
    names, nowhere = os.memfd_create("modules"), os.open(os.devnull, os.O_RDWR)
    folder = Path(tempfile.mkdtemp())  # no context manager: the runs end in here
    table, out = folder / "table.jsonl", folder / "out"
    table.write_text('{"id": "a", "label": 0}\n')
    for arguments in (["ingest", str(table), str(out)], ["verify", str(out)]):
        if os.fork() == 0:
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            atexit.register(lambda: os.write(names, "\n".join([*sys.modules, ""]).encode()))
            _be_the_command_line(arguments)
        os.wait()
    shutil.rmtree(folder)
    for name in os.pread(names, os.fstat(names).st_size, 0).decode().split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> None:
    """Say what hinders, or null, then answer requests until there are no more."""
    hindrance = why_not()
    sys.stdout.write(json.dumps(hindrance) + "\n")
    sys.stdout.flush()
    if hindrance is not None:
        return
    Image.init()
    _load_what_runs_load()
    gc.freeze()  # what is here already is not gone through again by each fork
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_carry_out(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
