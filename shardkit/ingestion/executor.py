"""Runs shard tasks, in this process or in several, and hands their outcomes back in the order of the tasks.

At most a few tasks a worker are in flight, so that memory stays bounded however many there are.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from shardkit.errors import SourceError, WorkerError
from shardkit.ingestion.lock import HeldLock

_WAITING = 2  # tasks ready for whoever is done first; each may hold records, so no more than that
_PARENT_CHECK_SECONDS = 0.5

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def usable_cpus() -> int:
    """Return how many CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_ordered(
    function: Callable[[Task], Outcome],
    tasks: Iterable[Task],
    workers: int,
    describe: Callable[[Task], str],
    lock: HeldLock | None = None,
) -> Generator[Outcome, None, None]:
    """Yield ``function(task)`` for each task, in order.

    Closing the iterator, or an exception in it, cancels what has not begun and waits for what has.

    Args:
        function: A module-level function.
        tasks: Picklable; drawn lazily.
        workers: Processes; 0 runs everything in this one.
        describe: Names a task in a message.
        lock: Held by each worker as well, until it ends.

    Raises:
        WorkerError: A worker was killed, which names the tasks it may have been at; or none can be started.
        SourceError: A task cannot be sent to another process.
    """
    if workers == 0:
        yield from map(function, tasks)
        return
    pool = ProcessPoolExecutor(
        workers, mp_context=_context(), initializer=_start_worker, initargs=(os.getpid(), lock)
    )
    in_flight: deque[tuple[Task, Future[Outcome]]] = deque()
    try:
        for task in tasks:
            in_flight.append((task, pool.submit(_call, _pack(function, task, describe))))
            if len(in_flight) >= workers + _WAITING:
                yield in_flight[0][1].result()
                in_flight.popleft()
        while in_flight:
            yield in_flight[0][1].result()
            in_flight.popleft()
    except BrokenProcessPool as error:
        unfinished = [describe(task) for task, future in in_flight if not _succeeded(future)]
        raise WorkerError(
            "a worker process was killed (by the system for want of memory, or by hand) while at "
            + "; or ".join(unfinished[:workers] or ["its start"])
        ) from error
    except OSError as error:  # of starting a worker: some may run already, which nobody would end
        _kill(pool)
        raise WorkerError(
            f"cannot start {workers} worker processes: {error.strerror}; use fewer workers, or raise the limit "
            "(ulimit -n, ulimit -u)"
        ) from error
    finally:
        _shut_down(pool)


def _shut_down(pool: ProcessPoolExecutor) -> None:
    """Wait for the tasks that have begun; but not if that wait is interrupted too, as by a second Ctrl-C."""
    try:
        pool.shutdown(wait=True, cancel_futures=True)
    except BaseException:
        _kill(pool)
        raise


def _kill(pool: ProcessPoolExecutor) -> None:
    """End the workers at once. What they leave is what a kill leaves: nothing that counts."""
    for process in list((pool._processes or {}).values()):  # kill_workers() begins with Python 3.14
        process.kill()


def _pack(function: Callable[[Task], Outcome], task: Task, describe: Callable[[Task], str]) -> bytes:
    """Pickle a call here, where what cannot be pickled can be named."""
    try:
        return pickle.dumps((function, task))
    except Exception as error:  # pickling runs code of the values, which may raise anything
        raise SourceError(
            f"{describe(task)}: cannot be sent to a worker process: {error}; pass workers=0"
        ) from error


def _call(packed: bytes) -> Any:  # Any: whatever the packed function returns
    function, task = pickle.loads(packed)
    return function(task)


def _succeeded(future: "Future[Outcome]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _context() -> multiprocessing.context.BaseContext:
    """Return fork on Linux: it starts at once and does not import the caller's script anew; spawn elsewhere.

    Forked workers use numpy, Pillow and simplejpeg only, none of which keeps threads that a fork would lose.
    """
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def _start_worker(parent: int, _lock: HeldLock | None) -> None:
    """Let the parent alone answer Ctrl-C, since it shuts the pool down in good order; and never outlive it.

    The lock came with the call, and its file stays open until this process ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """End this process soon after its parent was killed: it would hold the output's lock and go on writing."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
