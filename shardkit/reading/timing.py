"""How long a training loop waited for data, measured beside the time in which it used them."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Any


class Timing:
    """Times of one iteration.

    Attributes:
        batches: Batches handed out.
        waited: Seconds in which the loop asked for a batch and had none yet.
        used: Seconds between a batch being handed out and the next being asked for: compute, or its launch.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.waited = 0.0
        self.used = 0.0
        self._copies: deque[tuple[Any, Any]] = deque()  # Any: torch.cuda.Event is untyped
        self._copies_waited = 0.0

    def __repr__(self) -> str:
        return f"<Timing: {self.batches} batches, waited {self.waited:.3f} s, used {self.used:.3f} s>"

    @property
    def device_waited(self) -> float:
        """Seconds in which a CUDA device had nothing left to do before a batch was copied; waits for the device.

        0 on other devices, which copy when they are asked.
        """
        self._fold(is_patient=True)
        return self._copies_waited

    def watch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches, and keep the time."""
        asked = time.perf_counter()
        for batch in batches:
            got = time.perf_counter()
            self.waited += got - asked
            self.batches += 1
            yield batch
            del batch  # the next one is waited for without it
            asked = time.perf_counter()
            self.used += asked - got

    def add_copy(self, reached: Any, copied: Any) -> None:
        """Note that a stream came to a batch at one event, and that it was copied at another."""
        self._copies.append((reached, copied))
        self._fold(is_patient=False)

    def _fold(self, *, is_patient: bool) -> None:
        """Add up the copies that are over, so that a long epoch does not keep its events."""
        while self._copies:
            reached, copied = self._copies[0]
            if is_patient:
                reached.synchronize()
                copied.synchronize()
            elif not (reached.query() and copied.query()):
                return
            self._copies.popleft()
            self._copies_waited += max(0.0, reached.elapsed_time(copied) / 1000)
