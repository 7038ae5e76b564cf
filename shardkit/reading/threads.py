"""Threads that make batches: each takes parts of them from a queue, and the last part's thread finishes the batches."""

import atexit
import threading
import weakref
from collections.abc import Sequence
from queue import SimpleQueue

import torch

from shardkit.reading.batches import BatchRows
from shardkit.reading.collate import Batch
from shardkit.reading.delivery import Making


class ThreadedRun:
    """Batches that threads make: one, or several where they are made at one go.

    Args:
        run: Their rows.
        making: Is filled part by part.

    Attributes:
        run: Their rows.
        parts: Places, from begin to end, that make up the tasks of threads.
    """

    def __init__(self, run: Sequence[BatchRows], making: Making) -> None:
        self.run = run
        self._finished = threading.Event()
        self._made: list[Batch] = []
        self._error: BaseException | None = None
        places = sum(map(len, run))
        self._error_at = places + 1
        self._making = making
        self._lock = threading.Lock()
        size = max(1, making.part_size)
        self.parts = [(begin, min(begin + size, places)) for begin in range(0, max(1, places), size)]
        self._left = len(self.parts)

    def results(self) -> list[Batch]:
        """Wait for all parts, and return the batches, of which nothing is kept here.

        Raises:
            BaseException: What one of its parts raised, the one of the first place if several did.
        """
        self._finished.wait()
        if self._error is not None:
            raise self._error
        made, self._made = self._made, []
        return made

    def fill(self, begin: int, end: int) -> None:
        """Fill a part; the last one finishes the batches."""
        try:
            if begin < self._error_at:  # what stands before an error may hold the one to be raised
                self._making.fill(begin, end)
        except BaseException as error:  # whatever it is belongs to who asked for the batches
            self._fail(begin, error)
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._finish()

    def _finish(self) -> None:
        try:
            if self._error is None:
                self._made = self._making.batches()
        except BaseException as error:
            self._fail(0, error)
        del self._making  # or whoever has the run would hold the memory of batches that were handed out
        self._finished.set()

    def _fail(self, place: int, error: BaseException) -> None:
        with self._lock:
            if place < self._error_at:
                self._error_at, self._error = place, error


_starting = threading.Lock()
Task = tuple[ThreadedRun, int, int]


class BatchThreads:
    """Some threads of this process, until `close`. Torch runs single-threaded in each, as in a DataLoader's worker.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        ready = threading.Semaphore(0)
        arguments = (self._tasks, ready)
        self._threads = [
            threading.Thread(target=_work, args=arguments, name=f"shardkit-{number}", daemon=True)
            for number in range(count)
        ]
        with _starting:
            torch_threads = torch.get_num_threads()
            for thread in self._threads:
                thread.start()
            for _ in self._threads:
                ready.acquire()
            torch.set_num_threads(torch_threads)  # what they set is also what threads to come begin with
        _living.add(self)

    def start(self, run: ThreadedRun) -> None:
        """Have batches made."""
        for begin, end in run.parts:
            self._tasks.put((run, begin, end))

    def close(self) -> None:
        """Let the threads finish the parts that they have begun, and no more, and end. Twice does no harm."""
        while not self._tasks.empty():
            self._tasks.get()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []


def _work(tasks: "SimpleQueue[Task | None]", ready: threading.Semaphore) -> None:
    torch.get_num_threads()  # or the first operation in this thread would begin with everybody's number again
    torch.set_num_threads(1)
    ready.release()
    while (task := tasks.get()) is not None:
        run, begin, end = task
        run.fill(begin, end)
        del task, run  # or a waiting thread would hold the memory of its last batches


_living: "weakref.WeakSet[BatchThreads]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End the threads of iterations that were left open, before the interpreter takes apart what they use."""
    for threads in list(_living):
        threads.close()
