"""Times each stage of ingestion by itself, in one process: the calls that an ingest makes, a clock between them."""

import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import simplejpeg
from measure import table
from photos import PhotoFolder

from shardkit.contract import Rejection
from shardkit.ingestion.plan import shard_size
from shardkit.sources import open_source
from shardkit.store import (
    columns_of,
    commit,
    create_shard,
    make_manifest,
    record_checksums,
    seal_shard,
    write_index,
)

DECODE_ALONE = "(simplejpeg alone, once more)"
"""The part of judging that the reference does too; not a stage of its own."""


class Laps:
    """A clock that books the time since the last call under a name.

    Attributes:
        seconds: Stage -> seconds, added up.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, stage: str) -> None:
        """Book the time since the last call, or since the clock was made, under `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = time.perf_counter()


def median_stages(photos: PhotoFolder, out: Path, backend: str, repetitions: int) -> dict[str, float]:
    """Return microseconds a record of each stage, medians over repetitions. `out` is removed again."""
    runs = []
    for _ in range(repetitions):
        runs.append(_run(photos, out, backend))
        shutil.rmtree(out)
    return {
        stage: statistics.median(run[stage] for run in runs) / len(photos.files) * 1e6 for stage in runs[0]
    }


def _run(photos: PhotoFolder, out: Path, backend: str) -> dict[str, float]:
    """Ingest the photos into the new folder `out` and return the seconds of each stage."""
    out.mkdir()
    source = open_source(photos.path)
    contract = source.propose()
    columns = columns_of(contract)
    shards = []
    laps = Laps()
    parts = list(source.parts(shard_size(source.count(), contract)))
    laps.end("list the folder, twice")
    for number, part in enumerate(parts):
        writer = create_shard(out, number, backend, columns)
        laps.end("append to shard")
        for raw in source.read(part, contract):
            laps.end("read files")
            verdict = raw if isinstance(raw, Rejection) else contract.judge(raw.id, raw.source, raw.values)
            laps.end("judge: decode whole and check")
            if isinstance(raw, Rejection) or isinstance(verdict, Rejection):
                raise SystemExit(f"{verdict.id}: a photo was rejected; the figures would mean nothing")
            simplejpeg.decode_jpeg(raw.values["image"].data, "RGB", strict=True)
            laps.end(DECODE_ALONE)
            payloads = [checked.payload for checked in verdict.values]
            checksums = record_checksums(verdict.id, payloads)
            laps.end("checksums")
            writer.append(verdict.id, payloads, checksums, bytes(16))
            laps.end("append to shard")
        writer.finish()
        laps.end("finish shard: flush, fsync")
        shards.append(seal_shard(out, number, backend, columns, len(part.ids)))
        laps.end("digest of shard files")
    index = write_index(out, 1, contract, shards).entry
    laps.end("write index")
    commit(out, make_manifest(1, contract, shards, index))
    laps.end("commit manifest")
    return laps.seconds


def stage_table(stages: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of stages down and backends across, with the sum of all that are stages."""
    backends = list(stages)
    rows = [
        [stage, *(f"{stages[backend][stage]:,.1f}" for backend in backends), ""]
        for stage in stages[backends[0]]
    ]
    sums = [
        sum(value for stage, value in stages[backend].items() if stage != DECODE_ALONE)
        for backend in backends
    ]
    total = ["all stages", *(f"{each:,.1f}" for each in sums), ""]
    return table([["", *backends, ""], *rows, total])
