"""The random numbers of a transform: decided by seed, epoch and id, whoever delivers the sample."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from shardkit.permutation import round_key


@dataclass(frozen=True)
class Draws:
    """Decides the random numbers of the samples of one batch.

    Attributes:
        key: 64 bits, decided by the seed and the epoch.
        positions: ``int64[B]``, positions in the epoch, where a record may come more than once in it, and shall then
            not be cropped the same way each time; else None.
    """

    key: int
    positions: npt.NDArray[np.int64] | None = None

    def part(self, begin: int, end: int) -> "Draws":
        """Return what decides for the places from `begin` to `end` of the batch."""
        return Draws(self.key, None if self.positions is None else self.positions[begin:end])

    @staticmethod
    def key_of(seed: int, epoch: int) -> int:
        """Return the key of an epoch."""
        return round_key(f"{seed}\0{epoch}\0samples", 0)

    def seed_of(self, place: int, record_id: str) -> int:
        """Return 64 bits for the sample at a place of the batch."""
        name = record_id if self.positions is None else f"{record_id}\0{self.positions[place]}"
        return xxhash.xxh3_64_intdigest(name.encode(), seed=self.key)


# So that Python's stream, which is seeded too, does not give transforms the same numbers.
_OPERATIONS = 0x6F7073


class _Current(threading.local):
    """The sample that this thread transforms: as with `torch.utils.data.get_worker_info`, transforms ask for it."""

    seed: int | None = None
    rng: np.random.Generator | None = None


_current = _Current()


def sample_rng() -> np.random.Generator:
    """Return the random numbers of the sample that is being transformed.

    They depend on seed, epoch and id alone (for draws with replacement, on the position in the epoch too): not on
    workers, threads, ranks or batch size, nor on whether the run was resumed. All transforms of a sample share one
    generator. In the samples of a plain DataLoader, which knows no epoch, and outside of samples, it is a new
    generator each time, seeded from torch's random stream.

    Example:
        >>> def jitter(sample):
        ...     factor = sample_rng().uniform(0.8, 1.2)
        ...     return sample | {"image": (sample["image"] * factor).clamp(0, 255).to(torch.uint8)}
    """
    if _current.seed is None:
        return np.random.default_rng(int(torch.randint(2**63 - 1, (), device="cpu")))
    if _current.rng is None:
        _current.rng = np.random.default_rng(_current.seed)
    return _current.rng


@contextmanager
def transforming(draws: Draws | None) -> Iterator[None]:
    """Surround the transforms of a batch; `begin_sample` then says which sample is next.

    The random streams of the process (Python's, NumPy's and torch's), which transforms of other libraries draw from,
    are put back as they were afterwards: training may draw from them as well.
    """
    if draws is None:
        yield
        return
    owns_process = _owns_process()
    if owns_process:
        kept = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
    try:
        yield
    finally:
        _current.seed = _current.rng = None
        if owns_process:
            random.setstate(kept[0])
            np.random.set_state(kept[1])
            torch.set_rng_state(kept[2])


def begin_sample(draws: Draws, place: int, record_id: str) -> None:
    """Decide the random numbers of the sample at a place of the batch, those of the process's streams too."""
    _current.seed = seed = draws.seed_of(place, record_id)
    _current.rng = None
    if _owns_process():
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed also asks every device: 160 us


def rng_of(draws: Draws | None, place: int, record_id: str) -> random.Random:
    """Return the random numbers of the image operations of a sample; None draws from torch's stream."""
    seed = int(sample_rng().integers(2**63)) if draws is None else draws.seed_of(place, record_id)
    return random.Random(seed ^ _OPERATIONS)


def _owns_process() -> bool:
    """Whether this thread may seed what all threads share: the main one, as of a DataLoader's worker, may."""
    return threading.current_thread() is threading.main_thread()
