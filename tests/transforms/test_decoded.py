"""Pictures that operations make as they are decoded: exact ones, and those that the decoder made smaller at once."""

import functools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from photo_crops import CHINA, FLOWER, encode, expected_of, psnr, rendered
from PIL import Image

from shardkit.contract import ImageField
from shardkit.transforms import CenterCrop, ImageOp, RandomHorizontalFlip, RandomResizedCrop, Resize
from shardkit.transforms.compose import plan
from shardkit.transforms.steps import Cut, Mirror, Scale, take_steps

MODES = {"RGB": ImageField(), "L": ImageField(mode="L"), "RGBA": ImageField(mode="RGBA")}
LARGE = CHINA.resize((1280, 854), Image.Resampling.LANCZOS)
SIDES = st.integers(1, 70)


EXACT = st.just(True)
PAIRS = st.tuples(SIDES, SIDES)
OPS: st.SearchStrategy[ImageOp] = st.one_of(
    st.builds(Resize, st.integers(1, 30) | PAIRS, exact=EXACT),
    st.builds(CenterCrop, PAIRS, st.sampled_from([0.3, 0.875, 1.0]), exact=EXACT),
    st.builds(RandomResizedCrop, PAIRS, st.sampled_from([(0.08, 1.0), (0.01, 0.1)]), exact=EXACT),
    st.just(RandomHorizontalFlip(0.5)),
    st.just(CenterCrop(1)),
)


@settings(max_examples=120, deadline=None)
@given(
    mode=st.sampled_from(sorted(MODES)),
    kind=st.sampled_from(["JPEG", "PNG"]),
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    ops=st.lists(OPS, min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_exact_pictures_are_those_of_all_pixels_by_the_antialiased_filter(
    mode: str, kind: str, size: tuple[int, int], ops: list[ImageOp], seed: int
) -> None:
    photo = FLOWER.crop((40, 60, 40 + 3 * size[1], 60 + 3 * size[0])).resize(size[::-1])
    data = encode(photo.convert(mode if mode != "RGBA" or kind == "PNG" else "RGB"), kind)
    steps = plan(ops, size, random.Random(seed))
    found = rendered(MODES[mode], data, steps)
    expected = expected_of(MODES[mode].decode(data), steps)
    assert found.shape == expected.shape
    roundings = 2 * sum(isinstance(step, Scale) for step in steps)  # once along each side
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 + 0.75 * roundings)


@pytest.mark.parametrize("photo", [CHINA, FLOWER], ids=["china", "flower"])
@pytest.mark.parametrize(
    "op", [Resize(224, exact=True), CenterCrop(224, 0.875, exact=True), RandomResizedCrop(96, exact=True)]
)
def test_photos_scaled_exactly_are_within_two_of_the_filter_on_the_full_decode(
    photo: Image.Image, op: ImageOp
) -> None:
    data = encode(photo, quality=90)
    steps = op.steps((photo.height, photo.width), random.Random(3))
    found = rendered(MODES["RGB"], data, steps).astype(float)
    difference = np.abs(found - expected_of(MODES["RGB"].decode(data), steps))
    assert difference.max() <= 2
    assert difference.mean() < 0.4


@pytest.mark.parametrize(("op", "exact"), [(Resize(107), Resize(107, exact=True)), (Resize((150, 321)),) * 2])
def test_a_picture_that_shrinks_to_more_than_half_is_the_exact_one(op: ImageOp, exact: ImageOp) -> None:
    data = encode(CHINA.crop((0, 0, 320, 212)))
    made = [rendered(MODES["RGB"], data, each.steps((212, 320), random.Random(0))) for each in (op, exact)]
    np.testing.assert_array_equal(*made)


SCALED = {
    "whole": [Scale(224, 224)],
    "shorter": [Scale(256, 383)],
    "small": [Scale(64, 96)],
    "middle": CenterCrop(160, 0.875).steps((854, 1280), random.Random(0)),
    "part": [Cut(33, 111, 700, 901), Scale(160, 160)],
    "aligned": [Cut(32, 112, 640, 960), Scale(160, 160)],
}


@functools.cache
def large(**options: Any) -> bytes:
    return encode(LARGE, quality=90, **options)


@pytest.mark.parametrize(
    ("name", "decibels", "difference"),
    [
        ("whole", 38, 2),
        ("shorter", 36, 2.5),
        ("small", 37, 2),
        ("middle", 30, 4.5),
        ("part", 30, 4.5),
        ("aligned", 37, 2),
    ],
)
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
def test_a_photo_that_the_decoder_shrank_is_close_to_the_exact_one(
    options: dict[str, Any], name: str, decibels: float, difference: float
) -> None:
    """The last part begins and ends at pixels of the smaller picture; others are moved by up to half a pixel."""
    field, steps, data = MODES["RGB"], SCALED[name], large(**options)
    found, expected = rendered(field, data, steps), expected_of(field.decode(data), steps)
    assert psnr(found, expected) > decibels
    assert np.abs(found - expected).mean() < difference
    exact = [Scale(step.height, step.width, True) if isinstance(step, Scale) else step for step in steps]
    assert np.abs(rendered(field, data, exact) - expected).max() <= 2
    assert not np.array_equal(rendered(field, data, exact), found)  # it was indeed shrunk


@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.integers(60, 400), scaled=st.integers(1, 40), turned=st.booleans())
def test_a_part_of_a_picture_decoded_smaller_is_at_its_place_to_half_a_pixel(
    data: Any, width: int, scaled: int, turned: bool
) -> None:
    """Told by the share of white of a part with an edge in it."""
    left = data.draw(st.integers(0, width - 40))
    length = data.draw(st.integers(40, width - left))
    edge = data.draw(st.integers(left, left + length))
    samples = np.zeros((48, width), np.uint8)
    samples[:, edge:] = 255
    cut, scale = Cut(0, left, 48, length), Scale(6, scaled)
    if turned:
        samples, cut, scale = samples.T, Cut(left, 0, length, 48), Scale(scaled, 6)
    found = rendered(MODES["L"], encode(samples, quality=100), [cut, scale])
    white = found.mean() / 255 * scaled
    assert white == pytest.approx((left + length - edge) / length * scaled, abs=0.6)


@settings(max_examples=100, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    wanted=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    where=st.tuples(*[st.floats(0, 1)] * 4),
)
def test_no_part_is_so_small_that_nothing_is_left_of_it(
    size: tuple[int, int], wanted: tuple[int, int], where: tuple[float, float, float, float]
) -> None:
    top, left = (int(share * (side - 1)) for share, side in zip(where[:2], size, strict=True))
    height, width = 1 + int(where[2] * (size[0] - top - 1)), 1 + int(where[3] * (size[1] - left - 1))
    data = encode(np.full((*size, 3), (200, 100, 50), np.uint8), quality=100)
    found = rendered(MODES["RGB"], data, [Cut(top, left, height, width), Scale(*wanted)])
    np.testing.assert_allclose(found, np.broadcast_to((200, 100, 50), (*wanted, 3)), atol=4)


@pytest.mark.parametrize(("side", "cut"), [(20, Cut(3, 3, 2, 2)), (17, Cut(4, 4, 6, 6))])
def test_a_part_that_falls_between_two_pixels_of_the_smaller_picture_is_one_of_them(
    side: int, cut: Cut
) -> None:
    data = encode(np.full((side, side), 90, np.uint8))
    assert rendered(MODES["L"], data, [cut, Scale(1, 1)]).tolist() == [[[90]]]


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_picture_is_cut_as_it_is_delivered_upright(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(FLOWER, exif=exif)
    steps = [Cut(20, 30, 300, 160), Scale(40, 30)]
    upright = np.rot90(MODES["RGB"].decode(encode(FLOWER)), {3: 2, 6: 3}[orientation])
    found = rendered(MODES["RGB"], data, steps)
    np.testing.assert_allclose(found, expected_of(upright, steps), rtol=0, atol=1.5)
    ignoring = ImageField(orientation="ignore")
    np.testing.assert_array_equal(rendered(ignoring, data, steps), rendered(ignoring, encode(FLOWER), steps))


def test_a_mirrored_picture_is_the_other_one_backwards() -> None:
    for mode, field in MODES.items():
        data = encode(FLOWER.resize((31, 17)).convert(mode), "PNG")
        for steps in ([], [Cut(2, 3, 9, 8)], [Scale(20, 11)], [Cut(2, 3, 9, 8), Scale(3, 3)]):
            plain = rendered(field, data, steps)
            np.testing.assert_array_equal(rendered(field, data, [*steps, Mirror()]), plain[:, ::-1])
            np.testing.assert_array_equal(rendered(field, data, [*steps, Mirror(), Mirror()]), plain)


def test_a_part_of_the_mirrored_picture_is_cut_after_it_was_mirrored() -> None:
    data = encode(np.arange(24, dtype=np.uint8).reshape(4, 6), "PNG")
    assert rendered(MODES["L"], data, [Mirror(), Cut(1, 0, 1, 3)])[..., 0].tolist() == [[11, 10, 9]]
    assert rendered(MODES["L"], data, [Cut(1, 0, 1, 3), Mirror()])[..., 0].tolist() == [[8, 7, 6]]
    assert rendered(MODES["L"], data, [Cut(1, 1, 3, 4), Cut(1, 2, 1, 2)])[..., 0].tolist() == [[15, 16]]


def test_steps_leave_the_picture_that_they_are_given_as_it_was() -> None:
    raw = ImageField(mode="L", store="raw", size=(4, 6))
    payload = bytes(range(24))
    for steps in ([], [Mirror()], [Scale(4, 6)], [Scale(2, 3)], [Cut(0, 0, 2, 2), Scale(5, 5), Mirror()]):
        rendered(raw, payload, steps)
    assert payload == bytes(range(24))
    samples = np.arange(24, dtype=np.uint8).reshape(4, 6, 1)
    assert take_steps(samples, []) is samples
    take_steps(samples, [Mirror(), Scale(3, 3)])
    assert samples.ravel().tolist() == list(range(24))


def test_a_flat_quarter_of_a_photo_decoded_smaller_holds_nothing_of_its_neighbours() -> None:
    colours = np.array([[(250, 20, 20), (20, 250, 20)], [(20, 20, 250), (128, 128, 128)]], np.uint8)
    data = encode(colours.repeat(320, axis=0).repeat(480, axis=1), quality=95)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        cut = Cut(320 * row, 480 * column, 320, 480)
        for size in ((40, 60), (33, 33), (160, 200), (7, 5)):
            found = rendered(MODES["RGB"], data, [cut, Scale(*size)])
            np.testing.assert_allclose(
                found.astype(int), np.broadcast_to(colours[row, column], found.shape), atol=4
            )
