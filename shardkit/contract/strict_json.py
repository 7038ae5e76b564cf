"""Reads JSON as RFC 8259 means it: no key twice, no NaN, no number that becomes infinite, no endless nesting.

Python's own reader keeps the last of two equal keys, takes ``NaN``, and turns ``1e999`` into infinity.
"""

import json
import math
from typing import Any


def parse_json(text: str) -> Any:  # Any: JSON may hold anything
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not strict JSON; the message is one plain sentence without contents.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON at character {error.pos + 1}: {error.msg}") from error
    except ValueError as error:
        is_from_int = "int_max_str_digits" in str(error)  # Python refuses to convert very long numbers
        raise ValueError(
            "it holds a whole number of over 4300 digits" if is_from_int else str(error)
        ) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("it holds an object with the same key twice")
    return table


def _refuse(word: str) -> float:
    raise ValueError(f"it holds {word}, which is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("it holds a number that is too large for a float64")
    return number
