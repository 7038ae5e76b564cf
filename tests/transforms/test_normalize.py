"""Normalize: its formula, its dtypes, and what it refuses instead of stretching it to fit."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from shardkit.errors import TransformError
from shardkit.transforms import Normalize

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5) * 2
ROUNDING = {torch.float64: 2**-21, torch.float32: 2**-21, torch.float16: 2**-10, torch.bfloat16: 2**-7}


def expected() -> np.ndarray:
    by_channel = (3, 1, 1)
    mean, std = np.array(MEAN).reshape(by_channel), np.array(STD).reshape(by_channel)
    return (IMAGES.numpy().astype(np.float64) / 255 - mean) / std


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_are_shares_less_the_mean_by_the_deviation(
    dtype: torch.dtype, layout: torch.memory_format
) -> None:
    images = IMAGES.to(memory_format=layout)
    made = Normalize(MEAN, STD, dtype=dtype)({"id": ["a", "b"], "image": images, "label": 1})
    assert list(made) == ["id", "image", "label"]
    assert made["image"].dtype == dtype
    assert made["image"].is_contiguous(memory_format=layout)
    np.testing.assert_allclose(
        made["image"].double().numpy(), expected(), rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
    )


def test_by_hand() -> None:
    image = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 3)
    made = Normalize([0.2], [0.4])({"image": image})["image"]
    assert made.flatten().tolist() == pytest.approx([-0.5, 0.0, 2.0], abs=1e-6)


def test_one_sample_is_taken_as_well_as_a_batch() -> None:
    made = Normalize(MEAN, STD)({"id": "a", "image": IMAGES[0]})["image"]
    np.testing.assert_allclose(made.numpy(), expected()[0], atol=1e-5)


def test_the_batch_that_it_was_given_stays_as_it_was() -> None:
    batch = {"id": ["a", "b"], "left": IMAGES.clone()}
    made = Normalize(MEAN, STD, "left")(batch)
    assert torch.equal(batch["left"], IMAGES)
    assert made["left"].dtype == torch.float32
    with pytest.raises(TransformError, match=r"there is float32\[2, 3, 4, 5\]"):  # not a second time
        Normalize(MEAN, STD, "left")(made)


@pytest.mark.parametrize(
    ("images", "found"),
    [
        (IMAGES[:, :1], r"uint8\[2, 1, 4, 5\]"),  # which would be stretched to three channels
        (torch.cat([IMAGES, IMAGES], 1), r"uint8\[2, 6, 4, 5\]"),
        (IMAGES.permute(0, 2, 3, 1), r"uint8\[2, 4, 5, 3\]"),
        (IMAGES[0, 0], r"uint8\[4, 5\]"),
        (IMAGES.float(), r"float32\[2, 3, 4, 5\]"),
        (IMAGES.int(), r"int32\[2, 3, 4, 5\]"),
        ([IMAGES[0], IMAGES[1, :, :2]], "a list of them, since their sizes differ: crop or resize"),
        (IMAGES.numpy(), "ndarray"),
        ("x", "str"),
    ],
)
def test_what_is_no_batch_of_such_images_is_refused_by_name(images: Any, found: str) -> None:
    message = f"Normalize: 'left' should be uint8 images of 3 channels, .*there are 3 means; there is {found}"
    with pytest.raises(TransformError, match=message):
        Normalize(MEAN, STD, "left")({"id": ["a", "b"], "left": images})


def test_a_field_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(TransformError, match=r"'image' should be .* no such field among id, photo"):
        Normalize(MEAN, STD)({"id": ["a", "b"], "photo": IMAGES})
    with pytest.raises(TransformError, match="no such field among photo"):
        Normalize(MEAN, STD)({"photo": IMAGES})


def test_a_batch_that_lost_all_its_samples_stays_as_it_is() -> None:
    empty = {"id": [], "is_pad": torch.zeros(0, dtype=torch.bool)}
    assert Normalize(MEAN, STD)(empty) == empty
    assert Normalize(MEAN, STD)({"id": []}) == {"id": []}


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), (0.5, 0.5)), ((0.5,), (0.0,)), ((0.5,), (-1.0,)), ((0.5,), (float("nan"),))]
)
def test_a_wrong_argument_is_refused(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="mean and std must be as many, and std above 0"):
        Normalize(mean, std)


def test_it_shows_its_arguments_and_travels() -> None:
    op = Normalize([0.5], [0.25], "left", torch.float16)
    assert repr(op) == "Normalize(mean=(0.5,), std=(0.25,), field='left', dtype=torch.float16)"
    batch = {"left": IMAGES[:, :1]}
    for twin in (pickle.loads(pickle.dumps(op)), copy.copy(op), copy.deepcopy(op)):
        assert repr(twin) == repr(op)
        assert torch.equal(twin(batch)["left"], op(batch)["left"])
