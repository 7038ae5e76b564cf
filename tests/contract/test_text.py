import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import FileContent, Reason, TextField, Violation
from shardkit.errors import ContractError, FormatError


@pytest.mark.parametrize(
    "value", ["é\0\n", "é\0\n".encode(), bytearray("é\0\n".encode()), FileContent("é\0\n".encode(), "a.txt")]
)
def test_text_is_stored_as_utf8_exactly_as_given(value: object) -> None:
    assert TextField().check(value).payload == b"\xc3\xa9\0\n"


def test_empty_text_is_a_value_and_none_is_not() -> None:
    assert not TextField().is_missing("")
    assert TextField().is_missing(None)
    assert TextField().check("").payload == b""


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    payload = TextField().check(text).payload
    assert TextField().decode(memoryview(payload)) == text


def test_length_counts_characters_not_bytes() -> None:
    field = TextField(max_length=2)
    assert field.decode(field.check("éé").payload) == "éé"
    with pytest.raises(Violation, match="3 characters; at most 2") as caught:
        field.check("ééé")
    assert caught.value.reason is Reason.TOO_LONG


@pytest.mark.parametrize(
    ("value", "place"),
    [("ab\ud800", "character 2"), (b"ab\xff", "byte 2"), (FileContent(b"\xe9", "a"), "byte 0")],
)
def test_what_is_not_utf8_is_a_bad_encoding_and_says_where(value: object, place: str) -> None:
    with pytest.raises(Violation, match=place) as caught:
        TextField().check(value)
    assert caught.value.reason is Reason.BAD_ENCODING


@pytest.mark.parametrize("value", [3, True, ["a"], {}])
def test_what_is_no_text_is_a_wrong_type(value: object) -> None:
    with pytest.raises(Violation) as caught:
        TextField().check(value)
    assert caught.value.reason is Reason.WRONG_TYPE


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
def test_a_wrong_limit_is_refused(limit: object) -> None:
    with pytest.raises(ContractError, match="max_length"):
        TextField(max_length=limit)  # type: ignore[arg-type]


def test_a_payload_that_is_not_utf8_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="byte 1"):
        TextField().decode(b"a\xff")
