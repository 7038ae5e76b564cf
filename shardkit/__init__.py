"""shardkit: raw training files in, every record checked; fast, accounted-for PyTorch samples out.

    shardkit ingest raw/ out/      every record is held against a contract, then written to shards
    ShardDataset("out/")           training reads them
    shardkit verify out/           proof of what is stored

Public names are imported on first use, so that ``import shardkit`` costs nothing and the command line needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardkit import transforms
    from shardkit.contract import (
        ArrayField,
        BytesField,
        Contract,
        ImageField,
        JsonField,
        LabelField,
        RecordRules,
        ScalarField,
        TextField,
        TokensField,
    )
    from shardkit.errors import ShardkitError
    from shardkit.ingestion import EditReport, Inference, IngestReport, compact, delete, infer, ingest, prune
    from shardkit.measurement.bench import bench
    from shardkit.measurement.bench_plot import BenchPlot
    from shardkit.measurement.bench_report import BenchReport, BenchRow
    from shardkit.measurement.doctor import doctor
    from shardkit.measurement.doctor_diagnosis import Diagnosis
    from shardkit.reading import (
        DevicePrefetcher,
        ShardDataset,
        ShardIterableDataset,
        ShardLoader,
        ShardSampler,
        collate,
    )
    from shardkit.store import Store, describe
    from shardkit.transforms import sample_rng
    from shardkit.verification import VerifyReport, verify
    from shardkit.verification.delivery import DeliveryReport, verify_loader
    from shardkit.verification.matrix import DeliveryProof, verify_delivery

__version__ = "0.1.0"

__all__ = [
    "ArrayField",
    "BenchPlot",
    "BenchReport",
    "BenchRow",
    "BytesField",
    "Contract",
    "DeliveryProof",
    "DeliveryReport",
    "DevicePrefetcher",
    "Diagnosis",
    "EditReport",
    "ImageField",
    "Inference",
    "IngestReport",
    "JsonField",
    "LabelField",
    "RecordRules",
    "ScalarField",
    "ShardDataset",
    "ShardIterableDataset",
    "ShardLoader",
    "ShardSampler",
    "ShardkitError",
    "Store",
    "TextField",
    "TokensField",
    "VerifyReport",
    "bench",
    "collate",
    "compact",
    "delete",
    "describe",
    "doctor",
    "infer",
    "ingest",
    "prune",
    "sample_rng",
    "transforms",
    "verify",
    "verify_delivery",
    "verify_loader",
]

_HOMES = {
    "ArrayField": "shardkit.contract",
    "BytesField": "shardkit.contract",
    "Contract": "shardkit.contract",
    "ImageField": "shardkit.contract",
    "JsonField": "shardkit.contract",
    "LabelField": "shardkit.contract",
    "RecordRules": "shardkit.contract",
    "ScalarField": "shardkit.contract",
    "TextField": "shardkit.contract",
    "TokensField": "shardkit.contract",
    "ShardkitError": "shardkit.errors",
    "IngestReport": "shardkit.ingestion",
    "ingest": "shardkit.ingestion",
    "EditReport": "shardkit.ingestion",
    "compact": "shardkit.ingestion",
    "delete": "shardkit.ingestion",
    "prune": "shardkit.ingestion",
    "Inference": "shardkit.ingestion",
    "infer": "shardkit.ingestion",
    "Store": "shardkit.store",
    "describe": "shardkit.store",
    "BenchPlot": "shardkit.measurement.bench_plot",
    "BenchReport": "shardkit.measurement.bench_report",
    "BenchRow": "shardkit.measurement.bench_report",
    "bench": "shardkit.measurement.bench",
    "Diagnosis": "shardkit.measurement.doctor_diagnosis",
    "doctor": "shardkit.measurement.doctor",
    "DevicePrefetcher": "shardkit.reading",
    "ShardDataset": "shardkit.reading",
    "ShardIterableDataset": "shardkit.reading",
    "ShardLoader": "shardkit.reading",
    "ShardSampler": "shardkit.reading",
    "collate": "shardkit.reading",
    "sample_rng": "shardkit.transforms",
    "VerifyReport": "shardkit.verification",
    "verify": "shardkit.verification",
    "DeliveryReport": "shardkit.verification.delivery",
    "verify_loader": "shardkit.verification.delivery",
    "DeliveryProof": "shardkit.verification.matrix",
    "verify_delivery": "shardkit.verification.matrix",
}


def __getattr__(name: str) -> Any:  # Any: whatever the public name stands for
    """Import a public name when it is first asked for."""
    if name == "transforms":
        return import_module("shardkit.transforms")
    if name not in _HOMES:
        raise AttributeError(f"module 'shardkit' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
