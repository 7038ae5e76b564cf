"""Finds ids that come twice, in 24 bytes an id.

A Python set of a hundred million strings does not fit in memory; sorted runs of 128-bit digests do. Runs are merged
when the newer has grown as large as the older (a logarithmic structured merge), so that adding n ids costs
O(n log n) in all.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

_RUN = np.dtype([("high", "<u8"), ("low", "<u8"), ("mark", "<u8")])


class SeenIds:
    """The ids seen so far, each with the mark of the record that bore it first.

    Two ids count as equal when their XXH3-128 digests are: for 10**10 distinct ids the chance of a false match
    is below 10**-18 (birthday bound).
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[Any]] = []

    def add(self, ids: Sequence[str], marks: Sequence[int]) -> dict[int, int]:
        """Add records and return the repeats among them.

        Args:
            ids: One id a record.
            marks: One number a record, by which its source can name it; higher than those of all earlier records.

        Returns:
            Position in `ids` -> mark of the record that bore the same id first.
        """
        fresh = np.empty(len(ids), _RUN)
        for position, record_id in enumerate(ids):
            digest = xxhash.xxh3_128_intdigest(record_id.encode("utf-8", "surrogatepass"))
            fresh[position] = (digest >> 64, digest & 0xFFFF_FFFF_FFFF_FFFF, marks[position])
        order = np.lexsort((fresh["mark"], fresh["low"], fresh["high"]))
        fresh = fresh[order]
        first = _first_within(fresh) | self._first_among_older(fresh)
        self._push(fresh)
        return {int(order[place]): mark for place, mark in first.items()}

    def _first_among_older(self, fresh: npt.NDArray[Any]) -> dict[int, int]:
        first: dict[int, int] = {}
        for run in reversed(self._runs):  # the oldest run last, so that the first bearer wins
            left = np.searchsorted(run["high"], fresh["high"], "left")
            right = np.searchsorted(run["high"], fresh["high"], "right")
            for place in np.flatnonzero(left < right):
                same = run[left[place] : right[place]]
                same = same[same["low"] == fresh["low"][place]]
                if len(same):
                    first[int(place)] = int(same["mark"].min())
        return first

    def _push(self, run: npt.NDArray[Any]) -> None:
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.concatenate([self._runs.pop(), run])
            run = run[np.argsort(run["high"], kind="stable")]
        self._runs.append(run)


def _first_within(fresh: npt.NDArray[Any]) -> dict[int, int]:
    """Return the repeats inside one sorted batch: place -> mark of the first bearer."""
    same = (fresh["high"][1:] == fresh["high"][:-1]) & (fresh["low"][1:] == fresh["low"][:-1])
    first: dict[int, int] = {}
    for place in np.flatnonzero(same).tolist():
        first[place + 1] = first.get(place, int(fresh["mark"][place]))
    return first
