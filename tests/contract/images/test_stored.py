"""A stored picture before it is decoded: its size, the scales at which it comes, and what is never scaled."""

import io
from functools import partial
from typing import Any

import numpy as np
import pytest
import simplejpeg
from encoded import ARITHMETIC, CHINA, LOSSLESS, PHOTO, SEEDS, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardkit.contract.image import ImageField
from shardkit.contract.images.jpeg import inspect
from shardkit.contract.images.pixels import decode_turbo
from shardkit.errors import FormatError

FIELD = ImageField(grayscale="convert", cmyk="convert")
ROTATED = Image.Exif()
ROTATED[0x0112] = 6
JPEGS: dict[str, dict[str, Any]] = {
    "420": {"subsampling": 2},
    "422": {"subsampling": 1},
    "444": {"subsampling": 0},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 3},
}


def scaled(size: tuple[int, int], eighths: int) -> tuple[int, int]:
    return -(-size[0] * eighths // 8), -(-size[1] * eighths // 8)


def expected_size(size: tuple[int, int], least: tuple[int, int]) -> tuple[int, int]:
    """Return the smallest of the sizes at 1/8 to 4/8 that is large enough, for what is wanted at half size at most."""
    if 2 * least[0] > size[0] or 2 * least[1] > size[1]:
        return size
    smaller = [scaled(size, eighths) for eighths in (1, 2, 3, 4)]
    return next(each for each in smaller if each[0] >= least[0] and each[1] >= least[1])


def lossless(height: int, width: int) -> bytes:
    """Return a gray SOF3 JPEG, all of it of value 129, as `LOSSLESS` is."""
    at = LOSSLESS.index(b"\0\x08\0\x08")
    header = LOSSLESS[: LOSSLESS.index(b"\xa0")]
    header = header[:at] + b"\0" + bytes([height, 0, width]) + header[at + 4 :]
    return header + b"\xa0" + bytes(height * width // 8 + 1) + b"\xff\xd9"


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(sorted(JPEGS)),
    mode=st.sampled_from(["RGB", "L"]),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    least=st.tuples(st.integers(1, 100), st.integers(1, 100)),
)
def test_a_jpeg_comes_at_the_smallest_scale_that_will_do(
    kind: str, mode: str, size: tuple[int, int], least: tuple[int, int]
) -> None:
    data = encode(CHINA.resize(size[::-1]).convert(mode), "JPEG", **JPEGS[kind])
    for field in (FIELD, ImageField(mode="L")) if mode == "L" else (FIELD,):
        image = field.open(data)
        assert (image.height, image.width) == size
        samples = image.decode(least)
        assert samples.shape == (*expected_size(size, least), field.channels)
        if samples.shape[:2] == size:
            np.testing.assert_array_equal(samples, field.decode(data))


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize(("divisor", "mode"), [(2, "RGB"), (4, "RGB"), (8, "RGB"), (8, "L")])
def test_a_smaller_picture_is_that_which_pillow_drafts(kind: str, divisor: int, mode: str) -> None:
    data = encode(CHINA.convert(mode), "JPEG", **JPEGS[kind])  # of 427 x 640
    draft = Image.open(io.BytesIO(data))
    draft.draft(mode, (640 // divisor, 427 // divisor))
    expected = np.asarray(draft)
    found = FIELD.open(data).decode((427 // divisor, 640 // divisor))
    assert expected.shape[:2] == found.shape[:2] == (-(-427 // divisor), 640 // divisor)
    np.testing.assert_array_equal(found[..., 0] if mode == "L" else found, expected)


def test_an_arithmetic_jpeg_is_scaled_too() -> None:
    image = FIELD.open(ARITHMETIC)
    assert image.decode((2, 2)).shape == (2, 2, 3)
    whole = image.decode().astype(float)
    means = whole.reshape(2, 8, 2, 8, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(image.decode((2, 2)), means, atol=1)


@pytest.mark.parametrize(
    ("data", "options", "size"),
    [
        (SEEDS["jpeg-cmyk"], {}, (48, 64)),
        (encode(PHOTO, "JPEG", exif=ROTATED), {}, (64, 48)),
        (SEEDS["jpeg-gray"], {"mode": "RGBA"}, (48, 64)),
        (SEEDS["png"], {}, (48, 64)),
        (SEEDS["webp"], {}, (48, 64)),
        (SEEDS["tiff-jpeg"], {}, (48, 64)),
        (lossless(64, 48), {}, (64, 48)),
        (lossless(64, 48), {"mode": "L"}, (64, 48)),
        (bytes(range(256)) * 3, {"store": "raw", "size": (16, 16)}, (16, 16)),
    ],
    ids=["cmyk", "rotated", "rgba", "png", "webp", "tiff", "lossless", "lossless-gray", "raw"],
)
def test_what_is_not_scaled_comes_in_full_size_whatever_will_do(
    data: bytes, options: dict[str, Any], size: tuple[int, int]
) -> None:
    field = ImageField(**{"grayscale": "convert", "cmyk": "convert"} | options)
    image = field.open(data)
    assert (image.height, image.width) == size
    whole = field.decode(data)
    assert whole.shape == (*size, field.channels)
    for least in (None, (1, 1), (8, 8), size):
        np.testing.assert_array_equal(image.decode(least), whole)


def test_a_rotated_jpeg_whose_orientation_is_ignored_is_scaled() -> None:
    image = ImageField(orientation="ignore").open(encode(PHOTO, "JPEG", exif=ROTATED))
    assert image.decode((6, 8)).shape == (6, 8, 3)


@pytest.mark.parametrize("least", [(8, 8), (1, 1)])
@pytest.mark.parametrize("is_given", [False, True])
def test_a_lossless_jpeg_taken_for_another_finds_room_for_all_its_pixels(
    monkeypatch: pytest.MonkeyPatch, least: tuple[int, int], is_given: bool
) -> None:
    """Libjpeg never scales one, but simplejpeg takes memory as if it did: the decoder would write beyond it."""
    rooms: list[int] = []
    decode = simplejpeg.decode_jpeg

    def noting(data: bytes, colorspace: str, **options: Any) -> Any:
        rooms.append(options["buffer"].size)
        return decode(data, colorspace, **options)

    data = lossless(64, 48)
    facts = inspect(data, complete=False)
    room = partial(np.empty, dtype=np.uint8) if is_given else None
    assert decode_turbo(data, facts, "GRAY", least, room).shape == (64, 48, 1)
    facts.frame = 0xC0
    monkeypatch.setattr(simplejpeg, "decode_jpeg", noting)
    decode_turbo(data, facts, "GRAY", least, room)
    assert rooms == [64 * 48]


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(["jpeg", "jpeg-gray", "png"]),
    least=st.none() | st.tuples(st.integers(1, 60), st.integers(1, 70)),
)
def test_a_picture_may_be_put_where_there_is_room_and_is_the_same(
    kind: str, least: tuple[int, int] | None
) -> None:
    given_rooms: list[np.ndarray] = []

    def room(nbytes: int) -> np.ndarray:
        given_rooms.append(np.full(nbytes, 77, np.uint8))
        return given_rooms[-1]

    image = FIELD.open(SEEDS[kind])
    samples = image.decode(least, room)
    np.testing.assert_array_equal(samples, image.decode(least))
    assert [each.size for each in given_rooms] == ([] if kind == "png" else [48 * 64 * 3])
    assert all(np.shares_memory(samples, each) for each in given_rooms)


@pytest.mark.parametrize("least", [None, (1, 1), (20, 20)])
def test_nothing_of_an_older_picture_shows_where_libjpeg_gives_up(least: tuple[int, int] | None) -> None:
    """After a first remark, here on a marker that is out of place, simplejpeg takes an error for one more of them."""
    data = SEEDS["jpeg-progressive"]
    scan = data.index(b"\xff\xda")
    tables = data.index(b"\xff\xc4", scan)
    data = data[: scan + 14] + b"\xff\xd3" + data[scan + 16 : tables] + b"\xff\x23" + data[tables + 2 :]
    for field in (FIELD, ImageField(mode="RGBA")):  # in one step, and by the policies
        image = field.open(data)
        for older in (77, 200):
            assert not image.decode(least, partial(np.full, fill_value=older, dtype=np.uint8))[..., :3].any()


def test_a_header_that_libjpeg_refuses_without_saying_so_is_an_error_like_any_other() -> None:
    data = SEEDS["jpeg-gray"]
    factors = data.index(b"\xff\xc0") + 11
    image = FIELD.open(data[:factors] + b"\x66" + data[factors + 1 :])
    for least in (None, (1, 1), (40, 40)):
        with pytest.raises(FormatError, match="cannot be decoded"):
            image.decode(least)


def test_pixels_are_counted_before_any_is_decoded_however_small_it_may_come() -> None:
    with pytest.raises(FormatError, match="64x48 is 3072 pixels, max_pixels allows 3071"):
        ImageField(max_pixels=3071).open(SEEDS["jpeg"])
    frame = SEEDS["jpeg"].index(b"\xff\xc0")
    forged = SEEDS["jpeg"][: frame + 5] + b"\xff\xdc\xff\xdc" + SEEDS["jpeg"][frame + 9 :]
    with pytest.raises(FormatError, match="65500x65500"):
        FIELD.open(forged)


@pytest.mark.parametrize("kind", ["jpeg", "jpeg-progressive", "jpeg-gray"])
def test_a_cut_jpeg_is_decoded_as_far_as_it_goes_at_any_scale(kind: str) -> None:
    data = SEEDS[kind]
    scan = data.index(b"\xff\xda") + 14
    for length in range(scan, len(data), (len(data) - scan) // 9):
        image = FIELD.open(data[:length])
        for least, size in ((None, (48, 64)), ((20, 20), (24, 32)), ((1, 1), (6, 8))):
            assert image.decode(least).shape == (*size, 3)


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["jpeg", "jpeg-progressive", "jpeg-restarts", "jpeg-444", "jpeg-gray", "jpeg-cmyk"]),
    patches=st.lists(
        st.tuples(
            st.floats(0, 1),
            st.sampled_from([b"", b"\xff\xd8", b"\xff\xc0", b"\xff\xc3", b"\xff\xda", b"\xff\xff", b"\0\0"])
            | st.binary(max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    is_inserted=st.booleans(),
    least=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_no_bytes_in_the_header_make_a_picture_smaller_than_will_do_or_larger_than_it_said(
    kind: str, patches: list[tuple[float, bytes]], is_inserted: bool, least: tuple[int, int]
) -> None:
    data = SEEDS[kind]
    for where, new in patches:
        at = 2 + int(where * (data.index(b"\xff\xda", 2) if b"\xff\xda" in data else 600))
        data = data[:at] + new + data[at + (0 if is_inserted else len(new)) :]
    try:
        image = ImageField(grayscale="convert", cmyk="convert", max_pixels=100_000).open(data)
        whole, small = image.decode(), image.decode(least)
    except FormatError:
        return
    assert whole.shape == (image.height, image.width, 3)
    for side, (full, wanted) in enumerate(zip(whole.shape[:2], least, strict=True)):
        assert min(full, wanted) <= small.shape[side] <= full
