import numpy as np
import pytest
from encoded import CHINA, FLOWER
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from shardkit.contract.images.resizing import resize, shrink

PHOTO = np.asarray(CHINA.resize((90, 60)))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_a_picture_of_the_size_already_stays_as_it_is(channels: int, fit: str) -> None:
    samples = np.random.default_rng(0).integers(0, 256, (7, 5, channels), np.uint8)
    np.testing.assert_array_equal(resize(samples, (7, 5), fit), samples)
    np.testing.assert_array_equal(shrink(samples, 7), samples)


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    wanted=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    channels=st.integers(1, 4),
    fit=st.sampled_from(["crop", "stretch"]),
)
def test_any_picture_becomes_exactly_the_size_and_one_colour_stays_itself(
    height: int, width: int, wanted: tuple[int, int], channels: int, fit: str
) -> None:
    colour = np.array([200, 255, 7, 255][:channels], np.uint8)  # opaque, where there is alpha
    made = resize(np.full((height, width, channels), colour), wanted, fit)
    assert made.shape == (*wanted, channels)
    assert made.flags.c_contiguous
    assert (made == colour).all()


def test_crop_keeps_the_middle_and_stretch_keeps_all() -> None:
    bars = np.zeros((10, 30, 1), np.uint8)
    bars[:, 10:20] = 255
    np.testing.assert_array_equal(resize(bars, (10, 10), "crop"), bars[:, 10:20])
    row = resize(bars, (5, 6), "stretch")[2, :, 0].tolist()
    assert row[0] == row[-1] < 30
    assert row[2] == row[3] > 230
    upright = bars.transpose(1, 0, 2)
    np.testing.assert_array_equal(resize(upright, (10, 10), "crop"), upright[10:20])


@pytest.mark.parametrize("size", [(20, 20), (48, 20), (20, 77), (100, 120)])
@pytest.mark.parametrize("source", [CHINA.resize((90, 60)), FLOWER.resize((61, 95))])
def test_crop_is_what_pillow_calls_fit(source: Image.Image, size: tuple[int, int]) -> None:
    expected = ImageOps.fit(source, size[::-1], Image.Resampling.LANCZOS)
    difference = resize(np.asarray(source), size, "crop").astype(int) - np.asarray(expected)
    assert np.abs(difference).max() <= 2  # the boxes differ in the last bits of a float


def test_transparent_pixels_lend_no_colour_to_their_neighbours() -> None:
    samples = np.zeros((8, 8, 4), np.uint8)
    samples[:, :4] = (255, 0, 0, 255)
    samples[:, 4:] = (0, 0, 255, 0)
    made = resize(samples, (3, 3), "stretch")
    assert made[..., 2].max() == 0


@pytest.mark.parametrize(("max_side", "shape"), [(45, (30, 45, 3)), (89, (59, 89, 3)), (1, (1, 1, 3))])
def test_shrinking_keeps_the_shape_of_the_picture(max_side: int, shape: tuple[int, int, int]) -> None:
    assert shrink(PHOTO, max_side).shape == shape
    assert shrink(PHOTO.transpose(1, 0, 2), max_side).shape == (shape[1], shape[0], 3)
