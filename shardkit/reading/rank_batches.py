"""The batches of one rank, epoch after epoch: what the sampler, the iterable data set and the loader have in common.

Everything that decides which rows make up which batch meets here; nothing here reads a record.
"""

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, Self, SupportsIndex

import numpy.typing as npt
from torch.utils.data import get_worker_info

from shardkit.errors import StateError
from shardkit.reading.batches import BatchIterator
from shardkit.reading.dataset import ShardDataset
from shardkit.reading.integer import require_integer
from shardkit.reading.order import Order, Shuffle
from shardkit.reading.partition import Partition, Tail
from shardkit.reading.placement import Placement
from shardkit.reading.progress import Iteration, Progress
from shardkit.reading.sampling import Sampling, WeightedRows, Weights, make_sampling
from shardkit.reading.state import State
from shardkit.transforms.randomness import Draws


class RankBatches:
    """Which rows make up which batch of one rank, in every epoch, and how far a run has come.

    The epoch stays what `set_epoch` last made it; call it between epochs, before the loader is iterated. It
    reaches the workers of a loader with ``persistent_workers=True``. Copies, and ranks that are started with
    one object, have each an epoch of their own.

    Args:
        dataset: The data set.
        batch_size: Samples of one batch of one rank.
        shuffle: ``"global"``, any row anywhere; ``"block"``, blocks of neighbouring rows mixed in a window,
            which is kind to cold disks and networks; False, as stored.
        seed: Decides the orders, together with data set and epoch. The same on every rank.
        tail: What becomes of the records that fill no batch on every rank. ``"pad"``: all ranks make
            equally many steps, repeats are marked; ``"drop"``: equally many steps, those records are not
            delivered this epoch; ``"exact"``: each record once, ranks may differ by one step.
        rank: This rank; by default that of torch.distributed, or 0 where that is not initialised.
        world_size: Number of ranks; given exactly if `rank` is.
        rows: Rows to sample from, as `ShardDataset.select` finds them; None for all.
        weights: Draw records with replacement: class name -> weight of each of its records, or one weight a row.
        num_samples: Draws in an epoch; by default as many as there are rows to draw from.
        stratify: Name of a label field: each batch holds its classes in proportion to their sizes, or nearly.

    Attributes:
        dataset: The data set.
        batch_size: Samples of one batch of one rank.

    Raises:
        TypeError: A number is not an integer; names it.
        ValueError: An argument is out of its range; names it and what is allowed.
        LookupError: `stratify` names no label field.
    """

    def __init__(
        self,
        dataset: ShardDataset,
        batch_size: int = 64,
        shuffle: Shuffle = "global",
        seed: int = 0,
        tail: Tail = "pad",
        rank: int | None = None,
        world_size: int | None = None,
        rows: npt.ArrayLike | None = None,
        weights: Weights | None = None,
        num_samples: int | None = None,
        stratify: str | None = None,
    ) -> None:
        if not isinstance(dataset, ShardDataset):
            raise TypeError(
                f"{type(self).__name__} samples from a ShardDataset, not {type(dataset).__name__}; give it "
                "ShardDataset(path), and rows=... for a part of it"
            )
        count = None if num_samples is None else require_integer("num_samples", num_samples)
        self.dataset = dataset
        self.batch_size = require_integer("batch_size", batch_size)
        self._shuffle = shuffle
        number = require_integer("seed", seed)
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"seed must lie in [-2**63, 2**63), not {number}")
        self._tail = tail
        self._given = Placement.given(rank, world_size)
        self._sampling: Sampling = make_sampling(dataset, rows, weights, count, stratify)
        self._progress = Progress(number)
        self._latest: BatchIterator | None = None
        self._handed_over: tuple[int, int, int] | None = None
        self._iterations = 0
        self._begun_with = ""
        self._partition(0)
        self._order(number, 0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dataset.describe()}>"

    def __len__(self) -> int:
        """Number of batches of this rank in the next iteration, over all its workers."""
        return len(self._partition(self._progress.pending()))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._progress.epoch

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Choose the epoch of the next iteration, in this process and in persistent workers.

        Raises:
            TypeError: `epoch` is no integer.
            ValueError: It is negative, or does not fit 63 bits.
        """
        if require_integer("epoch", epoch) != self.epoch:
            self._latest = None
        self._progress.set_epoch(epoch)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some records by id, for the epochs that begin from now on, in workers too.

        Raises:
            ValueError: There are no weights, or one is negative or not finite, or all are 0 then.
            RecordNotFoundError: No record has one of the ids.
        """
        if not isinstance(self._sampling, WeightedRows):
            raise ValueError("there are no weights to change: open the data with weights=...")
        self._sampling.change({self.dataset.row_of(record_id): each for record_id, each in weights.items()})

    def state_dict(self, step: SupportsIndex | None = None) -> dict[str, Any]:
        """Return what was delivered, as a few plain values for a checkpoint.

        Args:
            step: Batches of the current epoch, since it was begun or resumed, that the training loop has taken. Needed
                where a DataLoader has workers, as these run ahead (torchdata's StatefulDataLoader keeps count itself).
                None takes those that this object has handed out.

        Raises:
            StateError: `step` is None, and the batches are made in worker processes.
            ValueError: `step` is out of its range.
        """
        latest = self._current()
        return self._state(self._position(step, latest), latest).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration of its epoch delivers what was not delivered yet, exactly once.

        Ranks, workers, threads and batch size may be others than when it was saved; its seed is taken. Load it before
        the loader is iterated. Where the epoch was over, and another one was set meanwhile, that one stays.

        Raises:
            StateError: It was saved with another data set, generation or sampling, or is none.
        """
        loaded = State.from_dict(state)
        loaded.require_same(self._state(0, None), str(self.dataset.path))
        self._latest = None
        is_over = loaded.position == loaded.length
        if get_worker_info() is None:
            self._progress.resume(loaded.seed, loaded.epoch, loaded.position, is_over=is_over)
            return
        # a loader hands each worker a state of its own; what else is shared is for the parent to say
        self._progress.take_seed(loaded.seed)
        if not (is_over and self._progress.is_set):
            self._handed_over = loaded.seed, loaded.epoch, loaded.position

    @property
    def filtered(self) -> list[str]:
        """Ids of the samples that the transform has left out; see `ShardDataset.filtered`."""
        return self.dataset.filtered

    @property
    def skipped(self) -> list[str]:
        """Ids of the damaged records that were left out; see `ShardDataset.skipped`."""
        return self.dataset.skipped

    def __copy__(self) -> Self:
        """Return a copy with an epoch and weights of its own: this one would change those of a shallow one."""
        twin = object.__new__(type(self))
        own = {"_progress": copy.copy(self._progress), "_sampling": copy.deepcopy(self._sampling)}
        twin.__dict__.update(self.__getstate__() | own)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Settle the rank where it is known: a spawned worker knows nothing of the parent's torch.distributed.

        Where torch.distributed is not initialised it stays open: what is spawned may be a rank, which does so itself.
        """
        return self.__dict__ | {"_latest": None, "_given": self._given or Placement.known()}

    def _begin(self) -> BatchIterator:
        """Return the batches of an iteration that begins now, in this process or as one of a DataLoader's workers."""
        worker = get_worker_info()
        if self._given is None:
            Placement.known_or_alone()
        if worker is None:
            start, claim = self._progress.pending(), self._progress.claim
        else:
            self._iterations += 1
            iteration = Iteration(worker.seed - worker.id, self._iterations)
            start = self._progress.pending_in(worker.id, iteration)
            claim = partial(self._progress.claim_in, worker.id, iteration, start)
        seed, epoch, start = self._handed_over or (self._progress.seed, self.epoch, start)

        def begun() -> None:  # with the first batch, for torch's loader makes two iterators and uses one
            self._handed_over = None
            claim()

        self._begun_with = self._sampling.digest()
        self._latest = BatchIterator(
            self._order(seed, epoch),
            self._partition(start),
            epoch,
            Draws.key_of(seed, epoch),
            self._sampling.is_repeating,
            begun,
            0 if worker is None else worker.id,
            1 if worker is None else worker.num_workers,
        )
        return self._latest

    def _current(self) -> BatchIterator | None:
        """Return the iteration that states speak of, or None where it is in worker processes, or yet to begin."""
        is_in_workers = get_worker_info() is None and self._progress.is_begun_in_workers
        return None if is_in_workers else self._latest

    def _position(self, step: SupportsIndex | None, latest: BatchIterator | None) -> int:
        if step is None:
            if latest is None and self._progress.is_begun_in_workers:
                raise StateError(
                    "batches are made in worker processes, which run ahead of what was taken: say how many batches "
                    "of this iteration were, state_dict(step=...), or use torchdata's StatefulDataLoader"
                )
            return self._progress.pending() if latest is None else latest.position
        number = require_integer("step", step)
        partition = self._partition(self._progress.latest_start if latest is None else latest.start)
        if not 0 <= number <= len(partition):
            raise ValueError(f"step must lie in [0, {len(partition)}], not {number}")
        return partition.end(number)

    def _state(self, position: int, latest: BatchIterator | None) -> State:
        return State(
            dataset_id=self.dataset.dataset_id,
            generation=self.dataset.generation,
            seed=self._progress.seed,
            shuffle=str(self._shuffle),
            sampling=self._sampling.digest() if latest is None else self._begun_with,
            length=len(self._sampling),
            epoch=self.epoch if latest is None else latest.epoch,
            position=position,
        )

    def _partition(self, start: int) -> Partition:
        placement = self._given or Placement.known() or Placement(0, 1)
        return Partition(
            len(self._sampling), placement.rank, placement.world_size, self.batch_size, self._tail, start
        )

    def _order(self, seed: int, epoch: int) -> Order:
        return self._sampling.order(self._shuffle, self.dataset.dataset_id, seed, epoch)
