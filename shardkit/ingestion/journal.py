"""The journal of a run: which shard tasks are done, so that a run that was killed can be continued.

It stands in ``OUT/ingest/`` until the data set is committed: ``run.json`` says what the run was to do, and
``NNNNN.json`` what the task of shard NNNNN did. A task writes its entry once its shard is durable, and each entry in
one step; what is half-written is not there.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardkit.contract.strict_json import parse_json
from shardkit.errors import OutputError
from shardkit.ingestion.outcome import ShardOutcome
from shardkit.store import BACKENDS, Column, ShardEntry, make_folder, remove, write_atomically

JOURNAL = "ingest"
_RUN = "run.json"
_ENTRY = re.compile(r"[0-9]{5,}\.json")
_ADVICE = "start over without --resume"


@dataclass(frozen=True)
class Done:
    """What the journal holds of one finished task.

    Attributes:
        input: Digest of which records the task was given.
        stamps: What the raw input of each looked like; see `Stamp.changed`. Empty where there is no raw input.
        outcome: What the task did.
    """

    input: str
    stamps: tuple[int, ...]
    outcome: ShardOutcome


@dataclass(frozen=True)
class Journal:
    """The journal in an output folder. Small and picklable: each task writes its own entry.

    Attributes:
        root: The output folder.
        is_closed: Whether the data set is committed, so that no shard may be written any more.
    """

    root: Path
    is_closed: bool = False

    @property
    def folder(self) -> Path:
        """Where it stands."""
        return self.root / JOURNAL

    def begin(self, run: Mapping[str, Any]) -> None:
        """Note what the run is to do, before any task is.

        Raises:
            OutputError: The system refused.
        """
        make_folder(self.folder)
        write_atomically(self.folder / _RUN, _encode(run))

    def begun(self) -> dict[str, Any] | None:
        """Return what the run was to do, or None if no run left a journal here.

        Raises:
            OutputError: It cannot be read.
        """
        path = self.folder / _RUN
        try:
            run = parse_json(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise OutputError(f"{path}: the journal cannot be read: {error}; {_ADVICE}", path=path) from error
        if not isinstance(run, dict):
            raise OutputError(f"{path}: is no journal; {_ADVICE}", path=path)
        return run

    def write(self, number: int, done: Done) -> None:
        """Note a finished task, durably.

        Raises:
            OutputError: The system refused.
        """
        table = {"input": done.input, "stamps": done.stamps, "outcome": done.outcome.to_dict()}
        write_atomically(self._entry(number), _encode(table))

    def find(self, number: int, backend: str, columns: Sequence[Column]) -> Done | None:
        """Return what a finished task did, or None if it is to be done (again).

        An entry that is damaged, or whose shard is another or not there whole, does not count.
        """
        try:
            table = parse_json(self._entry(number).read_text("utf-8"))
            done = Done(str(table["input"]), tuple(table["stamps"]), ShardOutcome.from_dict(table["outcome"]))
        except (OSError, KeyError, TypeError, ValueError, AttributeError):
            return None
        entry = done.outcome.entry
        if entry is None:
            return done
        expected = BACKENDS[backend].file_paths(number, columns)
        is_ours = (entry.number, entry.backend) == (number, backend)
        is_ours = is_ours and [file.path for file in entry.files] == expected
        return done if is_ours and self._is_there(entry) else None

    def require_open(self) -> None:
        """Make sure that a task which is not done may still be done.

        Raises:
            OutputError: The data set is committed: nothing may be written into its shards.
        """
        if self.is_closed:
            raise OutputError(
                f"{self.folder}: an entry is damaged; the data set itself is committed: remove the journal",
                path=self.folder,
            )

    def finished(self) -> int:
        """Return how many tasks are done."""
        try:
            return sum(_ENTRY.fullmatch(name) is not None for name in os.listdir(self.folder))
        except OSError:
            return 0

    def remove(self) -> None:
        """Remove the journal: first what makes it one, so that no part of it is ever taken for the whole.

        Raises:
            OutputError: The system refused.
        """
        remove(self.folder / _RUN)
        remove(self.folder)

    def _entry(self, number: int) -> Path:
        return self.folder / f"{number:05d}.json"

    def _is_there(self, entry: ShardEntry) -> bool:
        try:
            return all(os.stat(self.root / file.path).st_size == file.bytes for file in entry.files)
        except OSError:
            return False


def require_same_run(begun: Mapping[str, Any], wanted: Mapping[str, Any], root: Path) -> None:
    """Check that a run may continue another: that it would write the very same bytes.

    Raises:
        OutputError: It would not; names what differs.
    """
    for key in (*wanted, *(key for key in begun if key not in wanted)):
        old, new = begun.get(key), wanted.get(key)
        if old != new:
            raise OutputError(
                f"{root}: the ingest that was interrupted here differs in {_describe(key, old, new)}; "
                f"ingest with the same, or {_ADVICE}",
                path=root,
            )


def _describe(key: str, old: Any, new: Any) -> str:  # Any: JSON values
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        inner = next(
            (name for name in (*old, *new) if old.get(name) != new.get(name)), None
        )  # or only their order differs
        if inner is not None:
            return _describe(f"{key}.{inner}", old.get(inner), new.get(inner))
    return f"{key}: {_show(old)} then, {_show(new)} now"


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _encode(table: Mapping[str, Any]) -> bytes:
    return json.dumps(table, ensure_ascii=True).encode() + b"\n"
