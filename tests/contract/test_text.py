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


def test_a_text_may_have_a_fewest_length() -> None:
    field = TextField(min_length=2)
    assert field.check("éé").payload == "éé".encode()
    with pytest.raises(Violation, match="1 characters; at least 2") as caught:
        field.check("é")
    assert caught.value.reason is Reason.TOO_SHORT
    with pytest.raises(ContractError, match="max_length = 1: min_length is 2"):
        TextField(max_length=1, min_length=2)


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("utf-8", b"\xc3\xa9\xe2\x82\xac"),
        ("utf-8", b"\xef\xbb\xbf\xc3\xa9\xe2\x82\xac"),
        ("utf-16", b"\xff\xfe\xe9\0\xac\x20"),
        ("utf-16", b"\xfe\xff\0\xe9\x20\xac"),
        ("utf-16-le", b"\xe9\0\xac\x20"),
        ("utf-16-le", b"\xff\xfe\xe9\0\xac\x20"),
        ("utf-16-be", b"\0\xe9\x20\xac"),
        ("cp1252", b"\xe9\x80"),
    ],
)
def test_bytes_and_files_are_decoded_as_the_contract_says_and_stored_as_utf8(
    encoding: str, raw: bytes
) -> None:
    field = TextField(encoding=encoding)
    for value in (raw, FileContent(raw, "a.txt"), "é€"):
        assert field.check(value).payload == "é€".encode()


def test_latin_1_takes_every_byte_and_a_str_keeps_its_byte_order_mark() -> None:
    assert (
        TextField(encoding="latin-1").check(bytes(range(256))).payload
        == "".join(map(chr, range(256))).encode()
    )
    assert TextField().check("\ufeffa").payload == b"\xef\xbb\xbfa"


@pytest.mark.parametrize(
    ("encoding", "raw", "said"),
    [
        ("ascii", b"a\xe9", "not ASCII at byte 1"),
        ("cp1252", b"ab\x81", "not CP1252 at byte 2"),
        ("utf-16", b"a\0b\0", "no byte order mark"),
        ("utf-16", b"a", "no byte order mark"),
        ("utf-16", b"\xff\xfea", "not UTF-16 at byte 2"),
        ("utf-16-be", b"\xd8\0\0a", "not UTF-16-BE at byte 0"),
    ],
)
def test_bytes_of_another_encoding_are_refused_naming_the_byte(encoding: str, raw: bytes, said: str) -> None:
    with pytest.raises(Violation, match=said) as caught:
        TextField(encoding=encoding).check(raw)
    assert caught.value.reason is Reason.BAD_ENCODING


@pytest.mark.parametrize("encoding", ["utf8", "UTF-8", "utf-7", "rot13", "", None, 8])
def test_an_encoding_that_is_not_listed_is_refused(encoding: object) -> None:
    with pytest.raises(ContractError, match=r'encoding = .*: allowed are "utf-8", "utf-16"'):
        TextField(encoding=encoding)  # type: ignore[arg-type]


def test_keys_at_their_defaults_are_absent_from_the_table() -> None:
    assert TextField(max_length=3).to_dict() == {"type": "text", "max_length": 3}
    later = {"type": "text", "min_length": 1, "encoding": "ascii"}
    assert TextField(min_length=1, encoding="ascii").to_dict() == later


def test_a_payload_that_is_not_utf8_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="byte 1"):
        TextField().decode(b"a\xff")
