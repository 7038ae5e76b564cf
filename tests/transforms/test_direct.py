"""Image operations called on a sample that was decoded already, as transforms are."""

from typing import Any

import numpy as np
import pytest
import torch
from photo_crops import FLOWER, expected_of

from shardkit.errors import TransformError
from shardkit.transforms import CenterCrop, ImageOp, RandomHorizontalFlip, RandomResizedCrop, Resize
from shardkit.transforms.steps import Cut, Scale

PHOTO = torch.from_numpy(np.array(FLOWER.resize((31, 23)))).permute(2, 0, 1)
RAMP = torch.arange(24).reshape(1, 4, 6)


def made(op: ImageOp, image: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = op({"id": "a", "image": image})["image"]
    return found


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.int64, torch.float16, torch.float64, torch.bool]
)
def test_a_cut_or_turned_tensor_keeps_its_dtype_and_values(dtype: torch.dtype) -> None:
    image = RAMP.to(dtype)
    assert torch.equal(made(CenterCrop((2, 3)), image), image[:, 1:3, 2:5])
    assert torch.equal(made(RandomHorizontalFlip(1), image), image.flip(2))
    assert torch.equal(made(RandomHorizontalFlip(0), image), image)
    assert made(CenterCrop((2, 3)), image).dtype == dtype


@pytest.mark.parametrize(
    "image",
    [
        PHOTO,
        PHOTO.contiguous(),
        PHOTO[:, 1:, 2:],
        PHOTO.flip(1),
        PHOTO[:, ::2, ::3],
        PHOTO.transpose(1, 2),
        PHOTO[:1],
        PHOTO[:1].expand(3, -1, -1),
        torch.cat([PHOTO, PHOTO[:1]]),
    ],
    ids=[
        "as decoded",
        "planes",
        "part",
        "flipped",
        "strided",
        "transposed",
        "gray",
        "expanded",
        "four channels",
    ],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_a_tensor_of_any_layout_is_scaled_by_the_same_filter(image: torch.Tensor, dtype: torch.dtype) -> None:
    before = image.clone()
    found = made(Resize((9, 14)), image.to(dtype))
    assert found.dtype == dtype
    assert found.shape == (len(image), 9, 14)
    expected = expected_of(image.permute(1, 2, 0).numpy(), [Scale(9, 14)])
    error = 1.5 if dtype == torch.uint8 else 1e-3
    np.testing.assert_allclose(found.permute(1, 2, 0).numpy(), expected, rtol=0, atol=error)
    assert torch.equal(image, before)


def test_the_result_is_a_new_tensor_channels_last_in_memory_and_the_rest_of_the_sample_is_there() -> None:
    for op in (RandomHorizontalFlip(0), CenterCrop((23, 31)), Resize((23, 31)), CenterCrop(5), Resize(4)):
        sample = {"id": "a", "image": PHOTO, "label": 3}
        result = op(sample)
        assert list(result) == ["id", "image", "label"]
        assert result["image"].permute(1, 2, 0).is_contiguous()
        result["image"].zero_()
        assert PHOTO.any()
        assert sample["image"] is PHOTO


def test_an_operation_takes_the_one_image_or_the_one_that_it_is_for() -> None:
    sample = {
        "id": "a",
        "text": "x",
        "vector": torch.zeros(2, 3),
        "left": PHOTO,
        "left_mask": PHOTO,
        "is_pad": True,
    }
    assert CenterCrop(5)(sample)["left"].shape == (3, 5, 5)
    two = sample | {"right": PHOTO}
    result = CenterCrop(5, field="right")(two)
    assert result["right"].shape == (3, 5, 5)
    assert result["left"] is PHOTO
    with pytest.raises(TransformError, match=r"a: 2 values look like images \(left, right\): name one"):
        CenterCrop(5)(two)
    with pytest.raises(TransformError, match=r"a: 0 values look like images \(none\)"):
        CenterCrop(5)({"id": "a", "label": 2})


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (torch.zeros(4, 5), r"a tensor \[4, 5\]"),
        (torch.zeros(3, 0, 5), r"a tensor \[3, 0, 5\]"),
        (torch.zeros(2, 3, 4, 5), r"a tensor \[2, 3, 4, 5\]"),
        ([1, 2], "list"),
        (None, "NoneType"),
    ],
)
@pytest.mark.parametrize(
    "op", [Resize(4, "x"), RandomResizedCrop(4, field="x"), RandomHorizontalFlip(1, "x")]
)
def test_what_is_no_image_is_refused_by_name(op: ImageOp, value: Any, found: str) -> None:
    for sample in ({"id": "a", "x": value}, {"id": "a"} if value is None else {"id": "a", "x": value}):
        with pytest.raises(
            TransformError, match=f"a: 'x' should be an image, a tensor .C, H, W., not {found}"
        ):
            op(sample)


def test_a_sample_smaller_than_the_crop_is_refused() -> None:
    with pytest.raises(TransformError, match="an image of 23x31 is smaller than the crop of 24x24"):
        made(CenterCrop(24), PHOTO)


def test_random_operations_draw_from_torchs_stream_and_others_leave_it_alone() -> None:
    op = RandomResizedCrop(9)
    torch.manual_seed(5)
    first, second = made(op, PHOTO), made(op, PHOTO)
    torch.manual_seed(5)
    assert torch.equal(made(op, PHOTO), first)
    assert torch.equal(made(op, PHOTO), second)
    assert not torch.equal(first, second)
    state = torch.get_rng_state()
    for each in (CenterCrop(5), Resize(4), CenterCrop(5, 0.5)):
        made(each, PHOTO)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_random_crop_is_a_crop_scaled() -> None:
    class Told(RandomResizedCrop):
        def steps(self, size: Any, rng: Any) -> Any:
            self.told = super().steps(size, rng)
            return self.told

    op = Told((7, 9))
    found = made(op, PHOTO)
    assert [type(step) for step in op.told] == [Cut, Scale]
    expected = expected_of(PHOTO.permute(1, 2, 0).numpy(), op.told)
    np.testing.assert_allclose(found.permute(1, 2, 0).numpy(), expected, rtol=0, atol=1.5)
