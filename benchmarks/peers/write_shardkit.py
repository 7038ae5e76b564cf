"""shardkit: ``ingest``, as ``shardkit ingest`` does it, with every check."""

from conversion import run

from shardkit import ShardDataset, ingest


def convert(photos: str, out: str, workers: int) -> None:
    """Write a data set."""
    ingest(photos, out, workers=workers)


if __name__ == "__main__":
    run("shardkit", convert, lambda out: len(ShardDataset(out)))
