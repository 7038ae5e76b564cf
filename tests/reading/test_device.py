"""DevicePrefetcher: order of waits with stand-ins for CUDA, and the real thing where there is a GPU."""

import time
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from shardkit.reading import DevicePrefetcher

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
