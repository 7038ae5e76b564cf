"""The text field: a string, stored as UTF-8 exactly as given."""

import codecs
from dataclasses import dataclass
from typing import Any, ClassVar

from shardkit.contract.field import Checked, Field, FileContent, Layout, Payload, Violation, later
from shardkit.contract.keys import check_choice, check_whole, wrong_key
from shardkit.contract.reasons import Reason
from shardkit.errors import FormatError

ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252", "ascii")
_BYTE_ORDER_MARK = "\ufeff"
_MARKED = ("utf-8", "utf-16-le", "utf-16-be")  # a mark in front is no part of the text
_MAX_CHARACTERS = 2**31


@dataclass(frozen=True)
class TextField(Field):
    """A text of each record: a str, or encoded bytes or the content of a file. Empty text is a value.

    Attributes:
        max_length: Most characters (code points) allowed, or None.
        min_length: Fewest characters allowed.
        encoding: How bytes and the content of files are decoded: ``"utf-8"``, ``"utf-16"`` (which needs a byte order
            mark), ``"utf-16-le"``, ``"utf-16-be"``, ``"latin-1"``, ``"cp1252"`` or ``"ascii"``. A byte order mark in
            front is dropped. What is stored is always UTF-8; a str is taken as it is.
    """

    kind: ClassVar[str] = "text"
    accepts_file: ClassVar[bool] = True

    max_length: int | None = None
    min_length: int = later(0)
    encoding: str = later("utf-8")

    def __post_init__(self) -> None:
        check_whole("min_length", self.min_length, 0, _MAX_CHARACTERS)
        if self.max_length is not None:
            check_whole("max_length", self.max_length, 1, _MAX_CHARACTERS)
            if self.max_length < self.min_length:
                raise wrong_key(
                    "max_length", self.max_length, f"min_length is {self.min_length}, which is more"
                )
        check_choice("encoding", self.encoding, ENCODINGS)
        super().__post_init__()

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
            Violation: ``wrong-type``, ``bad-encoding``, ``too-short`` or ``too-long``.
        """
        text = decode_text(value, self.encoding)
        if not isinstance(text, str):
            raise Violation(Reason.WRONG_TYPE, f"a value of type {type(value).__name__} is no text")
        if len(text) < self.min_length:
            sentence = f"the text has {len(text)} characters; at least {self.min_length} are asked for"
            raise Violation(Reason.TOO_SHORT, sentence)
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


def decode_text(value: Any, encoding: str = "utf-8") -> Any:  # Any: raw input may be anything
    """Return the text of bytes or of a file's content, without a byte order mark; anything else as it is.

    Raises:
        Violation: ``bad-encoding``: names the byte.
    """
    raw = value.data if isinstance(value, FileContent) else value
    if not isinstance(raw, bytes | bytearray | memoryview):
        return raw
    if encoding == "utf-16" and bytes(raw[:2]) not in (b"", codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        sentence = (
            'the text has no byte order mark; if it is UTF-16 all the same, say "utf-16-le" or "utf-16-be"'
        )
        raise Violation(Reason.BAD_ENCODING, sentence)
    try:
        text = str(raw, encoding)
    except UnicodeDecodeError as error:
        raise Violation(
            Reason.BAD_ENCODING, f"the text is not {encoding.upper()} at byte {error.start}"
        ) from error
    return text.removeprefix(_BYTE_ORDER_MARK) if encoding in _MARKED else text


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
