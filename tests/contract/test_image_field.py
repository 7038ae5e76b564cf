import io
import pickle
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images

from shardkit.contract.field import FileContent, Violation
from shardkit.contract.image import ImageField
from shardkit.contract.reasons import Reason
from shardkit.errors import ContractError, FormatError

PHOTO = Image.fromarray(load_sample_images().images[1]).resize((60, 40))
SAMPLES = np.asarray(PHOTO)


def encode(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(PHOTO, exif=exif)


def reason(field: ImageField, value: object) -> Reason:
    with pytest.raises(Violation) as caught:
        field.check(value)
    return caught.value.reason


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"mode": "BGR"}, r'^mode = "BGR".*"RGB", "L", "RGBA"'),
        ({"grayscale": "maybe"}, r'^grayscale = "maybe".*"reject", "convert"'),
        ({"alpha": "black"}, r'^alpha = "black".*"composite"'),
        ({"cmyk": True}, r"^cmyk = true"),
        ({"animated": "all"}, r'^animated = "all".*"first"'),
        ({"orientation": "rotate"}, r'^orientation.*"ignore"'),
        ({"formats": []}, r"^formats = \[\].*jpeg2000"),
        ({"formats": ["jpg"]}, r'^formats = \["jpg"\]'),
        ({"formats": "jpeg"}, r"^formats"),
        ({"formats": [["png"]]}, r"^formats"),
        ({"size": [224]}, r"^size = \[224\].*\[H, W\]"),
        ({"size": [224, 0]}, r"^size = \[224, 0\]"),
        ({"min_size": [1.5, 2]}, r"^min_size = \[1\.5, 2\]"),
        ({"min_size": None}, r"^min_size = None.*\[H, W\]"),
        ({"max_size": None}, r"^max_size = None.*\[H, W\]"),
        ({"min_size": [9, 9], "max_size": [8, 9]}, r"^min_size = \[9, 9\].*max_size"),
        ({"size": [9, 9], "max_size": [8, 8]}, r"^size = \[9, 9\]"),
        ({"max_pixels": 0}, r"^max_pixels = 0"),
        ({"max_pixels": True}, r"^max_pixels = true"),
        ({"store": "png"}, r'^store = "png".*"raw"'),
        ({"store": "raw"}, r'^store = "raw".*size'),
        ({"store": "jpeg", "mode": "RGBA"}, r"^store"),
        ({"mode": "RGBA", "alpha": "drop"}, r"^alpha"),
        ({"quality": 90}, r'^quality = 90.*store = "jpeg"'),
        ({"store": "jpeg", "quality": 101}, r"^quality = 101"),
        ({"store": "jpeg", "max_side": 0}, r"^max_side = 0"),
        ({"store": "jpeg", "subsampling": "411"}, r'^subsampling = "411".*"420"'),
        ({"resize": [8, 8]}, r'^resize = \[8, 8\].*store = "jpeg" or "raw"'),
        ({"store": "raw", "resize": [8]}, r"^resize = \[8\].*\[H, W\]"),
        ({"store": "raw", "resize": [8, 65501]}, r"^resize = \[8, 65501\].*1 to 65500"),
        ({"store": "raw", "resize": [8, 8], "size": [8, 8]}, r"^size = \[8, 8\]: leave it out: resize"),
        ({"store": "jpeg", "resize": [8, 8], "max_side": 9}, r"^max_side = 9: leave it out: resize"),
        ({"store": "jpeg", "resize": [8, 8], "fit": "pad"}, r'^fit = "pad".*"crop", "stretch"'),
        ({"store": "jpeg", "fit": "crop"}, r'^fit = "crop": allowed only with resize'),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(keys: dict[str, Any], part: str) -> None:
    with pytest.raises(ContractError, match=part):
        ImageField(**keys)


def test_the_table_of_a_field_makes_the_same_field() -> None:
    field = ImageField(mode="L", size=[4, 6], formats=["png", "jpeg"], store="raw")  # type: ignore[arg-type]  # as TOML
    table = field.to_dict()
    assert table["size"] == [4, 6]
    assert table["formats"] == ["jpeg", "png"]
    assert "quality" not in table
    assert ImageField(**{key: value for key, value in table.items() if key != "type"}) == field
    assert pickle.loads(pickle.dumps(field)) == field


def test_a_file_is_stored_untouched_and_counted_under_its_mode() -> None:
    data = encode(PHOTO)
    checked = ImageField().check(FileContent(data, "x.jpg"))
    assert checked.payload == data
    assert (checked.seen, checked.converted, checked.warnings) == ("RGB", (), ())
    np.testing.assert_array_equal(ImageField().decode(data), np.asarray(Image.open(io.BytesIO(data))))


def test_a_wrong_extension_is_a_warning_that_is_never_refused() -> None:
    field = ImageField(warnings="reject")
    assert field.check(FileContent(encode(PHOTO, "PNG"), "x.JPEG")).warnings == ("wrong-extension",)
    assert field.check(FileContent(encode(PHOTO, "PNG"), "x.bin")).warnings == ()


def test_only_listed_formats_are_let_in() -> None:
    assert reason(ImageField(formats=("png",)), encode(PHOTO)) is Reason.FORMAT_NOT_ALLOWED


@pytest.mark.parametrize(
    "value",
    [
        SAMPLES,
        SAMPLES.transpose(2, 0, 1),
        np.asfortranarray(SAMPLES),
        torch.from_numpy(SAMPLES.copy()),
        torch.from_numpy(SAMPLES.copy()).permute(2, 0, 1),
        PHOTO,
    ],
)
@pytest.mark.parametrize("store", ["original", "raw"])
def test_pixels_are_stored_without_loss(value: object, store: str) -> None:
    field = ImageField(store=store, size=(40, 60))
    checked = field.check(value)
    assert checked.seen == "RGB"
    np.testing.assert_array_equal(field.decode(checked.payload), SAMPLES)


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 20), st.integers(5, 20), st.sampled_from([1, 3, 4]), st.integers(0, 2**32 - 1))
def test_any_uint8_array_comes_back_as_it_was(height: int, width: int, channels: int, seed: int) -> None:
    array = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    field = ImageField(mode={1: "L", 3: "RGB", 4: "RGBA"}[channels])
    np.testing.assert_array_equal(field.decode(field.check(array).payload), array)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros((3, 5, 3), np.uint8), Reason.WRONG_SHAPE),
        (np.zeros((5, 5, 2), np.uint8), Reason.WRONG_SHAPE),
        (np.zeros((1, 3, 5, 5), np.uint8), Reason.WRONG_SHAPE),
        (np.zeros(5, np.uint8), Reason.WRONG_SHAPE),
        (np.zeros((5, 5, 3), np.float32), Reason.WRONG_TYPE),
        (np.zeros((5, 5, 3), np.uint16), Reason.WRONG_TYPE),
        (np.zeros((5, 0, 3), np.uint8), Reason.EMPTY),
        (torch.zeros(3, 5, 5, requires_grad=True), Reason.WRONG_TYPE),
        (Image.new("F", (4, 4)), Reason.UNSUPPORTED),
        (Image.new("LAB", (4, 4)), Reason.COLOUR_SPACE),
        (Image.new("CMYK", (4, 4)), Reason.CMYK),
        (Image.new("L", (4, 4)), Reason.GRAYSCALE),
        (Image.new("I;16", (4, 4)), Reason.DEPTH16),
        (Image.new("RGB", (0, 4)), Reason.EMPTY),
        (Image.open(io.BytesIO(encode(PHOTO)[:900])), Reason.TRUNCATED),
        ("photo.jpg", Reason.WRONG_TYPE),
        ([1, 2], Reason.WRONG_TYPE),
        (b"", Reason.EMPTY),
    ],
)
def test_a_value_that_is_no_such_image_has_its_reason(value: object, expected: Reason) -> None:
    assert reason(ImageField(), value) is expected


def test_a_pillow_image_in_cmyk_is_stored_as_what_the_policy_made_of_it() -> None:
    field = ImageField(cmyk="convert")
    checked = field.check(PHOTO.convert("CMYK"))
    assert (checked.seen, checked.converted) == ("CMYK", ("cmyk",))
    np.testing.assert_array_equal(field.decode(checked.payload), SAMPLES)


def test_a_pillow_image_keeps_its_palette_transparency_and_orientation() -> None:
    palette = PHOTO.quantize(8)
    palette.info["transparency"] = 0
    palette.getexif()[0x0112] = 6
    field = ImageField(mode="RGBA")
    checked = field.check(palette)
    assert checked.seen == "P"
    assert checked.converted == ("palette", "orientation")
    np.testing.assert_array_equal(
        field.decode(checked.payload), np.rot90(np.asarray(palette.convert("RGBA")), -1)
    )


def test_gray_is_refused_or_repeated() -> None:
    data = encode(PHOTO.convert("L"))
    gray = np.asarray(Image.open(io.BytesIO(data)))
    assert reason(ImageField(), data) is Reason.GRAYSCALE
    field = ImageField(grayscale="convert")
    assert field.check(data).converted == ("grayscale",)
    np.testing.assert_array_equal(field.decode(data), np.stack([gray] * 3, axis=-1))
    np.testing.assert_array_equal(ImageField(mode="L").decode(data), gray[..., np.newaxis])


def test_colour_never_becomes_gray() -> None:
    assert reason(ImageField(mode="L"), encode(PHOTO)) is Reason.COLOUR
    assert reason(ImageField(mode="L"), encode(PHOTO.quantize(8), "PNG")) is Reason.COLOUR
    assert reason(ImageField(mode="L", cmyk="convert"), encode(PHOTO.convert("CMYK"))) is Reason.COLOUR


def test_an_opaque_alpha_is_added_and_counted() -> None:
    field = ImageField(mode="RGBA")
    checked = field.check(encode(PHOTO, "PNG"))
    assert checked.converted == ("alpha-added",)
    delivered = field.decode(checked.payload)
    np.testing.assert_array_equal(delivered[..., :3], SAMPLES)
    assert delivered[..., 3].min() == 255


def test_a_palette_is_expanded_or_refused() -> None:
    data = encode(PHOTO.quantize(8), "PNG")
    assert ImageField().check(data).converted == ("palette",)
    assert reason(ImageField(palette="reject"), data) is Reason.PALETTE


def test_sizes_hold_for_the_picture_as_delivered() -> None:
    data = turned(6)
    upright = ImageField(size=(60, 40))
    assert upright.check(data).converted == ("orientation",)
    assert upright.decode(data).shape == (60, 40, 3)
    assert reason(ImageField(size=(40, 60)), data) is Reason.WRONG_SIZE
    assert ImageField(size=(40, 60), orientation="ignore").check(data).converted == ()
    assert reason(ImageField(max_size=(59, 100)), data) is Reason.WRONG_SIZE
    assert reason(ImageField(min_size=(1, 41)), data) is Reason.WRONG_SIZE
    assert reason(ImageField(orientation="reject"), data) is Reason.ORIENTATION


def test_pixels_are_limited_by_the_contract_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    data = encode(PHOTO, "PNG")
    assert ImageField(max_pixels=2400).check(data).warnings == ()
    assert reason(ImageField(max_pixels=2399), data) is Reason.TOO_MANY_PIXELS
    assert reason(ImageField(max_pixels=2399), SAMPLES) is Reason.TOO_MANY_PIXELS


def test_raw_is_the_delivered_samples_in_a_fixed_layout() -> None:
    field = ImageField(store="raw", size=(60, 40))
    assert (field.layout.dtype, field.layout.shape, field.layout.nbytes) == (np.uint8, (60, 40, 3), 7200)
    data = turned(8)
    payload = field.check(data).payload
    delivered = ImageField().decode(data)
    assert payload == delivered.tobytes()
    out = field.decode(memoryview(payload))
    np.testing.assert_array_equal(out, delivered)
    assert out.flags.writeable
    with pytest.raises(FormatError, match="7199 bytes, expected 7200"):
        field.decode(payload[:-1])


def test_a_variable_image_has_no_fixed_layout() -> None:
    assert not ImageField(size=(40, 60)).layout.is_fixed


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_reencoded_image_has_its_policies_behind_it(mode: str) -> None:
    image = PHOTO if mode == "RGB" else PHOTO.convert("L")
    exif = Image.Exif()
    exif[0x0112] = 6
    field = ImageField(mode=mode, store="jpeg", max_side=30, quality=95, subsampling="444")
    checked = field.check(encode(image, exif=exif))
    assert checked.converted == ("orientation", "max_side")
    stored = Image.open(io.BytesIO(bytes(checked.payload)))
    assert (stored.size, stored.mode, dict(stored.getexif())) == ((20, 30), mode, {})
    np.testing.assert_array_equal(
        field.decode(checked.payload), np.asarray(stored).reshape(30, 20, field.channels)
    )
    assert replace(field, size=(30, 20)).check(encode(image, exif=exif)).payload == checked.payload
    assert reason(replace(field, size=(60, 40)), encode(image, exif=exif)) is Reason.WRONG_SIZE


@pytest.mark.parametrize("payload", [b"", b"no image", encode(PHOTO, "PNG")[:300], encode(PHOTO)[:100]])
def test_a_damaged_payload_is_one_typed_error(payload: bytes) -> None:
    with pytest.raises(FormatError, match="cannot be decoded"):
        ImageField().decode(payload)


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        pytest.fail("a decoder was reached")

    monkeypatch.setattr("shardkit.contract.image.decode_turbo", refuse)
    monkeypatch.setattr("shardkit.contract.image.quiet_pixels", refuse)


@pytest.mark.parametrize(
    ("field", "payload", "said"),
    [
        (ImageField(formats=("jpeg",)), encode(PHOTO, "TIFF"), "a tiff image; .* allows jpeg, png here"),
        (ImageField(formats=("png",)), encode(PHOTO), "a jpeg image; .* allows png here"),
        (ImageField(store="jpeg"), encode(PHOTO, "PNG"), "a png image; .* allows jpeg here"),
        (ImageField(max_pixels=2399), encode(PHOTO), "60x40 is 2400 pixels, max_pixels allows 2399"),
        (ImageField(max_pixels=2399), encode(PHOTO, "PNG"), "60x40 is 2400 pixels"),
        (ImageField(), encode(PHOTO, "PPM").replace(b"60 40", b"60 90"), "pixels need 16213 bytes"),
    ],
)
@pytest.mark.usefixtures("no_decoder")
def test_what_was_never_let_in_reaches_no_decoder(field: ImageField, payload: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        field.decode(payload)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_stored_image_of_another_size_than_the_contract_asks_for_is_refused(kind: str) -> None:
    data = encode(PHOTO, kind)
    assert ImageField(size=(40, 60)).decode(data).shape == (40, 60, 3)
    fields = [ImageField(size=(60, 40)), ImageField(max_size=(39, 60))]
    for field in [*fields, ImageField(store="jpeg", resize=(9, 9))][: 3 if kind == "JPEG" else 2]:
        with pytest.raises(FormatError, match=r"\[H, W\] is \[40, 60\]"):
            field.decode(data)


@pytest.mark.parametrize("store", ["original", "jpeg"])
def test_pixels_come_back_though_formats_lacks_what_they_are_stored_as(store: str) -> None:
    field = ImageField(formats=("webp",), store=store)
    assert field.decode(field.check(SAMPLES).payload).shape == (40, 60, 3)


@pytest.mark.parametrize("method", ["_open", "load"])
def test_running_out_of_memory_is_no_verdict_on_the_image(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def exhaust(image: Image.Image) -> None:
        raise MemoryError

    data, opened = encode(PHOTO, "PNG"), Image.open(io.BytesIO(encode(PHOTO, "PNG")))
    monkeypatch.setattr(type(opened), method, exhaust)
    with pytest.raises(MemoryError):
        ImageField().check(data)
    with pytest.raises(MemoryError):
        ImageField().decode(data)
    if method == "load":
        with pytest.raises(MemoryError):
            ImageField().check(opened)


def test_importing_the_contract_loads_no_decoder_of_pillow() -> None:
    code = (
        "import shardkit.contract, sys; print([name for name in sys.modules if name.endswith('ImagePlugin')])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_reading_delivers_an_image_that_pillow_warns_about_even_where_warnings_are_errors() -> None:
    data = encode(PHOTO, "TIFF", tiffinfo={305: "software"})
    at = data.index(b"\x31\x01\x02\0") + 8  # the text of tag 305 moves beyond the end of the file
    damaged = data[: at - 4] + b"\xff\xff\0\0" + b"\xff\xff\0\0" + data[at + 4 :]
    checked = ImageField().check(damaged)
    assert checked.warnings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(ImageField().decode(checked.payload), SAMPLES)


def test_decoding_is_safe_in_threads() -> None:
    payloads = [encode(PHOTO), encode(PHOTO, "PNG"), encode(PHOTO, "WEBP", lossless=True)] * 4
    expected = [ImageField().decode(payload) for payload in payloads]
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        found[number] = all(
            np.array_equal(ImageField().decode(payload), wanted)
            for payload, wanted in zip(payloads, expected, strict=True)
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


def test_what_is_delivered_is_contiguous_and_may_be_written_to() -> None:
    for data in (encode(PHOTO), turned(6), encode(PHOTO, "PNG"), encode(PHOTO, "TIFF"), encode(PHOTO, "PPM")):
        delivered = ImageField().decode(data)
        assert delivered.flags.c_contiguous
        assert delivered.flags.writeable
