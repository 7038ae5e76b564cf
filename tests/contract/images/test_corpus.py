"""Every file of a folder of hard real images gets the verdict, the reason and the pixels that are known for it."""

import hashlib
from typing import Any

import pytest
from corpus import CASES, FOLDER, MISSING

from shardkit.contract.field import FileContent, Violation
from shardkit.contract.image import ImageField

FIELDS = {
    "strict": ImageField(palette="reject", orientation="reject", warnings="reject"),
    "convert": ImageField(grayscale="convert", alpha="composite", cmyk="convert"),
}
REASONS = {
    "animated": {"multi_frame"},
    "bad-header": {"header", "decode_error", "bomb"},
    "decode-error": {"decode_error", "bomb"},
    "depth16": {"bit_depth"},
    "format-not-allowed": {"format_not_allowed", "bomb"},
    "grayscale": {"gray"},
    "not-an-image": {"not_an_image", "hidden_file", "not_image_extension"},
    "too-many-pixels": {"bomb"},
    "truncated": {"truncated", "bomb_or_truncated", "header", "decode_error"},
    "unsupported": {"unsupported", "float", "bit_depth", "gray", "not_an_image", "decode_error"},
    "empty": {"zero_bytes"},
    "colour-space": {"colourspace"},
}
OPEN_TO_THE_OWNER = ("accept or", "accept_or", "convert:first_frame")

pytestmark = pytest.mark.skipif(not CASES, reason=MISSING)


@pytest.mark.parametrize("contract", FIELDS)
def test_every_file_gets_its_verdict_reason_and_pixels(contract: str) -> None:
    for case in CASES:
        expected = case[f"expect_{contract}"]
        if any(word in text for word in OPEN_TO_THE_OWNER for text in (expected, case["expect_convert"])):
            continue
        judge(FIELDS[contract], case, expected)


def judge(field: ImageField, case: dict[str, Any], expected: str) -> None:
    name = case["name"]
    content = FileContent((FOLDER / name).read_bytes(), name)
    if not expected.startswith(("accept", "convert")):
        with pytest.raises(Violation) as caught:
            field.check(content)
        wanted = expected.partition(":")[2].partition("(")[0]
        code = caught.value.reason.value
        assert wanted in REASONS.get(code, {code.replace("-", "_")}), (name, wanted, caught.value.sentence)
        return
    checked = field.check(content)
    picture = field.decode(checked.payload)
    width, height = case["size_oriented"] if "orientation" in expected else case["pillow_size"]
    assert picture.shape == (height, width, 3), name
    if expected == "accept" and case.get("rgb_sha256_16") and (case.get("exif_orientation") or 1) == 1:
        assert hashlib.sha256(picture.tobytes()).hexdigest()[:16] == case["rgb_sha256_16"], name
