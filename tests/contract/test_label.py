import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import LabelField, Reason, Violation
from shardkit.errors import ContractError, FormatError

TEN = LabelField(num_classes=10)
PETS = LabelField(classes=("cat", "dog", "7"))


def reason(field: LabelField, value: object) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(value)
    return caught.value.reason


@pytest.mark.parametrize("value", [7, "7", np.int64(7), np.uint8(7), np.array(7), torch.tensor(7)])
def test_a_class_number_is_stored_as_little_endian_int64(value: object) -> None:
    checked = TEN.check(value)
    assert checked.payload == b"\x07\0\0\0\0\0\0\0"
    assert checked.seen == "7"
    assert TEN.decode(checked.payload) == 7


@pytest.mark.parametrize(
    "value",
    [
        *(
            " 7",
            "7 ",
            "+7",
            "07",
            "7.0",
            "1_0",
            "0x1",
            "1e0",
            "nan",
            "inf",
            "٧",
            "",
            "7\n",
            "-0",
            "cat",
            b"7",
        ),
        *(True, 7.0, np.float32(7), np.bool_(True), torch.tensor(True), np.array([7]), None, [7]),
    ],
)
def test_what_is_no_plain_whole_number_is_a_wrong_type(value: object) -> None:
    assert reason(TEN, value) is Reason.LABEL_TYPE


@pytest.mark.parametrize(
    "value", [-1, "-1", 10, "10", 2**63, str(2**63), "9" * 5000, 10**4000, np.uint64(2**64 - 1)]
)
def test_a_number_outside_of_the_classes_is_out_of_range(value: object) -> None:
    assert reason(TEN, value) is Reason.LABEL_RANGE


def test_a_label_of_exactly_num_classes_hints_at_counting_from_1() -> None:
    with pytest.raises(
        Violation, match=r"'10'; allowed are 0 to 9; if the labels count from 1, .* first = 1"
    ):
        TEN.check("10")
    with pytest.raises(Violation, match=r"the label is 11; allowed are 0 to 9$"):
        TEN.check(11)


def test_numbers_may_count_from_1_and_are_stored_from_0() -> None:
    field = LabelField(num_classes=10, first=1)
    assert [field.decode(field.check(value).payload) for value in (1, "10")] == [0, 9]
    assert field.check("10").seen == "9"  # as it is delivered
    assert reason(field, 11) is Reason.LABEL_RANGE
    with pytest.raises(Violation, match=r"the label is 0; allowed are 1 to 10; first = 1 .* count from 1"):
        field.check(0)


def test_first_says_where_class_numbers_count_from_and_nothing_of_names() -> None:
    field = LabelField(classes=("cat", "dog", "7"), first=1)
    assert [field.check(value).seen for value in (1, 3, "cat", "7")] == ["cat", "7", "cat", "7"]
    assert reason(field, 0) is Reason.LABEL_RANGE


def test_first_is_absent_from_the_table_where_it_is_0() -> None:
    assert TEN.to_dict() == {"type": "label", "num_classes": 10}
    assert LabelField(num_classes=2, first=1).to_dict() == {"type": "label", "num_classes": 2, "first": 1}


@given(st.text(st.sampled_from("0123456789 +-_.eE٣x"), max_size=4))
def test_text_is_a_label_exactly_if_it_is_the_canonical_decimal(text: str) -> None:
    field = LabelField(num_classes=1000)
    if re.fullmatch("0|[1-9][0-9]*", text) and int(text) < 1000:
        assert field.decode(field.check(text).payload) == int(text)
    else:
        assert reason(field, text) in (Reason.LABEL_TYPE, Reason.LABEL_RANGE)


def test_classes_may_be_given_as_a_list_which_is_copied() -> None:
    names = ["cat", "dog"]
    field = LabelField(classes=names)  # type: ignore[arg-type]  # as TOML
    names.append("cow")
    assert field == LabelField(classes=("cat", "dog"))
    assert field.check("dog").payload == b"\x01\0\0\0\0\0\0\0"


def test_a_sentence_quotes_a_label_escaped_and_cut_to_40_characters() -> None:
    with pytest.raises(Violation, match=r"the label is 'Jane\\n\\xe9x{34}'…, which") as caught:
        PETS.check("Jane\né" + "x" * 100)
    assert "\n" not in caught.value.sentence


def test_a_class_name_is_stored_as_its_position() -> None:
    checked = PETS.check("dog")
    assert (checked.payload, checked.seen) == (b"\x01\0\0\0\0\0\0\0", "dog")


def test_text_is_taken_as_a_class_name_even_if_it_looks_like_a_number() -> None:
    assert PETS.decode(PETS.check("7").payload) == 2
    assert reason(PETS, "1") is Reason.LABEL_UNKNOWN


def test_an_int_is_taken_as_a_position_in_the_classes() -> None:
    assert PETS.check(np.int32(0)).seen == "cat"
    assert reason(PETS, 3) is Reason.LABEL_RANGE


@pytest.mark.parametrize("value", ["Cat", " cat", "cat ", "ca", "ca\u0301t"])
def test_a_class_name_must_match_letter_by_letter(value: str) -> None:
    assert reason(PETS, value) is Reason.LABEL_UNKNOWN


def test_an_unknown_class_names_close_ones_or_the_first_few() -> None:
    with pytest.raises(Violation, match="'dgo', which is no class; close to it are 'dog'"):
        PETS.check("dgo")
    many = LabelField(classes=tuple(f"class{number}" for number in range(50)))
    with pytest.raises(Violation, match=r"the classes are 'class0', .*'class7', … \(50 in all\)"):
        many.check("zebra")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "exactly one of the two must be given, found neither"),
        ({"classes": ("a",), "num_classes": 1}, "found both"),
        ({"num_classes": 0}, "num_classes = 0: allowed is a whole number from 1"),
        ({"num_classes": True}, "num_classes = true"),
        ({"num_classes": 2.0}, "num_classes = 2.0"),
        ({"num_classes": 2**63}, "num_classes"),
        ({"num_classes": 2, "first": -1}, "first = -1: allowed is a whole number from 0"),
        ({"classes": ()}, "classes = []: allowed is a list of distinct, non-empty names"),
        ({"classes": "abc"}, 'classes = "abc"'),
        ({"classes": ("a", "")}, "'' is no name"),
        ({"classes": ("a", 3)}, "3 is no name"),
        ({"classes": ("a", "\ud800")}, "is no name"),
        ({"classes": ("a", "b", "a")}, "'a' stands there twice"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ContractError) as caught:
        LabelField(**keys)  # type: ignore[arg-type]
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "payload", [b"", b"\0" * 7, b"\0" * 9, b"\x0a" + b"\0" * 7, b"\xff" * 8, b"\x01" * 5000]
)
def test_a_payload_that_no_label_has_is_a_format_error(payload: bytes) -> None:
    with pytest.raises(FormatError, match="label payload"):
        TEN.decode(payload)
