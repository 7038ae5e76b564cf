"""Headers that were seen before: their facts are remembered, and are those that a new look would find."""

import io
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardkit.contract.field import Violation
from shardkit.contract.images import seen_headers
from shardkit.contract.images.facts import Facts
from shardkit.contract.images.inspection import inspect
from shardkit.contract.images.seen_headers import inspect_again


def jpeg(**options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)).save(out, "JPEG", **options)
    return out.getvalue()


exif = Image.Exif()
exif[0x0112] = 6
FILES = [jpeg(), jpeg(progressive=True), jpeg(optimize=True), jpeg(exif=exif)]
SCAN = [file.index(b"\xff\xda") for file in FILES]


def seen(look: Any, data: bytes) -> Any:
    """Return the facts, or the verdict."""
    try:
        facts: Facts = look(data)
    except Violation as violation:
        return violation.reason, str(violation)
    return astuple(facts)


@given(st.integers(0, len(FILES) - 1), st.data())
def test_what_is_remembered_is_what_a_new_look_finds(number: int, data: st.DataObject) -> None:
    file, end = FILES[number], SCAN[number] + 14
    altered = bytearray(file)
    for at in data.draw(st.lists(st.integers(0, end), max_size=3)):
        altered[at] = data.draw(st.integers(0, 255))
    shortened = bytes(altered)[: data.draw(st.integers(0, end) | st.just(len(file)))]
    for each in (file, shortened, file + b"\0", shortened):
        expected = seen(lambda given: inspect(given, complete=False), each)
        assert seen(inspect_again, each) == expected


def test_a_header_is_walked_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[bytes] = []

    def walk(data: bytes, *, complete: bool) -> Facts:
        walked.append(data)
        return inspect(data, complete=complete)

    monkeypatch.setattr(seen_headers, "inspect", walk)
    first, others = jpeg(comment=b"first"), [jpeg(comment=b"%d" % number) for number in range(3000)]
    inspect_again(first)
    inspect_again(first + b"\0")
    assert walked == [first]
    for other in others:
        assert inspect_again(other).width == 30
    assert len(seen_headers._seen_headers) <= 1024


def test_a_header_whose_scan_is_cut_short_is_not_taken_for_the_whole_one() -> None:
    whole = FILES[0]
    inspect_again(whole)
    cut = whole[: SCAN[0] + 5]
    assert seen(inspect_again, cut) == seen(lambda given: inspect(given, complete=False), cut)
    assert seen(inspect_again, cut)[0] == "truncated"


def test_a_marker_of_a_scan_within_another_segment_ends_no_header() -> None:
    hidden = jpeg(comment=b"\xff\xda\0\0")
    other = hidden.replace(b"\0\x14\0\x1e", b"\0\x0a\0\x0f", 1)  # 15x10 pixels instead of 30x20
    assert hidden.index(b"\xff\xda") < other.index(b"\0\x0a\0\x0f")
    assert (inspect_again(hidden).width, inspect_again(other).width) == (30, 15)
