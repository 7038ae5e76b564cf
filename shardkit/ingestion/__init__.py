"""From a source to a committed data set: plan, shard tasks, commit, report."""

from shardkit.ingestion.executor import run_ordered, usable_cpus
from shardkit.ingestion.infer import Inference, infer
from shardkit.ingestion.report import IngestReport
from shardkit.ingestion.run import ingest

__all__ = ["Inference", "IngestReport", "infer", "ingest", "run_ordered", "usable_cpus"]
