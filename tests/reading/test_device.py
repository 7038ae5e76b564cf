"""DevicePrefetcher: order of waits with stand-ins for CUDA, and the real thing where there is a GPU."""

import itertools
import time
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_loaders import ids, iterable, ordered_ids, sampler, threads
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from shardkit.contract import Contract, LabelField
from shardkit.errors import StateError
from shardkit.ingestion import ingest
from shardkit.reading import (
    DevicePrefetcher,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
)
from shardkit.transforms.encoded import EncodedImages

Pair = namedtuple("Pair", ["left", "right"])


class FakeCuda:
    """Stands in for torch.cuda and logs what is asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.active = "main"
        cuda = self

        class Event:
            """Happens at once; its time is when it was recorded, in steps of 1 s for copies and none for the rest."""

            def __init__(self, enable_timing: bool) -> None:
                self.name, self.at = "", 0.0

            def query(self) -> bool:
                return True

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, later: "Event") -> float:
                return (later.at - self.at) * 1000

        class Stream:
            def __init__(self, device: torch.device) -> None:
                self.copies = 0

            def record_event(self, event: Event) -> Event:
                self.copies += 1
                event.name, event.at = f"event {self.copies}", float(self.copies)
                return event

        class CurrentStream:
            def record_event(self, event: Event) -> Event:
                event.at = 1.5
                return event

            def wait_event(self, event: Event) -> None:
                cuda.log.append(f"main waits for {event.name}")

        @contextmanager
        def on(stream: Stream) -> Iterator[None]:
            cuda.active = "side"
            yield
            cuda.active = "main"

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "stream", on)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: CurrentStream())


class FakeTensor:
    def __init__(self, name: str, cuda: FakeCuda, place: str = "host") -> None:
        self.name, self.cuda, self.place = name, cuda, place

    def pin_memory(self) -> "FakeTensor":
        return FakeTensor(self.name, self.cuda, "pinned")

    def to(self, device: torch.device, non_blocking: bool) -> "FakeTensor":
        assert self.place == "pinned"
        assert non_blocking
        self.cuda.log.append(f"copy {self.name} on {self.cuda.active}")
        return FakeTensor(self.name, self.cuda, str(device))

    def record_stream(self, stream: Any) -> None:
        self.cuda.log.append(f"record {self.name}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


def test_each_batch_is_copied_ahead_waited_for_and_recorded(cuda: FakeCuda) -> None:
    batches = [{"x": FakeTensor(str(number), cuda), "id": [str(number)]} for number in range(3)]
    for batch in DevicePrefetcher(batches, "cuda:0"):
        assert batch["x"].place == "cuda:0"
        cuda.log.append(f"use {batch['id'][0]}")
    assert cuda.log == [
        *("copy 0 on side", "copy 1 on side", "main waits for event 1", "record 0", "use 0"),
        *("copy 2 on side", "main waits for event 2", "record 1", "use 1"),
        *("main waits for event 3", "record 2", "use 2"),
    ]


def test_every_tensor_of_a_nested_batch_is_moved_and_its_containers_keep_their_types(cuda: FakeCuda) -> None:
    batch = OrderedDict(
        a=[FakeTensor("a", cuda), "text"], b=Pair(FakeTensor("b", cuda), 3), c=(FakeTensor("c", cuda),)
    )
    (moved,) = DevicePrefetcher([batch], "cuda:0")
    assert type(moved) is OrderedDict
    assert type(moved["b"]) is Pair
    assert type(moved["c"]) is tuple
    assert (moved["a"][1], moved["b"].right) == ("text", 3)
    assert [moved["a"][0].place, moved["b"].left.place, moved["c"][0].place] == ["cuda:0"] * 3
    assert {entry for entry in cuda.log if entry.startswith("record")} == {"record a", "record b", "record c"}
    assert batch["a"][0].place == "host"


def test_an_object_whose_memory_cannot_be_recorded_is_refused(cuda: FakeCuda) -> None:
    class Unsafe:
        def to(self, device: torch.device, non_blocking: bool) -> "Unsafe":
            return self

    with pytest.raises(TypeError, match=r"Unsafe has to\(\) but no record_stream"):
        next(iter(DevicePrefetcher([Unsafe()], "cuda:0")))


def test_an_error_of_the_loader_comes_in_place_of_the_batch_that_failed(cuda: FakeCuda) -> None:
    def loader() -> Iterator[FakeTensor]:
        yield FakeTensor("0", cuda)
        yield FakeTensor("1", cuda)
        raise RuntimeError("batch 2 is broken")

    batches = iter(DevicePrefetcher(Replay(loader), "cuda:0", depth=3))
    assert [next(batches).name, next(batches).name] == ["0", "1"]
    with pytest.raises(RuntimeError, match="batch 2 is broken"):
        next(batches)


class Replay:
    """An iterable that remembers, weakly, the iterator it last gave out."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        iterator = self.make()
        self.last = weakref.ref(iterator)
        return iterator

    def __len__(self) -> int:
        return 5


def test_leaving_early_drops_the_iterator_of_the_loader_and_the_next_epoch_is_whole(cuda: FakeCuda) -> None:
    loader = Replay(lambda: (FakeTensor(str(number), cuda) for number in range(5)))
    prefetcher = DevicePrefetcher(loader, "cuda:0")
    for _ in prefetcher:
        break
    assert loader.last() is None
    assert [batch.name for batch in prefetcher] == ["0", "1", "2", "3", "4"]


def test_an_error_drops_the_iterator_of_the_loader(cuda: FakeCuda) -> None:
    def fail() -> Iterator[FakeTensor]:
        yield FakeTensor("0", cuda)
        raise RuntimeError("broken")

    loader = Replay(fail)
    with pytest.raises(RuntimeError, match="broken"):
        list(DevicePrefetcher(loader, "cuda:0"))
    assert loader.last() is None


def test_on_the_cpu_batches_come_through_untouched() -> None:
    batches = [{"x": torch.zeros(2)}, {"x": torch.ones(2)}]
    assert all(mine is theirs for mine, theirs in zip(DevicePrefetcher(batches, "cpu"), batches, strict=True))


def test_on_other_devices_batches_are_copied() -> None:
    (batch,) = DevicePrefetcher([{"x": torch.zeros(2), "id": ["a"]}], "meta")
    assert batch["x"].device.type == "meta"
    assert batch["id"] == ["a"]


def test_length_and_epoch_are_those_of_the_loader() -> None:
    class Loader:
        epoch = 0

        def __iter__(self) -> Iterator[int]:
            return iter([self.epoch])

        def __len__(self) -> int:
            return 1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    prefetcher = DevicePrefetcher(Loader(), "cpu")
    prefetcher.set_epoch(4)
    assert list(prefetcher) == [4]
    assert len(prefetcher) == 1
    with pytest.raises(TypeError, match="list takes no epoch"):
        DevicePrefetcher([], "cpu").set_epoch(1)
    with pytest.raises(ValueError, match="depth"):
        DevicePrefetcher([], "cpu", depth=0)


def test_what_decodes_runs_ahead_on_the_side_stream_with_what_is_pinned(cuda: FakeCuda) -> None:
    def decode(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
        cuda.log.append(f"decode {batch['id'][0]} on {cuda.active} for {device}")
        assert batch["x"].place == "pinned"
        return batch | {"y": FakeTensor("y", cuda, "pinned")}

    batches = [{"x": FakeTensor(str(number), cuda), "id": [str(number)]} for number in range(2)]
    for batch in DevicePrefetcher(batches, "cuda:0", decode=decode):
        assert batch["y"].place == "cuda:0"
        cuda.log.append(f"use {batch['id'][0]}")
    assert cuda.log == [
        *("decode 0 on side for cuda:0", "copy 0 on side", "copy y on side"),
        *("decode 1 on side for cuda:0", "copy 1 on side", "copy y on side"),
        *("main waits for event 1", "record 0", "record y", "use 0"),
        *("main waits for event 2", "record 1", "record y", "use 1"),
    ]


def test_what_fails_to_decode_is_raised_in_place_of_its_batch_and_not_counted(
    cuda: FakeCuda, path: Path
) -> None:
    def decode(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
        return batch | {"x": 1 // (len(batch["id"]) - 1)}

    for device in ("cuda:0", "cpu"):
        batches = DevicePrefetcher(ShardLoader(path, 2, fields=[], tail="exact"), device, decode=decode)
        with pytest.raises(ZeroDivisionError):
            ids(batches)
        assert batches.state_dict()["position"] == 10


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda:0"])
@pytest.mark.parametrize("where", ["decode", "transform"])
def test_a_stop_iteration_of_what_is_done_to_a_batch_ends_no_epoch(
    cuda: FakeCuda, device: str, where: str
) -> None:
    def stop(batch: dict[str, Any], *_: Any) -> dict[str, Any]:
        if batch["id"] == ["1"]:
            next(iter([]))
        return batch

    three: Any = [{"id": [str(number)]} for number in range(3)]
    batches = iter(DevicePrefetcher(three, device, **{where: stop}))
    assert next(batches)["id"] == ["0"]
    with pytest.raises(RuntimeError, match=r"stop.* raised StopIteration"):
        next(batches)


def test_a_stop_iteration_of_a_tensor_that_is_copied_ends_no_epoch(cuda: FakeCuda) -> None:
    class Odd(FakeTensor):
        def pin_memory(self) -> FakeTensor:
            raise StopIteration

    batches = iter(DevicePrefetcher([FakeTensor("0", cuda), Odd("1", cuda)], "cuda:0"))
    next(batches)
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(batches)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("way", ["threads", "sampler", "iterable-workers"])
def test_what_decodes_is_told_the_epoch_that_begins(
    path: Path, cuda: FakeCuda, way: str, device: str
) -> None:
    decode = EpochNoting()
    loader, source = LOADERS[way](path, batch_size=6, tail="exact")
    batches = DevicePrefetcher(loader, device, decode=decode)
    for epoch in (0, 4, 5):
        if epoch == 4:
            batches.set_epoch(4)
        elif epoch == 5:
            source.set_epoch(5)
        ids(batches)
    assert decode.epochs == [0, 0, 4, 4, 5, 5]
    state = batches.state_dict()
    again = DevicePrefetcher(LOADERS[way](path, batch_size=6, tail="exact")[0], device, decode=decode)
    again.load_state_dict(state | {"position": 6})
    ids(again)
    assert decode.epochs[6:] == [5]


class EpochNoting:
    """Decodes nothing, and notes the epoch that each batch is of."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.epochs: list[int | None] = []

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, batch: Any, device: torch.device) -> Any:
        self.epochs.append(self.epoch)
        return {"id": batch["id"]}


def test_encoded_images_stay_on_the_cpu_where_decoders_take_them(cuda: FakeCuda) -> None:
    images = EncodedImages([torch.zeros(3, dtype=torch.uint8)])
    for device in ("cuda:0", "meta", "cpu"):
        (moved,) = DevicePrefetcher([{"image": images}], device)
        assert moved["image"] is images


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_every_batch_arrives_unaltered_while_memory_is_reused() -> None:
    class Batches:
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            return (
                {"x": torch.full((64, 3, 64, 64), number % 251, dtype=torch.uint8)} for number in range(200)
            )

    for number, batch in enumerate(DevicePrefetcher(Batches(), "cuda")):
        x = batch.pop("x")
        total = x.to(torch.int64).sum()
        del x
        torch.empty(64 * 3 * 64 * 64, dtype=torch.uint8, device="cuda").fill_(255)
        assert total.item() == number % 251 * 64 * 3 * 64 * 64


def test_waiting_for_data_is_told_apart_from_using_them(cuda: FakeCuda) -> None:
    def slow() -> Iterator[dict[str, Any]]:
        for number in range(3):
            time.sleep(0.02)
            yield {"x": number}

    class Loader:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return slow()

    batches = DevicePrefetcher(Loader(), "cpu", transform=lambda batch: batch | {"y": batch["x"] + 1})
    assert batches.timing.batches == 0
    seen = []
    for batch in batches:
        seen.append(batch["y"])
        time.sleep(0.05)
    assert seen == [1, 2, 3]
    timing = batches.timing
    assert timing.batches == 3
    assert timing.waited >= 0.06
    assert timing.used >= 0.15
    assert timing.device_waited == 0
    for _ in batches:
        break
    assert batches.timing.batches == 1


def test_the_time_that_a_device_waits_for_copies_is_added_up(cuda: FakeCuda) -> None:
    batches = DevicePrefetcher([{"x": FakeTensor(str(number), cuda)} for number in range(3)], "cuda:0")
    list(batches)
    # the copies are over at 1, 2 and 3 s, and the stream always asks at 1.5 s
    assert batches.timing.device_waited == pytest.approx(0 + 0.5 + 1.5)


# --- the state of a loader that is ahead ------------------------------------------------------------------------------

EPOCH = 1
LOADERS = {
    "iterable": iterable,
    "iterable-workers": partial(iterable, workers=2),
    "sampler": sampler,
    "sampler-workers": partial(sampler, workers=2),
    "threads": threads,
}
PLACES = [("cpu", 2), ("meta", 2), ("cuda:0", 1), ("cuda:0", 2), ("cuda:0", 4)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("device") / "out"
    records = [{"id": f"r{row}", "label": 0} for row in range(11)]
    ingest(records, out, Contract({"label": LabelField(num_classes=1)}), workers=0, records_per_shard=4)
    return out


@pytest.fixture(scope="module")
def whole(path: Path) -> list[list[str]]:
    """The six batches of the epoch."""
    order = ordered_ids(ShardDataset(path), seed=0, epoch=EPOCH)
    return [order[first : first + 2] for first in range(0, len(order), 2)]


@pytest.mark.parametrize(("device", "depth"), PLACES)
@pytest.mark.parametrize("way", LOADERS)
def test_a_state_at_any_batch_leaves_what_was_not_handed_out(
    path: Path, whole: list[list[str]], cuda: FakeCuda, way: str, device: str, depth: int
) -> None:
    def begin() -> DevicePrefetcher:
        return DevicePrefetcher(LOADERS[way](path, batch_size=2, tail="exact").loader, device, depth)

    batches = begin()
    batches.set_epoch(EPOCH)
    states = [batches.state_dict(), *(batches.state_dict() for _ in batches), batches.state_dict()]
    assert [state["position"] for state in states] == [0, 2, 4, 6, 8, 10, 11, 11]
    again = begin()
    for taken, state in enumerate(states):
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert ids(again) == whole[taken:]
        assert again.state_dict() == states[-1]
        again.load_state_dict(state)
        assert again.state_dict() == state


@pytest.mark.parametrize("way", LOADERS)
def test_stopping_after_every_batch_and_going_on_loses_nothing(
    path: Path, whole: list[list[str]], cuda: FakeCuda, way: str
) -> None:
    batches = DevicePrefetcher(LOADERS[way](path, batch_size=2, tail="exact").loader, "cuda:0")
    batches.set_epoch(EPOCH)
    made = []
    for _ in whole:
        made += ids(itertools.islice(batches, 1))
        batches.load_state_dict(batches.state_dict())
    assert made == whole
    batches.set_epoch(EPOCH)
    assert ids(batches) == []
    assert ids(batches) == whole


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata
@pytest.mark.parametrize(
    ("workers", "device", "depth"), [*((0, *place) for place in PLACES), (2, "cpu", 2), (2, "cuda:0", 4)]
)
@pytest.mark.parametrize("kind", ["iterable", "sampler"])
def test_a_stateful_loader_is_saved_as_of_the_batch_handed_out(
    path: Path, whole: list[list[str]], cuda: FakeCuda, kind: str, workers: int, device: str, depth: int
) -> None:
    def begin() -> DevicePrefetcher:
        options = {"num_workers": workers} | ({"multiprocessing_context": "fork"} if workers else {})
        if kind == "iterable":
            data = ShardIterableDataset(path, 2, tail="exact", fields=[])
            return DevicePrefetcher(StatefulDataLoader(data, batch_size=None, **options), device, depth)
        rows = ShardDataset(path, fields=[])
        some = ShardSampler(rows, 2, tail="exact")
        loader = StatefulDataLoader(rows, batch_sampler=some, collate_fn=collate, **options)
        return DevicePrefetcher(loader, device, depth)

    batches = begin()
    batches.set_epoch(EPOCH)
    for taken, state in enumerate([batches.state_dict() for _ in batches], start=1):
        again = begin()
        again.load_state_dict(state)
        assert ids(again) == whole[taken:]
    again = begin()
    again.load_state_dict(batches.state_dict())  # of the end: torchdata begins another epoch
    for each in (batches, again):
        each.set_epoch(EPOCH + 1)
    assert ids(again) == ids(batches)


def test_a_batch_that_its_transform_fails_on_is_not_counted(path: Path, cuda: FakeCuda) -> None:
    def fail(batch: Any) -> Any:
        raise ZeroDivisionError("nothing to divide")

    batches = DevicePrefetcher(ShardLoader(path, 2, fields=[], tail="exact"), "cuda:0", transform=fail)
    with pytest.raises(ZeroDivisionError):
        next(iter(batches))
    assert batches.state_dict()["position"] == 0


def test_the_state_is_that_of_an_epoch_or_position_set_on_the_source_itself(
    path: Path, cuda: FakeCuda
) -> None:
    loader, data = iterable(path, 1, batch_size=2, tail="exact")
    batches = DevicePrefetcher(loader, "cuda:0")
    for _ in itertools.islice(batches, 3):
        state = batches.state_dict()
    data.set_epoch(1)
    assert (batches.state_dict()["epoch"], batches.state_dict()["position"]) == (1, 0)
    data.load_state_dict(state)
    assert batches.state_dict() == state


def test_weights_that_change_meanwhile_do_not_reset_the_count(path: Path) -> None:
    loader = ShardLoader(path, 2, fields=[], weights=[1] * 11)
    batches = DevicePrefetcher(loader, "cpu")
    for _ in itertools.islice(batches, 2):
        loader.set_weights({"r3": 5})
    assert batches.state_dict()["position"] == 4


def test_every_rank_says_that_its_epoch_is_over_though_some_make_a_step_less(
    path: Path, cuda: FakeCuda
) -> None:
    for rank in range(3):
        loader, _ = iterable(path, 1, batch_size=3, tail="exact", rank=rank, world_size=3)
        batches = DevicePrefetcher(loader, "cuda:0")
        ids(batches)
        assert batches.state_dict()["position"] == 11


def test_what_has_no_state_is_refused_by_name(path: Path) -> None:
    batches = DevicePrefetcher(DataLoader([1, 2]), "cpu")
    assert len(list(batches)) == 2
    with pytest.raises(
        TypeError, match="DataLoader has no state_dict, nor has its batch sampler or data set"
    ):
        batches.state_dict()
    with pytest.raises(TypeError, match="DataLoader has no state_dict"):
        batches.load_state_dict({})
    with pytest.raises(StateError, match="no state"):
        DevicePrefetcher(ShardLoader(path), "cpu").load_state_dict({})


def test_an_epoch_reaches_a_batch_sampler(path: Path) -> None:
    loader, source = sampler(path, batch_size=2)
    batches = DevicePrefetcher(loader, "cpu")
    first = ids(batches)
    batches.set_epoch(1)
    assert source.epoch == 1
    assert ids(batches) != first


def test_the_next_batch_is_waited_for_without_keeping_the_one_before() -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def loader() -> Iterator[torch.Tensor]:
        for _ in range(2):
            assert [batch() for batch in made] == [None] * len(made)
            made.append(weakref.ref(batch := torch.zeros(1)))
            yield batch
            del batch

    batches = iter(DevicePrefetcher(Replay(loader), "cpu"))
    for _ in range(2):
        next(batches)
    assert len(made) == 2
