import numpy as np
import pytest
from PIL import Image, ImageOps

from shardkit.contract.image import ImageField
from shardkit.contract.images.facts import Picture
from shardkit.contract.images.policies import deliver, orient


def picture(*pixel: int, **more: bool) -> Picture:
    return Picture(np.array([[pixel]], np.uint8), "test", **more)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_stands_upright_as_pillow_has_it(orientation: int) -> None:
    samples = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    tagged = Image.fromarray(samples)
    tagged.getexif()[0x0112] = orientation
    np.testing.assert_array_equal(orient(samples, orientation), np.asarray(ImageOps.exif_transpose(tagged)))


@pytest.mark.parametrize(
    ("keys", "shown", "delivered"),
    [
        ({"grayscale": "convert"}, picture(7), [7, 7, 7]),
        ({"mode": "L"}, picture(7), [7]),
        ({"mode": "RGBA", "grayscale": "convert"}, picture(7), [7, 7, 7, 255]),
        ({"mode": "RGBA", "grayscale": "convert"}, picture(7, 9), [7, 7, 7, 9]),
        ({"mode": "RGBA"}, picture(1, 2, 3), [1, 2, 3, 255]),
        ({"mode": "RGBA"}, picture(1, 2, 3, 4), [1, 2, 3, 4]),
        ({"alpha": "drop"}, picture(1, 2, 3, 4), [1, 2, 3]),
        ({"alpha": "composite"}, picture(1, 2, 3, 255), [1, 2, 3]),
        ({"alpha": "composite"}, picture(1, 2, 3, 0), [255, 255, 255]),
        ({"alpha": "composite"}, picture(0, 100, 255, 128), [127, 177, 255]),
        ({"mode": "L", "alpha": "composite"}, picture(100, 128), [177]),
        ({"cmyk": "convert"}, picture(255, 0, 0, 0, is_cmyk=True), [0, 255, 255]),
        ({"cmyk": "convert"}, picture(0, 0, 0, 255, is_cmyk=True), [0, 0, 0]),
    ],
)
def test_each_policy_delivers_what_it_says(
    keys: dict[str, str], shown: Picture, delivered: list[int]
) -> None:
    out = deliver(ImageField(**keys).policies, shown)  # type: ignore[arg-type]  # keys of one type
    assert out[0, 0].tolist() == delivered
    assert out.flags.c_contiguous
