"""What readers ask of stored records, wherever these lie: in the shards of a `Store`, or in memory."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shardkit.contract import Contract, Payload
from shardkit.store import BatchIdView, Column


class Records(Protocol):
    """The records of an open data set. Any number of threads may read, and forked children."""

    @property
    def contract(self) -> Contract:
        """What every record fits."""

    @property
    def columns(self) -> Sequence[Column]:
        """One stored column a field, in field order."""

    @property
    def starts(self) -> Sequence[int]:
        """First row of each of the parts that `array` tells apart."""

    def __len__(self) -> int: ...

    def id_of(self, row: int) -> str:
        """Return the id in a row.

        Raises:
            CorruptShardError: The index is inconsistent.
        """

    def ids_of(self, rows: npt.NDArray[np.int64]) -> BatchIdView:
        """Return the ids in some rows, ``int64[k]``."""

    def where(self, row: int) -> str:
        """Return how a message names a row."""

    def payloads(self, row: int, columns: Sequence[int]) -> list[Payload]:
        """Return the payloads of several columns of one row, as bytes or read-only views.

        Raises:
            CorruptShardError: What is stored is inconsistent.
        """

    def check(self, row: int, column: int, payload: Payload) -> None:
        """Hold a payload against the checksum that was stored with it, unless that was done before.

        Raises:
            CorruptShardError: They differ.
        """

    def column(self, name: str) -> npt.NDArray[Any] | None:  # Any: the field's dtype, here and below
        """Return one value a row of a label or scalar field, over all rows, read-only.

        None where each row must be asked for by `payloads`.
        """

    def array(self, part: int, column: int, /) -> npt.NDArray[Any] | None:
        """Return ``[rows, *shape]`` of a fixed-size column in one part, read-only.

        None where there is none, and each row must be asked for by `payloads`.
        """
