import numpy as np
import pytest

from shardkit.contract import Layout


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [("<f4", (), 4), ("<f4", (2, 3), 24), ("u1", (2**32, 2**32), 2**64), ("u1", (3, 0), 0)],
)
def test_the_bytes_of_a_fixed_layout_are_counted_exactly(
    dtype: str, shape: tuple[int, ...], expected: int
) -> None:
    assert Layout(np.dtype(dtype), shape).nbytes == expected


def test_a_layout_of_varying_length_has_no_size() -> None:
    with pytest.raises(ValueError, match="vary in length"):
        _ = Layout().nbytes
