import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardkit.contract.images.exif import BadMetadata, exif_orientation, orientation, xmp_orientation


@pytest.mark.parametrize("value", range(1, 9))
def test_every_orientation_is_read_as_pillow_writes_it(value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    assert exif_orientation(exif.tobytes()) == value


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_and_a_long_value_are_read(order: str) -> None:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    block = mark + struct.pack(order + "IHHHII", 8, 1, 0x0112, 4, 1, 6)
    assert exif_orientation(block) == 6


def test_exif_without_the_tag_gives_none() -> None:
    assert exif_orientation(b"II*\0" + struct.pack("<IH", 8, 0)) is None


@pytest.mark.parametrize("block", [b"Exif\0\0", b"garbage", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\0\1"])
def test_broken_exif_is_noticed_and_counts_as_upright(block: bytes) -> None:
    with pytest.raises(BadMetadata):
        exif_orientation(block)
    assert orientation(block, None) == (1, True)


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_bad_metadata(value: int) -> None:
    block = b"II*\0" + struct.pack("<IHHHIHH", 8, 1, 0x0112, 3, 1, value, 0)
    with pytest.raises(BadMetadata):
        exif_orientation(block)


@pytest.mark.parametrize(
    ("packet", "value"),
    [
        (b'<x tiff:Orientation="6"/>', 6),
        (b"<tiff:Orientation>3</tiff:Orientation>", 3),
        (b"<x tiff:Orientation='8'/>", 8),
        (b'<x tiff:Orientation="9"/>', None),
        (b"<x/>", None),
    ],
)
def test_xmp_gives_an_orientation_as_attribute_or_element(packet: bytes, value: int | None) -> None:
    assert xmp_orientation(packet) == value


def test_exif_comes_before_xmp() -> None:
    exif = b"II*\0" + struct.pack("<IHHHIHH", 8, 1, 0x0112, 3, 1, 6, 0)
    assert orientation(exif, b'tiff:Orientation="3"') == (6, False)
    assert orientation(b"", b'tiff:Orientation="3"') == (3, False)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_orientation_or_bad_metadata(block: bytes) -> None:
    value, _ = orientation(b"II*\0" + block, block)
    assert 1 <= value <= 8
