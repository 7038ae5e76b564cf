"""The rejections of a run, written to disk as they come: hundreds of thousands of them cost no memory."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from shardkit.contract import Rejection
from shardkit.contract.strict_json import parse_json
from shardkit.errors import OutputError
from shardkit.store import partial_of, publish, refusals, remove, sync_stream

REJECTIONS_KEPT = 1000
"""Rejections kept in memory, for messages and for the report of a program; all are in the file."""


class RejectionLog:
    """Writes one JSON line a rejection, under a temporary name until `publish`.

    Attributes:
        kept: The first `REJECTIONS_KEPT` rejections.
    """

    def __init__(self, path: Path) -> None:
        """Begin the log that is to stand at `path`.

        Raises:
            OutputError: The system refused.
        """
        self._path = path
        self._partial = partial_of(path)
        self.kept: list[Rejection] = []
        with refusals(self._partial):
            self._stream: IO[bytes] = self._partial.open("wb")

    def extend(self, rejections: Iterable[Rejection]) -> None:
        """Add some rejections.

        Raises:
            OutputError: The system refused.
        """
        with refusals(self._partial):
            for rejection in rejections:
                self._stream.write(encode_rejection(rejection.to_dict()))
                if len(self.kept) < REJECTIONS_KEPT:
                    self.kept.append(rejection)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield what was added so far, one mapping a rejection.

        Raises:
            OutputError: The system refused.
        """
        with refusals(self._partial):
            self._stream.flush()
            with self._partial.open("rb") as lines:
                for line in lines:
                    yield parse_json(line.decode())

    def publish(self) -> None:
        """Make the log durable under its own name.

        Raises:
            OutputError: The system refused.
        """
        with refusals(self._partial):
            sync_stream(self._stream)
            self._stream.close()
        publish(self._partial, self._path)

    def close(self) -> None:
        """Let go of the file, and remove it unless it was published: the run failed, for a reason that is known."""
        with suppress(OSError):
            self._stream.close()
        with suppress(OutputError):
            remove(self._partial)


def encode_rejection(rejection: Mapping[str, Any]) -> bytes:
    """Return the line of one rejection; what UTF-8 cannot express of a name is escaped."""
    return json.dumps(rejection, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
