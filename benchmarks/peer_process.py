"""A peer's reader: a program of ``peers/`` in a process of its own, started once and asked again and again."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Timer
from typing import Any

from peers.reading import Job

PROGRAMS = Path(__file__).parent / "peers"
LIMIT_SECONDS = 900
_END_SECONDS = 20


class PeerError(Exception):
    """A reader ended early, or says nothing; the text tells what it last complained of."""


class PeerProcess:
    """A reader that is running. Whoever makes it closes it.

    Args:
        python: The Python that has the peer.
        peer: Its program is ``peers/read_PEER.py``.
        job: What it is to deliver.

    Attributes:
        versions: Of the packages that matter, once it has started.
    """

    def __init__(self, python: str, peer: str, job: Job) -> None:
        self.versions: dict[str, str] = {}
        self._complaints = Path(f"{job.out}.stderr")
        command = [python, str(PROGRAMS / f"read_{peer}.py"), json.dumps(asdict(job))]
        with self._complaints.open("w") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,  # so that its workers end with it, come what may
            )

    def start(self) -> None:
        """Wait until its store is written and open.

        Raises:
            PeerError: It ended, or said nothing for `LIMIT_SECONDS`.
        """
        self.versions = self._answer()["versions"]

    def ask(self, **question: Any) -> Mapping[str, Any]:
        """Return its answer to a question.

        Raises:
            PeerError: It ended, or said nothing for `LIMIT_SECONDS`.
        """
        with suppress(BrokenPipeError):  # that it ended shows when it does not answer
            print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End it, and all that it started."""
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=_END_SECONDS)
        self._kill()
        self._process.communicate()

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        limit = Timer(LIMIT_SECONDS, self._kill)
        limit.start()
        line = self._process.stdout.readline()
        limit.cancel()
        if not line:
            raise PeerError(self._last_complaint())
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _last_complaint(self) -> str:
        lines = [line.strip() for line in self._complaints.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "ended without a word")


def parse_pythons(given: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Return the Python of each peer, given as ``PEER=PATH``; end the program where one is not known or not there."""
    pythons = dict(each.partition("=")[::2] for each in given)
    for peer, path in pythons.items():
        if peer not in known or not Path(path).is_file():
            raise SystemExit(
                f"--python {peer}={path}: want PEER=PATH of a Python, PEER one of {', '.join(sorted(known))}"
            )
    return pythons
