"""Checks of the values that stand in a contract, and the one shape of message they share.

A message reads ``key = value: what is allowed``. The contract puts the table in front of it, and the contract
file the path and the line: ``contract.toml line 7: [fields.image] grayscale = "maybe": allowed are "reject",
"convert"``.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from datetime import date, time
from itertools import islice
from typing import Any

from shardkit.errors import ContractError

_SHOWN_DEPTH = 3
_SHOWN_ITEMS = 8
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML takes without quotes
_SHOWN = 60  # characters of a wrong value that a message repeats


def show_value(value: object, depth: int = 0) -> str:
    """Return `value` as the contract file would write it, cut where it is long or nested deeply."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = json.dumps(value, ensure_ascii=not value.isprintable())
    elif isinstance(value, list | tuple):
        text = f"[{_listed(value, depth, lambda item: show_value(item, depth + 1))}]"
    elif isinstance(value, dict):
        text = f"{{{_listed(value.items(), depth, lambda item: _show_item(item, depth + 1))}}}"
    elif isinstance(value, date | time):  # a datetime is a date, too
        text = value.isoformat()
    else:
        text = _one_line(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(items: Collection[Any], depth: int, show: Callable[[Any], str]) -> str:
    shown = [show(item) for item in islice(items, _SHOWN_ITEMS)] if depth < _SHOWN_DEPTH else ["…"]
    return ", ".join([*shown, "…"] if len(items) > _SHOWN_ITEMS else shown)


def _show_item(item: tuple[object, object], depth: int) -> str:
    key = str(item[0])
    return f"{key if _BARE.fullmatch(key) else show_value(key)} = {show_value(item[1], depth)}"


def _one_line(value: object) -> str:
    try:
        return " ".join(repr(value).split())
    except ValueError:  # Python prints no int of over 4300 digits
        return f"a value of type {type(value).__name__}, too long to show"


def wrong_key(key: str, value: object, allowed: str) -> ContractError:
    """Return the error that says what `key` holds and what is allowed there."""
    return ContractError(f"{key} = {show_value(value)}: {allowed}", key=key)


def check_choice(key: str, value: object, choices: Sequence[str]) -> None:
    """Check that `value` is one of `choices`.

    Raises:
        ContractError: It is not.
    """
    if not isinstance(value, str) or value not in choices:
        raise wrong_key(key, value, f"allowed are {', '.join(show_value(choice) for choice in choices)}")


def check_flag(key: str, value: object) -> None:
    """Check that `value` is a bool.

    Raises:
        ContractError: It is not.
    """
    if not isinstance(value, bool):
        raise wrong_key(key, value, "allowed are true, false")


def check_text(key: str, value: object) -> None:
    """Check that `value` is a text, and not an empty one.

    Raises:
        ContractError: It is not.
    """
    if not isinstance(value, str) or not value:
        raise wrong_key(key, value, "allowed is a text")


def is_whole(value: object) -> bool:
    """Whether `value` is an int, which a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_whole(key: str, value: Any, low: int, high: int) -> None:
    """Check that `value` is a whole number in ``[low, high]``.

    Raises:
        ContractError: It is not.
    """
    if not is_whole(value) or not low <= value <= high:
        raise wrong_key(key, value, f"allowed is a whole number from {low} to {high}")


def check_number(key: str, value: Any) -> None:
    """Check that `value` is a finite number, whole or not.

    Raises:
        ContractError: It is not.
    """
    if not is_whole(value) and not (isinstance(value, float) and math.isfinite(value)):
        raise wrong_key(key, value, "allowed is a finite number")
