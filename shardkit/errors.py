"""The exceptions that shardkit raises, and the exit status that each stands for on the command line.

Every class takes one message, so that a torch DataLoader can rebuild it in the parent as ``exc_type(message)``.
The message therefore holds all context (path, shard, row, id); keyword attributes are a convenience for
callers in the same process.

    ShardkitError
    ├── ContractError (ValueError)                 the contract itself is malformed
    │   └── RecordRejectedError                    a record does not fit the contract
    ├── SourceError                                raw input cannot be read
    ├── OutputError                                the output cannot be written, or holds something already
    ├── IngestError                                ingestion ended without committing a data set
    ├── WorkerError                                a worker process was killed
    ├── FormatError (ValueError)                   the data set on disk breaks docs/format.md
    │   ├── UnsupportedVersionError
    │   ├── ManifestError
    │   └── CorruptShardError                      truncated, altered or inconsistent shard, index or record
    ├── DatasetNotFoundError (FileNotFoundError)   no manifest: not a data set, or an ingest that never finished
    ├── RecordNotFoundError (LookupError)
    ├── TransformError                             a transform broke its promise
    └── StateError (ValueError)                    a saved state does not belong to what is to go on from it
"""

from typing import Any, ClassVar


class ShardkitError(Exception):
    """Base of every error that shardkit raises on purpose.

    Attributes:
        exit_status: What the command line exits with: 1, the data falls short; 2, wrong use.
        context: Keyword context given by the raiser. It does not survive a process boundary; the message does.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, text: str = "", **context: Any) -> None:
        super().__init__(text)
        self.context = context

    def __str__(self) -> str:
        """Return the message alone (OSError parents would add an errno)."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by message, so that any process can rebuild the error."""
        return (type(self), (str(self),))


class ContractError(ShardkitError, ValueError):
    """The contract is malformed: names the file, the line, the key and what is allowed."""

    exit_status = 2


class RecordRejectedError(ContractError):
    """A record does not fit the contract: names the id, the field, the reason code and why."""

    exit_status = 1


class SourceError(ShardkitError):
    """Raw input cannot be used as a source: names the path, the position and what is expected."""

    exit_status = 2


class OutputError(ShardkitError):
    """The output folder cannot be used: not writable, not empty, or already a data set."""

    exit_status = 2


class IngestError(ShardkitError):
    """Ingestion stopped without committing: records were rejected under ``abort``, or none fits."""


class WorkerError(ShardkitError):
    """A worker process was killed: names what it may have been at."""


class FormatError(ShardkitError, ValueError):
    """What is on disk breaks docs/format.md."""


class UnsupportedVersionError(FormatError):
    """The data set was written by another major version of the format."""


class ManifestError(FormatError):
    """The manifest is not valid: names the key, what was found and what is expected."""


class CorruptShardError(FormatError):
    """A shard, the index or a record differs from what the manifest or a checksum says."""


class DatasetNotFoundError(ShardkitError, FileNotFoundError):
    """There is no manifest: the folder is not a data set, or its ingest never finished."""

    exit_status = 2


class RecordNotFoundError(ShardkitError, LookupError):
    """No record of the data set has this id."""


class TransformError(ShardkitError):
    """A transform changed a shape, dropped a field or returned None without leave to do so."""


class StateError(ShardkitError, ValueError):
    """A saved state cannot be gone on from: it is none, or of another data set, generation or sampling."""

    exit_status = 2
