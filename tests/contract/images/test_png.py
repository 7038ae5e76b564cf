import struct
import zlib

import numpy as np
import pytest
from encoded import FLIPPED, PHOTO, SEEDS, chunk, encode, png, png_header, png_of
from PIL import Image, PngImagePlugin

from shardkit.contract.field import Violation
from shardkit.contract.image import ImageField
from shardkit.contract.reasons import Reason

CONVERT = ImageField(grayscale="convert", alpha="composite", depth16="convert", animated="first")
ROW = chunk(b"IDAT", zlib.compress(b"\0abc"))
END = chunk(b"IEND", b"")


def reason(data: bytes, field: ImageField = CONVERT) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(data)
    return caught.value.reason


@pytest.mark.parametrize("kind", [b"IDAT", b"tEXt", b"pHYs", b"IEND"])
def test_a_wrong_checksum_in_any_chunk_is_found(kind: bytes) -> None:
    chunks = [png_header(1, 1), chunk(b"tEXt", b"a\0b"), chunk(b"pHYs", bytes(9)), ROW, END]
    damaged = [part[:-1] + bytes([part[-1] ^ 1]) if part[4:8] == kind else part for part in chunks]
    assert CONVERT.check(png(*chunks)).warnings == ()
    assert reason(png(*damaged)) is Reason.CHECKSUM


def test_a_wrong_checksum_of_the_header_is_a_bad_header() -> None:
    header = png_header(1, 1)
    assert reason(png(header[:-1] + bytes([header[-1] ^ 1]), ROW, END)) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((png_header(1, 1, depth=0), ROW, END), Reason.BAD_HEADER),
        ((png_header(1, 1, depth=99), ROW, END), Reason.BAD_HEADER),
        ((png_header(1, 1, colour=1), ROW, END), Reason.BAD_HEADER),
        ((png_header(0, 1), ROW, END), Reason.BAD_HEADER),
        ((png_header(1, 1, colour=3), ROW, END), Reason.BAD_HEADER),
        ((ROW, png_header(1, 1), END), Reason.BAD_HEADER),
        ((png_header(1, 1), END), Reason.DECODE_ERROR),
        ((png_header(1, 1), ROW), Reason.TRUNCATED),
        ((png_header(1, 2), ROW, END), Reason.TRUNCATED),
        ((png_header(1, 1), b"\0\0\0\0\0\0\0\0\0\0\0\0", ROW, END), Reason.DECODE_ERROR),
        ((png_header(20_000, 20_000, 1, 0), ROW, END), Reason.TOO_MANY_PIXELS),
        ((png_header(9_000, 9_000), ROW, END), Reason.TRUNCATED),
        ((chunk(b"CgBI", b"P\0 \2"), png_header(1, 1), ROW, END), Reason.UNSUPPORTED),
    ],
)
def test_each_fault_of_structure_has_its_reason(chunks: tuple[bytes, ...], expected: Reason) -> None:
    assert reason(png(*chunks)) is expected


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP"])
def test_a_text_that_inflates_without_bounds_is_refused(kind: bytes) -> None:
    bomb = zlib.compress(bytes(3 << 20))
    body = b"k\0\1\0\0\0" + bomb if kind == b"iTXt" else b"k\0\0" + bomb
    assert reason(png(png_header(1, 1), chunk(kind, body), ROW, END)) is Reason.DECODE_ERROR


def test_unreadable_metadata_and_trailing_bytes_leave_the_picture() -> None:
    data = png(
        png_header(1, 1), chunk(b"iCCP", b"x\0\0garbage"), chunk(b"eXIf", b"garbage"), ROW, END, b"more"
    )
    checked = CONVERT.check(data)
    assert set(checked.warnings) == {"bad-metadata", "trailing-bytes"}
    np.testing.assert_array_equal(CONVERT.decode(checked.payload), [[list(b"abc")]])


def test_image_data_after_the_complete_picture_is_harmless() -> None:
    more = chunk(b"IDAT", b"\1\2\3")
    np.testing.assert_array_equal(CONVERT.decode(png(png_header(1, 1), ROW, more, END)), [[list(b"abc")]])


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_sixteen_bits_are_seen_in_every_colour_type_and_cut_to_the_high_byte(
    colour: int, channels: int
) -> None:
    wide = np.arange(channels * 4, dtype=np.uint16).reshape(1, -1) * 4000 + 200
    data = png_of(wide.astype(">u2").view(np.uint8), 16, colour)
    refusing = ImageField(mode="RGBA", grayscale="convert")
    assert reason(data, refusing) is Reason.DEPTH16
    field = ImageField(mode="RGBA", grayscale="convert", depth16="convert")
    checked = field.check(data)
    assert checked.seen == {1: "I;16", 2: "LA;16", 3: "RGB;16", 4: "RGBA;16"}[channels]
    assert "depth16" in checked.converted
    high = (wide >> 8).reshape(1, 4, channels)
    delivered = field.decode(data)
    np.testing.assert_array_equal(delivered[..., 0], high[..., 0])
    if channels in (2, 4):
        np.testing.assert_array_equal(delivered[..., 3], high[..., -1])


def test_a_transparent_sixteen_bit_gray_compares_all_sixteen_bits() -> None:
    wide = np.array([[0x1200, 0x1201]], ">u2")
    data = png_of(wide.view(np.uint8), 16, 0, chunk(b"tRNS", b"\x12\x01"))
    field = ImageField(mode="RGBA", grayscale="convert", depth16="convert")
    np.testing.assert_array_equal(field.decode(data), [[[0x12] * 3 + [255], [0x12] * 3 + [0]]])


def test_a_transparent_sixteen_bit_colour_is_unsupported() -> None:
    wide = np.zeros((1, 3), ">u2")
    data = png_of(wide.view(np.uint8), 16, 2, chunk(b"tRNS", bytes(6)))
    assert reason(data) is Reason.UNSUPPORTED


def test_a_transparent_colour_counts_as_alpha() -> None:
    rows = np.array([[1, 2, 3, 4, 5, 6]], np.uint8)
    data = png_of(rows, 8, 2, chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3)))
    assert reason(data, ImageField()) is Reason.ALPHA
    np.testing.assert_array_equal(CONVERT.decode(data), [[[255, 255, 255], [4, 5, 6]]])
    np.testing.assert_array_equal(ImageField(alpha="drop").decode(data), [[[1, 2, 3], [4, 5, 6]]])


def test_an_animation_keeps_its_first_frame_only_if_asked() -> None:
    data = SEEDS["apng"]
    assert reason(data, ImageField()) is Reason.ANIMATED
    checked = CONVERT.check(data)
    assert checked.converted == ("animated",)
    np.testing.assert_array_equal(CONVERT.decode(data), np.asarray(PHOTO))


def test_an_invalid_animation_is_the_still_image_and_a_warning() -> None:
    data = encode(PHOTO, "PNG", save_all=True, append_images=[FLIPPED])
    at = data.index(b"acTL") - 4
    control = data[at : at + 20]
    twice = data.replace(control, control + control)
    checked = ImageField().check(twice)
    assert checked.warnings == ("recovered",)
    np.testing.assert_array_equal(ImageField().decode(twice), np.asarray(PHOTO))


def test_orientation_in_exif_or_xmp_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    by_exif = encode(PHOTO, "PNG", exif=exif)
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="6"/>')
    by_xmp = encode(PHOTO, "PNG", pnginfo=text)
    for data in (by_exif, by_xmp):
        assert ImageField().check(data).converted == ("orientation",)
        np.testing.assert_array_equal(ImageField().decode(data), np.rot90(np.asarray(PHOTO), -1))
