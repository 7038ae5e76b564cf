"""The text field: a string, stored as UTF-8 exactly as given."""

from dataclasses import dataclass
from typing import Any, ClassVar

from shardkit.contract.field import Checked, Field, FileContent, Layout, Payload, Violation
from shardkit.contract.keys import check_whole
from shardkit.contract.reasons import Reason
from shardkit.errors import FormatError

_MAX_CHARACTERS = 2**31


@dataclass(frozen=True)
class TextField(Field):
    """A text of each record: a str, or UTF-8 bytes or the content of a file. Empty text is a value.

    Attributes:
        max_length: Most characters (code points) allowed, or None.
    """

    kind: ClassVar[str] = "text"
    accepts_file: ClassVar[bool] = True

    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.max_length is not None:
            check_whole("max_length", self.max_length, 1, _MAX_CHARACTERS)

    @property
    def layout(self) -> Layout:
        """Payloads of varying length."""
        return Layout()

    def is_missing(self, value: Any) -> bool:
        """Whether there is no text at all; an empty text is there."""
        return value is None

    def check(self, value: Any) -> Checked:
        """Judge a text.

        Raises:
            Violation: ``wrong-type``, ``bad-encoding`` or ``too-long``.
        """
        text = decode_utf8(value)
        if not isinstance(text, str):
            raise Violation(Reason.WRONG_TYPE, f"a value of type {type(value).__name__} is no text")
        if self.max_length is not None and len(text) > self.max_length:
            sentence = f"the text has {len(text)} characters; at most {self.max_length} are allowed"
            raise Violation(Reason.TOO_LONG, sentence)
        return Checked(encode_utf8(text))

    def decode(self, payload: Payload) -> str:
        """Return the text.

        Raises:
            FormatError: The payload is not UTF-8.
        """
        try:
            return str(payload, "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"a text payload is not UTF-8 at byte {error.start}") from error


def decode_utf8(value: Any) -> Any:
    """Return the text of bytes or of a file's content; anything else as it is.

    Raises:
        Violation: ``bad-encoding``: names the byte.
    """
    raw = value.data if isinstance(value, FileContent) else value
    if not isinstance(raw, bytes | bytearray | memoryview):
        return raw
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise Violation(Reason.BAD_ENCODING, f"the text is not UTF-8 at byte {error.start}") from error


def encode_utf8(text: str) -> bytes:
    """Return the UTF-8 bytes of a text.

    Raises:
        Violation: ``bad-encoding``: the text holds a lone surrogate, which no UTF-8 can express.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        sentence = f"the text holds a lone surrogate at character {error.start}, which UTF-8 cannot express"
        raise Violation(Reason.BAD_ENCODING, sentence) from error
