"""Durable writes: what was written survives a power cut, or was never there.

Nothing here knows what the files hold. Implements docs/format.md, "Publishing" (the order of fsync and rename).
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from shardkit.errors import OutputError

SYNC_EVERY = 8 << 20
"""Bytes after which a file that is still being written is sent to disk."""

PARTIAL = ".partial"
"""Ending of a file or folder that is still being written."""


def partial_of(path: Path) -> Path:
    """Return the name under which `path` is written until it is complete."""
    return path.with_name(path.name + PARTIAL)


@contextmanager
def refusals(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system says against a write into an OutputError that names `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from error


def sync_file(path: str | os.PathLike[str]) -> None:
    """Fsync a file or folder. A failure is final: the kernel may have dropped the pages, so none is retried.

    Raises:
        OutputError: The system refused.
    """
    with refusals(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_stream(stream: IO[bytes]) -> None:
    """Flush and fsync a file that was written, through the handle that wrote it.

    Raises:
        OSError: The system refused; as final as in `sync_file`.
    """
    stream.flush()
    os.fsync(stream.fileno())


class EarlySync:
    """Sends a file to disk while another handle still writes it, so that the last fsync has little to wait for.

    It promises nothing by itself: the writer's own fsync at the end does, and sees every failure too. A file that
    stays below `SYNC_EVERY` costs neither a handle nor a thread.

    Args:
        path: A file that exists by the time of the first `advance`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._background: Executor | None = None
        self._syncing: Future[None] | None = None
        self._unsynced = 0

    def advance(self, count: int) -> None:
        """Say that `count` more bytes were written; those that a buffer still holds are sent with the next.

        Raises:
            OutputError: The file cannot be opened, or an fsync before this one failed.
        """
        self._unsynced += count
        if self._unsynced >= SYNC_EVERY and (self._syncing is None or self._syncing.done()):
            self._wait()
            self._unsynced = 0
            self._syncing = self._start()

    def close(self) -> None:
        """Wait for what is under way; nothing happens the second time.

        Raises:
            OutputError: An fsync failed.
        """
        if self._background is not None:
            self._background.shutdown()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
            self._wait()

    def _start(self) -> Future[None]:
        if self._background is None or self._descriptor is None:
            with refusals(self._path):
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._background = ThreadPoolExecutor(1)
        return self._background.submit(os.fsync, self._descriptor)

    def _wait(self) -> None:
        if self._syncing is not None:
            with refusals(self._path):
                self._syncing.result()


def make_folder(path: Path) -> None:
    """Make a folder and its parents where they are missing, and fsync the parent of each new one.

    Raises:
        OutputError: The system refused.
    """
    if path.is_dir():
        return
    if path.exists() or path.is_symlink():
        raise OutputError(f"{path}: is not a folder; choose another path")
    make_folder(path.parent)
    with refusals(path):
        path.mkdir(exist_ok=True)
    sync_file(path.parent)


def publish(partial: Path, final: Path) -> None:
    """Give what is complete and fsynced its own name, replacing what had it, and fsync the folder.

    Raises:
        OutputError: The system refused.
    """
    with refusals(final):
        if partial.is_dir() and final.is_dir():
            shutil.rmtree(final)  # a folder can only be replaced by way of removing it
        os.replace(partial, final)
    sync_file(final.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that after a power cut either the old content is there, or all of the new.

    Raises:
        OutputError: The system refused.
    """
    partial = partial_of(path)
    try:
        with refusals(path), partial.open("wb") as stream:
            stream.write(data)
            sync_stream(stream)
        publish(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def remove(path: Path) -> None:
    """Remove a file or a folder with what is in it, if it is there.

    Raises:
        OutputError: The system refused.
    """
    with refusals(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
