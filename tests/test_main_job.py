"""From records to a batch: nothing is lost, and what is left out is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from shardkit import Contract, ImageField, ShardDataset, collate, ingest
from shardkit.errors import IngestError


def records() -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    shapes = {"a": (3, 16, 16), "b": (3, 16, 16), "c": (3, 16, 16), "gray": (1, 16, 16)}
    return [{"id": name, "image": draw.integers(0, 256, shape, np.uint8)} for name, shape in shapes.items()]


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
def test_gray_among_colour_is_named_when_rejected_and_delivered_when_converted(
    tmp_path: Path, backend: str
) -> None:
    with pytest.raises(IngestError, match=r"'gray' \(grayscale"):
        ingest(records(), tmp_path / "strict", Contract({"image": ImageField()}), backend=backend, workers=0)
    lines = (tmp_path / "strict" / "reports" / "rejected.jsonl").read_text().splitlines()
    assert [(line["id"], line["reason"]) for line in map(json.loads, lines)] == [("gray", "grayscale")]

    contract = Contract({"image": ImageField(grayscale="convert")})
    ingest(records(), tmp_path / "out", contract, backend=backend, workers=0)
    (batch,) = DataLoader(ShardDataset(tmp_path / "out"), 4, collate_fn=collate)
    assert batch["id"] == ["a", "b", "c", "gray"]
    assert batch["image"].shape == (4, 3, 16, 16)
    for image, record in zip(batch["image"], records(), strict=True):
        np.testing.assert_array_equal(image, np.broadcast_to(record["image"], (3, 16, 16)))
