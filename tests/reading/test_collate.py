"""How samples become a batch."""

import numpy as np
import pytest
import torch

from shardkit.errors import TransformError
from shardkit.reading import collate


def test_each_kind_of_value_becomes_what_is_documented() -> None:
    batch = collate(
        [
            {
                "id": "a",
                "x": torch.zeros(2),
                "n": 1,
                "f": 0.5,
                "b": True,
                "s": np.float16(2),
                "t": "t",
                "j": {"k": 1},
            },
            {
                "id": "b",
                "x": torch.ones(2),
                "n": 2,
                "f": 1.5,
                "b": False,
                "s": np.float16(3),
                "t": "u",
                "j": {},
            },
        ]
    )
    assert batch["id"] == ["a", "b"]
    assert batch["x"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert (batch["n"].dtype, batch["n"].tolist()) == (torch.int64, [1, 2])
    assert (batch["f"].dtype, batch["f"].tolist()) == (torch.float64, [0.5, 1.5])
    assert (batch["b"].dtype, batch["b"].tolist()) == (torch.bool, [True, False])
    assert (batch["s"].dtype, batch["s"].tolist()) == (torch.float16, [2.0, 3.0])
    assert batch["t"] == ["t", "u"]
    assert batch["j"] == [{"k": 1}, {}]


def test_images_are_stacked_as_they_lie_in_memory() -> None:
    pixels = torch.arange(2 * 4 * 5 * 3, dtype=torch.uint8).reshape(2, 4, 5, 3)
    samples = [{"id": str(number), "image": pixels[number].permute(2, 0, 1)} for number in range(2)]
    image = collate(samples)["image"]
    assert image.shape == (2, 3, 4, 5)
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(image, pixels.permute(0, 3, 1, 2))


def test_images_of_mixed_memory_formats_are_stacked_all_the_same() -> None:
    last = torch.arange(60, dtype=torch.uint8).reshape(4, 5, 3).permute(2, 0, 1)
    image = collate([{"id": "a", "image": last}, {"id": "b", "image": last.contiguous()}])["image"]
    assert torch.equal(image[0], last)
    assert torch.equal(image[1], last)


def test_tensors_that_differ_in_shape_or_dtype_stay_a_list() -> None:
    small, large, other = torch.zeros(3, 4, 4), torch.zeros(3, 5, 4), torch.zeros(3, 4, 4, dtype=torch.uint8)
    for pair in ([small, large], [small, other]):
        values = collate([{"id": str(number), "image": image} for number, image in enumerate(pair)])["image"]
        assert values[0] is pair[0]
        assert values[1] is pair[1]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64])
def test_tensors_of_every_stored_dtype_are_stacked(dtype: torch.dtype) -> None:
    stacked = collate([{"id": "a", "x": torch.zeros(2, dtype=dtype)}] * 2)["x"]
    assert (stacked.dtype, stacked.shape) == (dtype, (2, 2))


def test_numpy_arrays_of_one_shape_and_dtype_are_stacked_and_others_stay_a_list() -> None:
    ones, twos, wide = np.ones(2, np.int16)[::-1], np.full(2, 2, np.int16), np.zeros(2, np.int32)
    stacked = collate([{"id": "a", "x": ones}, {"id": "b", "x": twos}])["x"]
    assert (stacked.dtype, stacked.tolist()) == (torch.int16, [[1, 1], [2, 2]])
    for pair in ([ones, wide], [ones, ones[:1]], [np.array(["a"]), np.array(["b"])]):
        assert collate([{"id": str(number), "x": value} for number, value in enumerate(pair)])["x"] == pair


def test_filtered_samples_are_left_out() -> None:
    assert collate([None, {"id": "a", "n": 1}, None]) == {"id": ["a"], "n": torch.tensor([1])}


def test_nothing_left_gives_a_batch_without_ids() -> None:
    assert collate([]) == collate([None, None]) == {"id": []}


def test_values_of_mixed_types_and_integers_beyond_64_bits_stay_a_list() -> None:
    batch = collate([{"id": "a", "j": 1, "k": 2**70}, {"id": "b", "j": "one", "k": 1}])
    assert batch["j"] == [1, "one"]
    assert batch["k"] == [2**70, 1]


def test_samples_with_different_fields_are_an_error_naming_both() -> None:
    with pytest.raises(TransformError, match=r"'a' and 'b'.*\['id', 'x'\] and \['id', 'y'\]"):
        collate([{"id": "a", "x": 1}, {"id": "b", "y": 1}])
