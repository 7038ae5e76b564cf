"""Finds ids that people and file systems take for one another: they differ only in case or in Unicode normal form.

Such ids are the canonical caseless matches of the Unicode Standard, section 3.13, D145:
``NFD(toCasefold(NFD(x)))`` is the same for both.
"""

import unicodedata
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkit.store.checksum import id_hash

MOST_PAIRS = 100
"""Pairs that are listed; the others are counted."""


@dataclass(frozen=True)
class Lookalikes:
    """Pairs of different ids that look alike.

    Attributes:
        pairs: The first id of its look in row order, and a later one; at most `MOST_PAIRS`, by the row of the later.
        count: How many pairs there are: for each look, one less than the ids that have it.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    count: int = 0


class LookalikeFinder:
    """Takes in all ids in row order, keeps 16 bytes for each that folding changes, and then finds those that meet."""

    def __init__(self) -> None:
        self._rows = array("Q")
        self._keys = array("Q")

    def add(self, first: int, ids: bytes, ends: npt.NDArray[np.uint64]) -> None:
        """Take in consecutive ids.

        Args:
            first: Row of the first.
            ids: Their UTF-8 bytes, one after the other.
            ends: End of each in `ids`.
        """
        # Such ids fold to themselves: in the usual case, nothing is looked at one by one.
        if ids.isascii() and ids == ids.lower():
            return
        begin = 0
        for row, end in enumerate(ends.tolist(), start=first):
            encoded = ids[begin:end]
            folded = _fold(encoded)
            if folded != encoded:
                self._rows.append(row)
                self._keys.append(id_hash(folded))
            begin = end

    def find(self, hashes: npt.NDArray[np.uint64], id_of: Callable[[int], bytes]) -> Lookalikes:
        """Return the ids that look alike. No two of the ids are equal.

        Args:
            hashes: `id_hash` of every id, in row order.
            id_of: Returns the id of a row.
        """
        if not self._rows:
            return Lookalikes()
        keys = hashes.copy()
        keys[np.frombuffer(self._rows, np.uint64)] = np.frombuffer(self._keys, np.uint64)
        pairs = sorted(_pairs(keys, id_of))
        return Lookalikes(
            tuple((_show(id_of(first)), _show(id_of(later))) for later, first in pairs[:MOST_PAIRS]),
            len(pairs),
        )


def _pairs(keys: npt.NDArray[np.uint64], id_of: Callable[[int], bytes]) -> Iterator[tuple[int, int]]:
    """Yield row and row of the first of its look, where keys meet and the folded ids do as well."""
    order = np.argsort(keys, kind="stable")  # so that rows ascend among equal keys
    keys = keys[order]
    same = np.flatnonzero(keys[1:] == keys[:-1])
    bearers: dict[bytes, int] = {}
    last = -2
    for place in same.tolist():
        if place != last + 1 or keys[place] != keys[last]:  # another key begins
            bearers = {_fold(id_of(order[place])): int(order[place])}
        row = int(order[place + 1])
        first = bearers.setdefault(_fold(id_of(row)), row)
        if first != row:
            yield row, first
        last = place


def _fold(encoded: bytes) -> bytes:
    if encoded.isascii():
        return encoded.lower()
    text = unicodedata.normalize("NFD", _show(encoded)).casefold()
    return unicodedata.normalize("NFD", text).encode()


def _show(encoded: bytes) -> str:
    return encoded.decode(errors="replace")  # ids out of an older index were not decoded yet
