"""The order: which row stands at which position of an epoch, in O(1) memory and with random access.

An order is a pure function of (data set id, seed, epoch) and of the number of rows. No list of rows is ever
made: ``rows(positions)`` computes just the rows asked for, so that any rank, worker or resumed run can start
anywhere. Who delivers which positions is none of its business (that is ``partition``).

Shuffling is the keyed permutation of ``shardkit/permutation.py``. The sequence that it gives is stable: a change of
it is a break of compatibility for everyone who resumes a run.
"""

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import numpy.typing as npt

from shardkit.permutation import Permutation, hash_numbers, round_key

Shuffle = Literal["global", "block", False]
Rows = npt.NDArray[np.int64]

MAX_ROWS = 2**40
"""Beyond it the halves of the Feistel network no longer are small against the 32-bit round values."""
BLOCK_ROWS = 128
"""Neighbouring rows that stay together under ``shuffle="block"``: one long read on a cold disk."""
WINDOW_ROWS = 32 * BLOCK_ROWS
"""Positions within which the rows of several blocks are mixed: what must fit into the page cache at once."""


class Order(ABC):
    """The rows of one epoch, position by position. Immutable; safe to share between threads.

    Args:
        length: Number of rows, ``0 <= length <= 2**40``.
    """

    def __init__(self, length: int) -> None:
        if not 0 <= length <= MAX_ROWS:
            raise ValueError(f"an order covers 0 to 2**40 rows, not {length}")
        self._length = length

    def __len__(self) -> int:
        return self._length

    def rows(self, positions: npt.NDArray[np.int64]) -> Rows:
        """Return the row at each of `positions`.

        Args:
            positions: ``int64[k]``, each in ``[0, len(self))``, in any order, repeats allowed.

        Returns:
            ``int64[k]``; over all positions each row comes exactly once.

        Raises:
            IndexError: A position lies outside the epoch.
        """
        positions = np.ascontiguousarray(positions, dtype=np.int64)
        if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) < self._length:
            raise IndexError(f"positions must lie in [0, {self._length})")
        return self._rows(positions)

    @abstractmethod
    def _rows(self, positions: Rows) -> Rows:
        """Return a new array with the row at each position; `positions` are in range."""


class StoredOrder(Order):
    """Rows as they are stored: position p is row p."""

    def _rows(self, positions: Rows) -> Rows:
        return positions.copy()


class GlobalOrder(Order):
    """A permutation of all rows, every row equally likely at every position.

    Args:
        length: Number of rows.
        key: Text that decides the permutation.
    """

    def __init__(self, length: int, key: str) -> None:
        super().__init__(length)
        self._permutation = Permutation(length, key)

    def _rows(self, positions: Rows) -> Rows:
        return self._permutation.apply(positions)


class BlockOrder(Order):
    """Blocks of neighbouring rows in a random sequence, their rows mixed within windows of positions.

    Positions fall into windows of ``WINDOW_ROWS``. The rows of one window are those of about 32 blocks of
    ``BLOCK_ROWS`` neighbouring rows, so a reader that keeps a window cached reads the storage in long runs.
    The rows that fill no block (``length % BLOCK_ROWS``) form a short block whose place in the sequence is
    random too.

    Args:
        length: Number of rows.
        key: Text that decides the order.
    """

    def __init__(self, length: int, key: str) -> None:
        super().__init__(length)
        self._key = key
        full, self._short = divmod(length, BLOCK_ROWS)
        self._blocks = Permutation(full, f"{key}\0blocks")
        self._short_row = full * BLOCK_ROWS
        self._short_at = round_key(f"{key}\0short", 0) % (full + 1) * BLOCK_ROWS

    def _rows(self, positions: Rows) -> Rows:
        places = np.empty_like(positions)
        windows = positions // WINDOW_ROWS
        by_window = np.argsort(windows, kind="stable")
        starts = np.flatnonzero(np.diff(windows[by_window], prepend=-1))
        for chosen in np.split(by_window, starts[1:]) if starts.size else []:
            window = int(windows[chosen[0]])
            first = window * WINDOW_ROWS
            size = min(WINDOW_ROWS, len(self) - first)
            mixed = Permutation(size, f"{self._key}\0window\0{window}")
            places[chosen] = first + mixed.apply(positions[chosen] - first)
        return self._row_at(places)

    def _row_at(self, places: Rows) -> Rows:
        """Return the row at each place of the sequence of blocks that the windows draw from."""
        in_short = (places >= self._short_at) & (places < self._short_at + self._short)
        in_full = ~in_short
        rows = self._short_row + places - self._short_at
        full = places[in_full]
        full -= np.where(full >= self._short_at, self._short, 0)
        rows[in_full] = self._blocks.apply(full // BLOCK_ROWS) * BLOCK_ROWS + full % BLOCK_ROWS
        return rows


def epoch_order(shuffle: Shuffle, length: int, *, dataset_id: str, seed: int, epoch: int) -> Order:
    """Return the order of one epoch.

    Args:
        shuffle: ``"global"``, ``"block"`` or False (rows as stored).
        length: Number of rows, at most 2**40.
        dataset_id: The data set's id, so that equal seeds do not couple different data sets.
        seed: Any integer.
        epoch: Any integer.

    Raises:
        ValueError: `shuffle` is none of the three, or there are too many rows.
    """
    key = f"{dataset_id}\0{seed}\0{epoch}"
    if shuffle is False:
        return StoredOrder(length)
    if shuffle == "global":
        return GlobalOrder(length, key)
    if shuffle == "block":
        return BlockOrder(length, key)
    raise ValueError(f'shuffle must be "global", "block" or False, not {shuffle!r}')


class ChosenOrder(Order):
    """Some rows, in the order that another order gives to their places.

    Args:
        places: The order of the places ``[0, len(rows))``.
        rows: ``int64[k]``, the row at each place.
    """

    def __init__(self, places: Order, rows: Rows) -> None:
        super().__init__(len(places))
        self._places = places
        self._chosen = rows

    def _rows(self, positions: Rows) -> Rows:
        rows: Rows = self._chosen[self._places.rows(positions)]
        return rows


class WeightedOrder(Order):
    """Rows drawn with replacement, each with a probability in proportion to its weight.

    What is drawn at a position depends on that position alone, so that any of them can be had at once: a keyed hash
    of the position, as a number in [0, 1), is looked up among the cumulative weights (inverse transform sampling).

    Args:
        length: Number of draws.
        cumulative: ``float64[k]``, the sums of the weights up to each place; the last is above 0.
        key: Text that decides the draws.
    """

    def __init__(self, length: int, cumulative: npt.NDArray[np.float64], key: str) -> None:
        super().__init__(length)
        self._cumulative = cumulative
        self._key = np.uint64(round_key(key, 0))

    def _rows(self, positions: Rows) -> Rows:
        numbers = hash_numbers(positions.view(np.uint64), self._key)
        unit = (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
        places = np.searchsorted(self._cumulative, unit * self._cumulative[-1], side="right")
        rows: Rows = np.minimum(places, len(self._cumulative) - 1)
        return rows


class StratifiedOrder(Order):
    """Every place once, so that each run of positions holds the classes in proportion to their sizes, or nearly.

    The k-th of the n places of a class, in a shuffled order of the class, is due at ``(k + u) / n`` of the epoch, with
    one random u in [0, 1) a class; places come in the order in which they are due (systematic sampling). Any run of m
    positions holds ``m * n / N`` places of the class, give or take about one a class.
    Takes 8 bytes a place, computed when the epoch begins.

    Args:
        classes: ``int64[k]``, the class of each place.
        key: Text that decides the order.
    """

    def __init__(self, classes: npt.NDArray[np.int64], key: str) -> None:
        super().__init__(len(classes))
        due = np.empty(len(classes), dtype=np.float64)
        by_class = np.argsort(classes, kind="stable")
        starts = np.flatnonzero(np.diff(classes[by_class], prepend=classes[by_class[:1]] - 1))
        for places in np.split(by_class, starts[1:]) if len(classes) else []:
            name = f"{key}\0class\0{int(classes[places[0]])}"
            turn = Permutation(len(places), name).apply(np.arange(len(places), dtype=np.int64))
            due[places] = (turn + round_key(name, 1) * 2.0**-64) / len(places)
        self._sequence = np.argsort(due, kind="stable")

    def _rows(self, positions: Rows) -> Rows:
        rows: Rows = self._sequence[positions]
        return rows
