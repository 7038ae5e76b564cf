"""The order of an epoch: a permutation, the same everywhere, and statistically sound."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.reading.order import BLOCK_ROWS, MAX_ROWS, WINDOW_ROWS, Permutation, Shuffle, epoch_order

SHUFFLES: list[Shuffle] = ["global", "block", False]


def rows_of(
    shuffle: Shuffle, length: int, seed: int = 0, epoch: int = 0, dataset_id: str = "set"
) -> np.ndarray:
    order = epoch_order(shuffle, length, dataset_id=dataset_id, seed=seed, epoch=epoch)
    return order.rows(np.arange(length))


def p_value(statistic: float, degrees: int) -> float:
    """Chance that chi-square exceeds `statistic`: the finite sum that the incomplete gamma function is for halves.

    M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions", 26.4.4 and 26.4.5.
    """
    half = statistic / 2
    powers = [degrees / 2 - 1 - number for number in range(degrees // 2)]
    terms = (math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers)
    return sum(terms) + (math.erfc(math.sqrt(half)) if degrees % 2 else 0)


def p_value_of_counts(counts: np.ndarray, degrees: int | None = None) -> float:
    """p-value of the hypothesis that all of `counts` have the same expectation."""
    expected = counts.mean()
    return p_value(((counts - expected) ** 2 / expected).sum(), degrees or counts.size - 1)


def is_plausible(counts: np.ndarray, degrees: int | None = None) -> bool:
    """Whether counts are neither less nor more even than chance makes them but for 2 keys of 1,000; keys are fixed."""
    return 0.001 < p_value_of_counts(counts, degrees) < 0.999


def p_value_of_positions(rows: np.ndarray, parts: int) -> float:
    """Of the rows' parts of the storage against their positions' parts of the epoch."""
    counts = np.histogram2d(np.arange(len(rows)), rows, bins=parts)[0]
    return p_value_of_counts(counts, (parts - 1) ** 2)


def p_value_of_neighbours(rows: np.ndarray, parts: int) -> float:
    """Of the distances, round the end, between a row and the next one."""
    distances = (rows[1:] - rows[:-1]) % len(rows)
    return p_value_of_counts(np.histogram(distances, bins=parts, range=(1, len(rows)))[0])


def test_the_p_values_are_those_of_the_tables() -> None:
    table = {
        (3.841, 1): 0.05,
        (18.307, 10): 0.05,
        (29.588, 10): 0.001,
        (42.980, 24): 0.01,
        (79.082, 60): 0.05,
    }
    for (statistic, degrees), expected in table.items():
        assert p_value(statistic, degrees) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 9, 127, 128, 129, 4095, 4096, 4097, 10_000, 100_003])
def test_each_row_comes_exactly_once(shuffle: Shuffle, length: int) -> None:
    assert np.array_equal(np.sort(rows_of(shuffle, length)), np.arange(length))


@given(st.integers(1, 20_000), st.integers(), st.integers(0, 100), st.sampled_from(["global", "block"]))
def test_each_row_comes_exactly_once_for_any_seed(
    length: int, seed: int, epoch: int, shuffle: Shuffle
) -> None:
    assert np.array_equal(np.sort(rows_of(shuffle, length, seed, epoch)), np.arange(length))


def test_the_sequences_are_stable() -> None:
    assert rows_of("global", 10, seed=7, epoch=2).tolist() == GLOBAL_10
    assert rows_of("global", 100_000, seed=7, epoch=2)[:10].tolist() == GLOBAL_100_000
    assert rows_of("block", 300, seed=7, epoch=2)[:10].tolist() == BLOCK_300
    assert rows_of(False, 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("shuffle", ["global", "block"])
def test_positions_can_be_asked_for_in_any_order_and_number(shuffle: Shuffle) -> None:
    order = epoch_order(shuffle, 20_000, dataset_id="set", seed=3, epoch=1)
    whole = order.rows(np.arange(20_000))
    asked = np.array([19_999, 0, 4096, 4095, 7, 7, 12_345])
    assert order.rows(asked).tolist() == whole[asked].tolist()


def test_the_order_works_at_the_largest_length() -> None:
    for shuffle in ("global", "block"):
        order = epoch_order(shuffle, MAX_ROWS, dataset_id="set", seed=0, epoch=0)
        rows = order.rows(np.arange(MAX_ROWS - 50_000, MAX_ROWS))
        assert len(np.unique(rows)) == 50_000
        assert 0 <= rows.min() <= rows.max() < MAX_ROWS


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2\\*\\*40"):
        epoch_order("global", MAX_ROWS + 1, dataset_id="set", seed=0, epoch=0)


def test_an_unknown_shuffle_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="not True"):
        epoch_order(True, 5, dataset_id="set", seed=0, epoch=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [-1, 10])
def test_a_position_outside_the_epoch_is_an_index_error(position: int) -> None:
    order = epoch_order("global", 10, dataset_id="set", seed=0, epoch=0)
    with pytest.raises(IndexError, match="10"):
        order.rows(np.array([position]))


def test_seed_epoch_and_data_set_each_change_the_order() -> None:
    base = rows_of("global", 1000)
    for other in (
        rows_of("global", 1000, seed=1),
        rows_of("global", 1000, epoch=1),
        rows_of("global", 1000, dataset_id="other"),
    ):
        assert (base == other).sum() < 10  # about one fixed point is expected


def test_every_permutation_of_four_is_equally_likely() -> None:
    seen = dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in range(24 * 100):
        seen[tuple(rows_of("global", 4, seed).tolist())] += 1
    assert is_plausible(np.array(list(seen.values())))


@pytest.mark.parametrize("length", [7, 30])
def test_every_row_is_equally_likely_at_every_position(length: int) -> None:
    counts = np.zeros((length, length))
    for seed in range(2000):
        counts[np.arange(length), rows_of("global", length, seed)] += 1
    assert is_plausible(counts, (length - 1) ** 2)


@pytest.mark.parametrize("length", [5_000, 100_000, 2**20])
def test_rows_and_neighbour_differences_are_spread_evenly(length: int) -> None:
    rows = rows_of("global", length)
    assert 0.001 < p_value_of_positions(rows, 20) < 0.999
    assert 0.001 < p_value_of_neighbours(rows, 50) < 0.999
    assert is_plausible(np.histogram((rows[2:] - rows[:-2]) % length, bins=50, range=(0, length))[0])


@pytest.mark.parametrize("p_value_of", [p_value_of_positions, p_value_of_neighbours])
@pytest.mark.parametrize("length", [1_001, 5_001])
def test_over_many_seeds_the_evenness_is_that_of_chance(
    length: int, p_value_of: Callable[[np.ndarray, int], float]
) -> None:
    p_values = [p_value_of(rows_of("global", length, seed), 10) for seed in range(300)]
    assert is_plausible(np.histogram(p_values, bins=10, range=(0, 1))[0])


@pytest.mark.parametrize(
    ("shuffle", "low", "high"), [("global", 0.97, 1.03), ("block", 0.97, 1.03), (False, 15, 16)]
)
def test_the_classes_of_a_batch_vary_as_if_drawn_from_all_rows_where_storage_is_sorted_by_class(
    shuffle: Shuffle, low: float, high: float
) -> None:
    records, classes, batch = 1000, 10, 16
    expected = batch / classes  # mean and variance of the hypergeometric distribution
    variance = batch * (1 / classes) * (1 - 1 / classes) * (records - batch) / (records - 1)
    ratios = []
    for epoch in range(100):
        labels = rows_of(shuffle, records, epoch=epoch) // (records // classes)
        full = labels[: records // batch * batch].reshape(-1, batch, 1)
        counts = (full == np.arange(classes)).sum(axis=1)
        ratios.append(((counts - expected) ** 2 / variance).mean())
    assert low < np.mean(ratios) < high  # one epoch's differs by 0.056 (s.d.), so the mean of 100 by 0.0056


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}])
def test_orders_of_neighbouring_seeds_and_epochs_are_unrelated(change: dict[str, int]) -> None:
    length = 100_000
    difference = (rows_of("global", length) - rows_of("global", length, **change)) % length
    assert is_plausible(np.histogram(difference, bins=50, range=(0, length))[0])


def test_one_bit_of_the_input_changes_half_of_the_output_bits() -> None:
    length = 2**20
    permutation = Permutation(length, "key")
    numbers = np.arange(0, length, 64)
    for bit in range(20):
        changed = permutation.apply(numbers) ^ permutation.apply(numbers ^ (1 << bit))
        assert abs(np.bitwise_count(changed).mean() - 10) < 0.1


def test_block_order_reads_few_blocks_in_each_window() -> None:
    rows = rows_of("block", 50_000)
    for first in range(0, 50_000, WINDOW_ROWS):
        blocks = np.unique(rows[first : first + WINDOW_ROWS] // BLOCK_ROWS)
        assert len(blocks) <= WINDOW_ROWS // BLOCK_ROWS + 2


def test_block_order_mixes_the_rows_of_a_window() -> None:
    rows = rows_of("block", 50_000)[:WINDOW_ROWS]
    same_block = rows[1:] // BLOCK_ROWS == rows[:-1] // BLOCK_ROWS
    assert same_block.mean() < 3 * BLOCK_ROWS / WINDOW_ROWS


def test_block_order_puts_the_short_block_anywhere() -> None:
    places = {
        int(np.flatnonzero(rows_of("block", 10 * BLOCK_ROWS + 1, seed) == 10 * BLOCK_ROWS)[0])
        for seed in range(8)
    }
    assert len(places) > 4


GLOBAL_10 = [2, 0, 4, 7, 8, 6, 5, 3, 1, 9]
GLOBAL_100_000 = [64829, 40305, 43078, 16008, 78523, 15732, 11233, 85742, 67874, 58057]
BLOCK_300 = [3, 239, 161, 206, 159, 230, 200, 83, 191, 248]
