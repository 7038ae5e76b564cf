"""A child process is watched: its messages arrive in order and in full, and its end is told, whatever it was."""

import functools
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from shardkit.measurement.doctor_watch import Lost, watch

Send = Callable[[Any], None]


def count(send: Send, most: int) -> None:
    for number in range(most):
        send(number)


def test_all_messages_arrive_in_order_however_the_child_ends() -> None:
    assert list(watch(lambda send: count(send, 1000), 30)) == list(range(1000))

    def die(send: Send) -> None:
        count(send, 1000)
        os.kill(os.getpid(), signal.SIGKILL)

    messages = watch(die, 30)
    assert next(messages) == 0
    while multiprocessing.active_children():
        time.sleep(0.01)
    *rest, lost = messages
    assert rest == list(range(1, 1000))
    assert (lost.kind, lost.frames) == ("died", ())


def test_the_time_between_messages_counts_and_not_that_of_all() -> None:
    def work(send: Send) -> None:
        for number in range(4):
            time.sleep(0.6)
            send(number)
        time.sleep(60)

    *messages, lost = watch(work, 2.0)
    assert messages == [0, 1, 2, 3]
    assert lost.kind == "hung"
    assert lost.frames[0].endswith("in work")


def test_what_nobody_foresaw_ends_the_child_with_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(send: Send) -> None:
        raise KeyError("what")

    assert list(watch(fail, 30)) == [Lost("died", "the process ended itself, with exit status 1", ())]
    assert "KeyError: 'what'" in capfd.readouterr().err


def test_leaving_early_ends_the_child_and_what_it_started() -> None:
    def work(send: Send) -> None:
        send(os.getpid())
        send(subprocess.Popen(["sleep", "60"]).pid)
        time.sleep(60)

    with closing(watch(work, 30)) as messages:
        child, grandchild = next(messages), next(messages)
        assert os.getpgid(grandchild) == child
    assert multiprocessing.active_children() == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    while Path(f"/proc/{grandchild}/cmdline").exists() and Path(f"/proc/{grandchild}/cmdline").read_bytes():
        time.sleep(
            0.01
        )  # it was killed, which takes a moment; if it was not, the test's own time limit ends this


def test_where_cuda_is_in_use_the_child_is_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ValueError, match=r"cannot be sent to another process: .*; give its name"):
        list(watch(lambda send: None, 30))
    assert list(watch(functools.partial(count, most=3), 30)) == [0, 1, 2]
