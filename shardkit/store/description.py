"""What a data set holds, in one JSON-ready mapping, without reading a record."""

import os
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np

from shardkit.contract import Field, LabelField
from shardkit.errors import CorruptShardError
from shardkit.store.store import Store


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Say what a data set holds: records, shards, sizes in bytes, the contract, and how many records of each class.

    Args:
        path: The folder of the data set.

    Returns:
        ``"records"``, ``"rejected"`` (or deleted since), ``"shards"``, ``"backends"``, ``"bytes"``,
        ``"index_bytes"``, ``"contract"``, ``"settings"`` (field -> what its contract says beyond the defaults, classes
        aside), ``"labels"`` (field -> class -> count), ``"dataset_id"`` and ``"generation"``.

    Raises:
        DatasetNotFoundError: There is no data set.
        FormatError: It cannot be read, or its index holds a label that is no class.
    """
    with Store(path) as store:
        manifest = store.manifest
        specs = store.contract.fields
        return {
            "dataset_id": manifest.dataset_id,
            "generation": manifest.generation,
            "records": len(store),
            "rejected": manifest.index.rejected,
            "shards": len(manifest.shards),
            "backends": dict(Counter(shard.backend for shard in manifest.shards)),
            "bytes": sum(shard.bytes for shard in manifest.shards),
            "index_bytes": sum(file.bytes for file in manifest.index.files),
            "contract": store.contract.to_dict(),
            "settings": {name: _settings(spec) for name, spec in specs.items()},
            "labels": {
                name: _label_counts(store, name, spec)
                for name, spec in specs.items()
                if isinstance(spec, LabelField)
            },
        }


def _settings(spec: Field) -> dict[str, Any]:
    table = spec.to_dict()
    chosen = [key.name for key in fields(spec) if getattr(spec, key.name) != key.default]
    return {name: table[name] for name in chosen if name in table and name != "classes"}


def _label_counts(store: Store, name: str, spec: LabelField) -> dict[str, int]:
    labels = store.column(name)
    if labels.size and not 0 <= labels.min() <= labels.max() < spec.count:
        raise CorruptShardError(
            f"{store.path}: the index of {name!r} holds a label outside [0, {spec.count}); it was altered"
        )
    if spec.classes is not None:  # pinned classes are all listed: one without a record is worth knowing
        counts = np.bincount(labels, minlength=spec.count)
        return {each: int(count) for each, count in zip(spec.classes, counts, strict=True)}
    numbers, counts = np.unique(labels, return_counts=True)
    return {str(number): int(count) for number, count in zip(numbers, counts, strict=True)}
