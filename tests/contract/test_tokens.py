import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import FileContent, Padding, Reason, TokensField, Violation
from shardkit.errors import ContractError, FormatError


def npy(array: np.ndarray) -> FileContent:
    stream = io.BytesIO()
    np.save(stream, array)
    return FileContent(stream.getvalue(), "a.npy")


def reason(field: TokensField, value: object) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(value)
    return caught.value.reason


@pytest.mark.parametrize(
    "value",
    [
        [5, 300],
        (5, 300),
        [np.int64(5), np.uint16(300)],
        np.array([5, 300], ">i8"),
        np.array([0, 300, 0, 5])[::-2],
        torch.tensor([5, 300]),
        npy(np.array([5, 300], np.uint64)),
        npy(np.array([5, 300])).data,
        FileContent(b"5 300\n", "a.txt"),
        FileContent(b"\xef\xbb\xbf[5, 300]", "a.json"),
        b"5\t300",
        "5 300",
        " 5\n300 ",
        "[5,300]",
        " [5, 300]\n",
    ],
)
def test_what_holds_the_same_numbers_is_stored_as_the_same_little_endian_elements(value: object) -> None:
    checked = TokensField().check(value)
    assert checked.payload == b"\x05\0\0\0\x2c\x01\0\0"
    assert checked.converted == ()


@pytest.mark.parametrize("value", [[], (), "[]", np.array([], np.int8), FileContent(b"[]", "a.json")])
def test_an_empty_sequence_is_a_value_and_empty_text_is_none(value: object) -> None:
    field = TokensField()
    assert field.check(value).payload == b""
    assert field.decode(b"").tolist() == []
    assert field.is_missing("")
    assert reason(field, FileContent(b"", "a.txt")) is Reason.EMPTY


@pytest.mark.parametrize(
    ("dtype", "least", "most", "delivered"),
    [
        ("int16", -(2**15), 2**15 - 1, "int32"),
        ("uint16", 0, 2**16 - 1, "int32"),
        ("int32", -(2**31), 2**31 - 1, "int32"),
        ("uint32", 0, 2**32 - 1, "int64"),
        ("int64", -(2**63), 2**63 - 1, "int64"),
    ],
)
def test_a_dtype_holds_its_range_and_is_delivered_as_one_that_torch_embeds(
    dtype: str, least: int, most: int, delivered: str
) -> None:
    field = TokensField(dtype)
    again = field.decode(field.check([least, most]).payload)
    assert (again.dtype.name, again.tolist()) == (delivered, [least, most])
    assert reason(field, [least - 1]) is Reason.OUT_OF_RANGE
    assert reason(field, str(most + 1)) is Reason.OUT_OF_RANGE


@given(st.lists(st.integers(0, 2**16 - 1)), st.sampled_from(["uint16", "int32", "int64"]))
def test_any_sequence_comes_back_from_each_form_it_may_have(tokens: list[int], dtype: str) -> None:
    field = TokensField(dtype)
    forms = [tokens, str(tokens), np.array(tokens, np.uint64)]
    for form in [*forms, " ".join(map(str, tokens))] if tokens else forms:
        assert field.decode(memoryview(field.check(form).payload)).tolist() == tokens


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, Reason.WRONG_TYPE),
        ({"a": 1}, Reason.WRONG_TYPE),
        ([1.0], Reason.WRONG_TYPE),
        ([True], Reason.WRONG_TYPE),
        (["1"], Reason.WRONG_TYPE),
        (np.array([1.0]), Reason.WRONG_TYPE),
        (np.array([True]), Reason.WRONG_TYPE),
        (np.array([1], "m8[s]"), Reason.WRONG_TYPE),
        (torch.tensor([1.0], dtype=torch.bfloat16), Reason.WRONG_TYPE),
        ("5,300", Reason.WRONG_TYPE),
        ("5 +3", Reason.WRONG_TYPE),
        ("05", Reason.WRONG_TYPE),
        (" ", Reason.WRONG_TYPE),
        ("a.npy", Reason.WRONG_TYPE),
        ("[1, 2", Reason.BAD_JSON),
        ("[1, NaN]", Reason.BAD_JSON),
        ("[1.0]", Reason.WRONG_TYPE),
        ("[[1]]", Reason.WRONG_SHAPE),
        ([[1]], Reason.WRONG_SHAPE),
        ([[1], 2], Reason.WRONG_SHAPE),
        (np.array(1), Reason.WRONG_SHAPE),
        (np.zeros((1, 1), np.int32), Reason.WRONG_SHAPE),
        (b"\xff\xfe", Reason.BAD_ENCODING),
        (b"\x93NUMPY\x01", Reason.TRUNCATED),
        ([2**31], Reason.OUT_OF_RANGE),
        ("9" * 5000, Reason.OUT_OF_RANGE),
    ],
)
def test_what_is_no_sequence_of_tokens_is_refused(value: object, expected: Reason) -> None:
    assert reason(TokensField(), value) is expected


def test_tokens_outside_of_the_vocabulary_are_named() -> None:
    field = TokensField(vocab_size=10)
    assert field.decode(field.check([0, 9]).payload).tolist() == [0, 9]
    with pytest.raises(Violation, match="reach from 3 to 10; allowed are 0 to 9") as caught:
        field.check([3, 10])
    assert caught.value.reason is Reason.OUT_OF_RANGE
    assert reason(field, [-1]) is Reason.OUT_OF_RANGE


def test_too_many_tokens_are_refused_or_cut_and_counted() -> None:
    with pytest.raises(Violation, match="3 tokens; at most 2 are allowed") as caught:
        TokensField(max_length=2).check([1, 2, 3])
    assert caught.value.reason is Reason.TOO_LONG
    field = TokensField("int16", max_length=2, overflow="truncate")
    checked = field.check([1, 2, 3])
    assert (checked.payload, checked.converted) == (b"\x01\0\x02\0", ("overflow",))
    assert field.check([1, 2]).converted == ()


def test_what_is_cut_off_must_be_tokens_too() -> None:
    field = TokensField(max_length=1, overflow="truncate", vocab_size=5)
    assert reason(field, [1, 7]) is Reason.OUT_OF_RANGE


def test_too_few_tokens_are_refused() -> None:
    assert reason(TokensField(min_length=1), []) is Reason.TOO_SHORT


def test_the_padding_is_to_the_longest_or_to_max_length() -> None:
    assert TokensField(pad_value=-100).padding == Padding(-100, (-1,))
    assert TokensField(max_length=8, pad="max_length").padding == Padding(0, (-1,), 8)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"dtype": "uint8"}, 'dtype = "uint8": allowed are "int32", "uint16"'),
        ({"overflow": "truncate"}, 'overflow = "truncate": give max_length as well'),
        ({"pad": "max_length"}, 'pad = "max_length": give max_length as well'),
        ({"pad": "left"}, 'pad = "left"'),
        ({"max_length": 0}, "max_length = 0"),
        ({"max_length": 2, "min_length": 3}, "max_length = 2: min_length is 3"),
        (
            {"dtype": "uint16", "vocab_size": 65_537},
            "vocab_size = 65537: allowed is a whole number from 1 to 65536",
        ),
        ({"pad_value": 2**31}, "pad_value = 2147483648"),
        ({"pad_value": None}, "pad_value = None"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ContractError) as caught:
        TokensField(**keys)  # type: ignore[arg-type]
    assert text in str(caught.value)


@pytest.mark.parametrize("payload", [b"\0", b"\0" * 5, b"\0" * 4, b"\0" * 16])
def test_a_payload_that_no_such_sequence_has_is_a_format_error(payload: bytes) -> None:
    with pytest.raises(FormatError, match="does not hold 2 to 3 int32"):
        TokensField(min_length=2, max_length=3).decode(payload)
