"""GIF, WebP, BMP, PPM, AVIF and JPEG 2000: what their headers say, and what follows from it."""

import struct

import numpy as np
import pytest
from encoded import PHOTO, SEEDS, WIDE_GRAY, encode
from PIL import Image

from shardkit.contract.field import Violation
from shardkit.contract.image import ImageField
from shardkit.contract.images.inspection import inspect
from shardkit.contract.reasons import Reason

CONVERT = ImageField(grayscale="convert", alpha="composite", depth16="convert", animated="first")


def reason(data: bytes, field: ImageField = CONVERT) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(data)
    return caught.value.reason


def bmp(width: int, height: int, bits: int = 24, compression: int = 0, body: bytes = b"") -> bytes:
    header = struct.pack("<IiiHHIIIIII", 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + header + body


def exif_block(value: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


@pytest.mark.parametrize("name", ["gif-animated", "webp-animated"])
def test_an_animation_keeps_its_first_frame_only_if_asked(name: str) -> None:
    assert reason(SEEDS[name], ImageField()) is Reason.ANIMATED
    assert "animated" in CONVERT.check(SEEDS[name]).converted
    assert CONVERT.decode(SEEDS[name]).shape == (48, 64, 3)


def test_a_gif_without_trailer_is_whole_and_one_without_picture_is_not() -> None:
    data = SEEDS["gif"]
    assert CONVERT.check(data[:-1]).warnings == ("recovered",)
    assert reason(data[:13].replace(data[10:11], b"\0") + b";") is Reason.BAD_HEADER
    assert CONVERT.check(data + b"junk").warnings == ("trailing-bytes",)


@pytest.mark.parametrize("kind", ["WEBP", "AVIF"])
def test_orientation_of_webp_and_avif_is_applied(kind: str) -> None:
    data = encode(PHOTO, kind, exif=exif_block(6), quality=100)
    assert CONVERT.check(data).converted == ("orientation",)
    assert CONVERT.decode(data).shape == (64, 48, 3)
    assert ImageField(orientation="ignore").decode(data).shape == (48, 64, 3)
    assert reason(data, ImageField(orientation="reject")) is Reason.ORIENTATION


def test_webp_with_alpha_is_held_to_the_alpha_policy() -> None:
    image = PHOTO.convert("RGBA")
    image.putalpha(100)
    assert reason(encode(image, "WEBP", lossless=True), ImageField()) is Reason.ALPHA


def test_bytes_behind_a_webp_are_noticed() -> None:
    assert CONVERT.check(SEEDS["webp"] + b"more").warnings == ("trailing-bytes",)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bmp(3_000_000, 2_000_000), Reason.TOO_MANY_PIXELS),
        (bmp(2554, 18803, 8, 1, bytes(199)), Reason.TRUNCATED),
        (bmp(4, 4, 24, 0, bytes(47)), Reason.TRUNCATED),
        (bmp(-4, 4, 24, 0, bytes(48)), Reason.BAD_HEADER),
        (bmp(4, 0, 24, 0, bytes(48)), Reason.BAD_HEADER),
        (bmp(4, 4, 30_000, 0, bytes(48)), Reason.BAD_HEADER),
        (bmp(4, 4, 0, 4, bytes(48)), Reason.UNSUPPORTED),
        (bmp(4, 4, 24, 77, bytes(48)), Reason.UNSUPPORTED),
    ],
)
def test_each_fault_of_a_bmp_header_has_its_reason(data: bytes, expected: Reason) -> None:
    assert reason(data) is expected


def test_a_bmp_may_stand_on_its_head() -> None:
    rows = bytes(range(12))
    assert CONVERT.decode(bmp(4, -1, 24, 0, rows)).tolist() == [
        [[2, 1, 0], [5, 4, 3], [8, 7, 6], [11, 10, 9]]
    ]


@pytest.mark.parametrize(
    ("data", "delivered"),
    [
        (b"P5 4 1 65535\n" + struct.pack(">4H", 0, 255, 256, 65535), [0, 0, 1, 255]),
        (b"P2 3 1 1023\n0 1023 512\n", [0, 255, 128]),
        (b"P2 # maxval is no power of two\n3 1 1000\n0 1000 500\n", [0, 255, 128]),
        (b"P5 2 1 255\nab", [97, 98]),
    ],
)
def test_pnm_samples_keep_their_most_significant_bits(data: bytes, delivered: list[int]) -> None:
    assert CONVERT.decode(data)[0, :, 0].tolist() == delivered


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"P6 1 1 65535\n" + bytes(6), Reason.DEPTH16),
        (b"P5 1 1 70000\n" + bytes(6), Reason.BAD_HEADER),
        (b"P5 -1 1 255\n" + bytes(6), Reason.BAD_HEADER),
        (b"P632 35888888632!\n", Reason.BAD_HEADER),
        (b"P5 1", Reason.TRUNCATED),
        (b"P5 2 2 65535\n" + bytes(7), Reason.TRUNCATED),
        (b"P2 2 1 1000\n1", Reason.TRUNCATED),
        (b"P2 2 1 1000\n1 x", Reason.DECODE_ERROR),
        (b"P2 2 1 1000\n1 1001 ", Reason.DECODE_ERROR),
        (b"P6 99999 99999 255\n", Reason.TOO_MANY_PIXELS),
        (b"P5 1 1 255\na" + b"P5 1 1 255\nb", Reason.ANIMATED),
    ],
)
def test_each_fault_of_a_pnm_has_its_reason(data: bytes, expected: Reason) -> None:
    kept = CONVERT if expected in (Reason.DECODE_ERROR, Reason.TRUNCATED) else ImageField(grayscale="convert")
    assert reason(data, kept) is expected


def test_a_gray_avif_is_gray_though_its_decoder_says_rgb() -> None:
    data = encode(PHOTO.convert("L"), "AVIF", subsampling="4:0:0")
    assert inspect(data, complete=True).is_gray
    assert reason(data, ImageField()) is Reason.GRAYSCALE
    assert ImageField(mode="L").decode(data).shape == (48, 64, 1)


def test_an_avif_declaring_more_depth_is_seen() -> None:
    data = SEEDS["avif"]
    at = data.index(b"av1C") + 6
    deep = data[:at] + bytes([data[at] | 0x40]) + data[at + 1 :]
    assert inspect(data, complete=True).depth == 8
    assert inspect(deep, complete=True).depth == 10


def test_jpeg2000_of_sixteen_bits_keeps_the_high_byte() -> None:
    data = encode(Image.fromarray(WIDE_GRAY), "JPEG2000")
    assert reason(data, ImageField(grayscale="convert")) is Reason.DEPTH16
    np.testing.assert_array_equal(CONVERT.decode(data)[..., 0], WIDE_GRAY >> 8)


@pytest.mark.parametrize(
    ("offset", "new", "expected"),
    [
        (8, struct.pack(">II", 200_000, 200_000), Reason.TOO_MANY_PIXELS),
        (12, struct.pack(">I", 0), Reason.BAD_HEADER),
        (42, b"\x87", Reason.UNSUPPORTED),
        (42, b"\x1f", Reason.UNSUPPORTED),
        (40, b"\0\0", Reason.BAD_HEADER),
    ],
)
def test_each_fault_of_a_jpeg2000_header_has_its_reason(offset: int, new: bytes, expected: Reason) -> None:
    data = SEEDS["j2k"]
    assert reason(data[:offset] + new + data[offset + len(new) :]) is expected


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + kind + body


def avif(*meta: bytes) -> bytes:
    return box(b"ftyp", b"avif\0\0\0\0avif") + box(b"meta", bytes(4) + b"".join(meta))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            avif(box(b"iprp", box(b"ipco", box(b"ispe", struct.pack(">III", 0, 99_999, 99_999))))),
            "too-many-pixels",
        ),
        (avif(box(b"iloc", struct.pack(">IBBHHHHII", 0, 0x44, 0, 1, 1, 0, 1, 500, 500))), "truncated"),
        (avif(box(b"iloc", struct.pack(">IBBH", 0, 0, 0, 65535) + b"\0\1\0\0\xff\xff" * 2000)), "bad-header"),
        (avif(*[box(b"iprp", b"")]), "bad-header"),
        (avif(b"\0\0\0\2free"), "bad-header"),
        (b"P5 " + b"#" * 5000 + b"\nX", "bad-header"),
    ],
)
def test_a_hostile_header_is_refused_at_once(data: bytes, expected: str) -> None:
    assert reason(data).value == expected


def test_boxes_nested_without_end_are_no_trouble() -> None:
    nested = b""
    for _ in range(3000):
        nested = box(b"iprp", nested)
    assert reason(avif(nested)) is Reason.BAD_HEADER
