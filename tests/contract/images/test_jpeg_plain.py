"""Which payloads any JPEG decoder may decode: those whose picture no policy and no rare way of coding has a part in."""

from typing import Any

import pytest
from encoded import ARITHMETIC, PHOTO, SEEDS, encode
from PIL import Image

from shardkit.contract.image import ImageField
from shardkit.errors import FormatError

FIELD = ImageField(grayscale="convert", cmyk="convert")
BASE = encode(PHOTO, "JPEG", subsampling=0)
SOF = BASE.index(b"\xff\xc0")
EXIF = Image.Exif()
EXIF[0x0112] = 3
ROTATED = encode(PHOTO, "JPEG", exif=EXIF)


def with_luma(factors: int) -> bytes:
    return BASE[: SOF + 11] + bytes([factors]) + BASE[SOF + 12 :]


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}])
def test_the_common_ones_are_plain_and_have_the_size_of_their_picture(options: dict[str, Any]) -> None:
    assert FIELD.plain_jpeg_size(encode(PHOTO.crop((0, 0, 40, 30)), "JPEG", **options)) == (30, 40)
    assert FIELD.plain_jpeg_size(encode(PHOTO.convert("L"), "JPEG", **options)) == (48, 64)


def test_a_quarter_of_the_colour_across_is_common_too() -> None:
    assert FIELD.plain_jpeg_size(with_luma(0x41)) == (48, 64)


@pytest.mark.parametrize(
    "data",
    [
        encode(PHOTO, "PNG"),
        SEEDS["jpeg-cmyk"],
        ARITHMETIC,
        ROTATED,
        encode(PHOTO, "JPEG", subsampling=0, keep_rgb=True),
        with_luma(0x13),
    ],
    ids=["png", "cmyk", "arithmetic", "rotated", "coded as RGB", "rare sampling"],
)
def test_others_are_not(data: bytes) -> None:
    assert FIELD.plain_jpeg_size(data) is None


def test_an_rgb_one_without_the_adobe_marker_is_known_by_its_components() -> None:
    assert BASE[SOF + 10 : SOF + 19] == b"\1\x11\0\2\x11\1\3\x11\1"
    named = BASE[: SOF + 10] + b"R\x11\x00G\x11\x01B\x11\x01" + BASE[SOF + 19 :]
    assert FIELD.plain_jpeg_size(named) is None


@pytest.mark.parametrize(
    "field",
    [ImageField(grayscale="convert", orientation="ignore"), ImageField(store="jpeg"), ImageField(mode="L")],
)
def test_it_depends_on_what_the_contract_delivers(field: ImageField) -> None:
    assert field.plain_jpeg_size(encode(PHOTO.convert("L"), "JPEG")) == (48, 64)
    assert field.plain_jpeg_size(ROTATED) is None  # decoders turn it, or not
    assert (field.plain_jpeg_size(BASE) is None) is (field.mode == "L")


def test_no_payload_of_pixels_is() -> None:
    field = ImageField(store="raw", resize=(2, 2))
    assert field.plain_jpeg_size(bytes(12)) is None


def test_what_the_contract_would_not_have_let_in_is_refused() -> None:
    with pytest.raises(FormatError, match="size asks for"):
        ImageField(size=(8, 8)).plain_jpeg_size(BASE)
    with pytest.raises(FormatError, match="a png image"):
        ImageField(store="jpeg").plain_jpeg_size(encode(PHOTO, "PNG"))
    with pytest.raises(FormatError, match="before its first scan"):
        FIELD.plain_jpeg_size(BASE[:100])
