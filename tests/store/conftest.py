"""A small data set on each backend."""

from pathlib import Path

import pytest
from small_datasets import ROWS, write_dataset

from shardkit.store import BACKENDS, Store


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dataset(tmp_path: Path, backend: str) -> Path:
    return write_dataset(tmp_path / "data", backend, ROWS)


@pytest.fixture
def store(dataset: Path) -> Store:
    return Store(dataset)
