"""What every kind of field has in common: how a raw value is judged, laid out and turned back.

A field knows nothing of files, shards or torch. Its *payload* is the run of bytes that a shard stores for one
value (docs/format.md, "Payloads"); the same payload is written by every shard backend and covered by the checksum.
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from shardkit.contract.reasons import Reason
from shardkit.errors import ContractError

Payload = bytes | memoryview
"""Bytes of one stored value; a memoryview is C-contiguous with format ``B``."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
RESERVED_NAMES = frozenset({"id", "is_pad", "checksum"})


@dataclass(frozen=True)
class Layout:
    """How a field's payloads lie in a shard.

    Attributes:
        dtype: Little-endian dtype of a fixed-size value, or None where payloads vary in length.
        shape: Shape of a fixed-size value; ``()`` for a scalar. Empty where payloads vary in length.
    """

    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether every payload has the same number of bytes."""
        return self.dtype is not None

    @property
    def nbytes(self) -> int:
        """Bytes of one payload. Only for fixed layouts."""
        if self.dtype is None:
            raise ValueError("payloads of this layout vary in length")
        return self.dtype.itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class FileContent:
    """The bytes of a source file and the name it had, which is only ever compared with what the bytes are."""

    data: bytes
    name: str


@dataclass(frozen=True)
class Checked:
    """A value that fits its field.

    Attributes:
        payload: What the shard stores.
        seen: What the report counts the value under, such as an image mode (``"CMYK"``) or a class; may be empty.
        converted: Policies that changed the value, such as ``("grayscale",)``.
        warnings: Codes of :class:`~shardkit.contract.reasons.Warned`.
    """

    payload: Payload
    seen: str = ""
    converted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Violation(Exception):
    """A field's verdict on a value that does not fit: a reason code and one plain sentence."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


@dataclass(frozen=True)
class Field(ABC):
    """One named value of a record: a frozen dataclass whose attributes are the keys of its contract table."""

    kind: ClassVar[str]
    takes_file: ClassVar[bool] = False
    """Whether a source hands this field the content of a file rather than a value: text in a table is then a path."""
    accepts_file: ClassVar[bool] = False
    """Whether the content of a file will do as well, where a source has nothing else."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How payloads of this field lie in a shard."""

    @abstractmethod
    def check(self, value: Any) -> Checked:  # Any: raw input may be anything, which is what is being judged
        """Judge one raw value.

        Raises:
            Violation: The value does not fit.
        """

    @abstractmethod
    def decode(self, payload: Payload) -> Any:  # Any: each kind documents what it delivers
        """Turn a stored payload back into a value, without torch.

        Raises:
            FormatError: The payload cannot have been written by this field.
        """

    def is_missing(self, value: Any) -> bool:
        """Whether a raw value counts as not there at all (an empty table cell does)."""
        return value is None or (isinstance(value, str) and value == "")

    def to_dict(self) -> dict[str, Any]:
        """Return the contract table of this field: ``type`` and every key that is set, TOML- and JSON-ready."""
        table: dict[str, Any] = {"type": self.kind}
        for key in fields(self):
            value = getattr(self, key.name)
            if value is not None:
                table[key.name] = list(value) if isinstance(value, tuple) else value
        return table


def check_field_name(name: str) -> str:
    """Return `name` if it may name a field: a letter, then letters, digits and underscores, 64 at most.

    Raises:
        ContractError: It may not.
    """
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        reserved = ", ".join(sorted(RESERVED_NAMES))
        raise ContractError(
            f"field name {name!r} is not allowed: use a letter, then letters, digits or '_', "
            f"64 characters at most, and none of {reserved}"
        )
    return name
