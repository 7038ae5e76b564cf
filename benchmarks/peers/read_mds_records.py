"""MosaicML Streaming: single records of a ``LocalDataset``, one a call."""

from collections.abc import Sequence

from read_mds import write
from reading import Job, Loop, serve_reads
from streaming import LocalDataset


def open_loop(job: Job) -> Loop:
    """Write shards, and read single records of them."""
    write(job, "bytes")
    dataset = LocalDataset(job.out)

    def loop(rows: Sequence[int]) -> tuple[bytes, int]:
        for row in rows:
            record = dataset[row]
        return record["image"], record["label"]

    return loop


if __name__ == "__main__":
    serve_reads(["mosaicml-streaming"], open_loop)
