import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shardkit.contract import ArrayField, FileContent, Padding, Reason, Violation
from shardkit.errors import ContractError, FormatError

FIXED = ArrayField("int16", (2, 3))
VARIABLE = ArrayField("float32", (-1, 2))


def reason(field: ArrayField, value: object) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(value)
    return caught.value.reason


def test_a_fixed_shape_is_stored_as_its_elements_alone_in_little_endian() -> None:
    checked = FIXED.check(np.array([[1, 2, 3], [4, 5, 256]], ">i2"))
    assert checked.payload == b"\x01\0\x02\0\x03\0\x04\0\x05\0\0\x01"
    assert (FIXED.layout.is_fixed, FIXED.layout.nbytes) == (True, 12)


def test_a_varying_shape_is_stored_with_its_axis_sizes_in_front() -> None:
    checked = VARIABLE.check([[0.0, 1.0]])
    assert checked.payload == b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0" + b"\0\0\0\0\0\0\x80\x3f"
    assert not VARIABLE.layout.is_fixed


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2, 3], [4, 5, 6]],
        ((1, 2, 3), (4, 5, 6)),
        np.array([[1, 2, 3], [4, 5, 6]], np.int8),
        np.asfortranarray(np.array([[1, 2, 3], [4, 5, 6]], np.int16)),
        torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int16),
        torch.tensor([[1, 4], [2, 5], [3, 6]], dtype=torch.uint8).T,
        np.array([[1, 2, 3], [4, 5, 6]], ">i2"),
        np.array([[0, 1, 2, 3], [0, 4, 5, 6]], np.int16)[:, 1:],
        np.array([[9, 3, 2, 1], [9, 6, 5, 4]], np.int16)[:, :0:-1],
        [np.array([1, 2, 3], np.int8), np.array([4, 5, 6], np.int8)],
        [[np.int64(1), np.int8(2), 3], [4, 5, np.uint64(6)]],
    ],
)
def test_what_holds_the_same_numbers_is_stored_the_same(value: object) -> None:
    assert FIXED.decode(FIXED.check(value).payload).tolist() == [[1, 2, 3], [4, 5, 6]]


@given(
    hnp.arrays(
        st.sampled_from([np.dtype("bool"), np.dtype("uint8"), np.dtype("int64"), np.dtype("float32")]),
        hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
        elements=None,
        fill=st.just(0),
    ),
    st.booleans(),
)
def test_any_array_comes_back(array: np.ndarray[Any, Any], is_fixed: bool) -> None:
    is_fixed = is_fixed and array.size > 0
    field = ArrayField(array.dtype.name, array.shape if is_fixed else (-1,) * array.ndim, finite=False)
    again = field.decode(field.check(array).payload)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()
    assert not again.flags.writeable


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (FIXED, np.zeros((2, 3), np.int32)),
        (FIXED, np.zeros((2, 3), np.float32)),
        (FIXED, np.full((2, 3), None)),
        (FIXED, [[1.0, 2, 3], [4, 5, 6]]),
        (FIXED, [[True, 2, 3], [4, 5, 6]]),
        (FIXED, [["1", 2, 3], [4, 5, 6]]),
        (FIXED, [[None, 2, 3], [4, 5, 6]]),
        (FIXED, "a.npy"),
        (FIXED, 3),
        (FIXED, torch.zeros(2, 3, dtype=torch.float32, requires_grad=True)),
        (VARIABLE, np.zeros((1, 2), np.float64)),
        (ArrayField("bool", (1,)), [1]),
        (ArrayField("bool", (1,)), np.array([1], np.uint8)),
        (ArrayField("float32", (1,)), torch.zeros(1, dtype=torch.bfloat16)),
        (ArrayField("float64", (1,)), np.zeros(1, np.longdouble)),
        (ArrayField("float64", (1,)), np.zeros(1, complex)),
        (ArrayField("int64", (1,)), np.zeros(1, "m8[s]")),
        (ArrayField("int64", (1,)), np.zeros(1, np.uint64)),
        (ArrayField("int64", (1,)), [np.timedelta64(1, "s")]),
        (ArrayField("int64", (1,)), [np.float64(1)]),
        (ArrayField("uint8", (2,)), np.ma.masked_array(np.zeros(2, np.uint8), [False, True])),
    ],
)
def test_what_cannot_be_taken_without_loss_is_a_wrong_type(field: ArrayField, value: object) -> None:
    assert reason(field, value) is Reason.WRONG_TYPE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (FIXED, np.zeros((3, 2), np.int16)),
        (FIXED, np.zeros(6, np.int16)),
        (FIXED, np.int16(3)),
        (FIXED, [[1, 2, 3], [4, 5]]),
        (FIXED, [[1, 2, 3], 4]),
        (FIXED, []),
        (VARIABLE, [[1.0, 2.0, 3.0]]),
    ],
)
def test_another_shape_is_a_wrong_shape(field: ArrayField, value: object) -> None:
    assert reason(field, value) is Reason.WRONG_SHAPE


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (np.int64, 2**53 + 1),
        (np.int64, -(2**53) - 1),
        (np.int64, 2**63 - 1),
        (np.uint64, 2**53 + 1),
        (np.uint64, 2**64 - 1),
    ],
)
def test_a_whole_number_that_float64_would_round_is_refused(dtype: type, number: int) -> None:
    with pytest.raises(Violation, match=rf"the array holds {number}, which cannot become float64") as caught:
        ArrayField("float64", (2,)).check(np.array([1, number], dtype))
    assert caught.value.reason is Reason.WRONG_TYPE


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**53, -(2**53), 2**53 + 2, -(2**63)], np.int64),
        np.array([0, 2**53, 2**63, 2**64 - 2048], np.uint64),
        np.array([-128, 127, 0, 1], np.int8),
    ],
)
def test_whole_numbers_that_float64_holds_are_taken(array: np.ndarray[Any, Any]) -> None:
    field = ArrayField("float64", (4,))
    assert [int(number) for number in field.decode(field.check(array).payload)] == array.tolist()


def test_a_dtype_that_numpy_does_not_have_is_named_with_what_to_do() -> None:
    with pytest.raises(
        Violation, match=r"this Tensor of torch\.bfloat16 as an array: convert or detach it first"
    ):
        ArrayField("float32", (1,)).check(torch.zeros(1, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("int64", [-(2**63), 2**63 - 1]),
        ("uint64", [0, 2**64 - 1]),
        ("int8", [-128, 127]),
        ("bool", [True, False]),
        ("float32", [float(np.finfo("float32").max), -0.0]),
        ("float64", [5e-324, 1.7976931348623157e308]),
    ],
)
def test_the_extremes_of_a_dtype_come_back_from_lists_and_arrays(dtype: str, numbers: list[Any]) -> None:
    field = ArrayField(dtype, (2,))
    for value in (numbers, np.array(numbers, dtype), np.array(numbers, np.dtype(dtype).newbyteorder(">"))):
        assert field.decode(field.check(value).payload).tolist() == numbers


def test_an_axis_that_varies_may_be_of_length_0_and_any_other_may_not() -> None:
    for value in ([], np.zeros((0, 2), np.float32), torch.zeros(0, 2)):
        if len(np.shape(value)) == 2:
            assert VARIABLE.decode(VARIABLE.check(value).payload).shape == (0, 2)
        else:
            assert reason(VARIABLE, value) is Reason.WRONG_SHAPE
    assert reason(VARIABLE, np.zeros((2, 0), np.float32)) is Reason.WRONG_SHAPE


def test_the_bytes_of_a_npy_file_are_an_array_with_or_without_a_name() -> None:
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(np.array([[1, 2, 3], [4, 5, 6]], ">i2")))
    for value in (stream.getvalue(), FileContent(stream.getvalue(), "a.npy")):
        assert FIXED.decode(FIXED.check(value).payload).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_pad_value_is_an_element_of_the_dtype_and_needs_an_axis_that_varies() -> None:
    assert ArrayField("bool", (-1,), pad_value=False).padding == Padding(False, (-1,))
    assert ArrayField("float32", (3, -1), pad_value=-1).padding == Padding(-1, (3, -1))
    assert VARIABLE.padding is None
    assert "pad_value" not in VARIABLE.to_dict()
    for dtype, shape, value in (
        ("bool", (-1,), 0),
        ("uint8", (-1,), 256),
        ("uint8", (-1,), 0.5),
        ("float32", (-1,), 1e39),
        ("float32", (-1,), math.nan),
        ("uint8", (2,), 0),
    ):
        with pytest.raises(ContractError, match=r"^pad_value = "):
            ArrayField(dtype, shape, pad_value=value)


def test_a_shape_may_be_given_as_a_list() -> None:
    assert ArrayField("float32", [3, -1]) == ArrayField("float32", (3, -1))  # type: ignore[arg-type]  # as TOML
    assert ArrayField("float32", [3]).layout.shape == (3,)  # type: ignore[arg-type]  # as TOML


def test_the_sentence_names_both_shapes() -> None:
    with pytest.raises(Violation, match=r"shape is \[1, 3\]; expected is \[any, 2\]"):
        VARIABLE.check([[1.0, 2.0, 3.0]])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (ArrayField("uint8", (1,)), [256]),
        (ArrayField("uint8", (1,)), [-1]),
        (ArrayField("int64", (1,)), [2**63]),
        (ArrayField("uint64", (1,)), [2**64]),
        (ArrayField("float32", (1,)), [1e39]),
        (ArrayField("float64", (1,)), [10**400]),
        (ArrayField("float32", (2,), min=0), [0.0, -0.5]),
        (ArrayField("int32", (2,), max=1000), np.array([0, 1001])[:].astype(np.int16)),
    ],
)
def test_elements_beyond_the_dtype_or_a_bound_are_out_of_range(field: ArrayField, value: object) -> None:
    assert reason(field, value) is Reason.OUT_OF_RANGE


def test_a_bound_that_float32_rounds_is_held_against_rounded_elements() -> None:
    field = ArrayField("float32", (1,), min=-0.1, max=0.1)
    assert field.decode(field.check([0.1]).payload)[0] == np.float32(0.1)


@pytest.mark.parametrize("value", [[math.nan], [math.inf], np.array([np.nan], np.float32)])
def test_what_is_not_finite_is_refused_unless_allowed(value: object) -> None:
    assert reason(ArrayField("float32", (1,)), value) is Reason.NOT_FINITE
    allowed = ArrayField("float32", (1,), finite=False)
    assert not np.isfinite(allowed.decode(allowed.check(value).payload)).any()


def test_an_empty_file_is_named_as_such() -> None:
    assert reason(FIXED, FileContent(b"", "a.npy")) is Reason.EMPTY


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"dtype": "object", "shape": (1,)}, 'dtype = "object"'),
        ({"dtype": "int8", "shape": ()}, "shape = []: allowed is a list of 1 to 32 sizes"),
        ({"dtype": "int8", "shape": 3}, "shape = 3"),
        ({"dtype": "int8", "shape": (0,)}, "shape = [0]"),
        ({"dtype": "int8", "shape": (-2,)}, "shape = [-2]"),
        ({"dtype": "int8", "shape": (True,)}, "shape = [true]"),
        ({"dtype": "int8", "shape": (2.0,)}, "shape = [2.0]"),
        ({"dtype": "int8", "shape": (1,) * 33}, "shape"),
        ({"dtype": "int8", "shape": (2**50, 2**50)}, "at most"),
        ({"dtype": "int8", "shape": (1,), "min": 300}, "min = 300"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ContractError) as caught:
        ArrayField(**keys)  # type: ignore[arg-type]
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("field", "payload"),
    [
        (FIXED, b""),
        (FIXED, b"\0" * 11),
        (FIXED, b"\0" * 13),
        (VARIABLE, b"\0" * 15),
        (VARIABLE, np.array([1, 3], "<u8").tobytes() + b"\0" * 12),
        (VARIABLE, np.array([2, 2], "<u8").tobytes() + b"\0" * 15),
        (VARIABLE, np.array([2**63, 2], "<u8").tobytes()),
        (ArrayField("int32", (-1, -1)), np.array([0, 2**63], "<u8").tobytes()),
    ],
)
def test_a_payload_whose_length_or_shape_is_wrong_is_a_format_error(
    field: ArrayField, payload: bytes
) -> None:
    with pytest.raises(FormatError, match="array payload"):
        field.decode(payload)
