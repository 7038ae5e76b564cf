"""Small data sets on each backend: ten records in three shards, one of each kind of field."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from read_datasets import png, write_records

from shardkit.contract import Contract
from shardkit.store import BACKENDS

SIDE = 16


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def contract() -> Contract:
    return Contract.from_dict(
        {
            "fields": {
                "image": {"type": "image"},
                "label": {"type": "label", "num_classes": 3},
                "weight": {"type": "scalar", "dtype": "float32"},
                "vector": {"type": "array", "dtype": "int16", "shape": [2, 3]},
                "caption": {"type": "text"},
                "extra": {"type": "json"},
            }
        }
    )


@pytest.fixture(scope="session")
def records() -> list[dict[str, Any]]:
    """Ten records: an image whose mean tells the record, label ``i % 3``, weight ``i / 2``, a vector of i."""
    return [
        {
            "id": f"folder/{number}.png",
            "image": png(np.full((SIDE, SIDE, 3), 20 * number, np.uint8)),
            "label": number % 3,
            "weight": number / 2,
            "vector": np.full((2, 3), number, np.int16),
            "caption": f"number {number}",
            "extra": {"n": number},
        }
        for number in range(10)
    ]


@pytest.fixture
def path(tmp_path: Path, backend: str, contract: Contract, records: list[dict[str, Any]]) -> Path:
    return write_records(tmp_path / "data", backend, contract, records, rows_per_shard=4)


@pytest.fixture
def memmap_path(tmp_path: Path, contract: Contract, records: list[dict[str, Any]]) -> Path:
    return write_records(tmp_path / "data", "memmap", contract, records, rows_per_shard=4)
