"""Real ranks: processes of torch.distributed that train together on data that does not divide evenly."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from shardkit import (
    ArrayField,
    Contract,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
    ingest,
)

CONTRACT = Contract({"x": ArrayField("float32", (4,)), "label": LabelField(num_classes=2)})
COUNT = 101
BATCH = 8


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranks") / "out"
    records = [{"id": f"r{row}", "x": [row, 1, 2, 3], "label": row % 2} for row in range(COUNT)]
    ingest(records, out, CONTRACT, workers=0, records_per_shard=17)
    return out


def make_loader(kind: str, path: Path, tail: Any) -> Any:
    """Return loader and what `set_epoch` is called on; rank and world size come from torch.distributed."""
    if kind == "threads":
        loader = ShardLoader(path, BATCH, threads=1, tail=tail)
        return loader, loader
    if kind == "iterable":
        data = ShardIterableDataset(path, BATCH, tail=tail)
        return DataLoader(
            data, batch_size=None, num_workers=2, multiprocessing_context="fork", persistent_workers=True
        ), data
    dataset = ShardDataset(path)
    sampler = ShardSampler(dataset, BATCH, tail=tail)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate), sampler


def train(rank: int, world_size: int, path: Path, meeting: Path, kind: str) -> None:
    """Train two epochs in step with the other ranks, then evaluate; write down what was delivered."""
    torch.distributed.init_process_group("gloo", f"file://{meeting}/store", rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader, epochs = make_loader(kind, path, "pad")
    delivered: list[list[str]] = []
    for epoch in range(2):
        epochs.set_epoch(epoch)
        ids: list[str] = []
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["label"], reduction="none")
            (loss * ~batch["is_pad"]).mean().backward()
            optimizer.step()
            ids += [each for each, pad in zip(batch["id"], batch["is_pad"].tolist(), strict=True) if not pad]
        delivered.append(ids)
    loader, _ = make_loader(kind, path, "exact")
    delivered.append([record_id for batch in loader for record_id in batch["id"]])
    (meeting / f"{rank}.json").write_text(json.dumps(delivered))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "world_size"),
    [("iterable", 2), ("sampler", 3), pytest.param("threads", 4, marks=pytest.mark.slow)],
)
def test_ranks_train_together_on_uneven_data_to_the_end(
    path: Path, tmp_path: Path, kind: str, world_size: int
) -> None:
    torch.multiprocessing.spawn(train, (world_size, path, tmp_path, kind), nprocs=world_size, join=True)
    delivered = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world_size)]
    epochs = [sorted(record_id for rank in delivered for record_id in rank[epoch]) for epoch in range(3)]
    assert epochs == [sorted(f"r{row}" for row in range(COUNT))] * 3
    assert delivered[0][0] != delivered[0][1]
