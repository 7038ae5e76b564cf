"""From a source to a committed data set: plan, shard tasks, commit, report."""

from shardkit.ingestion.executor import run_ordered, usable_cpus
from shardkit.ingestion.infer import Inference, infer
from shardkit.ingestion.plan import mark_repeats
from shardkit.ingestion.report import IngestReport
from shardkit.ingestion.run import ingest
from shardkit.ingestion.seen import SeenIds

__all__ = [
    "Inference",
    "IngestReport",
    "SeenIds",
    "infer",
    "ingest",
    "mark_repeats",
    "run_ordered",
    "usable_cpus",
]
