"""Work in a child process that is watched: whatever becomes of it, its parent goes on, and says what it was last at.

The child tells of its steps over a pipe. Where it tells nothing for too long it is killed with all that it started;
before that it writes down where in the code it is, which a C handler does even if Python no longer runs.
"""

import faulthandler
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import torch

from shardkit.measurement.doctor_steps import FRAMES_SHOWN

Send = Callable[[Any], None]
"""Takes a message to the parent: anything that pickles into a few kilobytes."""
Work = Callable[[Send], None]
"""What the child does."""

_LOOK_SECONDS = 0.1  # between two looks at whether the child is still there
_START_SECONDS = 120.0  # until the first message at least: a spawned child imports torch first
_WRITE_SECONDS = 1.0  # for a hanging child to write down where it is
_END_SECONDS = 5.0  # for a child to go: one that waits for a dead disk never does, and is not waited for
_FRAME = '  File "'


@dataclass(frozen=True)
class Lost:
    """A child that did not come to its end.

    Attributes:
        kind: ``"hung"``: it told nothing for too long, and was killed; ``"died"``.
        sentence: What happened to it.
        frames: Where in the code it was, innermost first, as ``file:line in function``; empty where nobody knows.
    """

    kind: Literal["hung", "died"]
    sentence: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class _Done:
    """The last message of a child that did all it had to."""


def watch(work: Work, timeout: float) -> Generator[Any, None, None]:
    """Do `work` in a child process, and yield its messages; at last a `Lost` if it did not come to its end.

    The child is forked where that is safe, so that `work` may be anything; where it is not (CUDA is in use in this
    process, or the system is not Linux), `work` is pickled. Leaving the iteration ends the child.

    Args:
        work: Is called with what sends a message.
        timeout: Seconds that may pass between two messages.

    Raises:
        ValueError: `work` cannot be pickled, and has to be.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="shardkit-") as folder:
        notes = Path(folder) / "stack"
        arguments = (work, sender, str(notes), os.getpid())
        process = context.Process(target=_be_the_child, args=arguments, daemon=False)
        try:
            _start(process)
            sender.close()
            yield from _messages(process, receiver, timeout, notes)
        finally:
            _end(process)
            receiver.close()


def _start(process: BaseProcess) -> None:
    """Start the child.

    Raises:
        ValueError: It has to be sent what cannot be pickled.
    """
    try:
        process.start()
        with suppress(OSError):  # the child does the same: whichever comes first
            os.setpgid(process.pid or 0, process.pid or 0)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ValueError(
            f"the transform cannot be sent to another process: {error}; give its name, 'module:name'"
        ) from error


def _context() -> ForkContext | SpawnContext:
    is_cuda_in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # by torch
    if sys.platform == "linux" and not is_cuda_in_use:
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def _messages(process: BaseProcess, receiver: Connection, timeout: float, notes: Path) -> Iterator[Any]:
    allowed = max(timeout, _START_SECONDS)
    heard = time.monotonic()
    while True:
        is_alive = process.is_alive()  # asked before the pipe is, in which its last words may still be
        if receiver.poll(_LOOK_SECONDS):
            try:
                message = receiver.recv()
            except (EOFError, OSError):
                process.join(_END_SECONDS)
                yield Lost("died", _how_it_ended(process), _frames(notes))
                return
            if isinstance(message, _Done):
                return
            yield message
            allowed, heard = timeout, time.monotonic()
        elif not is_alive:
            yield Lost("died", _how_it_ended(process), _frames(notes))
            return
        elif time.monotonic() - heard > allowed:
            yield Lost("hung", f"nothing came of it for {allowed:g} s; it was ended", _ask(process, notes))
            return


def _be_the_child(work: Work, sender: Connection, notes: str, parent: int) -> None:
    os.setpgid(0, 0)  # a group of its own: Ctrl-C is for the parent, which ends the group
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(parent, Path(notes).parent), daemon=True).start()
    sys.stdout = sys.stderr  # what a transform prints is no result, nor what C code of it does
    with suppress(OSError):
        os.dup2(2, 1)
    with Path(notes).open("w") as file:
        faulthandler.enable(file)
        faulthandler.register(signal.SIGUSR1, file, all_threads=False)
        work(sender.send)
        sender.send(_Done())
        faulthandler.disable()
        faulthandler.unregister(signal.SIGUSR1)


def _end_with_parent(parent: int, folder: Path) -> None:
    """End this process and those it started soon after its parent was killed, which can no longer clean up."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _ask(process: BaseProcess, notes: Path) -> tuple[str, ...]:
    """Have a hanging child write down where it is, and return that."""
    if process.pid is not None:
        with suppress(OSError):
            os.kill(process.pid, signal.SIGUSR1)
    until = time.monotonic() + _WRITE_SECONDS
    while not _frames(notes) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    time.sleep(_LOOK_SECONDS)  # or it is still at it
    return _frames(notes)


def _frames(notes: Path) -> tuple[str, ...]:
    """Return what `faulthandler` wrote of the thread that was running, in lines such as ``  File "x", line 3 in f``.

    Of a crash it writes all threads, of a hanging child the main one alone, without a name.
    """
    try:
        text = notes.read_text(errors="replace")
    except OSError:
        return ()
    thread = text.partition("Current thread")[2] or text
    lines = [line for line in thread.partition("\nThread")[0].splitlines() if line.startswith(_FRAME)]
    return tuple(map(_shown, lines[:FRAMES_SHOWN]))


def _shown(line: str) -> str:
    file, _, place = line.removeprefix(_FRAME).partition('", line ')
    number, _, function = place.partition(" in ")
    return f"{file}:{number} in {function}"


def _how_it_ended(process: BaseProcess) -> str:
    status = process.exitcode
    if status is None:
        return "the process was lost"
    if status >= 0:
        return f"the process ended itself, with exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
    hint = "; by the system for want of memory, or by hand" if name == "SIGKILL" else ""
    return f"the process was killed by {name}{hint}"


def _end(process: BaseProcess) -> None:
    """End the child, if it was started and is still there, and whatever it has started."""
    if process.pid is not None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join(_END_SECONDS)
