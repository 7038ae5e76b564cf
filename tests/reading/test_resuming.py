"""Resume: whoever saves whenever, and whoever goes on, together they deliver the epoch exactly once."""

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_loaders import Rank, ids, in_step, iterable, ordered_ids, sampler, threads
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardSampler,
    collate,
    ingest,
)
from shardkit.errors import StateError
from shardkit.reading.partition import Tail

CONTRACT = Contract({"label": LabelField(num_classes=3)})
COUNT = 23
EPOCH = 1
SEED = 5
TAILS: tuple[Tail, ...] = get_args(Tail)
WAYS = [iterable, sampler, threads]

State = dict[str, Any]
Way = Callable[..., Rank]
Begin = Callable[[], Rank]

torch_deprecation = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated"
)  # StatefulDataLoader calls it


class Layout(NamedTuple):
    world_size: int
    batch_size: int


LAYOUTS = list(itertools.starmap(Layout, itertools.product((1, 2, 3), (2, 5))))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 records in shards of 9, 9, 2 and 3."""
    out = tmp_path_factory.mktemp("resume") / "out"
    records = [{"id": f"r{row}", "label": row % 3} for row in range(COUNT)]
    ingest(records[:20], out, CONTRACT, workers=0, records_per_shard=9)
    ingest(records[20:], out, workers=0, append=True)
    return out


@pytest.fixture(scope="module")
def order(path: Path) -> list[str]:
    """The ids in the order of the epoch that most tests are about."""
    return ordered_ids(ShardDataset(path), SEED, EPOCH)


@pytest.fixture(scope="module")
def states(path: Path) -> list[State]:
    """The state after each number of records, as it comes back from a checkpoint."""
    loader, _ = start(threads, path, Layout(1, 1), "exact")[0]
    return [kept(loader.state_dict()), *(kept(loader.state_dict()) for _ in loader)]


def start(way: Way, path: Path, layout: Layout, tail: Tail, **options: Any) -> list[Rank]:
    """One loader for each rank, at the beginning of the epoch."""
    options = {"seed": SEED, "tail": tail} | options
    ranks = [way(path, rank=rank, **layout._asdict(), **options) for rank in range(layout.world_size)]
    for rank in ranks:
        rank.source.set_epoch(EPOCH)
    return ranks


def kept(state: State) -> State:
    """What comes back of a state that was put into a checkpoint of torch, and into JSON."""
    stream = io.BytesIO()
    torch.save({"data": state}, stream)
    stream.seek(0)
    loaded: State = json.loads(json.dumps(torch.load(stream, weights_only=True)["data"]))
    return loaded


def delivered_ids(ranks: list[list[Any]]) -> list[str]:
    """The ids of all batches in step, without the marked repeats, which come last."""
    found = in_step(ranks, "id")
    if not any("is_pad" in batch for batches in ranks for batch in batches):
        return found
    marks = [bool(mark) for mark in in_step(ranks, "is_pad")]
    assert marks == sorted(marks)
    return found[: marks.count(False)]


def check_rest(ranks: list[Rank], state: State, layout: Layout, tail: Tail, order: list[str]) -> None:
    """Load a state on every rank, and compare what they deliver with what is left of the order."""
    delivered = []
    for loader, source in ranks:
        source.load_state_dict(state)
        assert source.epoch == EPOCH
        promised = len(loader)
        delivered.append(list(loader))
        assert len(delivered[-1]) == promised
    rest = order[state["position"] :]
    if tail == "drop":
        del rest[len(rest) - len(rest) % (layout.world_size * layout.batch_size) :]
    assert delivered_ids(delivered) == rest


# --- every step of a run, and every layout that goes on ---------------------------------------------------------------


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("way", WAYS)
def test_a_state_says_at_every_step_what_was_delivered(
    path: Path, order: list[str], states: list[State], way: Way, tail: Tail
) -> None:
    """With the next test: every state of every run is one of `states`, from each of which every layout goes on."""
    for layout in LAYOUTS:
        ranks = start(way, path, layout, tail, workers=1 if way is threads else 0)
        iterators = [iter(loader) for loader, _ in ranks]
        taken: list[list[Any]] = [[] for _ in ranks]
        for step in range(max(len(loader) for loader, _ in ranks) + 1):
            found = [
                source.state_dict()
                for (_, source), some in zip(ranks, taken, strict=True)
                if len(some) == step
            ]
            position = found[0]["position"]
            assert found == [states[position]] * len(found)
            delivered = delivered_ids(taken)
            is_over = tail == "drop" and position == len(order)  # what is dropped counts with the last step
            assert delivered == order[: len(delivered) if is_over else position]
            assert position - len(delivered) < layout.world_size * layout.batch_size
            for iterator, some in zip(iterators, taken, strict=True):
                some += itertools.islice(iterator, 1)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("way", WAYS)
def test_every_layout_goes_on_from_every_state(
    path: Path, order: list[str], states: list[State], way: Way, tail: Tail
) -> None:
    for layout in LAYOUTS:
        ranks = start(way, path, layout, tail, workers=1 if way is threads else 0)
        for state in states:
            check_rest(ranks, state, layout, tail, order)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has CPUs
@pytest.mark.parametrize("way", [iterable, sampler])
@pytest.mark.parametrize(
    ("layout", "tail", "workers"),
    [
        (Layout(1, 2), "exact", 2),
        (Layout(2, 5), "pad", 1),
        (Layout(3, 2), "pad", 2),
        (Layout(1, 5), "drop", 4),
    ],
)
def test_workers_save_and_go_on_at_every_step(
    path: Path, order: list[str], states: list[State], way: Way, layout: Layout, tail: Tail, workers: int
) -> None:
    ranks = start(way, path, layout, tail, workers=workers)
    for loader, source in ranks:
        step = 0
        for step, batch in enumerate(loader, start=1):
            state = source.state_dict(step=step)
            assert state == states[state["position"]]
            assert set(batch["id"]) <= set(order[: state["position"]])
        assert len(order) - state["position"] < (
            layout.world_size * layout.batch_size if tail == "drop" else 1
        )
    for state in states:
        check_rest(ranks, state, layout, tail, order)


@given(
    saver=st.tuples(st.integers(1, 4), st.integers(1, 9), st.sampled_from(WAYS)),
    step=st.integers(0, 23),
    loader=st.tuples(st.integers(1, 4), st.integers(1, 9), st.sampled_from(WAYS)),
    shuffle=st.sampled_from(["global", "block", False]),
)
@settings(max_examples=60, deadline=None)
def test_what_is_left_of_an_epoch_is_delivered_once_whoever_goes_on(
    path: Path, saver: tuple[int, int, Way], step: int, loader: tuple[int, int, Way], shuffle: Any
) -> None:
    ranks = start(saver[2], path, Layout(*saver[:2]), "exact", shuffle=shuffle)
    step = min(step, *(len(loader) for loader, _ in ranks))
    delivered = [ids(itertools.islice(loader, step)) for loader, _ in ranks]
    others = start(loader[2], path, Layout(*loader[:2]), "exact", shuffle=shuffle, seed=SEED + 1)
    state = ranks[0].source.state_dict()
    for other, source in others:
        if state["position"] < COUNT:  # where nothing is left, an epoch that was set is the one to come
            source.set_epoch(EPOCH + 1)
        source.load_state_dict(state)
        delivered.append(ids(other))
        source.set_epoch(EPOCH + 1)
    everything = sorted(f"r{row}" for row in range(COUNT))
    assert sorted(itertools.chain(*itertools.chain(*delivered))) == everything
    after = [ids(other) for other, _ in others]  # the epochs after are whole
    assert sorted(itertools.chain(*itertools.chain(*after))) == everything


# --- moments ----------------------------------------------------------------------------------------------------------


@pytest.fixture(
    params=[
        (iterable, 0, False),
        (iterable, 2, False),
        (iterable, 2, True),
        (sampler, 0, False),
        (sampler, 2, True),
        (threads, 2, False),
    ],
    ids=["iterable", "iterable-workers", "iterable-persistent", "sampler", "sampler-persistent", "threads"],
)
def begin(request: pytest.FixtureRequest, path: Path) -> Begin:
    """Makes a loader of all 23 records in batches of 2, as if in a run of its own."""
    way, workers, persistent = request.param
    options = {"workers": workers} | ({} if way is threads else {"persistent": persistent})
    return lambda: start(way, path, Layout(1, 2), "exact", **options)[0]


@pytest.fixture(scope="module")
def whole(order: list[str]) -> list[list[str]]:
    """The 12 batches of the epoch."""
    return [order[first : first + 2] for first in range(0, COUNT, 2)]


def take(rank: Rank, steps: int | None) -> tuple[list[list[str]], State]:
    """Some batches, or all, and the state after them; with worker processes it is told how many they are."""
    taken = ids(itertools.islice(rank.loader, steps))
    is_told = getattr(rank.loader, "num_workers", 0) > 0
    return taken, kept(rank.source.state_dict(len(taken)) if is_told else rank.source.state_dict())


def resume(begin: Begin, state: State) -> Rank:
    rank = begin()
    rank.source.load_state_dict(state)
    return rank


def test_a_state_before_the_first_batch_leaves_the_whole_epoch(begin: Begin, whole: list[list[str]]) -> None:
    rank = begin()
    state = kept(rank.source.state_dict())
    assert ids(resume(begin, state).loader) == ids(rank.loader) == whole


def test_a_state_straight_after_loading_is_the_one_loaded(begin: Begin, whole: list[list[str]]) -> None:
    taken, state = take(begin(), 5)
    rank = resume(begin, state)
    assert rank.source.state_dict() == state
    rank = resume(begin, kept(rank.source.state_dict()))
    assert len(rank.loader) == len(whole) - 5
    assert taken + ids(rank.loader) == whole


def test_a_state_at_the_end_leaves_nothing_of_the_epoch_and_all_of_the_next(
    begin: Begin, whole: list[list[str]]
) -> None:
    for steps in (len(whole), None):  # before and after the loader was asked for one batch too many
        _, state = take(begin(), steps)
        rank = resume(begin, state)
        assert (len(rank.loader), ids(rank.loader)) == (0, [])
        rank.source.set_epoch(EPOCH + 1)
        assert len(rank.loader) == len(whole)
        assert sorted(itertools.chain(*ids(rank.loader))) == sorted(itertools.chain(*whole))


def test_saving_and_loading_again_and_again_loses_nothing(begin: Begin, whole: list[list[str]]) -> None:
    made, state = take(begin(), 3)
    while len(made) < len(whole):
        some, state = take(resume(begin, state), 3)
        made += some
    assert made == whole


def test_one_loader_goes_back_to_its_states_again_and_again(begin: Begin, whole: list[list[str]]) -> None:
    rank = begin()
    made, state = take(rank, 3)
    while len(made) < len(whole):
        take(rank, 2)  # one of each worker, which are not saved
        rank.source.load_state_dict(state)
        some, state = take(rank, 3)
        made += some
    assert made == whole


def test_the_epochs_after_a_resume_are_whole(begin: Begin, whole: list[list[str]]) -> None:
    _, state = take(begin(), 5)
    rank, expected = resume(begin, state), begin()
    assert rank.source.epoch == EPOCH
    for epoch in (EPOCH, EPOCH + 1, EPOCH + 2):
        for each in (rank, expected):
            each.source.set_epoch(epoch)
        assert len(rank.loader) == len(whole) - (5 if epoch == EPOCH else 0)
        assert ids(rank.loader) == ids(expected.loader)[5 if epoch == EPOCH else 0 :]


def test_a_state_counts_for_one_iteration_of_its_epoch(begin: Begin, whole: list[list[str]]) -> None:
    rank = resume(begin, take(begin(), 5)[1])
    assert ids(rank.loader) == whole[5:]
    assert ids(rank.loader) == whole


def test_a_state_is_forgotten_once_another_epoch_is_asked_for(begin: Begin, whole: list[list[str]]) -> None:
    rank = resume(begin, take(begin(), 5)[1])
    rank.source.set_epoch(EPOCH + 1)
    assert len(rank.loader) == len(ids(rank.loader)) == len(whole)


def test_a_loader_with_workers_must_be_told_how_many_batches_were_taken(path: Path) -> None:
    rank = start(iterable, path, Layout(1, 2), "exact", workers=1)[0]
    next(iter(rank.loader))
    with pytest.raises(StateError, match=r"state_dict\(step=...\)"):
        rank.source.state_dict()
    with pytest.raises(ValueError, match=r"\[0, 12\], not 13"):
        rank.source.state_dict(step=13)


@pytest.mark.slow  # a spawned worker takes seconds to import torch
def test_a_state_reaches_workers_that_are_spawned(path: Path, whole: list[list[str]]) -> None:
    data = start(iterable, path, Layout(1, 2), "exact")[0].source
    data.load_state_dict(data.state_dict(step=5))
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert ids(loader) == whole[5:]


# --- torchdata --------------------------------------------------------------------------------------------------------


@pytest.fixture(
    params=itertools.product(["iterable", "sampler"], [0, 2]), ids=lambda param: "-".join(map(str, param))
)
def begin_stateful(request: pytest.FixtureRequest, path: Path) -> Begin:
    """Makes a StatefulDataLoader of batches of 2, as if in a run of its own."""
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    kind, workers = request.param
    context = {"num_workers": workers} | ({"multiprocessing_context": "fork"} if workers else {})

    def make() -> Rank:
        if kind == "iterable":
            data = ShardIterableDataset(path, 2, seed=SEED, tail="exact")
            return Rank(loaders.StatefulDataLoader(data, batch_size=None, **context), data)
        rows = ShardDataset(path)
        batches = ShardSampler(rows, 2, seed=SEED, tail="exact")
        return Rank(
            loaders.StatefulDataLoader(rows, batch_sampler=batches, collate_fn=collate, **context), batches
        )

    return make


@torch_deprecation
def test_torchdatas_stateful_loader_saves_and_loads_at_any_step(
    begin_stateful: Begin, whole: list[list[str]]
) -> None:
    for step in (0, 1, 5, len(whole)):
        rank = begin_stateful()
        rank.source.set_epoch(EPOCH)
        taken = ids(itertools.islice(rank.loader, step))
        again = begin_stateful()
        again.loader.load_state_dict(kept(rank.loader.state_dict()))
        assert taken + ids(again.loader) == whole


@torch_deprecation
def test_torchdatas_stateful_loader_goes_on_again_and_again_and_into_the_next_epoch(
    begin_stateful: Begin, whole: list[list[str]]
) -> None:
    rank = begin_stateful()
    rank.source.set_epoch(EPOCH)
    made = ids(itertools.islice(rank.loader, 3))
    while len(made) < len(whole):
        state = kept(rank.loader.state_dict())
        rank = begin_stateful()
        rank.loader.load_state_dict(state)
        made += ids(itertools.islice(rank.loader, 3))
    assert made == whole
    expected = begin_stateful()
    for each in (rank, expected):
        each.source.set_epoch(EPOCH + 1)
    assert ids(rank.loader) == ids(expected.loader)
