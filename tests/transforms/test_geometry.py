"""Where image operations cut, and to what size they scale: the tables of torchvision's definitions."""

import copy
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from photo_crops import cut_of

from shardkit.errors import TransformError
from shardkit.transforms import CenterCrop, ImageOp, RandomHorizontalFlip, RandomResizedCrop, Resize
from shardkit.transforms.steps import Cut, Mirror, Scale

DRAWS = 3000
RNG = random.Random(0)
SIDES = st.integers(1, 3000)


@pytest.mark.parametrize(
    ("size", "wanted", "cut"),
    [
        ((10, 10), (4, 6), (3, 2, 4, 6)),
        ((7, 8), (4, 4), (2, 2, 4, 4)),  # 1.5 is rounded to 2
        ((9, 8), (4, 3), (2, 2, 4, 3)),  # and so is 2.5: halves go to the even
        ((5, 4), (4, 1), (0, 2, 4, 1)),
        ((224, 224), (224, 224), (0, 0, 224, 224)),
        ((256, 341), (224, 224), (16, 58, 224, 224)),
        ((1, 1), (1, 1), (0, 0, 1, 1)),
    ],
)
def test_the_middle_lies_where_torchvision_has_it(
    size: tuple[int, int], wanted: tuple[int, int], cut: tuple[int, int, int, int]
) -> None:
    assert cut_of(CenterCrop(wanted), size) == cut
    assert len(CenterCrop(wanted).steps(size, RNG)) == 1


def test_one_number_is_a_square() -> None:
    assert cut_of(CenterCrop(4), (10, 20)) == (3, 8, 4, 4)
    assert RandomResizedCrop(4).output_size((10, 20)) == (4, 4)
    assert CenterCrop([4, 6]).output_size(None) == (4, 6)


@pytest.mark.parametrize(
    ("size", "shorter", "scaled"),
    [
        ((427, 640), 256, (256, 383)),  # 383.7
        ((640, 427), 256, (383, 256)),
        ((300, 300), 256, (256, 256)),
        ((3, 7), 2, (2, 4)),
        ((3, 7), 6, (6, 14)),
        ((1, 100), 1, (1, 100)),
        ((480, 639), 480, (480, 639)),
    ],
)
def test_the_shorter_side_becomes_what_was_asked_and_the_longer_is_rounded_down(
    size: tuple[int, int], shorter: int, scaled: tuple[int, int]
) -> None:
    op = Resize(shorter)
    assert op.steps(size, RNG) == [Scale(*scaled)]
    assert op.output_size(size) == scaled
    assert op.output_size(None) is None


def test_a_pair_is_height_and_width_whatever_the_shape() -> None:
    op = Resize((5, 9), exact=True)
    assert op.steps((100, 3), RNG) == [Scale(5, 9, True)]
    assert op.output_size(None) == op.output_size((100, 3)) == (5, 9)


@pytest.mark.parametrize(
    ("size", "wanted", "ratio", "cut"),
    [
        ((256, 256), 224, 0.875, (16, 16, 224, 224)),
        ((427, 640), 224, 0.875, (27, 134, 373, 373)),
        ((640, 427), 224, 0.875, (134, 27, 373, 373)),
        ((427, 640), 224, 1, (0, 106, 427, 427)),
        ((100, 100), (50, 100), 1, (25, 0, 50, 100)),
        ((100, 400), (100, 200), 0.5, (25, 150, 50, 100)),
        ((20, 30), 224, 1, (0, 5, 20, 20)),
        ((1, 1), 224, 0.875, (0, 0, 1, 1)),
        ((1, 50), (10, 1), 1, (0, 24, 1, 1)),
    ],
)
def test_with_a_ratio_the_largest_part_of_the_shape_is_taken_times_the_ratio(
    size: tuple[int, int], wanted: int | tuple[int, int], ratio: float, cut: tuple[int, int, int, int]
) -> None:
    op = CenterCrop(wanted, ratio)
    assert cut_of(op, size) == cut
    assert op.steps(size, RNG)[1:] == [Scale(*(op.output_size(size) or ()))]


def test_a_ratio_of_one_loses_no_pixel_of_the_shorter_side() -> None:
    for wanted in (7, 96, 224, 299):
        for side in range(1, 600):
            assert cut_of(CenterCrop(wanted, 1.0), (side, side + 40))[2:] == (side, side)
            assert cut_of(CenterCrop(wanted, 1.0), (side, side)) == (0, 0, side, side)


def test_a_picture_smaller_than_the_crop_is_refused() -> None:
    for size in ((9, 20), (20, 9)):
        with pytest.raises(TransformError, match=f"an image of {size[0]}x{size[1]} is smaller than .* 10x10"):
            CenterCrop(10).steps(size, RNG)


@pytest.mark.parametrize(
    "op", [CenterCrop((3, 4), 0.3), RandomResizedCrop(5), RandomResizedCrop(5, (0.9, 1))]
)
@given(size=st.tuples(SIDES, SIDES), seed=st.integers(0, 2**64))
def test_a_part_lies_within_any_picture(op: ImageOp, size: tuple[int, int], seed: int) -> None:
    top, left, height, width = cut_of(op, size, random.Random(seed))
    assert height >= 1
    assert width >= 1
    assert 0 <= top <= size[0] - height
    assert 0 <= left <= size[1] - width


def distance(values: list[float], distribution: Any = lambda value: value) -> float:
    """Return the greatest distance of the share of values below each from a distribution (Kolmogorov, Smirnov)."""
    below = np.arange(1, len(values) + 1) / len(values)
    return float(np.abs(distribution(np.sort(values)) - below).max())


CHANCE = 1.95 / math.sqrt(DRAWS)
"""That distance is greater for one in 1,000 sequences of draws; these draw one, always the same."""


def test_area_and_shape_are_spread_as_asked_and_so_is_the_place() -> None:
    height, width = 20_000, 30_000  # so large that rounding to pixels plays no part
    least, greatest = 0.1, 0.5
    op = RandomResizedCrop(8, (least, greatest), (1 / 2, 3))
    cuts = [cut_of(op, (height, width), random.Random(seed)) for seed in range(DRAWS)]
    cuts = [cut for cut in cuts if cut[2] * cut[3] < 0.33 * height * width]  # of these, every shape fits
    areas = [cut[2] * cut[3] / (height * width) for cut in cuts]
    shapes = [math.log(cut[3] / cut[2]) for cut in cuts]
    assert distance(areas, lambda area: (area - least) / (0.33 - least)) < CHANCE * 1.4
    low, high = math.log(1 / 2), math.log(3)
    assert distance(shapes, lambda shape: (shape - low) / (high - low)) < CHANCE * 1.4
    assert distance([cut[0] / (height - cut[2]) for cut in cuts]) < CHANCE * 1.4
    assert distance([cut[1] / (width - cut[3]) for cut in cuts]) < CHANCE * 1.4
    assert abs(np.corrcoef(areas, shapes)[0, 1]) < 0.08


def test_what_does_not_fit_is_drawn_again() -> None:
    """In a long picture the large parts are wide: what was drawn first is what fits of all that is drawn."""
    op = RandomResizedCrop(8, (0.2, 0.4), (1 / 3, 3))
    height, width = 10_000, 30_000
    found = [cut_of(op, (height, width), random.Random(seed))[2] / height for seed in range(DRAWS)]
    rng = np.random.default_rng(0)
    areas = rng.uniform(0.2, 0.4, 20 * DRAWS)
    shapes = np.exp(rng.uniform(-math.log(3), math.log(3), 20 * DRAWS))
    heights = np.sqrt(3 * areas / shapes)
    heights = np.sort(heights[(heights <= 1) & (np.sqrt(areas * shapes / 3) <= 1)])
    assert len(heights) < 12 * DRAWS
    assert distance(found, lambda each: np.searchsorted(heights, each) / len(heights)) < CHANCE * 1.2


@pytest.mark.parametrize(
    ("size", "cut"),
    [
        ((1000, 10), (493, 0, 13, 10)),  # too narrow: 10 / (3 / 4) is 13.3, and half of 987 is rounded down
        ((10, 1000), (0, 493, 10, 13)),
        ((100, 100), (0, 0, 100, 100)),
        ((2, 1), (0, 0, 1, 1)),
        ((1, 1), (0, 0, 1, 1)),
    ],
)
def test_where_nothing_fits_the_middle_is_taken(
    size: tuple[int, int], cut: tuple[int, int, int, int]
) -> None:
    class Misfortune(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    assert cut_of(RandomResizedCrop(8, (0.08, 1), (3 / 4, 4 / 3)), size, Misfortune()) == cut


def test_all_of_the_area_in_the_shape_of_the_picture_is_the_picture() -> None:
    for seed in range(20):
        assert cut_of(RandomResizedCrop(8, (1, 1), (1.5, 1.5)), (200, 300), random.Random(seed)) == (
            0,
            0,
            200,
            300,
        )


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_left_and_right_are_turned_around_as_often_as_asked(p: float) -> None:
    op = RandomHorizontalFlip(p)
    flips = [op.steps((3, 4), random.Random(seed)) for seed in range(DRAWS)]
    assert all(steps in ([], [Mirror()]) for steps in flips)
    share = sum(map(len, flips)) / DRAWS
    assert share == p if p in (0, 1) else abs(share - p) < 0.03
    assert op.output_size((3, 4)) == (3, 4)
    assert op.output_size(None) is None


def test_the_numbers_alone_decide() -> None:
    op = RandomResizedCrop(8)
    parts = [cut_of(op, (300, 400), random.Random(seed)) for seed in (1, 1, 2)]
    assert parts[0] == parts[1] != parts[2]
    assert isinstance(op.steps((300, 400), random.Random(1))[0], Cut)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        *(
            (lambda size=size: Resize(size), "size must be a whole number of 1 or more")
            for size in (0, -1, True)
        ),
        *(
            (lambda size=size: CenterCrop(size), "size must be")
            for size in (2.0, (1, 2, 3), (4,), (), (4, 0))
        ),
        *((lambda size=size: RandomResizedCrop(size), "size must be") for size in ("44", (4, 4.0), None)),
        *(
            (lambda ratio=ratio: CenterCrop(4, ratio), "ratio must lie in")
            for ratio in (0, -1, 1.01, math.nan)
        ),
        *((lambda p=p: RandomHorizontalFlip(p), "p must lie in") for p in (-0.1, 1.1, math.nan)),
        *(
            (lambda scale=scale: RandomResizedCrop(4, scale), "scale must be two shares")
            for scale in ((0, 1), (0.5, 0.4), (0.5, 1.1), (math.nan, 1))
        ),
        *(
            (lambda ratio=ratio: RandomResizedCrop(4, ratio=ratio), "ratio must be two numbers")
            for ratio in ((0, 1), (2, 1), (1, math.inf), (1, math.nan))
        ),
    ],
)
def test_a_wrong_argument_is_refused_in_words(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


OPS = {
    "Resize(size=8, exact=False)": Resize(8),
    "Resize(field='left', size=(8, 9), exact=True)": Resize([8, 9], "left", exact=True),
    "CenterCrop(size=(8, 8), exact=False)": CenterCrop(8),
    "CenterCrop(field='left', size=(8, 8), ratio=0.875, exact=False)": CenterCrop(8, 0.875, "left"),
    "RandomResizedCrop(size=(8, 8), scale=(0.5, 1), ratio=(0.75, 1.5), exact=True)": RandomResizedCrop(
        8, (0.5, 1), (0.75, 1.5), exact=True
    ),
    "RandomHorizontalFlip(p=0.25)": RandomHorizontalFlip(0.25),
}


@pytest.mark.parametrize("shown", OPS)
def test_an_operation_shows_its_arguments_and_is_the_same_after_a_trip_to_another_process(shown: str) -> None:
    op = OPS[shown]
    assert repr(op) == shown
    for twin in (pickle.loads(pickle.dumps(op)), copy.copy(op), copy.deepcopy(op)):
        assert repr(twin) == shown
        assert twin.is_random == op.is_random
        for seed in range(5):
            assert twin.steps((90, 80), random.Random(seed)) == op.steps((90, 80), random.Random(seed))
