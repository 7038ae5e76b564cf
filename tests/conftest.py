"""Small raw folders of real photo crops, and how many faults were tried in the end."""

from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_sample_image


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests/faults/conftest.py notes of each of its tests."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    noted = [dict(each.user_properties) for each in reports if getattr(each, "when", "") == "teardown"]
    tried = [properties["faults"] for properties in noted if "faults" in properties]
    if tried:
        terminalreporter.write_line(f"faults tried: {sum(tried):,} in {len(tried)} tests")


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
