import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import Reason, Violation
from shardkit.contract.npy import read_npy


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version)
    return file.getvalue()


def with_header(header: bytes, body: bytes = b"\0" * 8) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def reason(data: bytes) -> Reason:
    with pytest.raises(Violation) as caught:
        read_npy(data)
    return caught.value.reason


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="<i4").reshape(2, 3),
        np.arange(6, dtype=">f8").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3)),
        np.zeros((0, 3), "?"),
        np.float32(3),
    ],
)
def test_what_numpy_wrote_is_read(array: Any, version: tuple[int, int]) -> None:
    again = read_npy(npy(array, version))
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tolist() == array.tolist()


def test_objects_are_refused_and_never_unpickled() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    assert reason(file.getvalue()) is Reason.WRONG_TYPE


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Reason.EMPTY),
        (b"PK\x03\x04", Reason.WRONG_TYPE),
        (b"\x93NUMPY", Reason.TRUNCATED),
        (b"\x93NUMPY\x01\x00\x76", Reason.TRUNCATED),
        (npy([1, 2, 3])[:50], Reason.TRUNCATED),
        (npy([1, 2, 3])[:-1], Reason.TRUNCATED),
        (npy([1, 2, 3]) + b"x", Reason.BAD_HEADER),
        (b"\x93NUMPY\x03\x00" + npy([1])[8:], Reason.WRONG_TYPE),
        (b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b"{", Reason.TRUNCATED),
        (with_header(b" " * 20_000), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,)"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f8', 'shape': (1,)}"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': [1]}"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<f1', 'fortran_order': False, 'shape': (8,)}"), Reason.BAD_HEADER),
        (with_header(b"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}"), Reason.WRONG_TYPE),
        (with_header(b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}"), Reason.WRONG_TYPE),
        (with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**12,)}"), Reason.BAD_HEADER),
        (
            with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
            Reason.TRUNCATED,
        ),
        (
            with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775808)}"),
            Reason.BAD_HEADER,
        ),
        (with_header(b"(" * 9_000), Reason.BAD_HEADER),
        (with_header(b"\xff\xfe"), Reason.BAD_HEADER),
    ],
)
def test_a_damaged_or_foreign_file_is_a_violation(data: bytes, expected: Reason) -> None:
    assert reason(data) is expected


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_altered_byte_gives_an_array_or_a_violation(position: int, value: int) -> None:
    data = bytearray(npy(np.arange(12, dtype="<f4")))
    data[position % len(data)] = value
    try:
        array = read_npy(bytes(data))
    except Violation:
        return
    assert array.nbytes <= len(data)
