"""A JPEG judged without making its pixels gets the verdict of one decoded in full, whatever is wrong with it."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import simplejpeg
from corpus import CASES, FOLDER, MISSING
from encoded import ARITHMETIC, CHINA, FLOWER, LOSSLESS, encode
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.contract.field import Violation
from shardkit.contract.images.examination import examine
from shardkit.contract.images.jpeg import inspect
from shardkit.contract.images.pixels import turbo_judged, turbo_pixels
from shardkit.contract.images.sniff import FORMATS

MAX_PIXELS = 4_000_000
SMALL, UPRIGHT = CHINA.resize((90, 61)), FLOWER.resize((61, 90))
JPEGS = {
    **{
        f"q{q}-{name}": encode(SMALL, "JPEG", quality=q, subsampling=name)
        for q in (30, 95)
        for name in range(3)
    },
    "440": simplejpeg.encode_jpeg(np.asarray(UPRIGHT), colorsubsampling="440"),
    "411": simplejpeg.encode_jpeg(np.asarray(UPRIGHT), colorsubsampling="411"),
    "optimized": encode(UPRIGHT, "JPEG", optimize=True),
    "restarts": encode(UPRIGHT, "JPEG", restart_marker_blocks=3),
    "progressive": encode(SMALL, "JPEG", progressive=True),
    "progressive-444": encode(UPRIGHT, "JPEG", progressive=True, subsampling=0),
    "progressive-restarts": encode(UPRIGHT, "JPEG", progressive=True, restart_marker_rows=1),
    "gray": encode(SMALL.convert("L"), "JPEG"),
    "gray-progressive": encode(UPRIGHT.convert("L"), "JPEG", progressive=True),
    "cmyk": encode(SMALL.convert("CMYK"), "JPEG"),
    "rgb": encode(SMALL, "JPEG", keep_rgb=True),
    "arithmetic": ARITHMETIC,
    "lossless": LOSSLESS,
}


def verdict(data: bytes, *, needs_pixels: bool) -> tuple[object, ...]:
    """Return all that is said of an image, but for its pixels."""
    try:
        examined = examine(data, FORMATS, MAX_PIXELS, needs_pixels=needs_pixels)
    except Violation as violation:
        return violation.reason, violation.sentence
    picture = examined.picture
    traits = (picture.label, picture.is_cmyk, picture.is_palette, picture.frames, picture.orientation)
    return examined.warnings, traits, picture.is_oriented, picture.samples.shape


def damaged(data: bytes, chooser: random.Random) -> bytes:
    """Return a JPEG with one fault, mostly behind its headers."""
    first = data.index(b"\xff\xda") if chooser.random() < 0.8 else 2
    at, length = chooser.randrange(first, len(data)), chooser.randrange(1, 80)
    faults = {
        "flipped bit": lambda: data[:at] + bytes([data[at] ^ 1 << chooser.randrange(8)]) + data[at + 1 :],
        "cut": lambda: data[:at],
        "zeros": lambda: data[:at] + bytes(min(length, len(data) - at)) + data[at + length :],
        "lost": lambda: data[:at] + data[at + length :],
        "inserted": lambda: data[:at] + chooser.randbytes(length) + data[at:],
        "overwritten": lambda: data[:at] + chooser.randbytes(1) + data[at + 1 :],
    }
    return faults[chooser.choice(sorted(faults))]()


@pytest.mark.parametrize("name", JPEGS)
def test_the_verdict_on_damage_is_that_of_decoding_to_pixels(name: str) -> None:
    chooser = random.Random(name)
    found = set()
    for _ in range(250):
        data = damaged(JPEGS[name], chooser)
        judged = verdict(data, needs_pixels=False)
        assert judged == verdict(data, needs_pixels=True)
        found.add(judged[0])
    assert len(found) > 2  # accepted, and rejected for more than one reason


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(JPEGS)), st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), max_size=4)
)
def test_no_bytes_put_anywhere_into_a_jpeg_change_that(name: str, patches: list[tuple[float, bytes]]) -> None:
    data = JPEGS[name]
    for where, new in patches:
        at = int(where * len(data))
        data = data[:at] + new + data[at + len(new) :]
    assert verdict(data, needs_pixels=False) == verdict(data, needs_pixels=True)


@pytest.mark.skipif(not CASES, reason=MISSING)
def test_real_files_get_the_same_verdict_either_way() -> None:
    for case in CASES:
        data = (FOLDER / case["name"]).read_bytes()
        assert verdict(data, needs_pixels=False) == verdict(data, needs_pixels=True), case["name"]


def remarks(data: bytes) -> Iterator[str]:
    """Yield what libjpeg says of a JPEG, first with and then without its pixels."""
    facts = inspect(data, complete=True)
    ways = (lambda: turbo_pixels(data, facts, strict=True), lambda: turbo_judged(data, facts))
    for decode in ways:
        try:
            decode()
            yield ""
        except ValueError as error:
            yield str(error)


@pytest.mark.parametrize("side", [64, 2400])
def test_damage_to_chroma_alone_is_seen_though_gray_is_asked_for(side: int) -> None:
    """Of the two sizes, one is judged in gray and one, for its many blocks, in colour."""
    photo = CHINA.resize((side, side))
    data = encode(photo, "JPEG", progressive=True)  # whose last scans hold one component each
    chroma = [at for at in range(len(data)) if data.startswith(b"\xff\xda\x00\x08\x01\x02", at)]
    assert chroma
    at = chroma[-1] + 10
    full, judged = remarks(data[: at + 40] + b"\xff\xd9" + data[at + 42 :])
    assert full == judged != ""


def test_a_picture_that_is_only_judged_takes_no_memory_for_pixels() -> None:
    samples = examine(JPEGS["q95-2"], FORMATS, MAX_PIXELS, needs_pixels=False).picture.samples
    assert (samples.shape, samples.strides, samples.flags.writeable) == ((61, 90, 3), (0, 0, 0), False)


def test_there_is_room_for_all_pixels_even_where_the_header_was_misread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lossless JPEG is never scaled by libjpeg, though simplejpeg takes memory as if it were."""
    rooms = []
    decode = simplejpeg.decode_jpeg
    monkeypatch.setattr(
        simplejpeg,
        "decode_jpeg",
        lambda data, colorspace, **options: (
            rooms.append(options["buffer"].size) or decode(data, colorspace, **options)
        ),
    )
    facts = inspect(LOSSLESS, complete=True)
    facts.frame, facts.height = 0xC0, 1
    turbo_judged(LOSSLESS, facts)
    assert rooms == [64]
