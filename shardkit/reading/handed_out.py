"""How far a training loop has come that is handed batches later than they are pulled from their loader."""

from collections import deque
from typing import Any

from shardkit.reading.rank_batches import RankBatches


class HandedOut:
    """What one iteration handed out of a loader from which no batch is pulled ahead: the loader's own state says it.

    Args:
        loader: What is iterated: it, its batch sampler or its data set may have a state.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def pull(self) -> None:
        """Note that a batch came from the loader."""

    def add(self) -> None:
        """Note that a batch is handed out; in the order in which they were pulled."""

    def end(self) -> None:
        """Note that there are no more."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as of the latest batch that was handed out.

        Raises:
            TypeError: Nothing here has a state.
        """
        state: dict[str, Any] = state_keeper(self._loader).state_dict()
        return state


class CountedBatches(HandedOut):
    """What one iteration handed out of a source that can tell its state after any number of batches.

    It is told when one asks, not with every batch. If the source was meanwhile given another epoch
    or position than the iteration began at, the batches counted here are none of that.

    Args:
        source: What the batches come from.
    """

    def __init__(self, source: RankBatches) -> None:
        super().__init__(source)
        self._source = source
        self._began: tuple[int, int] | None = None
        self._count = 0
        self._is_over = False

    def add(self) -> None:
        """Count a batch."""
        self._began = self._began or _place(self._source.state_dict(step=0))
        self._count += 1

    def end(self) -> None:
        """Note that the epoch is over: also for a rank that has no part in its last step, or drops the rest."""
        self._began = self._began or _place(self._source.state_dict(step=0))
        self._is_over = True

    def state_dict(self) -> dict[str, Any]:
        """Return the state after as many batches as were counted."""
        beginning = self._source.state_dict(step=0)
        if _place(beginning) != self._began:
            return beginning
        state = self._source.state_dict(step=self._count)
        return state | {"position": state["length"]} if self._is_over else state


class CarriedStates(HandedOut):
    """What one iteration handed out of a loader that is pulled ahead and keeps count by itself, as torchdata's does.

    Its state is taken as each batch is pulled, and counts once that batch is handed out.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._coming: deque[dict[str, Any]] = deque()
        self._latest: dict[str, Any] | None = None

    def pull(self) -> None:
        """Take the state that goes with a batch."""
        self._coming.append(super().state_dict())

    def add(self) -> None:
        """Go on to the state of the next batch."""
        self._latest = self._coming.popleft()

    def end(self) -> None:
        """Go on to the state of a loader that has no more."""
        self._latest = super().state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Return the state taken with the latest batch."""
        return super().state_dict() if self._latest is None else self._latest


def follow(loader: Any, *, is_ahead: bool) -> HandedOut:
    """Return what is to be told of an iteration that begins.

    Args:
        loader: What is iterated.
        is_ahead: Whether batches are pulled before they are asked for.
    """
    keeper = _find_keeper(loader)
    if isinstance(keeper, RankBatches):
        return CountedBatches(keeper)
    return CarriedStates(loader) if is_ahead and keeper is not None else HandedOut(loader)


def state_keeper(loader: Any) -> Any:
    """Return the one that has a state: a loader, its batch sampler or its data set.

    Raises:
        TypeError: None of them has.
    """
    keeper = _find_keeper(loader)
    if keeper is None:
        raise TypeError(
            f"{type(loader).__name__} has no state_dict, nor has its batch sampler or data set: prefetch from a "
            f"ShardLoader, or a DataLoader with a ShardIterableDataset or ShardSampler"
        )
    return keeper


def rank_batches_of(loader: Any) -> RankBatches | None:
    """Return what decides the batches of a loader: it, its batch sampler or its data set; None if that is not ours."""
    return next((each for each in _parts(loader) if isinstance(each, RankBatches)), None)


def _find_keeper(loader: Any) -> Any:
    return next((each for each in _parts(loader) if hasattr(each, "state_dict")), None)


def _parts(loader: Any) -> tuple[Any, ...]:
    return loader, getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None)


def _place(state: dict[str, Any]) -> tuple[int, int]:
    return state["epoch"], state["position"]
