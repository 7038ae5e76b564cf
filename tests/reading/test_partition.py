"""The partition: disjoint, complete, and with equal steps, for every small case."""

import itertools
from collections.abc import Iterable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.reading.partition import Partition, Tail, worker_steps

LENGTHS = range(23)
WORLDS = range(1, 5)
BATCHES = range(1, 5)
TAILS: tuple[Tail, ...] = get_args(Tail)


def partitions(length: int, world_size: int, batch_size: int, tail: Tail, start: int = 0) -> list[Partition]:
    return [Partition(length, rank, world_size, batch_size, tail, start) for rank in range(world_size)]


def delivered(partition: Partition, steps: int | None = None, *, with_pads: bool = False) -> list[int]:
    taken: list[int] = []
    for step in range(len(partition) if steps is None else min(steps, len(partition))):
        positions, pads = partition.positions(step), partition.pads(step)
        assert len(positions) == len(pads)
        assert 1 <= len(positions) <= partition.batch_size
        taken += positions[slice(None) if with_pads else ~pads].tolist()
    return taken


def sequence(partition: Partition, steps: Iterable[int]) -> list[tuple[list[int], list[bool]]]:
    """Positions and marks of some steps."""
    return [(partition.positions(step).tolist(), partition.pads(step).tolist()) for step in steps]


def handed_out(num_steps: int, num_workers: int) -> list[int]:
    """The steps of a rank as a DataLoader hands them out: one of each worker in turn."""
    shares = [worker_steps(num_steps, worker, num_workers) for worker in range(num_workers)]
    return [step for turn in itertools.zip_longest(*shares) for step in turn if step is not None]


CASES = list(itertools.product(LENGTHS, WORLDS, BATCHES))


@pytest.mark.parametrize("tail", ["pad", "exact"])
def test_ranks_are_disjoint_and_cover_what_is_left(tail: Tail) -> None:
    for length, world_size, batch_size in CASES:
        for start in {0, length // 3, length}:
            parts = partitions(length, world_size, batch_size, tail, start)
            taken = [position for part in parts for position in delivered(part)]
            assert sorted(taken) == list(range(start, length))


def test_under_drop_less_than_one_global_step_is_lost() -> None:
    for length, world_size, batch_size in CASES:
        taken = [p for part in partitions(length, world_size, batch_size, "drop") for p in delivered(part)]
        assert sorted(taken) == list(range(len(taken)))
        assert length - len(taken) < world_size * batch_size


@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_all_ranks_take_equal_steps_of_equal_size(tail: Tail) -> None:
    for length, world_size, batch_size in CASES:
        parts = partitions(length, world_size, batch_size, tail)
        sizes = {tuple(len(part.positions(step)) for step in range(len(part))) for part in parts}
        assert len(sizes) == 1


def test_under_exact_nothing_is_repeated_and_ranks_differ_by_one_at_most() -> None:
    for length, world_size, batch_size in CASES:
        parts = partitions(length, world_size, batch_size, "exact")
        counts = [len(delivered(part, with_pads=True)) for part in parts]
        assert sum(counts) == length
        assert max(counts) - min(counts) <= 1
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_pads_are_fewer_than_ranks_and_come_last() -> None:
    for length, world_size, batch_size in CASES:
        pads = [
            mark
            for part in partitions(length, world_size, batch_size, "pad")
            for step in range(part.full_steps, len(part))
            for mark in part.pads(step).tolist()
        ]
        assert sum(pads) < world_size
        assert pads == sorted(pads)


def test_21_records_on_2_ranks_make_one_marked_repeat() -> None:
    first, second = partitions(21, 2, 4, "pad")
    assert [first.positions(step).tolist() for step in range(3)] == [
        [0, 1, 2, 3],
        [8, 9, 10, 11],
        [16, 17, 18],
    ]
    assert [second.positions(step).tolist() for step in range(3)] == [
        [4, 5, 6, 7],
        [12, 13, 14, 15],
        [19, 20, 0],
    ]
    assert second.pads(2).tolist() == [False, False, True]


def test_repeats_wrap_round_an_epoch_smaller_than_the_world() -> None:
    parts = partitions(2, 7, 4, "pad")
    assert [part.positions(0).tolist() for part in parts] == [[0], [1], [0], [1], [0], [1], [0]]
    assert [part.pads(0).tolist() for part in parts] == [
        [False],
        [False],
        [True],
        [True],
        [True],
        [True],
        [True],
    ]


def test_what_is_left_after_any_step_goes_on_under_another_layout() -> None:
    for steps_done in range(3):
        old = partitions(50, 2, 8, "exact")
        before = [p for part in old for step in range(steps_done) for p in part.positions(step).tolist()]
        new = partitions(50, 3, 5, "exact", start=steps_done * 2 * 8)
        after = [p for part in new for p in delivered(part)]
        assert sorted(before + after) == list(range(50))


@pytest.mark.parametrize("tail", TAILS)
def test_a_rank_goes_on_from_any_step_with_the_steps_it_had_left(tail: Tail) -> None:
    for length, world_size, batch_size in CASES:
        for part in partitions(length, world_size, batch_size, tail):
            whole = sequence(part, range(len(part)))
            for taken in range(len(part) + 1):
                rest = part.starting_at(part.end(taken))
                assert sequence(rest, range(len(rest))) == whole[taken:]


@given(
    length=st.integers(0, 300),
    tail=st.sampled_from(TAILS),
    layouts=st.lists(
        st.tuples(st.integers(1, 7), st.integers(1, 64), st.integers(0, 100)), min_size=1, max_size=5
    ),
)
def test_layouts_that_follow_one_another_deliver_each_position_once(
    length: int, tail: Tail, layouts: list[tuple[int, int, int]]
) -> None:
    start, taken = 0, list[int]()
    for number, (world_size, batch_size, percent) in enumerate(layouts, start=1):
        parts = partitions(length, world_size, batch_size, tail, start)
        steps = max(map(len, parts)) * (100 if number == len(layouts) else percent) // 100
        taken += [position for part in parts for position in delivered(part, steps)]
        (start,) = {part.end(steps) for part in parts}
    assert sorted(taken) == list(range(len(taken)))
    if tail == "drop":  # what it drops counts as delivered with the last step
        assert start in (len(taken), length)
        assert length - len(taken) < max(ranks * size for ranks, size, _ in layouts)
    else:
        assert start == len(taken) == length


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 101, 1000])
def test_ranks_and_their_workers_deliver_each_position_once(length: int, tail: Tail) -> None:
    for batch_size, world_size in itertools.product((1, 8, 64), (1, 2, 3, 7)):
        parts = partitions(length, world_size, batch_size, tail)
        whole = [sequence(part, range(len(part))) for part in parts]
        for num_workers in range(1, 5):
            for part, steps in zip(parts, whole, strict=True):
                assert sequence(part, handed_out(len(part), num_workers)) == steps
        rest = length % (world_size * batch_size)
        taken = sorted(position for part in parts for position in delivered(part))
        assert taken == list(range(length - rest if tail == "drop" else length))
        repeats = sum(mark for steps in whole for _, marks in steps for mark in marks)
        assert repeats == (-rest % world_size if tail == "pad" else 0)
        assert max(map(len, parts)) - min(map(len, parts)) <= (tail == "exact")


def test_workers_share_the_steps_and_give_them_back_in_turn() -> None:
    for num_steps, num_workers in itertools.product([*range(12), 63, 64, 65, 101, 1000], range(1, 5)):
        shares = [list(worker_steps(num_steps, worker, num_workers)) for worker in range(num_workers)]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert handed_out(num_steps, num_workers) == list(range(num_steps))


def test_positions_are_int64_and_pads_bool() -> None:
    part = Partition(5, batch_size=4)
    assert part.positions(1).dtype == np.int64
    assert part.pads(1).dtype == np.bool_


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"length": -1}, "length"),
        ({"length": 5, "rank": 1}, r"rank must lie in \[0, 1\)"),
        ({"length": 5, "world_size": 0}, "world_size"),
        ({"length": 5, "batch_size": 0}, "batch_size"),
        ({"length": 5, "tail": "keep"}, "'pad', 'drop', 'exact'"),
        ({"length": 5, "start": 6}, r"start must lie in \[0, 5\]"),
    ],
)
def test_a_number_out_of_range_is_named(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Partition(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [-1, 2])
def test_a_step_outside_the_epoch_is_an_index_error(step: int) -> None:
    part = Partition(8, batch_size=4)
    with pytest.raises(IndexError, match="step"):
        part.positions(step)
    with pytest.raises(IndexError, match="step"):
        part.pads(step)
