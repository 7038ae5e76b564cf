import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import ArrayField, Reason, ScalarField, Violation
from shardkit.errors import ContractError, FormatError


def stored(field: ScalarField, value: object) -> object:
    return field.decode(field.check(value).payload).item()


def reason(field: ScalarField, value: object) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(value)
    return caught.value.reason


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("int8", "-128", -128),
        ("uint8", 255, 255),
        ("int64", str(-(2**63)), -(2**63)),
        ("int64", 2**63 - 1, 2**63 - 1),
        ("int64", np.uint64(2**63 - 1), 2**63 - 1),
        ("uint64", "18446744073709551615", 2**64 - 1),
        ("uint64", torch.tensor(2**64 - 1, dtype=torch.uint64), 2**64 - 1),
        ("uint64", 0, 0),
        ("int16", np.array(-7, ">i2"), -7),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int32", np.int16(-5), -5),
        ("int32", torch.tensor(5), 5),
        ("float64", "0.1", 0.1),
        ("float64", "-1e-3", -0.001),
        ("float64", "1E+2", 100.0),
        ("float64", 3, 3.0),
        ("float64", "-0", 0.0),
        ("float64", np.float32(0.5), 0.5),
        ("float64", torch.tensor(0.5), 0.5),
        ("float32", 0.1, float(np.float32(0.1))),
        ("float32", float(np.finfo("float32").max), float(np.finfo("float32").max)),
        (
            "float32",
            3.4028235e38,
            float(np.finfo("float32").max),
        ),  # as numpy prints it; the nearest is finite
        ("float32", "-3.4028235e38", -float(np.finfo("float32").max)),
        ("float32", "-1e-50", 0.0),
        ("float64", np.array(0.25, ">f8"), 0.25),
        ("float64", torch.tensor(0.5, dtype=torch.float16), 0.5),
        ("bool", True, True),
        ("bool", np.False_, False),
        ("bool", "true", True),
        ("bool", "False", False),
        ("bool", 1, True),
        ("bool", "0", False),
    ],
)
def test_a_value_that_fits_comes_back(dtype: str, value: object, expected: object) -> None:
    assert stored(ScalarField(dtype), value) == expected
    assert ScalarField(dtype).decode(ScalarField(dtype).check(value).payload).dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", 1.0),
        ("int32", "1.0"),
        ("int32", " 1"),
        ("int32", "+1"),
        ("int32", "01"),
        ("int32", "1_0"),
        ("int32", "١"),
        ("int32", True),
        ("int32", np.array([1])),
        ("int32", "1\n"),
        ("float64", ".5"),
        ("float64", "5."),
        ("float64", "1,5"),
        ("float64", " 1.5"),
        ("float64", "0x1p3"),
        ("float64", "1_0.5"),
        ("float64", True),
        ("float64", None),
        ("float64", b"1.5"),
        ("float64", np.array([1.5])),
        ("float64", 1j),
        ("float64", torch.tensor(0.5, dtype=torch.bfloat16)),
        ("int64", np.timedelta64(1, "s")),
        ("bool", "yes"),
        ("bool", "TRUE"),
        ("bool", 2),
        ("bool", 1.0),
        ("bool", np.array([True])),
    ],
)
def test_what_is_no_such_value_is_a_wrong_type(dtype: str, value: object) -> None:
    assert reason(ScalarField(dtype), value) is Reason.WRONG_TYPE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (ScalarField("int8"), 128),
        (ScalarField("uint8"), "-1"),
        (ScalarField("int64"), 2**63),
        (ScalarField("int64"), -(2**63) - 1),
        (ScalarField("int64"), np.uint64(2**63)),
        (ScalarField("uint64"), -1),
        (ScalarField("float32"), 2.0**128 - 2.0**103),  # halfway between the largest and the next
        (ScalarField("float32"), 3.4028236e38),
        (ScalarField("float32", max=0.1), 0.11),
        (ScalarField("float32", max=0.1), np.nextafter(np.float32(0.1), np.float32(1))),
        (ScalarField("uint64"), "18446744073709551616"),
        (ScalarField("int64"), "9" * 5000),
        (ScalarField("float32"), 1e39),
        (ScalarField("float64"), "1e999"),
        (ScalarField("float64"), -(10**400)),
        (ScalarField("float64", finite=False), "1e999"),
        (ScalarField("float64", min=0.0), "-0.001"),
        (ScalarField("float64", max=1), 1.5),
        (ScalarField("float64", max=1.0, finite=False), math.inf),
        (ScalarField("int8", min=-5, max=5), 6),
    ],
)
def test_what_the_dtype_or_a_bound_does_not_allow_is_out_of_range(field: ScalarField, value: object) -> None:
    assert reason(field, value) is Reason.OUT_OF_RANGE


@pytest.mark.parametrize("value", [math.nan, -math.inf, "nan", "NaN", "-inf", "Infinity", np.float32("inf")])
def test_what_is_not_finite_is_refused_unless_allowed(value: object) -> None:
    assert reason(ScalarField("float32"), value) is Reason.NOT_FINITE
    assert not math.isfinite(stored(ScalarField("float32", finite=False), value))  # type: ignore[arg-type]


def test_nan_passes_bounds_where_it_is_allowed() -> None:
    assert math.isnan(stored(ScalarField("float64", min=0, finite=False), "nan"))  # type: ignore[arg-type]


def test_a_bound_is_held_against_the_value_before_rounding() -> None:
    assert stored(ScalarField("float32", max=0.1), 0.1) == float(np.float32(0.1))


@given(st.integers(-(2**70), 2**70))
def test_every_int_is_kept_exactly_or_refused(value: int) -> None:
    field = ScalarField("int64")
    for given_as in (value, str(value)):
        if -(2**63) <= value < 2**63:
            assert stored(field, given_as) == value
        else:
            assert reason(field, given_as) is Reason.OUT_OF_RANGE


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_comes_back_from_its_shortest_text(value: float) -> None:
    assert stored(ScalarField("float64"), repr(value)) == value


@given(st.text(max_size=6), st.sampled_from(["bool", "int16", "float32"]))
def test_text_that_is_no_number_is_a_violation_with_a_printable_sentence(text: str, dtype: str) -> None:
    field = ScalarField(dtype)
    if re.fullmatch("[-0-9.eE+]+|true|false|True|False", text):
        return
    with pytest.raises(Violation) as caught:
        field.check(text)
    assert caught.value.sentence.isascii()
    assert caught.value.sentence.isprintable()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"dtype": "float16"}, 'dtype = "float16": allowed are "bool", "int8"'),
        ({"dtype": 3}, "dtype = 3"),
        ({"dtype": "int8", "min": 1.5}, "min = 1.5: allowed is a whole number from -128 to 127"),
        ({"dtype": "int8", "max": 128}, "max = 128"),
        ({"dtype": "int8", "min": True}, "min = true"),
        ({"dtype": "float32", "max": 1e39}, "max = 1e+39: no float32 is that large"),
        ({"dtype": "float32", "max": math.nan}, "max = nan: allowed is a finite number"),
        ({"dtype": "float32", "min": "0"}, 'min = "0"'),
        ({"dtype": "int8", "min": 3, "max": 2}, "min = 3: must not be over max = 2"),
        ({"dtype": "bool", "min": 0}, "min = 0: not allowed"),
        ({"dtype": "int8", "finite": 1}, "finite = 1: allowed are true, false"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ContractError) as caught:
        ScalarField(**keys)  # type: ignore[arg-type]
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "payload"),
    [("int32", b"\0\0\0"), ("int32", b""), ("bool", b"\x02"), ("float64", np.float64("nan").tobytes())],
)
def test_a_payload_that_no_such_value_has_is_a_format_error(dtype: str, payload: bytes) -> None:
    with pytest.raises(FormatError):
        ScalarField(dtype).decode(payload)


@pytest.mark.parametrize("value", [0.1, np.float32(0.1), "0.1", 0.1 + 1e-9])
def test_a_bound_that_float32_rounds_is_held_against_the_rounded_value(value: object) -> None:
    assert stored(ScalarField("float32", min=-0.1, max=0.1), value) == np.float32(0.1)
    with pytest.raises(Violation, match=r"allowed for this float32 are -0\.1 to 0\.05$"):
        ScalarField("float32", min=-0.1, max=0.05).check(value)


def test_a_bound_may_be_what_numpy_prints_as_the_largest() -> None:
    assert stored(ScalarField("float32", max=3.4028235e38), 1) == 1
    for bound in (3.4028236e38, 10**400):
        with pytest.raises(ContractError, match="no float32 is that large"):
            ScalarField("float32", max=bound)


@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.floats(width=32, allow_nan=False))
def test_a_scalar_and_an_array_of_one_agree_on_what_fits(value: float, bound: float) -> None:
    limit = bound if math.isfinite(bound) else None
    verdicts: list[bytes | Reason] = []
    scalar, array = ScalarField("float32", max=limit), ArrayField("float32", (1,), max=limit)
    for field, given_value in ((scalar, value), (array, [value])):
        try:
            verdicts.append(bytes(field.check(given_value).payload))
        except Violation as violation:
            verdicts.append(violation.reason)
    assert verdicts[0] == verdicts[1]
