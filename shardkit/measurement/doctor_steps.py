"""What an examination tells while it goes on: the step that is about to be done, on which record, and what failed."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from shardkit.errors import ShardkitError
from shardkit.store import BACKENDS, Store

FRAMES_SHOWN = 3
_SHOWN = 600  # characters of an error, which may quote an id of a thousand


@dataclass(frozen=True)
class Located:
    """Where a record is.

    Attributes:
        id: Its id.
        row: Its row in the data set.
        shard: Its shard, such as ``"shards/00000"``.
        shard_row: Its row in the shard.
    """

    id: str
    row: int
    shard: str
    shard_row: int

    def describe(self) -> str:
        """Name the record and where it is."""
        return f"{self.id!r} ({self.shard}, row {self.shard_row})"


@dataclass(frozen=True)
class Step:
    """What is about to be done.

    Attributes:
        stage: One of `STAGES`, or what is done beside them: ``"open"``, ``"import"``, ``"choose"``, ``"load"``.
        records: To which records: one, those of a batch, or none in particular.
        detail: What else there is to say, such as the setting of a loader.
    """

    stage: str
    records: tuple[Located, ...] = ()
    detail: str = ""

    def describe(self) -> str:
        """Name the stage, the record and the detail."""
        what = f"{self.stage}, {self.detail}" if self.detail else self.stage
        if not self.records:
            return what
        if len(self.records) == 1:
            return f"{what}: {self.records[0].describe()}"
        return f"{what}: a batch of {len(self.records)}, {self.records[0].id!r} to {self.records[-1].id!r}"


@dataclass(frozen=True)
class Failure:
    """A step that raised.

    Attributes:
        step: The step.
        sentence: What was raised, in one line.
        frames: Where in the code, innermost first, as ``file:line in function``; empty where the data are at fault.
    """

    step: Step
    sentence: str
    frames: tuple[str, ...] = ()

    @classmethod
    def of(cls, step: Step, error: BaseException) -> Self:
        """Return what a step raised."""
        return cls(step, _sentence_of(error), _frames_of(error))


Announce = Callable[[Step], None]
"""Is told of a step before it is done."""


def locate(store: Store, row: int) -> Located:
    """Return where the record in a row is.

    Raises:
        CorruptShardError: The index is inconsistent.
    """
    shard, shard_row = store.locate(row)
    return Located(store.id_of(row), row, BACKENDS[shard.backend].shard_path(shard.number), shard_row)


def _sentence_of(error: BaseException) -> str:
    """Return the class of an error and its first line; of one in a DataLoader's worker, those that it had there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith(
        "Caught "
    ):  # what follows is a traceback, with "module.Class: text" last
        kind, colon, text = lines[-1].partition(": ")
        return f"{kind.rpartition('.')[2]}{colon}{text}"[:_SHOWN]
    return ": ".join([type(error).__name__, *lines[:1]])[:_SHOWN]


def _frames_of(error: BaseException) -> tuple[str, ...]:
    """Return where an error arose: that of a transform which raised, or one that nobody foresaw."""
    cause = error.__cause__ if isinstance(error, ShardkitError) else error
    if cause is None:
        return ()
    frames = traceback.extract_tb(cause.__traceback__)[: -FRAMES_SHOWN - 1 : -1]
    return tuple(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
