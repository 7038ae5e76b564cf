"""Writes small data sets for the tests of reading, and transforms that workers can import."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from shardkit.contract import Contract
from shardkit.reading import ShardDataset, ShardIterableDataset
from shardkit.store import (
    columns_of,
    commit,
    create_shard,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)

START_METHODS = ["fork", "spawn", "forkserver"]


def write_records(
    root: Path,
    backend: str,
    contract: Contract,
    records: Sequence[dict[str, Any]],
    rows_per_shard: int = 1000,
) -> Path:
    columns = columns_of(contract)
    entries = []
    for number, first in enumerate(range(0, len(records), rows_per_shard)):
        some = records[first : first + rows_per_shard]
        writer = create_shard(root, number, backend, columns)
        for record in some:
            payloads = [checked.payload for checked in contract.check(record).values]
            writer.append(record["id"], payloads, record_checksums(record["id"], payloads), bytes(16))
        writer.finish()
        entries.append(seal_shard(root, number, backend, columns, len(some)))
    index = write_index(root, 1, contract, entries, []).entry
    commit(root, make_manifest(1, contract, entries, index, {"name": "test"}))
    return root


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def require_own_epoch(data: ShardIterableDataset) -> None:
    """As a rank: fail unless a new epoch of this process reaches the persistent worker that it has already."""
    loader = DataLoader(data, None, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    first = [batch["id"] for batch in loader]
    data.set_epoch(1)
    if data.epoch != 1 or [batch["id"] for batch in loader] == first:
        raise SystemExit(1)


def read_all(data: ShardDataset) -> None:
    for row in range(len(data)):
        data[row]


def drop_label_one(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["label"] == 1 else sample


def crop(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": sample["image"][:, :8, :8]}


def fail_on_label_two(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["label"] == 2:
        raise ZeroDivisionError("nothing to divide")
    return sample


def name_process(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"process": os.getpid()}


def as_float(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": sample["image"].to(torch.float32)}
