"""Small raw folders of real photo crops."""

from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_sample_image


@pytest.fixture(scope="session")
def photo() -> Image.Image:
    return Image.fromarray(load_sample_image("flower.jpg"))


@pytest.fixture
def raw(tmp_path: Path, photo: Image.Image) -> Path:
    """Twelve colour photos in two classes."""
    folder = tmp_path / "raw"
    for number in range(12):
        path = folder / ("cat" if number % 2 else "dog") / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo.crop((number, number, number + 40, number + 30)).save(path, quality=90)
    return folder
