"""The bytes field: any run of bytes, stored untouched and never looked into."""

from dataclasses import dataclass
from typing import Any, ClassVar

from shardkit.contract.field import Checked, Field, FileContent, Layout, Payload, Violation
from shardkit.contract.keys import check_whole
from shardkit.contract.reasons import Reason
from shardkit.contract.text import encode_utf8

_MAX_BYTES = 2**40


@dataclass(frozen=True)
class BytesField(Field):
    """The bytes of each record: bytes, or the content of a file. No bytes at all is a value.

    A default is text, or bytes that are UTF-8: what is stored is its UTF-8.

    Attributes:
        max_bytes: Most bytes allowed, or None.
    """

    kind: ClassVar[str] = "bytes"
    takes_file: ClassVar[bool] = True

    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_bytes is not None:
            check_whole("max_bytes", self.max_bytes, 1, _MAX_BYTES)
        super().__post_init__()

    @property
    def layout(self) -> Layout:
        """Payloads of varying length."""
        return Layout()

    def check(self, value: Any) -> Checked:
        """Judge a run of bytes.

        Raises:
            Violation: ``wrong-type`` or ``too-long``.
        """
        raw = value.data if isinstance(value, FileContent) else value
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise Violation(Reason.WRONG_TYPE, f"a value of type {type(value).__name__} is no bytes")
        data = bytes(raw)
        if self.max_bytes is not None and len(data) > self.max_bytes:
            raise Violation(
                Reason.TOO_LONG, f"the value has {len(data)} bytes; at most {self.max_bytes} are allowed"
            )
        return Checked(data)

    def decode(self, payload: Payload) -> bytes:
        """Return the bytes, a copy."""
        return bytes(payload)

    def _plain_default(self, default: Any) -> str:
        if isinstance(default, str):
            return default
        try:
            return str(self.check(default).payload, "utf-8")
        except UnicodeDecodeError as error:
            sentence = "a default stands in the contract as text, and these bytes are not UTF-8"
            raise Violation(Reason.BAD_ENCODING, sentence) from error

    def _check_default(self) -> Checked:
        return self.check(encode_utf8(self.default))
