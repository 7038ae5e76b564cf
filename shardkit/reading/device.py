"""Moving batches to the device while the model computes: pinned memory, a side stream, and the right waits.

The copy of the next batches runs on a stream of its own, beside the kernels of the current one. Two rules
of CUDA streams make that safe (https://docs.pytorch.org/docs/stable/notes/cuda.html): the consumer's stream
waits for the copy before it touches the batch, and each tensor is recorded on the consumer's stream, so
that its memory is not given to a later copy while kernels still read it.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Protocol

import torch

from shardkit.reading.handed_out import HandedOut, follow, rank_batches_of, state_keeper
from shardkit.reading.timing import Timing


class BatchSource(Protocol):
    """What is prefetched from: anything that is iterable again and again, such as a DataLoader."""

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch."""


class DevicePrefetcher:
    """The batches of a loader, on a device, copied ahead of their use.

    For a CUDA device every tensor of a batch is pinned in this process and copied on a side stream, ahead
    of its use; the batch is ready for the current stream when it is handed out. For the CPU the loader's own
    batches come through untouched; for other devices they are copied when asked for.

    A batch may be a tensor, any nesting of mappings, lists, tuples and named tuples, or hold objects with
    methods ``pin_memory()``, ``to(device, non_blocking=True)`` and ``record_stream(stream)``; what has none
    of these (ids, text) stays as it is. Each iteration starts the loader anew; leaving one early drops the
    loader's iterator, which ends its workers. An error of the loader is raised in place of the batch that
    failed, after the ones before it.

    The loader is ahead of the training loop, and so is its state: save and load that of the prefetcher.

    Example:
        >>> batches = DevicePrefetcher(loader, "cuda", transform=Normalize(mean, std))
        >>> for batch in batches:
        ...     loss = model(batch["image"])
        ...     checkpoint = batches.state_dict()
        >>> print(f"waited {batches.timing.waited:.1f} s for data, used them for {batches.timing.used:.1f} s")

    Images that `transforms.Encoded` left as they are stored stay on the CPU in any case, for a decoder to take them.

    Args:
        loader: An iterable of batches that can be iterated again.
        device: Where the batches go.
        depth: Batches on the device at once, the one in use included, at least 1 (which copies none ahead).
            Each takes device memory.
        transform: Applied to each batch on the device, before it is handed out.
        decode: Called with each batch, before it is moved, and the device: what it returns is moved instead, as far as
            that is not there yet. `transforms.DecodeImages` is one. For CUDA it runs ahead, on the side stream, with
            what can be pinned pinned; so it may block the calling thread, while the device computes. If it has a
            ``set_epoch``, that is called as an iteration begins, with the epoch of the loader of shardkit's, its
            sampler or its data set; and by `set_epoch`.

    Attributes:
        timing: How long the latest iteration waited for data; see `Timing`.

    Raises:
        ValueError: `depth` is less than 1.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: str | torch.device,
        depth: int = 2,
        transform: Callable[[Any], Any] | None = None,
        decode: Callable[[Any, torch.device], Any] | None = None,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, not {depth}")
        self.loader = loader
        self.device = torch.device(device)
        self.depth = depth
        self.timing = Timing()
        self._transform = transform
        self._decode = decode
        self._handed_out = HandedOut(loader)

    def __len__(self) -> int:
        """Number of batches of the loader.

        Raises:
            TypeError: The loader has no length.
        """
        return len(self.loader)  # type: ignore[arg-type]  # a loader without a length raises the TypeError

    def set_epoch(self, epoch: int) -> None:
        """Tell the loader, its data set, its sampler and what decodes, whichever take one, the next iteration's epoch.

        Raises:
            TypeError: None of them takes one.
        """
        names = ("dataset", "sampler", "batch_sampler")
        parts: list[Any] = [*(getattr(self.loader, name, None) for name in names), self._decode]
        takers: list[Any] = [taker for taker in (self.loader, *parts) if hasattr(taker, "set_epoch")]
        if not takers:
            raise TypeError(f"{type(self.loader).__name__} takes no epoch, nor does its data set or sampler")
        for taker in takers:
            taker.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return what was delivered up to the batch handed out last, whatever the loader has made or given since.

        It is a state of the loader, its batch sampler or its data set, whichever has one, and may be loaded there too:
        a `ShardLoader`, `ShardSampler` or `ShardIterableDataset`, the latter two also behind a DataLoader with workers,
        or torchdata's StatefulDataLoader.

        Raises:
            TypeError: None of them has a state.
        """
        return self._handed_out.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration begins after the batch that had been handed out last.

        Raises:
            TypeError: Neither the loader nor its batch sampler or data set has a state.
            StateError: It was saved with another data set, generation or sampling, or is none.
        """
        state_keeper(self.loader).load_state_dict(state)
        self._handed_out = HandedOut(self.loader)

    def __iter__(self) -> Iterator[Any]:  # Any: the loader decides what a batch is
        self.timing = Timing()
        is_ahead = self.device.type == "cuda" and self.depth > 1
        handed_out = follow(self.loader, is_ahead=is_ahead)
        batches = self._on_device(self.timing, handed_out)
        if self._transform is not None:
            batches = map(partial(_call, self._transform), batches)
        return self.timing.watch(self._note(batches, handed_out))

    def _note(self, batches: Iterator[Any], handed_out: HandedOut) -> Iterator[Any]:
        self._handed_out = handed_out
        for batch in batches:
            handed_out.add()
            yield batch
            del batch  # as in `Timing.watch`
        handed_out.end()

    def _on_device(self, timing: Timing, handed_out: HandedOut) -> Iterator[Any]:
        if self.device.type == "cuda":
            return self._ahead(SideStream(self.device, timing, self._decode), handed_out)
        batches = self._begin()
        if self._decode is not None:
            batches = map(partial(_call, self._decode), batches, repeat(self.device))
        if self.device.type == "cpu":
            return batches
        return (_copy(batch, self.device) for batch in batches)

    def _begin(self) -> Iterator[Any]:
        """Start the loader, which may take a state as it starts, and tell what decodes the epoch that this is of."""
        batches = iter(self.loader)
        source = rank_batches_of(self.loader)
        if source is not None and hasattr(self._decode, "set_epoch"):
            taker: Any = self._decode
            taker.set_epoch(source.epoch)
        return batches

    def _ahead(self, stream: "SideStream", handed_out: HandedOut) -> Iterator[Any]:
        copies: deque[Copy] = deque()
        failure: Exception | None = None
        batches = self._begin()
        ended = False
        while True:
            while not ended and len(copies) < self.depth:
                try:
                    copies.append(stream.start(_pull(batches, handed_out)))
                except _LoaderEnded:
                    ended = True
                except (
                    Exception
                ) as error:  # whatever the loader or decoding raises is raised again, in its turn
                    ended, failure = True, error
            if not copies:
                break
            yield stream.finish(copies.popleft())
        if failure is not None:
            try:
                raise failure
            finally:
                # The error's traceback refers to this frame: without this the cycle keeps the loader's
                # workers.
                del failure, batches


@dataclass(frozen=True)
class Copy:
    """A batch on its way: complete once `done` has happened on the side stream."""

    batch: Any  # Any: the loader decides what a batch is
    done: Any  # Any: torch.cuda.Event is untyped


class SideStream:
    """Copies batches to one CUDA device on a stream of its own.

    Args:
        device: A CUDA device.
        timing: Is told when the consumer's stream came to a batch, and when that was there.
        decode: Called with each batch and the device, on the stream, before the batch is copied.
    """

    def __init__(
        self,
        device: torch.device,
        timing: Timing,
        decode: Callable[[Any, torch.device], Any] | None = None,
    ) -> None:
        self._device = device
        self._timing = timing
        self._decode = decode
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # by torch

    def start(self, batch: Any) -> Copy:
        """Pin `batch`, decode it, and begin its copy."""
        pinned = _replace(batch, "pin_memory", lambda item: item.pin_memory())
        with torch.cuda.stream(self._stream):
            decoded = pinned if self._decode is None else _call(self._decode, pinned, self._device)
            moved = _copy(decoded, self._device)
            done = self._stream.record_event(_timed_event())
        return Copy(moved, done)

    def finish(self, begun: Copy) -> Any:
        """Return the batch of `begun`, ready for use on the current stream (which waits, not this thread)."""
        current = torch.cuda.current_stream(self._device)
        self._timing.add_copy(current.record_event(_timed_event()), begun.done)
        current.wait_event(begun.done)
        _record(begun.batch, current)
        return begun.batch


class _LoaderEnded(Exception):
    """There are no more batches. No StopIteration, which what is done to a batch may raise by mistake."""


def _pull(batches: Iterator[Any], handed_out: HandedOut) -> Any:
    try:
        batch = next(batches)
    except StopIteration:
        raise _LoaderEnded from None
    handed_out.pull()
    return batch


def _call(change: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function makes of a batch; its StopIteration, which would end the epoch, becomes an error."""
    try:
        return change(*arguments)
    except StopIteration as error:
        raise RuntimeError(
            f"{change!r} raised StopIteration for a batch, with which no epoch ends"
        ) from error


def _timed_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # by torch


def _copy(batch: Any, device: torch.device) -> Any:
    return _replace(batch, "to", lambda item: item.to(device, non_blocking=True))


def _replace(value: Any, method: str, change: Callable[[Any], Any]) -> Any:
    """Return `value` with `change` applied to everything in it that has `method`; containers are rebuilt."""
    if hasattr(value, method):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: _replace(item, method, change) for key, item in value.items()}
        if not isinstance(value, dict):
            return items
        clone = copy.copy(value)
        clone.update(items)
        return clone
    if isinstance(value, tuple | list):
        parts = [_replace(item, method, change) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _record(value: Any, stream: Any) -> None:
    """Tell the memory allocator that `stream` uses everything in `value`."""
    if hasattr(value, "record_stream"):
        value.record_stream(stream)
    elif isinstance(value, Mapping):
        _record(list(value.values()), stream)
    elif isinstance(value, tuple | list):
        for item in value:
            _record(item, stream)
    elif hasattr(value, "to"):
        raise TypeError(
            f"{type(value).__name__} has to() but no record_stream(stream): without it, its device memory may be "
            f"given to the next batch while kernels still read it; add one that passes the call on to its tensors"
        )
