import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import FileContent, JsonField, Reason, Violation
from shardkit.errors import FormatError

FIELD = JsonField()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def reason(value: object) -> Reason:
    with pytest.raises(Violation) as caught:
        FIELD.check(value)
    return caught.value.reason


@pytest.mark.parametrize(
    "value",
    [
        {"b": [1, 2.5, None], "a": "é"},
        '{"b": [1, 2.5, null],\n "a": "\\u00e9"}',
        b'{"b":[1,2.5,null],"a":"\xc3\xa9"}',
        FileContent(b'{"b":[1,2.5,null],"a":"\xc3\xa9"}', "a.json"),
        {"b": (1, 2.5, None), "a": "é"},
    ],
)
def test_values_and_texts_are_stored_as_compact_utf8_in_their_own_order(value: object) -> None:
    assert FIELD.check(value).payload == '{"b":[1,2.5,null],"a":"é"}'.encode()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(_JSON.filter(lambda value: value is not None and not isinstance(value, str)))
def test_any_json_value_comes_back(value: object) -> None:
    assert FIELD.decode(FIELD.check(value).payload) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "hello",
        '{"a": 1, "a": 2}',
        '[{"x": {"a": 1, "a": 1}}]',
        "NaN",
        "[-Infinity]",
        "1e999",
        "[1] [2]",
        "{'a': 1}",
        "[1,]",
        "01",
        "9" * 5000,
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
    ],
)
def test_text_that_is_not_strict_json_is_bad_json(text: str) -> None:
    assert reason(text) is Reason.BAD_JSON


def test_a_whole_number_of_any_size_that_python_prints_is_kept() -> None:
    assert FIELD.decode(FIELD.check("9" * 4000).payload) == 10**4000 - 1
    assert reason([10**5000]) is Reason.BAD_JSON


def test_a_hundred_levels_nest_and_no_more() -> None:
    assert FIELD.decode(FIELD.check(nested(100)).payload) == nested(100)
    assert reason(nested(101)) is Reason.BAD_JSON
    assert reason("[" * 101 + "]" * 101) is Reason.BAD_JSON
    assert reason(nested(10_000)) is Reason.BAD_JSON


@pytest.mark.parametrize("value", [[math.nan], {"a": math.inf}])
def test_floats_that_json_cannot_express_are_not_finite(value: object) -> None:
    assert reason(value) is Reason.NOT_FINITE


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {None: 1}}, [{1, 2}], np.int64(3), [np.zeros(2)], [b"x"], object()]
)
def test_what_json_does_not_have_is_a_wrong_type(value: object) -> None:
    assert reason(value) is Reason.WRONG_TYPE


@pytest.mark.parametrize("value", ['"\\ud800"', ["\ud800"], b'"\xff"'])
def test_what_utf8_cannot_express_is_a_bad_encoding(value: object) -> None:
    assert reason(value) is Reason.BAD_ENCODING


@pytest.mark.parametrize("payload", [b"", b"{", b'"\xff"', b'{"a":1,"a":2}', b"NaN"])
def test_a_payload_that_is_not_strict_json_is_a_format_error(payload: bytes) -> None:
    with pytest.raises(FormatError, match="json payload"):
        FIELD.decode(payload)
