import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import BytesField, FileContent, Reason, Violation
from shardkit.errors import ContractError


@given(st.binary())
def test_any_bytes_come_back(data: bytes) -> None:
    for value in (data, bytearray(data), memoryview(data), FileContent(data, "x")):
        assert BytesField().decode(BytesField().check(value).payload) == data


def test_the_limit_is_inclusive() -> None:
    assert BytesField(max_bytes=2).check(b"ab").payload == b"ab"
    with pytest.raises(Violation, match="3 bytes; at most 2") as caught:
        BytesField(max_bytes=2).check(b"abc")
    assert caught.value.reason is Reason.TOO_LONG


@pytest.mark.parametrize("value", ["text", 3, [1, 2]])
def test_what_is_no_bytes_is_a_wrong_type(value: object) -> None:
    with pytest.raises(Violation) as caught:
        BytesField().check(value)
    assert caught.value.reason is Reason.WRONG_TYPE


@pytest.mark.parametrize("limit", [0, True, 2.0])
def test_a_wrong_limit_is_refused(limit: object) -> None:
    with pytest.raises(ContractError, match="max_bytes"):
        BytesField(max_bytes=limit)  # type: ignore[arg-type]
