"""How classes mix in batches is one number: 1 as by chance, 0 in exact proportion, about the batch size in clumps."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import Contract, LabelField, ScalarField, ShardDataset, ingest, verify_delivery
from shardkit.verification.mixing import class_ratio, measure_all, measure_mixing


def make(out: Path, labels: list[int], shuffle_seed: int | None = None) -> ShardDataset:
    contract = Contract({"label": LabelField(num_classes=max(labels) + 1)})
    records = ({"id": f"r{row}", "label": label} for row, label in enumerate(labels))
    ingest(records, out, contract, workers=0, shuffle_seed=shuffle_seed)
    return ShardDataset(out)


@pytest.fixture(scope="module")
def sorted_set(tmp_path_factory: pytest.TempPathFactory) -> ShardDataset:
    """8,000 records stored by class: two windows of the block order."""
    return make(tmp_path_factory.mktemp("mixing") / "out", [row // 800 for row in range(8000)])


def test_the_mean_over_all_orders_is_one() -> None:
    ratios = [class_ratio(np.array(order), 2) for order in itertools.permutations([0, 0, 0, 5, 5, 7])]
    assert np.mean(ratios) == pytest.approx(1, abs=1e-12)


@given(
    st.lists(st.integers(0, 4), min_size=3, max_size=40).filter(lambda labels: len(set(labels)) > 1),
    st.integers(1, 20),
)
def test_the_number_is_the_mean_over_batches_and_classes(labels: list[int], batch_size: int) -> None:
    total, classes = len(labels), sorted(set(labels))
    terms = []
    for first in range(0, total - batch_size + 1, batch_size):
        for each in classes:
            share = labels.count(each) / total
            variance = batch_size * share * (1 - share) * (total - batch_size) / (total - 1)
            count = labels[first : first + batch_size].count(each)
            terms.append((count - batch_size * share) ** 2 / variance if variance else np.nan)
    ratio = class_ratio(np.array(labels), batch_size)
    if batch_size >= total:
        assert ratio is None
    else:
        assert ratio == pytest.approx(np.mean(terms))


def test_batches_of_one_class_each_and_batches_in_exact_proportion_are_the_ends() -> None:
    labels = np.arange(1600) // 160
    assert class_ratio(labels, 16) == pytest.approx(16, rel=0.02)
    assert class_ratio(np.arange(1600) % 10, 20) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("labels", [[], [3], [3, 3, 3, 3], [0, 1]])
def test_where_nothing_can_differ_there_is_no_number(labels: list[int]) -> None:
    assert class_ratio(np.array(labels, dtype=np.int64), 2) is None


def test_single_records_of_a_class_mix_as_by_chance() -> None:
    assert class_ratio(np.arange(1000), 8) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batch_size", [1, 16, 64, 256])
def test_the_global_order_mixes_as_by_chance_whatever_is_stored_together(
    sorted_set: ShardDataset, batch_size: int, seed: int
) -> None:
    mixing = measure_mixing(sorted_set, "label", "global", batch_size, seed)
    # over k batches of c classes the standard deviation is about sqrt(2 / (k * (c - 1)))
    assert mixing.ratio == pytest.approx(1, abs=5 * (2 / (9 * mixing.batches)) ** 0.5)
    assert not mixing.is_clumped


def test_the_block_order_clumps_what_is_stored_together_and_stored_shuffled_it_does_not(
    sorted_set: ShardDataset, tmp_path: Path
) -> None:
    clumped = measure_mixing(sorted_set, "label", "block", 64)
    assert clumped.is_clumped
    # a window takes 32 of the 62.5 blocks, each of one class: their sampling variance, and that within the window
    assert clumped.ratio == pytest.approx(1 + 63 / 32 * (1 - 32 / 62.5), abs=0.2)
    shuffled = make(tmp_path / "out", [row // 800 for row in range(8000)], shuffle_seed=0)
    mixing = measure_mixing(shuffled, "label", "block", 64)
    assert (mixing.ratio, mixing.is_clumped) == (pytest.approx(1, abs=0.1), False)


def test_stored_order_is_seen_as_it_is(sorted_set: ShardDataset) -> None:
    mixing = measure_mixing(sorted_set, "label", False, 16)
    assert (mixing.ratio, mixing.batches) == (pytest.approx(16, rel=0.01), 500)


@pytest.mark.parametrize("shuffle", ["global", "block"])
def test_a_thousand_records_sorted_by_class_mix_as_by_chance(tmp_path: Path, shuffle: str) -> None:
    data = make(tmp_path / "out", [row // 100 for row in range(1000)])
    mixing = measure_mixing(data, "label", shuffle, 16)
    assert mixing.ratio == pytest.approx(1, abs=0.05)


def test_more_classes_than_samples_in_a_batch_are_no_trouble(tmp_path: Path) -> None:
    data = make(tmp_path / "out", [row // 4 for row in range(6000)])
    assert measure_mixing(data, "label", "global", 16).ratio == pytest.approx(1, abs=0.02)
    assert measure_mixing(data, "label", False, 16).ratio == pytest.approx(4, abs=0.05)


def test_a_large_data_set_is_sampled_from_all_over_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkit.verification.mixing._ROWS_DRAWN", 800)
    data = make(tmp_path / "out", [row % 2 for row in range(2000)] + [row // 1000 for row in range(2000)])
    mixing = measure_mixing(data, "label", False, 16)
    assert mixing.batches == 50
    assert mixing.ratio == pytest.approx(
        16 / 2, abs=0.5
    )  # one half in exact proportion, one in batches of a class
    assert measure_mixing(data, "label", False, 2000).batches == 2


def test_every_label_field_is_measured_and_no_other(tmp_path: Path) -> None:
    contract = Contract(
        {"kind": LabelField(num_classes=2), "age": ScalarField("int32"), "site": LabelField(num_classes=9)}
    )
    records = ({"id": f"r{row}", "kind": row % 2, "age": row, "site": 4} for row in range(40))
    ingest(records, tmp_path / "out", contract, workers=0)
    found = measure_all(ShardDataset(tmp_path / "out"), [4, 8])
    assert [(each.field, each.batch_size, each.shuffle) for each in found] == list(
        itertools.product(["kind", "site"], [4, 8], ["global", "block"])
    )
    assert {each.ratio is None for each in found if each.field == "site"} == {True}
    assert {each.ratio is None for each in found if each.field == "kind"} == {False}


@pytest.mark.parametrize("count", [1, 2])
def test_a_proof_of_the_smallest_data_sets_says_that_nothing_can_mix(tmp_path: Path, count: int) -> None:
    make(tmp_path / "out", list(range(count)))
    proof = verify_delivery(tmp_path / "out", ranks=[1], workers=[0], epochs=1)
    assert (proof.ok, [mixing.ratio for mixing in proof.mixing]) == (True, [None, None])
    assert proof.to_dict()["mixing"][1] == {
        "field": "label",
        "shuffle": "block",
        "batch_size": 64,
        "batches": 0,
        "ratio": None,
        "is_clumped": False,
    }
