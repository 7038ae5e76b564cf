"""Memory is that of this process and of all that it started."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardkit.measurement import memory
from shardkit.measurement.memory import MemoryUse, MemoryWatch, descendants, measure_memory

MEGABYTE = 1 << 20
linux = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell PSS"
)

CHILD = "import sys; held = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


@linux
def test_what_children_and_their_children_hold_is_counted() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PARENT], text=True, **pipes) as parent:  # type: ignore[call-overload]
        assert parent.stdout.readline() == "ready\n"
        [child] = descendants(parent.pid)
        assert {parent.pid, child} <= set(descendants(os.getpid()))
        with MemoryWatch() as watch:
            pass
        alone = measure_memory([child])
        parent.stdin.close()
    assert alone is not None
    assert watch.peak is not None
    assert 64 * MEGABYTE < alone.pss < watch.peak.pss
    assert 0 <= alone.files < alone.pss
    assert measure_memory([child]) is None


def test_the_peak_is_kept_though_it_is_over_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = iter([5, 9, 3])
    is_over = threading.Event()

    def measure(_processes: list[int]) -> MemoryUse:
        pss = next(uses, 1)
        if pss == 3:
            is_over.set()
        return MemoryUse(pss, 0)

    monkeypatch.setattr(memory, "measure_memory", measure)
    monkeypatch.setattr(memory, "_INTERVAL", 0.001)
    with MemoryWatch() as watch:
        assert is_over.wait(60)
    assert watch.peak == MemoryUse(9, 0)


def test_there_is_a_look_at_the_end_however_short_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    looking: list[threading.Thread] = []
    monkeypatch.setattr(memory, "measure_memory", lambda _: looking.append(threading.current_thread()))
    with MemoryWatch():
        pass
    assert looking[-1] is threading.current_thread()


def test_where_the_system_does_not_tell_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PROC", tmp_path)
    with MemoryWatch() as watch:
        pass
    assert watch.peak is None


def test_the_lines_of_linux_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PROC", tmp_path)
    for process, pss in ((7, 100), (8, 20)):
        folder = tmp_path / str(process)
        folder.mkdir()
        rollup = (
            f"55a0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:  999 kB\nPss:  {pss} kB\nPss_File:  9 kB\n"
        )
        (folder / "smaps_rollup").write_text(rollup)
    assert measure_memory([7, 8, 9]) == MemoryUse(pss=120 * 1024, files=18 * 1024)
