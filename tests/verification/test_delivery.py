"""Proof of delivery: planted faults are found, and the real loaders pass in every setting."""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from shardkit import (
    Contract,
    LabelField,
    ScalarField,
    ShardDataset,
    ShardIterableDataset,
    ShardkitError,
    ShardLoader,
    collate,
    ingest,
    verify_delivery,
    verify_loader,
)

CONTRACT = Contract({"label": LabelField(num_classes=5), "age": ScalarField("float32", finite=False)})
COUNT = 101


@pytest.fixture(scope="module", params=["memmap", "lmdb"])
def path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    out = tmp_path_factory.mktemp("delivery") / "out"
    records = [
        {"id": f"r{row}", "label": row % 5, "age": float("nan") if row == 3 else row / 2}
        for row in range(COUNT)
    ]
    ingest(records, out, CONTRACT, workers=0, records_per_shard=40, backend=request.param)
    return out


@pytest.fixture
def data(path: Path) -> ShardDataset:
    return ShardDataset(path)


def test_plain_torch_passes(data: ShardDataset) -> None:
    loader = DataLoader(data, 8, shuffle=True, collate_fn=collate)
    report = verify_loader(loader, data)
    assert report.ok, report.describe()
    assert (report.expected, report.delivered, report.batches) == (COUNT, COUNT, 13)
    assert sorted(report.order.tolist()) == list(range(COUNT))


def test_torchs_own_samplers_keep_working(data: ShardDataset) -> None:
    ranks = [
        DataLoader(data, 8, sampler=DistributedSampler(data, 3, rank, seed=1), collate_fn=collate)
        for rank in range(3)
    ]
    report = verify_loader(itertools.chain(*ranks), data)
    assert (report.missing, report.duplicate) == (0, 1)  # 102 samples for 101 ids: it pads without a mark
    drawn = DataLoader(
        data,
        8,
        sampler=WeightedRandomSampler([1.0] * COUNT, COUNT, generator=torch.manual_seed(0)),
        collate_fn=collate,
    )
    report = verify_loader(drawn, data)
    assert report.missing == report.duplicate > 0


def test_a_loader_that_drops_the_last_batch_is_found(data: ShardDataset) -> None:
    report = verify_loader(DataLoader(data, 8, drop_last=True, collate_fn=collate), data)
    assert not report.ok
    assert (report.missing, report.missing_ids) == (5, ("r96", "r97", "r98", "r99", "r100"))
    assert "5 missing (r96, r97, r98, …)" in report.describe()


class EachWorkerDeliversAll(IterableDataset[dict[str, Any]]):
    def __init__(self, data: ShardDataset) -> None:
        self._data = data

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert get_worker_info() is not None
        return (self._data[row] for row in range(len(self._data)))


def test_a_loader_that_repeats_per_worker_is_found(data: ShardDataset) -> None:
    loader = DataLoader(
        EachWorkerDeliversAll(data), 8, num_workers=2, collate_fn=collate, multiprocessing_context="fork"
    )
    report = verify_loader(loader, data)
    assert not report.ok
    assert (report.missing, report.duplicate, report.delivered) == (0, COUNT, 2 * COUNT)


def test_a_loader_that_swaps_labels_is_found(data: ShardDataset) -> None:
    def swapped() -> Iterator[dict[str, Any]]:
        for batch in DataLoader(data, 8, collate_fn=collate):
            batch["label"] = batch["label"].roll(1)
            yield batch

    report = verify_loader(swapped(), data)
    assert not report.ok
    assert report.wrong > COUNT / 2
    assert report.wrong_values[0] == "r0: label: delivered 2, stored 0"


def test_ids_that_nobody_stored_are_found(data: ShardDataset) -> None:
    report = verify_loader([{"id": ["r0", "stranger", 7]}], data, rows=[0])
    assert (report.ok, report.unknown, report.unknown_ids) == (False, 2, ("stranger", "7"))


def test_padding_does_not_count_and_single_ids_do(path: Path, data: ShardDataset) -> None:
    ranks = [ShardIterableDataset(path, 8, rank=rank, world_size=3) for rank in range(3)]
    report = verify_loader(itertools.chain(*ranks), data)
    assert report.ok, report.describe()
    assert report.padded == 1
    assert verify_loader(({"id": record_id} for record_id in data.ids), data).ok


def test_any_batch_will_do_that_can_be_asked_for_its_ids(data: ShardDataset) -> None:
    pairs = [(["r0", "r1"], None), (["r2"], None)]
    assert verify_loader(pairs, data, rows=[0, 1, 2], get_ids=lambda batch: batch[0]).ok
    with pytest.raises(ShardkitError, match=r"batch 0 is a tuple without 'id'.*get_ids"):
        verify_loader(pairs, data)


def test_the_matrix_passes(path: Path) -> None:
    proof = verify_delivery(path, ranks=(1, 3), workers=(0, 2), epochs=1, batch_sizes=(7,))
    assert proof.ok, [result.setting.describe() for result in proof.results if not result.ok]
    assert len(proof.results) == 3 * 2 * 2 * 3 * 2
    assert {result.setting.is_resumed for result in proof.results} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 63, 65, 300])
def test_the_matrix_passes_at_every_size(tmp_path: Path, count: int) -> None:
    records = [{"id": f"r{row}", "label": row % 5, "age": 0.0} for row in range(count)]
    ingest(records, tmp_path / "out", CONTRACT, workers=0, records_per_shard=50)
    proof = verify_delivery(tmp_path / "out", ranks=(1, 2, 7), workers=(0,), batch_sizes=(8, 64))
    assert proof.ok, [result.setting.describe() for result in proof.results if not result.ok]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has CPUs
@pytest.mark.parametrize("workers", [1, 4])
def test_the_matrix_passes_with_more_workers_than_batches(path: Path, workers: int) -> None:
    proof = verify_delivery(path, ranks=(2,), workers=(workers,), epochs=1, batch_sizes=(40,))
    assert proof.ok, [result.setting.describe() for result in proof.results if not result.ok]


def test_a_large_data_set_is_sampled(path: Path) -> None:
    proof = verify_delivery(path, ranks=(2,), workers=(0,), epochs=1, sample=30)
    assert (proof.records, proof.rows, proof.ok) == (COUNT, 30, True)
    assert {result.report.expected for result in proof.results} == {30}


def test_a_broken_loader_fails_the_matrix(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ShardLoader._take

    def lose_a_batch(self: ShardLoader, coming: Any) -> Any:
        batch = real(self, coming)
        return {"id": []} if "r50" in batch["id"] else batch

    monkeypatch.setattr(ShardLoader, "_take", lose_a_batch)
    proof = verify_delivery(path, ranks=(1,), workers=(0,), epochs=1, batch_sizes=(8,))
    failed = {result.setting.loader for result in proof.results if not result.ok}
    assert failed == {"threads"}


def test_the_command_prints_a_table_and_says_the_verdict_in_its_status(path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "shardkit",
        "verify",
        str(path),
        "--delivery",
        "--ranks",
        "2",
        "--workers",
        "0",
    ]
    run = subprocess.run([*command, "--epochs", "1"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "101 records in 18 settings: all delivered" in run.stdout
    table = json.loads(subprocess.run([*command, "--epochs", "1", "--json"], capture_output=True).stdout)
    assert (table["ok"], len(table["settings"])) == (True, 18)
    wrong = subprocess.run([*command, "--epochs", "x"], capture_output=True, text=True)
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    wrong = subprocess.run([*command[:-1], "a,b"], capture_output=True, text=True)
    assert (wrong.returncode, "1,2,3" in wrong.stderr) == (2, True)


def test_values_are_compared_with_the_shards_and_not_the_index(path: Path, data: ShardDataset) -> None:
    assert data.stored_value(7, "label") == 2
    assert np.isnan(data.stored_value(3, "age"))
