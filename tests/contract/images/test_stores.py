"""What each store keeps of an image: what is read back is what the policies made of it at ingest."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from encoded import CHINA, PHOTO, SEEDS, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardkit.contract.field import Violation
from shardkit.contract.image import ImageField
from shardkit.contract.images.examination import examine
from shardkit.contract.images.policies import deliver
from shardkit.contract.images.resizing import resize

SIZE = (20, 28)
ORIENTED = PHOTO.resize((33, 22))
TRANSPARENT = PHOTO.convert("RGBA")
TRANSPARENT.putalpha(PHOTO.convert("L"))


def turned(orientation: int, kind: str, **options: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(ORIENTED, kind, exif=exif, **options)


SOURCES = {
    **SEEDS,
    **{
        f"{kind}-turned-{turn}": turned(turn, kind)
        for kind in ("JPEG", "PNG", "WEBP", "TIFF")
        for turn in (2, 6, 8)
    },
    "png-alpha": encode(TRANSPARENT, "PNG"),
    "png-gray-alpha": encode(TRANSPARENT.convert("LA"), "PNG"),
    "png-palette-alpha": encode(PHOTO.quantize(16), "PNG", transparency=3),
    "webp-alpha": encode(TRANSPARENT, "WEBP", lossless=True),
    "gif-alpha": encode(PHOTO.quantize(16), "GIF", transparency=3),
    "tiff-cmyk": encode(PHOTO.convert("CMYK"), "TIFF"),
    "jpeg-cmyk-progressive": encode(PHOTO.convert("CMYK"), "JPEG", progressive=True),
    "jpeg-no-end": SEEDS["jpeg"][:-2],
}
POLICIES = st.fixed_dictionaries({
    "mode": st.sampled_from(["RGB", "RGB", "L", "RGBA"]),
    "grayscale": st.just("convert"),
    "alpha": st.sampled_from(["drop", "composite"]),
    "cmyk": st.just("convert"),
    "depth16": st.just("convert"),
    "animated": st.just("first"),
    "orientation": st.sampled_from(["apply", "ignore"]),
})  # fmt: skip


def field_of(policies: dict[str, str], **keys: Any) -> ImageField:
    alpha = "reject" if policies["mode"] == "RGBA" else policies["alpha"]
    return ImageField(**(policies | {"alpha": alpha} | keys))


def made_by_policies(field: ImageField, data: bytes) -> npt.NDArray[np.uint8]:
    """Return what the policies make of an image, by the way of ingest, decoded in full."""
    return deliver(field.policies, examine(data, field.formats, field.max_pixels).picture)


def accepted(field: ImageField, data: bytes) -> bytes | None:
    try:
        return bytes(field.check(data).payload)
    except Violation as violation:
        if violation.reason != "colour":  # the one thing that no policy mends
            raise
        return None


def peak_signal_to_noise(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    """Return the PSNR of two pictures in dB."""
    error = np.mean((one.astype(float) - other) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(SOURCES)), policies=POLICIES)
def test_an_original_is_delivered_as_the_policies_had_it_at_ingest(
    name: str, policies: dict[str, str]
) -> None:
    field = field_of(policies)
    payload = accepted(field, SOURCES[name])
    if payload is not None:
        assert payload == SOURCES[name]
        np.testing.assert_array_equal(field.decode(payload), made_by_policies(field, SOURCES[name]))


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(SOURCES)), policies=POLICIES, fit=st.sampled_from(["crop", "stretch"]))
def test_raw_is_bit_for_bit_what_the_policies_made(name: str, policies: dict[str, str], fit: str) -> None:
    resized = field_of(policies, store="raw", resize=SIZE, fit=fit)
    payload = accepted(resized, SOURCES[name])
    if payload is not None:
        made = made_by_policies(resized, SOURCES[name])
        assert len(payload) == resized.layout.nbytes
        np.testing.assert_array_equal(resized.decode(payload), resize(made, SIZE, fit))
        exact = field_of(policies, store="raw", size=made.shape[:2])
        assert exact.check(SOURCES[name]).payload == made.tobytes()


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(sorted(SOURCES)),
    policies=POLICIES,
    subsampling=st.sampled_from(["444", "422", "420"]),
    resized=st.booleans(),
)
def test_a_stored_jpeg_is_plain_and_close_to_what_the_policies_made(
    name: str, policies: dict[str, str], subsampling: str, resized: bool
) -> None:
    if policies["mode"] == "RGBA":
        return
    field = field_of(
        policies, store="jpeg", quality=95, subsampling=subsampling, resize=SIZE if resized else None
    )
    payload = accepted(field, SOURCES[name])
    if payload is None:
        return
    made = made_by_policies(field, SOURCES[name])
    made = resize(made, SIZE, "crop") if resized else made
    delivered = field.decode(payload)
    with Image.open(io.BytesIO(payload)) as stored:
        assert (stored.format, stored.mode, stored.size) == ("JPEG", field.mode, made.shape[1::-1])
        assert not dict(stored.getexif())
        np.testing.assert_array_equal(delivered, np.asarray(stored).reshape(made.shape))
    turbo = simplejpeg.decode_jpeg(payload, "GRAY" if field.mode == "L" else "RGB", strict=True)
    np.testing.assert_array_equal(delivered, turbo)
    assert peak_signal_to_noise(delivered.mean(axis=2), made.mean(axis=2)) > 30
    assert ImageField(mode=field.mode).check(payload).warnings == ()


@pytest.mark.parametrize(("quality", "subsampling"), [(95, "444"), (90, "420"), (75, "420"), (30, "422")])
def test_quality_and_subsampling_mean_what_they_mean_to_pillow(quality: int, subsampling: str) -> None:
    field = ImageField(store="jpeg", quality=quality, subsampling=subsampling)
    payload = bytes(field.check(encode(CHINA, "PNG")).payload)
    peer = encode(CHINA, "JPEG", quality=quality, subsampling=":".join(subsampling))
    lost, lost_by_peer = (
        peak_signal_to_noise(field.decode(data), np.asarray(CHINA)) for data in (payload, peer)
    )
    assert lost == pytest.approx(lost_by_peer, abs=0.1)
    assert len(payload) == pytest.approx(len(peer), rel=0.02)
    assert simplejpeg.decode_jpeg_header(payload)[3] == subsampling


@pytest.mark.parametrize("store", ["jpeg", "raw"])
def test_with_resize_the_bounds_hold_for_what_comes_in(store: str) -> None:
    data = encode(PHOTO, "PNG")  # 64x48
    keys: dict[str, Any] = {"store": store, "resize": (100, 100)}
    assert ImageField(**keys, min_size=(48, 64)).decode(ImageField(**keys).check(data).payload).shape == (
        100,
        100,
        3,
    )
    with pytest.raises(Violation, match=r"\[48, 64\], allowed is \[50, 50\]"):
        ImageField(**keys, min_size=(50, 50)).check(data)


def test_what_changed_the_size_is_named_beside_the_policies() -> None:
    data = turned(6, "JPEG")  # upright: 22x33
    sized = {
        (): {"store": "jpeg"},
        ("resize",): {"store": "raw", "resize": SIZE},
        ("max_side",): {"store": "jpeg", "max_side": 20},
    }
    for named, keys in sized.items():
        assert ImageField(**keys).check(data).converted == ("orientation", *named)
    assert ImageField(store="raw", resize=(33, 22)).check(data).converted == ("orientation",)


def test_arrays_are_resized_like_files() -> None:
    samples = np.asarray(PHOTO)
    field = ImageField(store="raw", resize=SIZE)
    assert field.check(samples).payload == field.check(encode(PHOTO, "PNG")).payload
