"""The kinds of field there are, and how a contract table becomes one.

Adding a kind: one file with a :class:`~shardkit.contract.field.Field`, and one line here.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from typing import Any, TypeVar

from shardkit.contract.array import ArrayField
from shardkit.contract.binary import BytesField
from shardkit.contract.field import Field, keys_of
from shardkit.contract.image import ImageField
from shardkit.contract.json_field import JsonField
from shardkit.contract.keys import show_value, wrong_key
from shardkit.contract.label import LabelField
from shardkit.contract.scalar import ScalarField
from shardkit.contract.text import TextField
from shardkit.contract.tokens import TokensField
from shardkit.errors import ContractError

_T = TypeVar("_T")

KINDS: dict[str, type[Field]] = {
    "image": ImageField,
    "label": LabelField,
    "scalar": ScalarField,
    "array": ArrayField,
    "text": TextField,
    "tokens": TokensField,
    "bytes": BytesField,
    "json": JsonField,
}


def build_field(table: Mapping[str, Any]) -> Field:
    """Return the field that a contract table describes: ``type``, and the field's attributes as keys.

    Raises:
        ContractError: A key is unknown, missing or holds a wrong value; ``error.context["key"]`` is the key.
    """
    if "type" not in table:
        raise ContractError(f'no key "type": allowed are {_listed(KINDS)}')
    kind = table["type"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise wrong_key("type", kind, f"allowed are {_listed(KINDS)}{did_you_mean(kind, KINDS)}")
    return build_from_keys(KINDS[kind], {key: value for key, value in table.items() if key != "type"})


def build_from_keys(cls: type[_T], table: Mapping[str, Any]) -> _T:
    """Return the dataclass `cls` made of a contract table.

    Raises:
        ContractError: As for `build_field`.
    """
    known = {key.name: key for key in keys_of(cls)}
    require_known(table, known)
    for key, described in known.items():
        if key not in table and described.default is MISSING and described.default_factory is MISSING:
            raise ContractError(f"no key {show_value(key)}: it must be given")
    try:
        return cls(**table)
    except ContractError as error:
        raise ContractError(
            str(error), key=error.context.get("key") or _first_word(str(error), known)
        ) from None


def require_known(table: Mapping[str, Any], known: Iterable[str]) -> None:
    """Check that every key of a contract table is one of `known`.

    Raises:
        ContractError: One is not; names the closest that is, and all that are allowed.
    """
    names = list(known)
    for key, value in table.items():
        if key not in names:
            allowed = f"unknown key{did_you_mean(key, names)}; allowed are {', '.join(names) or 'none'}"
            raise wrong_key(key, value, allowed)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` if `word` is close to a known one, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1) if isinstance(word, str) else []
    return f"; did you mean {show_value(close[0])}?" if close else ""


def _listed(words: Iterable[str]) -> str:
    return ", ".join(show_value(word) for word in words)


def _first_word(text: str, known: Iterable[str]) -> str | None:
    """Return the key that a message starts with, for fields whose errors carry no context."""
    word = re.match(r"[a-z_0-9]+", text)
    return word.group() if word and word.group() in known else None
