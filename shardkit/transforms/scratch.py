"""Memory of a thread that is used again and again: fresh memory costs more than what is done in it."""

import numpy as np
import numpy.typing as npt

MOST_KEPT = 1 << 25
"""Bytes that are kept for the next time: those of a picture of 11 million pixels."""


class Block:
    """Room that grows with what is asked for. For one thread."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def room(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return ``uint8[nbytes]``, good until the next time."""
        if nbytes > MOST_KEPT:
            return np.empty(nbytes, np.uint8)
        if nbytes > len(self._bytes):
            self._bytes = np.empty(nbytes, np.uint8)
        return self._bytes[:nbytes]
