"""``shardkit info``."""

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardkit.cli.output import print_json, show_bytes
from shardkit.contract import Contract, Field, LabelField
from shardkit.errors import CorruptShardError
from shardkit.store import Store

_CLASSES_SHOWN = 20


def info_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Say what a data set holds: records, fields, shards, labels. Checks sizes and headers only."""
    with Store.open(out) as store:
        facts, contract = _facts(store), store.contract
    if json:
        print_json(facts)
    else:
        _print(out, facts, contract)
    return 0


def _facts(store: Store) -> dict[str, Any]:
    manifest = store.manifest
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
        "labels": {
            name: _label_counts(store, name, spec)
            for name, spec in store.contract.fields.items()
            if isinstance(spec, LabelField)
        },
    }


def _label_counts(store: Store, name: str, spec: LabelField) -> dict[str, int]:
    numbers, counts = np.unique(store.column(name), return_counts=True)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < spec.count:
        raise CorruptShardError(
            f"{store.path}: the index of {name!r} holds a label outside [0, {spec.count}); it was altered"
        )
    names = spec.classes or range(spec.count)
    return {
        str(names[number]): count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }


def _print(out: Path, facts: dict[str, Any], contract: Contract) -> None:
    backends = ", ".join(f"{count} {name}" for name, count in facts["backends"].items()) or "none"
    print(f"{out}: {facts['records']:,} records in {facts['shards']} shards ({backends})")
    print(f"  data set   {facts['dataset_id']}, generation {facts['generation']}")
    print(f"  size       {show_bytes(facts['bytes'])}, index {show_bytes(facts['index_bytes'])}")
    print(f"  rejected   {facts['rejected']:,} when it was ingested")
    for name, table in facts["contract"]["fields"].items():
        settings = ", ".join(
            f"{key} {value}" for key, value in table.items() if key not in ("type", "classes")
        )
        print(f"  field      {name}: {table['type']}" + (f" ({settings})" if settings else ""))
    for name, counts in facts["labels"].items():
        for label, count in list(counts.items())[:_CLASSES_SHOWN]:
            print(f"  {name:<10} {label}: {count:,}")
        if len(counts) > _CLASSES_SHOWN:
            print(f"  {name:<10} and {len(counts) - _CLASSES_SHOWN:,} more")


def _settings(spec: Field) -> list[str]:
    """Return what the contract says of a field beyond the defaults; classes are listed with the labels."""
    chosen = {
        key.name: getattr(spec, key.name) for key in fields(spec) if getattr(spec, key.name) != key.default
    }
    return [f"{key} = {value}" for key, value in chosen.items() if key != "classes"]
