"""The json field: any JSON value, stored as compact UTF-8 text."""

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from shardkit.contract.field import Checked, Field, Layout, Payload, Violation
from shardkit.contract.reasons import Reason
from shardkit.contract.strict_json import parse_json
from shardkit.contract.text import decode_text, encode_utf8
from shardkit.errors import FormatError

MAX_DEPTH = 100  # nested lists and objects; docs/format.md, "Payloads"


@dataclass(frozen=True)
class JsonField(Field):
    """A JSON value of each record: a dict, list, number, bool, or JSON text.

    A str, UTF-8 bytes or the content of a file is read as JSON text, strictly: no key twice, no NaN, no infinity.
    To store a single string, give its JSON text (``'"like this"'``). At most 100 levels nest. A tuple becomes
    a list. A default is kept as its JSON text, so that it may be or hold null.
    """

    kind: ClassVar[str] = "json"
    accepts_file: ClassVar[bool] = True

    @property
    def layout(self) -> Layout:
        """Payloads of varying length."""
        return Layout()

    def check(self, value: Any) -> Checked:
        """Judge a JSON value or a JSON text.

        Raises:
            Violation: ``bad-json``, ``bad-encoding``, ``not-finite`` or ``wrong-type``.
        """
        plain = decode_text(value)
        if isinstance(plain, str):
            try:
                plain = parse_json(plain)
            except ValueError as error:
                raise Violation(Reason.BAD_JSON, f"the text cannot be taken: {error}") from error
        _check_plain(plain)
        try:
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError as error:  # an int of more digits than Python prints
            raise Violation(Reason.BAD_JSON, "the value holds a number of over 4300 digits") from error
        return Checked(encode_utf8(text))

    def decode(self, payload: Payload) -> Any:
        """Return the value: dict, list, str, int, float, bool or None.

        Raises:
            FormatError: The payload is not strict JSON in UTF-8.
        """
        try:
            return parse_json(str(payload, "utf-8"))
        except ValueError as error:
            raise FormatError(f"a json payload cannot be read: {error}") from error

    def _plain_default(self, default: Any) -> str:
        return str(self.check(default).payload, "utf-8")


def _check_plain(value: Any) -> None:
    """Check that a value is made of what JSON has, level by level (recursion could run out of stack)."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        for item in level:
            _check_one(item)
        containers = [item for item in level if isinstance(item, dict | list | tuple)]
        if not containers:
            return
        level = [child for item in containers for child in _children(item)]
    raise Violation(Reason.BAD_JSON, f"the value is nested deeper than {MAX_DEPTH} levels")


def _children(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _check_one(item: Any) -> None:
    if isinstance(item, float):
        if not math.isfinite(item):
            raise Violation(Reason.NOT_FINITE, "the value holds NaN or infinity, which JSON cannot express")
    elif isinstance(item, dict):
        strange = [key for key in item if not isinstance(key, str)]
        if strange:
            raise Violation(
                Reason.WRONG_TYPE, f"an object has a key of type {type(strange[0]).__name__}, not text"
            )
    elif not isinstance(item, list | tuple | str | int | None):
        raise Violation(
            Reason.WRONG_TYPE, f"the value holds a {type(item).__name__}, which JSON does not have"
        )
