"""What every kind of field has in common: how a raw value is judged, laid out and turned back.

A field knows nothing of files, shards or torch. Its *payload* is the run of bytes that a shard stores for one
value (docs/format.md, "Payloads"); the same payload is written by every shard backend and covered by the checksum.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import Field as Key
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from shardkit.contract.keys import wrong_key
from shardkit.contract.plain import copy_plain
from shardkit.contract.reasons import Reason
from shardkit.errors import ContractError

Payload = bytes | memoryview
"""Bytes of one stored value; a memoryview is C-contiguous with format ``B``."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_SHOWN = 80  # characters of a name that a message repeats
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
    def is_single(self) -> bool:
        """Whether every payload is one fixed-size value without axes, as those of labels and scalars are."""
        return self.is_fixed and self.shape == ()

    @property
    def nbytes(self) -> int:
        """Bytes of one payload. Only for fixed layouts."""
        if self.dtype is None:
            raise ValueError("payloads of this layout vary in length")
        return self.dtype.itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class Padding:
    """How values of varying shape become one tensor of a batch.

    Attributes:
        value: What fills the elements that a sample has not.
        shape: Sizes of the axes of one value; -1 where they vary, and are padded.
        length: Size that each varying axis is padded to, or None for the largest of the batch.
    """

    value: bool | int | float
    shape: tuple[int, ...]
    length: int | None = None


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


def later(default: Any) -> Any:  # Any: as dataclasses.field, it stands for a value of the attribute's type
    """Return an attribute whose key is left out of the contract's table at its default (docs/format.md, "Versions").

    So a contract that does not use it stays what it is for readers that do not know it, down to the data set's id.
    """
    return field(default=default, metadata={"is_later": True})


@dataclass(frozen=True)
class Field(ABC):
    """One named value of a record: a frozen dataclass whose attributes are the keys of its contract table.

    Attributes:
        default: Raw value that a record without one is given, or None: such a record is rejected. Kept as plain
            text, numbers and lists.

    Raises:
        ContractError: A key has a value that is not allowed, or the default does not fit the other keys.
    """

    kind: ClassVar[str]
    takes_file: ClassVar[bool] = False
    """Whether a source hands this field the content of a file rather than a value: text in a table is then a path."""
    accepts_file: ClassVar[bool] = False
    """Whether the content of a file will do as well, where a source has nothing else."""

    # Any: what is plain for the kind. Left out of the hash, since lists have none.
    default: Any = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        """Settle the default. A kind with keys of its own checks them first."""
        if self.default is None:
            return
        try:
            object.__setattr__(self, "default", self._plain_default(self.default))
            self._judge_default()
        except Violation as violation:
            raise wrong_key("default", self.default, violation.sentence) from None

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How payloads of this field lie in a shard."""

    @property
    def padding(self) -> Padding | None:
        """How values become one tensor of a batch though their shapes vary; None where a batch keeps them apart."""
        return None

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

    @cached_property
    def fallback(self) -> Checked | None:
        """What a record without a value is given, its `converted` naming ``default``; None: it is rejected."""
        if self.default is None:
            return None
        checked = self._check_default()
        return replace(checked, converted=(*checked.converted, "default"))

    def to_dict(self) -> dict[str, Any]:
        """Return the contract table of this field: ``type`` and every key that is set, TOML- and JSON-ready."""
        table: dict[str, Any] = {"type": self.kind}
        for key in keys_of(type(self)):
            value = getattr(self, key.name)
            if value is not None and not (key.metadata.get("is_later") and value == key.default):
                table[key.name] = copy_plain(value)
        return table

    def _plain_default(self, default: Any) -> Any:
        """Return the default as it stands in the contract file.

        Raises:
            Violation: It cannot stand there.
        """
        try:
            return copy_plain(default)
        except ValueError as error:
            raise Violation(Reason.WRONG_TYPE, str(error)) from error

    def _judge_default(self) -> None:
        """Judge the default, in memory of about the size that it has in the contract, which may come from anywhere.

        Raises:
            Violation: It does not fit.
        """
        self._check_default()

    def _check_default(self) -> Checked:
        """Judge the default as if a record had it, and return what is then stored.

        Raises:
            Violation: It does not fit.
        """
        return self.check(self.default)


def keys_of(cls: type) -> Sequence[Key[Any]]:
    """Return the keys that the dataclass `cls` has in a contract: its own, then those that all kinds share."""
    return sorted((key for key in fields(cls) if key.init), key=lambda key: key.kw_only is True)


def check_field_name(name: str) -> str:
    """Return `name` if it may name a field: a letter, then letters, digits and underscores, 64 at most.

    Raises:
        ContractError: It may not.
    """
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        reserved = ", ".join(sorted(RESERVED_NAMES))
        raise ContractError(
            f"field name {name[:_SHOWN]!r} is not allowed: use a letter, then letters, digits or '_', "
            f"64 characters at most, and none of {reserved}"
        )
    return name


def mask_name(name: str) -> str:
    """Return the name under which a batch holds the mask of a field that it pads."""
    return f"{name}_mask"
