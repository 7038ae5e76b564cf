"""From a source to a committed data set: plan, shard tasks, commit, report."""

from shardkit.ingestion.edit import EditReport, compact, delete, prune
from shardkit.ingestion.executor import run_ordered, usable_cpus
from shardkit.ingestion.infer import infer
from shardkit.ingestion.inference import Inference
from shardkit.ingestion.ingest import ingest
from shardkit.ingestion.plan import find_repeats
from shardkit.ingestion.report import IngestReport
from shardkit.ingestion.seen import SeenIds

__all__ = [
    "EditReport",
    "Inference",
    "IngestReport",
    "SeenIds",
    "compact",
    "delete",
    "find_repeats",
    "infer",
    "ingest",
    "prune",
    "run_ordered",
    "usable_cpus",
]
