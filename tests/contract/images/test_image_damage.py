"""Damage to whole files: cuts, flipped bits and holes, in every format."""

import random

import numpy as np
import pytest
from encoded import CHINA, SEEDS, encode
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.contract.field import Violation
from shardkit.contract.image import ImageField
from shardkit.contract.reasons import Reason

LENIENT = ImageField(
    grayscale="convert", alpha="composite", cmyk="convert", depth16="convert", animated="first"
)


def verdict(field: ImageField, data: bytes) -> Reason | None:
    try:
        field.check(data)
    except Violation as violation:
        return violation.reason
    return None


@pytest.mark.parametrize("name", SEEDS)
def test_an_undamaged_file_is_accepted_without_a_remark(name: str) -> None:
    checked = LENIENT.check(SEEDS[name])
    assert checked.payload == SEEDS[name]
    assert checked.warnings == ()
    assert LENIENT.decode(checked.payload).shape == (48, 64, 3)


@pytest.mark.parametrize("name", SEEDS)
def test_a_file_cut_anywhere_is_truncated_or_keeps_every_pixel(name: str) -> None:
    data = SEEDS[name]
    whole = LENIENT.decode(data)
    for length in sorted({*range(12, len(data), max(1, len(data) // 60)), *range(len(data) - 12, len(data))}):
        found = verdict(LENIENT, data[:length])
        assert found in (Reason.TRUNCATED, None), length
        if found is None:
            assert LENIENT.check(data[:length]).warnings == ("recovered",), length
            np.testing.assert_array_equal(LENIENT.decode(data[:length]), whole)


@pytest.mark.parametrize("name", [name for name in SEEDS if "png" in name])
def test_any_flipped_bit_in_a_png_is_found(name: str) -> None:
    data = SEEDS[name]
    chooser = random.Random(name)
    for at in chooser.sample(range(len(data)), 60):
        damaged = bytearray(data)
        damaged[at] ^= 1 << chooser.randrange(8)
        assert verdict(LENIENT, bytes(damaged)) is not None, at


@pytest.mark.parametrize("options", [{"quality": 90}, {"optimize": True}, {"subsampling": 0, "quality": 95}])
@pytest.mark.parametrize("size", [64, 512, 4096])
def test_zeros_in_the_coded_pixels_of_a_jpeg_are_found_though_warnings_are_accepted(
    options: dict[str, object], size: int
) -> None:
    data = encode(CHINA.resize((320, 240)), "JPEG", **options)
    for at in range(800, len(data) - size - 2, len(data) // 9):
        assert verdict(LENIENT, data[:at] + bytes(size) + data[at + size :]) is Reason.DECODER_WARNING, at


def test_a_white_jpeg_whose_coded_pixels_are_zeros_is_no_damage() -> None:
    white = encode(CHINA.resize((800, 600)).point(lambda _: 255), "JPEG", optimize=True)
    assert bytes(64) in white
    assert LENIENT.check(white).warnings == ()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SEEDS)), st.data())
def test_whatever_is_let_in_is_delivered_and_whatever_is_not_gets_a_verdict(
    name: str, data: st.DataObject
) -> None:
    damaged = bytearray(SEEDS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, min(len(damaged), 400) - 1))] = data.draw(st.integers(0, 255))
    try:
        checked = LENIENT.check(bytes(damaged))
    except Violation:
        return
    picture = LENIENT.decode(checked.payload)
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3


@pytest.mark.parametrize("side", [0, 4], ids=["height", "width"])
def test_a_size_that_a_jpeg_2000_claims_in_its_box_alone_takes_no_memory(side: int) -> None:
    data = bytearray(SEEDS["jp2"])
    at = data.index(b"ihdr") + 4 + side
    data[at : at + 4] = (1 << 29).to_bytes(4, "big")
    with pytest.raises(Violation, match="says in one place"):
        LENIENT.check(bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(SEEDS)), st.integers(0, 40))
def test_no_bytes_at_all_make_the_judge_stumble(tail: bytes, name: str, kept: int) -> None:
    verdict(LENIENT, SEEDS[name][:kept] + tail)
