"""The proof of delivery: the real loaders pass in every setting, and broken ones fail in theirs."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    Contract,
    DeliveryProof,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    TextField,
    collate,
    ingest,
    verify_delivery,
)
from shardkit.errors import CorruptShardError, WorkerError
from shardkit.verification.proof import SettingResult
from shardkit.verification.setting import Setting, plan_settings

SMALL: dict[str, Any] = {"ranks": [1], "workers": [0], "epochs": 1, "batch_sizes": [8]}


def failed(proof: DeliveryProof) -> list[SettingResult]:
    return [result for result in proof.results if not result.ok]


def failures(proof: DeliveryProof) -> list[str]:
    return [f"{result.setting.describe()}: {result.describe()}" for result in failed(proof)]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], None]:
    """Put a class in the place of the real loader that it is derived from."""
    return lambda broken: monkeypatch.setattr(
        f"shardkit.verification.trial.{broken.__base__.__name__}", broken
    )


def test_the_real_loaders_pass(path: Path) -> None:
    proof = verify_delivery(path, ranks=[2], workers=[0, 2], epochs=2, batch_sizes=[7])
    assert failures(proof) == []
    assert (proof.ok, proof.records, proof.rows, proof.fields) == (True, 101, 101, ("label", "age"))
    assert len(proof.results) == 3 * (2 * 3 * (2 + 1) + 2 + 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has CPUs
def test_the_real_loaders_pass_with_more_workers_than_batches(lmdb_path: Path) -> None:
    proof = verify_delivery(lmdb_path, ranks=[1], workers=[4], epochs=1, batch_sizes=[40])
    assert failures(proof) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 63, 65, 300])
def test_the_real_loaders_pass_at_every_size(make_set: Callable[[int], Path], count: int) -> None:
    proof = verify_delivery(make_set(count), ranks=[1, 2, 7], workers=[0], epochs=1, batch_sizes=[8, 64])
    assert failures(proof) == []


def test_every_combination_is_tried_and_the_rest_once() -> None:
    plan = [
        setting
        for together in plan_settings(1000, [1, 2, 3], [0, 2], 2, [64], ["fork"])
        for setting in together
    ]
    assert len(set(plan)) == len(plan) == 183
    for course, count in (
        ("whole", 3 * 3 * 2 * 3 * 2 + 3),
        ("resumed", 3 * 3 * 2 * 3),
        ("persistent", 3 * 3 * 2),
    ):
        assert sum(setting.course == course for setting in plan) == count
    assert [setting.loader for setting in plan if setting.shuffle == "block"] == [
        "iterable",
        "sampler",
        "threads",
    ]
    assert {setting.workers for setting in plan if setting.course == "persistent"} == {2}


def test_other_start_methods_are_tried_where_processes_are_started() -> None:
    plan = [
        each
        for together in plan_settings(100, [1, 2], [0, 1], 2, [4], ["spawn", "fork"])
        for each in together
    ]
    assert len(set(plan)) == len(plan)
    assert {each.start_method for each in plan if not each.has_processes} == {"spawn"}
    others = [each for each in plan if each.start_method == "fork"]
    assert {(each.loader, each.ranks, each.course, each.epoch) for each in others} == {
        (loader, ranks, course, epoch)
        for loader, ranks in itertools.product(["iterable", "sampler"], [1, 2])
        for course, epoch in [("persistent", 0), ("persistent", 1), ("resumed", 0)]
    }


def resumed(proof: DeliveryProof) -> list[SettingResult]:
    return [result for result in proof.results if result.setting.course == "resumed"]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_resumed_setting_stops_between_two_batches(
    make_set: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stops: list[int] = []
    load = ShardSampler.load_state_dict

    def note(sampler: ShardSampler, state: dict[str, Any]) -> None:
        stops.append(state["position"])
        load(sampler, state)

    monkeypatch.setattr(ShardSampler, "load_state_dict", note)
    proof = verify_delivery(make_set(count), ranks=[1, 2], workers=[0], epochs=1, batch_sizes=[64, 100])
    assert failures(proof) == []
    assert {(result.setting.ranks, result.setting.batch_size) for result in resumed(proof)} == {
        1: set(),
        3: {(1, 1)},
        50: {(1, 25), (2, 12)},
    }[count]
    assert len(resumed(proof)) == len({result.setting for result in resumed(proof)})
    assert all(0 < stop < count for stop in stops)
    assert bool(stops) == (count > 1)


def test_where_a_rank_has_two_steps_the_batch_size_of_a_resumed_setting_is_that_asked_for(path: Path) -> None:
    proof = verify_delivery(path, ranks=[2], workers=[0], epochs=1, batch_sizes=[25, 26])
    assert {result.setting.batch_size for result in resumed(proof)} == {25}
    proof = verify_delivery(path, ranks=[2], workers=[0], epochs=1, batch_sizes=[24])
    assert {result.setting.batch_size for result in resumed(proof)} == {24}


def test_a_setting_is_named_in_a_few_words() -> None:
    assert Setting("sampler", 1, 1, "drop", 4, 0, "spawn").describe() == (
        "sampler, 1 rank, 1 worker (spawn), batch 4, drop, epoch 0"
    )
    assert Setting("threads", 2, 2, "pad", 4, 1, course="persistent").describe() == (
        "threads, 2 ranks, 2 threads, batch 4, pad, epoch 1, persistent"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranks": [1, 0]}, "ranks must be 1 or more, not 0"),
        ({"ranks": []}, "ranks must be 1 or more, not none"),
        ({"workers": [-1]}, "workers must be 0 or more, not -1"),
        ({"epochs": 0}, "epochs must be 1 or more, not 0"),
        ({"batch_sizes": [0]}, "batch_sizes must be 1 or more, not 0"),
        ({"start_methods": ["fork", "forks"]}, "start methods are fork, spawn, forkserver, not 'forks'"),
        ({"start_methods": []}, "start methods are fork, spawn, forkserver, not 'none'"),
    ],
)
def test_settings_that_cannot_be_are_refused(path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify_delivery(path, **wrong)


def test_a_large_data_set_is_sampled(path: Path) -> None:
    proof = verify_delivery(path, ranks=[2], workers=[0], epochs=1, sample=30)
    assert (proof.records, proof.rows, failures(proof)) == (101, 30, [])
    delivered = [result.report for result in proof.results]
    assert {
        report.expected + result.dropped for report, result in zip(delivered, proof.results, strict=True)
    } == {30}
    assert len({tuple(sorted(report.order.tolist())) for report in delivered if report.delivered == 30}) == 1


def test_what_the_tail_drops_is_counted_apart(path: Path) -> None:
    proof = verify_delivery(path, ranks=[3], workers=[0], epochs=1, batch_sizes=[8])
    [result] = [
        result
        for result in proof.results
        if (result.setting.loader, result.setting.tail, result.setting.course) == ("threads", "drop", "whole")
    ]
    assert (result.report.expected, result.report.delivered, result.report.missing, result.dropped) == (
        96,
        96,
        0,
        5,
    )


def test_a_data_set_without_numbers_is_proved_by_its_ids(tmp_path: Path) -> None:
    contract = Contract({"text": TextField()})
    ingest(({"id": f"r{row}", "text": "x"} for row in range(20)), tmp_path / "out", contract, workers=0)
    proof = verify_delivery(tmp_path / "out", **SMALL)
    assert (failures(proof), proof.fields, proof.mixing) == ([], (), ())


class DropsTheLastBatch(ShardLoader):
    def __iter__(self) -> Iterator[Any]:
        return iter(list(super().__iter__())[:-1])


def test_a_rank_that_drops_its_last_batch_fails(path: Path, plant: Callable[[type], None]) -> None:
    plant(DropsTheLastBatch)
    proof = verify_delivery(path, **SMALL | {"ranks": [2]})
    assert {result.setting.loader for result in failed(proof)} == {"threads"}
    result = failed(proof)[0]
    assert (result.report.missing, result.order_equal, result.steps_equal) == (5, True, False)
    assert result.describe().startswith("5 missing (r")
    assert result.describe().endswith("rank 0 of 2 took 6 steps, its length says 7, due are 7")


class PromisesTooMuch(ShardLoader):
    def __len__(self) -> int:
        return super().__len__() + 1


def test_a_length_that_is_not_delivered_fails(path: Path, plant: Callable[[type], None]) -> None:
    plant(PromisesTooMuch)
    results = failed(verify_delivery(path, **SMALL))
    assert {result.setting.loader for result in results} == {"threads"}
    assert all(result.report.ok and result.labels_equal and result.order_equal for result in results)
    assert results[0].describe() == "rank 0 of 1 took 13 steps, its length says 14, due are 13"


class SwapsLabels(ShardIterableDataset):
    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            batch["label"] = batch["label"].roll(1)
            yield batch


def test_swapped_labels_fail(path: Path, plant: Callable[[type], None]) -> None:
    plant(SwapsLabels)
    proof = verify_delivery(path, **SMALL)
    assert {result.setting.loader for result in failed(proof)} == {"iterable"}
    assert not any(result.labels_equal for result in failed(proof))
    assert all(result.report.missing == result.report.duplicate == 0 for result in failed(proof))
    assert "wrong values (r" in failed(proof)[0].describe()


class ForgetsLabels(ShardLoader):
    def __iter__(self) -> Iterator[Any]:
        return ({name: batch[name] for name in batch if name != "label"} for batch in super().__iter__())


def test_labels_that_are_not_delivered_fail(path: Path, plant: Callable[[type], None]) -> None:
    plant(ForgetsLabels)
    result = failed(verify_delivery(path, **SMALL))[0]
    assert not result.labels_equal
    assert "label not compared: is not in the batches" in result.describe()


class RepeatsPerWorker(ShardIterableDataset):
    def __iter__(self) -> Iterator[Any]:
        rows = range(len(self.dataset))
        return (collate([self.dataset[row] for row in rows[first : first + 50]]) for first in rows[::50])


def test_a_loader_that_repeats_per_worker_fails(path: Path, plant: Callable[[type], None]) -> None:
    plant(RepeatsPerWorker)
    proof = verify_delivery(path, ranks=[1], workers=[2], epochs=1, batch_sizes=[50])
    assert {result.setting.loader for result in failed(proof)} == {"iterable"}
    result = failed(proof)[0]
    assert (result.report.delivered, result.report.duplicate, result.report.missing) == (202, 101, 0)
    assert result.describe().startswith("101 delivered again (r")


class HasNoEnd(ShardLoader):
    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(super().__iter__())


def test_a_loader_without_end_fails(path: Path, plant: Callable[[type], None]) -> None:
    plant(HasNoEnd)
    result = failed(verify_delivery(path, **SMALL))[0]
    assert (result.setting.loader, result.report.missing, result.steps_equal) == ("threads", 0, False)


class IgnoresEpochs(ShardSampler):
    def set_epoch(self, epoch: Any) -> None:
        pass


def test_a_loader_that_ignores_its_epoch_fails_from_the_second_epoch_on(
    path: Path, plant: Callable[[type], None]
) -> None:
    plant(IgnoresEpochs)
    results = failed(verify_delivery(path, **SMALL | {"epochs": 2}))
    assert {(result.setting.loader, result.setting.epoch) for result in results} == {("sampler", 1)}
    assert {result.setting.course for result in results} == {"whole", "persistent"}
    assert not any(result.order_equal for result in results)
    assert all(result.report.ok for result in results if result.setting.tail != "drop")
    assert results[0].describe().startswith("order: rank 0 of 1, batch 0, sample 0 is r")


IN_A_WORKER = """Caught CorruptShardError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "dataset.py", line 7, in __getitem__
shardkit.errors.CorruptShardError: out/shards/00000: row 7 (id 'r7') is damaged
"""


@pytest.mark.parametrize("text", ["out/shards/00000: row 7 (id 'r7') is damaged", IN_A_WORKER])
def test_an_error_of_a_loader_names_the_setting_in_one_line(
    path: Path, plant: Callable[[type], None], text: str
) -> None:
    class Fails(ShardLoader):
        def __iter__(self) -> Iterator[Any]:
            raise CorruptShardError(text)

    plant(Fails)
    with pytest.raises(CorruptShardError) as raised:
        verify_delivery(path, **SMALL)
    assert str(raised.value) == (
        "threads, 1 rank, 0 threads, batch 8, pad, epoch 0: out/shards/00000: row 7 (id 'r7') is damaged"
    )


def test_a_worker_that_dies_is_an_error_of_the_setting_too(path: Path, plant: Callable[[type], None]) -> None:
    class LosesItsWorker(ShardLoader):
        def __iter__(self) -> Iterator[Any]:
            raise RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")

    plant(LosesItsWorker)
    with pytest.raises(WorkerError, match=r"threads, 1 rank, 0 threads, .*: DataLoader worker .* exited"):
        verify_delivery(path, **SMALL)


@pytest.mark.parametrize("sample", [0, -5])
def test_a_proof_of_nothing_is_refused(path: Path, sample: int) -> None:
    with pytest.raises(ValueError, match="sample must be 1 or more"):
        verify_delivery(path, ranks=[1], workers=[0], sample=sample)
