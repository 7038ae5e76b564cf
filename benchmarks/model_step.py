"""A stand-in for the step of a model, of any length; and what it takes to copy a batch to its device."""

import statistics
import time
from collections import deque
from typing import Any

import torch

_SIDES = {
    "cuda": 2048,
    "cpu": 64,
}  # of the matrices: each product keeps the device busy, and is short beside a step
_DTYPES = {"cuda": torch.float16, "cpu": torch.float32}
_MOST_QUEUED = 1  # steps behind the one that runs: a loop that reads its loss is no further ahead
_LEAST_SECONDS = 0.05  # that rounds are counted in, to tell their length
_COPIES = 20


class ModelStep:
    """Reads all images of a batch, then multiplies matrices, one product after the other.

    Args:
        device: Where it computes.

    Attributes:
        rounds: Products a step.
    """

    def __init__(self, device: torch.device) -> None:
        side, dtype = _SIDES[device.type], _DTYPES[device.type]
        self._device = device
        self._weights = torch.randn(side, side, device=device).div_(side).to(dtype)
        self._state = torch.ones(side, side, device=device, dtype=dtype)
        self._queued: deque[Any] = deque()  # Any: torch.cuda.Event is untyped
        self.rounds = 1

    def __call__(self, images: torch.Tensor) -> None:
        """Do one step; on a GPU, begin it once the step before the last one is over."""
        self._state.add_(images.to(self._state.dtype).mean())
        for _ in range(self.rounds):
            self._state = (self._weights @ self._state).clamp_(-1, 1)
        if self._device.type == "cuda":
            over = torch.cuda.Event()
            over.record()
            self._queued.append(over)
            if len(self._queued) > _MOST_QUEUED:
                self._queued.popleft().synchronize()

    def finish(self) -> None:
        """Wait until all steps are over."""
        self._queued.clear()
        synchronize(self._device)

    def calibrate(self, images: torch.Tensor, seconds: float) -> float:
        """Make a step with these images last some seconds, as nearly as whole products do, and return what it lasts."""
        self.rounds = 1
        self._timed(images)  # a warm-up
        shortest = self._timed(images)
        while (longer := self._timed(images)) < max(_LEAST_SECONDS, 2 * shortest):
            self.rounds *= 2
        a_round = (longer - shortest) / max(1, self.rounds - 1)
        self.rounds = max(1, round((seconds - shortest) / a_round))
        return statistics.median(self._timed(images) for _ in range(5))

    def _timed(self, images: torch.Tensor) -> float:
        self.finish()
        began = time.perf_counter()
        self(images)
        self.finish()
        return time.perf_counter() - began


def copy_seconds(images: torch.Tensor, device: torch.device) -> float:
    """Return the median time that it takes to copy a batch from pinned memory to a GPU; 0 where nothing is copied."""
    if device.type != "cuda":
        return 0.0
    pinned = images.pin_memory()
    times = []
    for _ in range(_COPIES):
        synchronize(device)
        began = time.perf_counter()
        pinned.to(device, non_blocking=True)
        synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
