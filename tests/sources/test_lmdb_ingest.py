"""LMDB files of others from raw input to a data set."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lmdb_parsers import split
from test_lmdb_source import webp, write

from shardkit import ShardDataset, ingest
from shardkit.contract import Contract, ImageField, LabelField
from shardkit.sources.lmdb.source import LmdbSource


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_entries_that_a_function_takes_apart_become_a_data_set(tmp_path: Path, workers: int) -> None:
    path = write(tmp_path / "x.lmdb", {b"%03d" % n: bytes([n % 3]) + webp(n) for n in range(20)})
    contract = Contract({"image": ImageField(), "label": LabelField(num_classes=3)})
    source = LmdbSource(path, parse=split)
    report = ingest(source, tmp_path / "out", contract, workers=workers, records_per_shard=6)
    assert (report.stored, report.rejected) == (20, 0)
    data = ShardDataset(tmp_path / "out")
    assert list(data.ids) == [f"{number:03d}" for number in range(20)]
    assert (data[7]["label"], int(np.asarray(data[7]["image"]).min())) == (1, 7)


@pytest.mark.parametrize("name", ["photos.lmdb", "env/data.mdb"])
def test_the_command_line_takes_keys_and_images(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    write(path, {b"a": webp(1), b"b": webp(2)})
    raw = path.parent if path.name == "data.mdb" else path
    command = [sys.executable, "-m", "shardkit", "ingest", str(raw), str(tmp_path / "out"), "--workers", "2"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert list(ShardDataset(tmp_path / "out").ids) == ["a", "b"]
