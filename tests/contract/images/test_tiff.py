import os
import struct

import numpy as np
import pytest
from encoded import FLIPPED, PHOTO, SEEDS, encode, gray_tiff, tiff
from PIL import Image, ImageOps

from shardkit.contract.field import Violation
from shardkit.contract.image import ImageField
from shardkit.contract.reasons import Reason

CONVERT = ImageField(grayscale="convert", alpha="composite", depth16="convert", animated="first")


def reason(data: bytes, field: ImageField = CONVERT) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(data)
    return caught.value.reason


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (gray_tiff(32, bytes(4), 1, sample_format=3), Reason.UNSUPPORTED),
        (gray_tiff(8, bytes(1), 1, sample_format=2), Reason.UNSUPPORTED),
        (gray_tiff(16, bytes(2), 1, sample_format=2), Reason.UNSUPPORTED),
        (gray_tiff(32, bytes(4), 1), Reason.UNSUPPORTED),
        (gray_tiff(10, bytes(5), 4), Reason.UNSUPPORTED),
        (gray_tiff(8, bytes(1), 1, photometric=32803), Reason.UNSUPPORTED),
        (tiff({256: (1,), 257: (1,), 258: (8, 8, 8), 262: (8,), 277: (3,)}, bytes(3)), Reason.COLOUR_SPACE),
        (tiff({256: (0,), 257: (1,), 258: (8,), 262: (1,), 277: (1,)}, b""), Reason.BAD_HEADER),
        (
            tiff({256: (90_000,), 257: (90_000,), 258: (8,), 262: (1,), 277: (1,)}, b""),
            Reason.TOO_MANY_PIXELS,
        ),
        (b"II*\0" + struct.pack("<I", 1000), Reason.TRUNCATED),
        (b"II+\0" + struct.pack("<HHQ", 8, 0, 1 << 63), Reason.BAD_HEADER),
        (b"II*\0\x08\0", Reason.TRUNCATED),
    ],
)
def test_each_kind_that_is_not_read_has_its_reason(data: bytes, expected: Reason) -> None:
    assert reason(data) is expected


def test_twelve_bits_keep_the_most_significant_eight_of_twelve() -> None:
    values = [0, 15, 16, 4095, 2048, 2047, 255, 256]
    packed = int("".join(f"{value:012b}" for value in values), 2).to_bytes(12, "big")
    data = gray_tiff(12, packed, 8)
    assert reason(data, ImageField(grayscale="convert")) is Reason.DEPTH16
    assert CONVERT.check(data).seen == "I;16"
    assert CONVERT.decode(data)[0, :, 0].tolist() == [0, 0, 1, 255, 128, 127, 15, 16]


def test_sixteen_bits_with_white_as_zero_are_inverted() -> None:
    data = gray_tiff(16, np.array([0, 255, 256, 65535], "<u2").tobytes(), 4, photometric=0)
    assert CONVERT.decode(data)[0, :, 0].tolist() == [255, 255, 254, 0]


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bit_colour_that_pillow_calls_rgb_is_seen(order: str) -> None:
    samples = np.array([0, 255, 256, 65535, 0x1234, 0x80FF], order + "u2").tobytes()
    data = tiff({256: (2,), 257: (1,), 258: (16, 16, 16), 262: (2,), 277: (3,)}, samples, order)
    assert reason(data, ImageField()) is Reason.DEPTH16
    checked = CONVERT.check(data)
    assert (checked.seen, checked.converted) == ("RGB;16", ("depth16",))
    assert CONVERT.decode(data).tolist() == [[[0, 0, 1], [255, 0x12, 0x80]]]


def test_further_pages_are_an_animation_and_the_first_may_be_kept() -> None:
    data = encode(PHOTO, "TIFF", save_all=True, append_images=[FLIPPED, PHOTO])
    assert reason(data, ImageField()) is Reason.ANIMATED
    np.testing.assert_array_equal(CONVERT.decode(data), np.asarray(PHOTO))


def test_a_reduced_page_is_an_embedded_image_not_a_page() -> None:
    first = tiff({256: (1,), 257: (1,), 258: (8,), 262: (1,), 277: (1,)}, b"a")
    reduced = struct.pack("<HHHII", 1, 254, 4, 1, 1) + bytes(4)
    at = 8 + 2 + 12 * struct.unpack_from("<H", first, 8)[0]
    data = first[:at] + struct.pack("<I", len(first)) + first[at + 4 :] + reduced
    assert CONVERT.check(data).warnings == ("embedded-images",)


def test_pages_in_a_circle_end() -> None:
    data = tiff({256: (1,), 257: (1,), 258: (8,), 262: (1,), 277: (1,)}, b"a", next_page=8)
    assert reason(data, ImageField(grayscale="convert")) is Reason.ANIMATED


@pytest.mark.parametrize("value", range(1, 9))
def test_orientation_is_applied_once_or_not_at_all(value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    data = encode(PHOTO, "TIFF", exif=exif)
    tagged = PHOTO.copy()
    tagged.getexif()[0x0112] = value
    upright = np.asarray(ImageOps.exif_transpose(tagged))
    np.testing.assert_array_equal(ImageField().decode(data), upright)
    np.testing.assert_array_equal(ImageField(orientation="ignore").decode(data), np.asarray(PHOTO))


def test_what_libtiff_says_is_a_warning_and_reaches_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(SEEDS["tiff-group4"])
    data[300] ^= 0x55
    checked = CONVERT.check(bytes(data))
    assert checked.warnings == ("recovered",)
    assert reason(bytes(data), ImageField(grayscale="convert", warnings="reject")) is Reason.DECODER_WARNING
    os.write(2, b"still open")
    assert capfd.readouterr().err == "still open"
