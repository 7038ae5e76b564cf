"""JPEG: what its header says, which decoder serves it, and which faults are harmless."""

import io
import re

import numpy as np
import pytest
from encoded import ARITHMETIC, CHINA, LOSSLESS, PHOTO, SEEDS, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardkit.contract.field import Violation
from shardkit.contract.image import ImageField
from shardkit.contract.images import pillow
from shardkit.contract.images.jpeg import inspect
from shardkit.contract.images.jpeg_scans import missing_scans, plain_end, walk_scans, zero_hole
from shardkit.contract.images.pixels import pixels
from shardkit.contract.reasons import Reason

FIELD = ImageField(grayscale="convert", cmyk="convert")
STRICT = ImageField(grayscale="convert", cmyk="convert", warnings="reject")
BASE = SEEDS["jpeg"]
SOF = BASE.index(b"\xff\xc0")
DQT = BASE.index(b"\xff\xdb")


def reason(data: bytes, field: ImageField = FIELD) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(data)
    return caught.value.reason


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 70),
    height=st.integers(1, 70),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
    mode=st.sampled_from(["RGB", "L", "CMYK"]),
)
def test_simplejpeg_gives_the_pixels_of_pillow(
    width: int, height: int, quality: int, subsampling: int, progressive: bool, mode: str
) -> None:
    image = CHINA.resize((width, height)).convert(mode)
    data = encode(image, "JPEG", quality=quality, subsampling=subsampling, progressive=progressive)
    facts = inspect(data, complete=False)
    assert facts.is_turbo or mode == "CMYK"
    np.testing.assert_array_equal(pixels(data, facts).samples, pillow.decode(data, facts).samples)


@pytest.mark.parametrize(("factors", "is_turbo"), [(0x12, True), (0x41, True), (0x13, False), (0x31, False)])
def test_rare_samplings_go_to_the_decoder_that_reads_them(factors: int, is_turbo: bool) -> None:
    facts = inspect(patched(encode(PHOTO, "JPEG", subsampling=0), SOF + 11, bytes([factors])), complete=False)
    assert facts.is_turbo is is_turbo


def test_cmyk_is_taken_as_inverted_with_and_without_the_adobe_marker_as_pillow_does() -> None:
    data = SEEDS["jpeg-cmyk"]
    at = data.index(b"\xff\xee")
    bare = data[:at] + data[at + 16 :]
    facts = inspect(bare, complete=False)
    np.testing.assert_array_equal(pixels(bare, facts).samples, np.asarray(Image.open(io.BytesIO(bare))))
    assert len(bare) < len(data)


def test_adobe_cmyk_patches_come_out_in_their_colours() -> None:
    patches = Image.new("CMYK", (32, 8))
    for number, ink in enumerate([(255, 0, 0, 0), (0, 255, 0, 0), (0, 0, 255, 0), (0, 0, 0, 255)]):
        patches.paste(ink, (8 * number, 0, 8 * number + 8, 8))
    picture = FIELD.decode(encode(patches, "JPEG", quality=100))
    expected = [(0, 255, 255), (255, 0, 255), (255, 255, 0), (0, 0, 0)]
    for number, colour in enumerate(expected):
        np.testing.assert_allclose(picture[4, 8 * number + 4].astype(int), colour, atol=3)


def test_an_rgb_coded_jpeg_comes_out_as_rgb() -> None:
    data = encode(PHOTO, "JPEG", quality=100, subsampling=0, keep_rgb=True)
    np.testing.assert_allclose(FIELD.decode(data).astype(int), np.asarray(PHOTO).astype(int), atol=3)


@pytest.mark.parametrize(
    "harmless",
    [
        BASE[:-2],  # no EOI
        BASE[:DQT] + b"\x12\x34\x56" + BASE[DQT:],  # junk between segments
        BASE[:DQT] + b"\xff\x00\xff\x00" + BASE[DQT:],  # stuffing in the header
        BASE[:DQT] + b"\xff\xe2\x00\x10ICC_PROFILE\0\x05\x01" + BASE[DQT:],  # an ICC part 5 of 1
        BASE[:DQT] + b"\xff\xee\x00\x0dAdobe\x00\x64\x00\x00\x00\x00" + b"\x01" + BASE[DQT:],  # APP14 cut
        SEEDS["jpeg-progressive"][:-2],
    ],
)
def test_a_harmless_fault_is_recovered_from_or_refused_as_a_warning(harmless: bytes) -> None:
    checked = FIELD.check(harmless)
    assert checked.warnings == ("recovered",)
    whole = SEEDS["jpeg-progressive"] if b"\xff\xc2" in harmless[:400] else BASE
    np.testing.assert_array_equal(FIELD.decode(checked.payload), FIELD.decode(whole))
    assert reason(harmless, STRICT) is Reason.DECODER_WARNING


def test_trailing_bytes_are_no_decoder_warning() -> None:
    checked = STRICT.check(BASE + b"PK\3\4 a polyglot")
    assert checked.warnings == ("trailing-bytes",)
    np.testing.assert_array_equal(STRICT.decode(checked.payload), STRICT.decode(BASE))


def test_the_first_of_several_pictures_is_the_picture_and_a_warning() -> None:
    data = encode(PHOTO, "MPO", save_all=True, append_images=[PHOTO.rotate(180)])
    checked = FIELD.check(data)
    assert checked.warnings == ("embedded-images",)
    assert checked.converted == ()
    assert reason(data, STRICT) is Reason.DECODER_WARNING
    assert FIELD.check(BASE + BASE).warnings == ("embedded-images",)


def test_a_length_under_two_is_an_empty_segment_as_libjpeg_has_it() -> None:
    assert FIELD.check(BASE[:DQT] + b"\xff\xfe\x00\x00" + BASE[DQT:]).warnings == ()


def test_a_progressive_jpeg_lacking_any_one_scan_is_incomplete() -> None:
    data = SEEDS["jpeg-progressive"]
    facts = inspect(data, complete=False)
    assert missing_scans(facts, walk_scans(data, facts)) == ""
    starts = [found.start() for found in re.finditer(rb"\xff\xda\x00", data)]
    for start, end in zip(starts[1:], [*starts[2:], len(data) - 2], strict=True):
        # the tables of the next scan go with it, so the next scan may be undecodable
        assert reason(data[:start] + data[end:]) in (
            Reason.INCOMPLETE_SCANS,
            Reason.DECODER_WARNING,
            Reason.DECODE_ERROR,
        ), start


def test_a_progressive_jpeg_that_ends_early_yet_properly_is_incomplete() -> None:
    data = SEEDS["jpeg-progressive"]
    last = data.rindex(b"\xff\xda\x00")
    tables = data.rindex(b"\xff\xc4", 0, last)
    assert reason(data[:tables] + b"\xff\xd9") is Reason.INCOMPLETE_SCANS
    assert reason(data[:tables]) is Reason.TRUNCATED


def test_a_lossless_jpeg_of_eight_bits_is_read() -> None:
    np.testing.assert_array_equal(FIELD.decode(FIELD.check(LOSSLESS).payload), np.full((8, 8, 3), 129))
    assert reason(LOSSLESS[:-6]) is Reason.TRUNCATED


@pytest.mark.parametrize("frame", [0xC5, 0xC7, 0xCB, 0xCF])
def test_hierarchical_and_lossless_arithmetic_jpeg_is_unsupported_not_damaged(frame: int) -> None:
    assert reason(patched(BASE, SOF + 1, bytes([frame]))) is Reason.UNSUPPORTED


def test_a_twelve_bit_jpeg_is_unsupported_and_no_policy_helps() -> None:
    data = patched(BASE, SOF + 4, b"\x0c")
    assert reason(data, ImageField(depth16="convert")) is Reason.UNSUPPORTED


def test_a_jpeg_whose_height_comes_later_is_unsupported() -> None:
    assert reason(patched(BASE, SOF + 5, b"\0\0")) is Reason.UNSUPPORTED


def test_a_huge_declared_size_is_refused_before_decoding() -> None:
    assert reason(patched(BASE, SOF + 5, b"\xff\xdc\xff\xdc")) is Reason.TOO_MANY_PIXELS
    assert reason(patched(BASE, SOF + 5, b"\x20\x00\x20\x00")) is Reason.TRUNCATED


def test_a_header_without_frame_or_picture_is_told_apart() -> None:
    frame = BASE[SOF : SOF + 19]
    assert reason(BASE.replace(frame, b"")) is Reason.BAD_HEADER
    assert reason(BASE.replace(frame, frame + frame)) is Reason.BAD_HEADER
    assert reason(b"\xff\xd8\xff\xd9" + b"\xff\xff") is Reason.DECODE_ERROR


def test_broken_exif_leaves_the_picture_and_says_so() -> None:
    data = BASE[:2] + b"\xff\xe1\x00\x0eExif\0\0broken" + BASE[2:]
    assert STRICT.check(data).warnings == ("bad-metadata",)


@given(
    coded=st.binary(max_size=40), rest=st.lists(st.sampled_from([0, 1, 0xD0, 0xD9, 0xFF, 0xDA]), max_size=12)
)
def test_the_plain_end_is_that_of_the_first_marker_in_the_scan(coded: bytes, rest: list[int]) -> None:
    facts = inspect(BASE, complete=False)
    data = BASE[: facts.segments[-1].end] + coded + bytes(rest)
    first = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search(data, facts.segments[-1].end)
    expected = first.end() if first is not None and first[0] == b"\xff\xd9" else None
    assert plain_end(data, facts) == expected


@given(lead=st.integers(0, 20), zeros=st.integers(0, 90), tail=st.integers(2, 20))
def test_a_hole_is_found_wherever_it_lies(lead: int, zeros: int, tail: int) -> None:
    facts = inspect(BASE, complete=False)
    start = facts.segments[-1].end
    data = BASE[:start] + b"\x11" * lead + bytes(zeros) + b"\x11" * tail
    longest = 2 * 63 * 3 // 8  # two blocks; by these tables, three zero bits are a coefficient
    assert zero_hole(data, facts, len(data)) == (start + lead if zeros >= longest else None)


def test_the_plain_end_is_found_only_for_one_sequential_scan() -> None:
    assert plain_end(BASE, inspect(BASE, complete=False)) == len(BASE)
    progressive = SEEDS["jpeg-progressive"]
    assert plain_end(progressive, inspect(progressive, complete=False)) is None


def test_an_arithmetic_jpeg_is_read_and_where_it_lacks_its_end_nothing_tells_it_from_a_cut_one() -> None:
    delivered = FIELD.decode(FIELD.check(ARITHMETIC).payload)
    np.testing.assert_array_equal(delivered[..., 0], np.asarray(Image.open(io.BytesIO(ARITHMETIC))))
    for length in range(len(ARITHMETIC) - 8, len(ARITHMETIC)):
        assert reason(ARITHMETIC[:length]) is Reason.TRUNCATED, length
