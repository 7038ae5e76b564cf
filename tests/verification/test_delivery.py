"""What a loader delivers is held against the data set, whoever wrote the loader: planted faults are found."""

import itertools
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
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
    ShardDataset,
    ShardIterableDataset,
    ShardkitError,
    collate,
    verify_loader,
)

COUNT = 101


def renamed(batch: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**batch, **values}


def test_plain_torch_passes(data: ShardDataset) -> None:
    loader = DataLoader(data, 8, shuffle=True, collate_fn=collate)
    report = verify_loader(loader, data)
    assert report.ok, report.describe()
    assert (report.expected, report.delivered, report.batches) == (COUNT, COUNT, 13)
    assert sorted(report.order.tolist()) == list(range(COUNT))
    assert (report.describe(), report.not_compared) == ("all 101 ids delivered once", {})
    assert repr(report) == "<DeliveryReport: all 101 ids delivered once>"


def test_torchs_own_collate_passes(data: ShardDataset) -> None:
    report = verify_loader(DataLoader(data, 8, num_workers=2, multiprocessing_context="fork"), data)
    assert (report.ok, report.delivered, report.not_compared) == (True, COUNT, {})


def test_torchs_own_samplers_keep_working(data: ShardDataset) -> None:
    ranks = [
        DataLoader(data, 8, sampler=DistributedSampler(data, 3, rank, seed=1), collate_fn=collate)
        for rank in range(3)
    ]
    report = verify_loader(itertools.chain(*ranks), data)
    assert (report.missing, report.duplicate) == (0, 1)  # 102 samples for 101 ids: it pads without a mark


def test_draws_with_replacement_fail_unless_ids_may_repeat(data: ShardDataset) -> None:
    sampler = WeightedRandomSampler([1.0] * COUNT, 150, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(data, 8, sampler=sampler, collate_fn=collate)
    report = verify_loader(loader, data)
    assert (report.ok, report.delivered) == (False, 150)
    assert report.missing > 0
    assert report.duplicate == 150 - COUNT + report.missing
    report = verify_loader(loader, data, may_repeat=True)
    assert report.ok
    assert report.missing > 0
    assert f"150 samples of 101 ids, {report.missing} of which were not drawn" in report.describe()


def test_values_and_unknown_ids_count_although_ids_may_repeat(data: ShardDataset) -> None:
    batches = [{"id": ["r0", "r0", "stranger"], "label": [0, 1, 0]}]
    report = verify_loader(batches, data, may_repeat=True)
    assert (report.ok, report.unknown, report.wrong, report.duplicate) == (False, 1, 1, 1)


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
    assert "101 delivered again (r0, r1, r2, …)" in report.describe()


@pytest.mark.parametrize("backend", ["path", "lmdb_path"])
def test_a_loader_that_swaps_labels_is_found(backend: str, request: pytest.FixtureRequest) -> None:
    data = ShardDataset(request.getfixturevalue(backend))
    loader = DataLoader(data, 8, collate_fn=collate)
    report = verify_loader((renamed(each, label=each["label"].roll(1)) for each in loader), data)
    assert not report.ok
    assert report.wrong > COUNT / 2
    assert report.wrong_values[0] == "r0: label: delivered 2, stored 0"
    assert "wrong values (r0: label: delivered 2, stored 0, r1: label" in report.describe()


def test_a_single_wrong_value_is_found_between_nans(data: ShardDataset) -> None:
    batch = {"id": ["r2", "r3", "r4"], "age": torch.tensor([1.0, float("nan"), float("nan")])}
    report = verify_loader([batch], data, rows=[2, 3, 4])
    assert report.wrong_values == ("r4: age: delivered nan, stored 2.0",)


def test_ids_that_nobody_stored_are_found(data: ShardDataset) -> None:
    report = verify_loader([{"id": ["r0", "stranger", 7, None, b"r1"]}], data, rows=[0])
    assert (report.ok, report.unknown) == (False, 4)
    assert report.unknown_ids == ("stranger", "7", "None", "b'r1'")
    assert verify_loader([{"id": b"r1"}], data, rows=[0]).unknown_ids == ("b'r1'",)


def test_ids_that_are_not_expected_are_as_unknown(data: ShardDataset) -> None:
    report = verify_loader([{"id": ["r0", "r1"]}], data, rows=[0, 2])
    assert (report.missing_ids, report.unknown_ids, report.expected) == (("r2",), ("r1",), 2)


def test_padding_does_not_count_and_single_ids_do(path: Path, data: ShardDataset) -> None:
    ranks = [ShardIterableDataset(path, 8, rank=rank, world_size=3) for rank in range(3)]
    report = verify_loader(itertools.chain(*ranks), data)
    assert report.ok, report.describe()
    assert report.padded == 1
    singles = ({"id": record_id, "label": row % 5, "is_pad": False} for row, record_id in enumerate(data.ids))
    assert verify_loader(singles, data).ok


@pytest.mark.parametrize(
    "ids",
    [
        ["r0", "r1"],
        ("r0", "r1"),
        np.array(["r0", "r1"]),
        np.array(["r0", "r1"], dtype=object),
        {"r0": 0, "r1": 1}.keys(),
    ],
)
def test_ids_may_come_in_any_sequence(data: ShardDataset, ids: Any) -> None:
    report = verify_loader([{"id": ids, "label": [0, 1]}], data, rows=[0, 1])
    assert report.ok, report.describe()


def test_numbers_in_place_of_ids_are_unknown(data: ShardDataset) -> None:
    report = verify_loader([{"id": torch.tensor([0, 1])}], data)
    assert (report.unknown_ids, report.missing) == (("0", "1"), COUNT)


@pytest.mark.parametrize("ids", [7, None, np.array(7), 1.5])
def test_what_is_no_ids_at_all_is_refused(data: ShardDataset, ids: Any) -> None:
    with pytest.raises(ShardkitError, match=r"batch 1: its ids are a .*expected is a str or a sequence"):
        verify_loader([{"id": "r0"}, {"id": ids}], data)


def test_any_batch_will_do_that_can_be_asked_for_its_ids(data: ShardDataset) -> None:
    pairs = [(["r0", "r1"], None), ("r2", None)]
    assert verify_loader(pairs, data, rows=[0, 1, 2], get_ids=lambda batch: batch[0]).ok
    with pytest.raises(ShardkitError, match=r"batch 0 is a tuple without 'id'.*get_ids"):
        verify_loader(pairs, data)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([2, 3], dtype=torch.int32),
        torch.tensor([2.0, 3.0], requires_grad=True),
        torch.tensor([[2], [3]]),
        torch.tensor([2, 3], dtype=torch.bfloat16),
        np.array([2, 3], dtype=np.uint8),
        [2, 3.0],
        (np.int64(2), torch.tensor(3)),
        [torch.tensor([2]), torch.tensor([3])],
    ],
)
def test_labels_count_as_equal_whatever_type_holds_them(data: ShardDataset, labels: Any) -> None:
    report = verify_loader([{"id": ["r2", "r8"], "label": labels}], data, rows=[2, 8])
    assert report.ok, report.describe()
    assert report.not_compared == {"age": "is not in the batches"}


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (torch.nn.functional.one_hot(torch.tensor([2, 3]), 5), "has the shape [2, 5]"),
        (np.zeros((2, 5)), "has the shape [2, 5]"),
        (["two", "three"], "holds values of type str"),
        ([[0, 1], [1, 0]], "holds values of type list"),
        ([2, None], "holds values of type NoneType"),
        (None, "is of type NoneType"),
        ("two", "is of type str"),
        ({"a": 1}, "is of type dict"),
    ],
)
def test_labels_that_are_not_one_number_a_sample_are_said_not_to_be_compared(
    data: ShardDataset, labels: Any, reason: str
) -> None:
    report = verify_loader([{"id": ["r2", "r8"], "label": labels}], data, rows=[2, 8])
    assert (report.ok, report.not_compared["label"]) == (True, reason)
    assert f"all 2 ids delivered once; label not compared: {reason}" in report.describe()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("label", torch.tensor([0])),
        ("label", [0, 1, 2]),
        ("label", 0),
        ("label", np.zeros((3, 5))),
        ("is_pad", [False]),
        ("is_pad", torch.zeros(3, dtype=torch.bool)),
        ("is_pad", np.zeros(0, dtype=np.bool_)),
        ("is_pad", True),
    ],
)
def test_marks_and_values_must_be_one_a_sample(data: ShardDataset, column: str, values: Any) -> None:
    with pytest.raises(ShardkitError, match=rf"batch 1: '{column}' holds \d values for 2 ids"):
        verify_loader([{"id": "r5"}, {"id": ["r0", "r1"], column: values}], data)


@pytest.mark.parametrize("marks", [["no", "yes"], [None, True], torch.zeros(2, 2)])
def test_marks_must_be_bools(data: ShardDataset, marks: Any) -> None:
    with pytest.raises(ShardkitError, match=r"batch 0: 'is_pad' holds .*expected is one bool a sample"):
        verify_loader([{"id": ["r0", "r1"], "is_pad": marks}], data)


@pytest.mark.parametrize("marks", [[0, 1], (False, True), torch.tensor([0, 1]), np.array([False, True])])
def test_marks_may_come_in_any_sequence(data: ShardDataset, marks: Any) -> None:
    report = verify_loader([{"id": ["r0", "r1"], "is_pad": marks}], data)
    assert (report.delivered, report.padded) == (1, 1)


def test_a_loader_without_end_is_stopped_and_fails(data: ShardDataset) -> None:
    endless = itertools.cycle(DataLoader(data, 8, collate_fn=collate))
    report = verify_loader(endless, data)
    assert (report.ok, report.missing, report.is_endless) == (False, 0, True)
    assert 10_000 < report.delivered < 10_100
    assert "the loader seems to have no end" in report.describe()
    report = verify_loader(itertools.repeat({"id": []}), data)
    assert (report.is_endless, report.delivered) == (True, 0)
    report = verify_loader(itertools.islice(endless, 2000), data, may_repeat=True)
    assert report.ok


def test_the_order_takes_8_bytes_a_sample(make_set: Callable[[int], Path]) -> None:
    data = ShardDataset(make_set(1000))
    ids = list(data.ids)[500:]  # Python keeps one object of each small integer
    held = []

    def batches() -> Iterator[dict[str, Any]]:
        for _ in range(20):
            held.append(tracemalloc.get_traced_memory()[0])
            yield {"id": ids}

    tracemalloc.start()
    try:
        report = verify_loader(batches(), data, may_repeat=True)
    finally:
        tracemalloc.stop()
    assert report.order[-1] == 999
    assert (held[-1] - held[1]) / (18 * 500) < 16


def test_where_nothing_is_expected_nothing_may_come(path: Path, data: ShardDataset) -> None:
    report = verify_loader(ShardIterableDataset(path, rows=[]), data, rows=[])
    assert (report.ok, report.expected, report.batches, report.order.tolist()) == (True, 0, 0, [])
    assert verify_loader([{"id": ["r0"]}], data, rows=[]).unknown_ids == ("r0",)


@pytest.mark.parametrize("rows", [[101], [-1], [[0, 1]], [0.5], ["r0"], [True, False]])
def test_rows_that_the_data_set_has_not_are_refused(data: ShardDataset, rows: Any) -> None:
    with pytest.raises(ValueError, match="rows must"):
        verify_loader([], data, rows=rows)


def test_values_are_compared_with_the_shards_and_not_the_index(path: Path, tmp_path: Path) -> None:
    (column,) = (shutil.copytree(path, tmp_path / "out") / "index").rglob("*label*")
    altered = bytearray(column.read_bytes())
    altered[-8:] = (3).to_bytes(8, "little")
    column.write_bytes(altered)
    data = ShardDataset(tmp_path / "out")
    assert (data.labels[100], data.stored_value(100, "label")) == (3, 0)
    report = verify_loader([{"id": list(data.ids), "label": data.labels}], data)
    assert (report.wrong, report.wrong_values) == (1, ("r100: label: delivered 3, stored 0",))
    from_shards = [row % 5 for row in range(COUNT)]
    assert verify_loader([{"id": list(data.ids), "label": from_shards}], data).ok


def test_a_report_is_a_json_object(data: ShardDataset) -> None:
    report = verify_loader([{"id": ["r0", "r0"]}], data, rows=[0, 1])
    assert report.to_dict() == {
        "ok": False,
        "expected": 2,
        "delivered": 2,
        "padded": 0,
        "batches": 1,
        "missing": 1,
        "duplicate": 1,
        "unknown": 0,
        "wrong": 0,
        "missing_ids": ["r1"],
        "duplicate_ids": ["r0"],
        "unknown_ids": [],
        "wrong_values": [],
        "not_compared": {"label": "is not in the batches", "age": "is not in the batches"},
        "may_repeat": False,
        "is_endless": False,
    }
