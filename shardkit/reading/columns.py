"""A batch in the making, field by field: what is stored side by side is read so, the rest row by row into its place."""

import random
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from shardkit.contract import Payload
from shardkit.reading.allocation import Allocate
from shardkit.reading.collate import Batch, Paddings, add_column
from shardkit.reading.decode import FieldReader, as_rows
from shardkit.transforms.steps import Rendering

Rows = npt.NDArray[np.int64]


class Column(Protocol):
    """The values of one field in the rows of a batch."""

    reader: FieldReader

    def fill(self, begin: int, end: int) -> None:
        """Read the values at some places that need no decoding."""

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Decode the value at one place, where `is_decoded`, or prepare it."""

    def value(self, place: int) -> Any:
        """Return the value at one place, as a sample holds it."""

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add the values to a batch, those at all places or at some."""


class IndexColumn:
    """Labels and scalars, which the index holds for all rows."""

    def __init__(self, reader: FieldReader, rows: Rows) -> None:
        self.reader = reader
        self._rows = rows
        self._values: Any = None

    def fill(self, begin: int, end: int) -> None:
        """Nothing: they are read at once when the batch is made."""

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Nothing: there is no payload."""

    def value(self, place: int) -> Any:
        """Return a Python int of a label, else a numpy scalar."""
        return self.reader.from_index(int(self._rows[place]))

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add a tensor: ``int64[B]`` of labels."""
        index: Any = self.reader.index
        values = torch.from_numpy(index[self._rows if kept is None else self._rows[kept]])
        batch[self.reader.name] = values.to(torch.int64) if self.reader.field.kind == "label" else values


class GatheredColumn:
    """Arrays of one shape, copied from the memory maps of the shards.

    Args:
        reader: Reads the field.
        rows: ``int64[B]``.
        starts: First row of each shard.
        allocate: Gives the memory.
    """

    def __init__(self, reader: FieldReader, rows: Rows, starts: Rows, allocate: Allocate) -> None:
        self.reader = reader
        self._rows = rows
        self._starts = starts
        layout = reader.layout
        dtype = np.dtype(layout.dtype)
        tensor = allocate((len(rows), *layout.shape), dtype)
        self._out = as_rows(tensor.numpy())
        self._tensor = tensor.permute(0, 3, 1, 2) if reader.field.kind == "image" else tensor

    def fill(self, begin: int, end: int) -> None:
        """Copy the arrays at some places."""
        rows, out = self._rows[begin:end], self._out[begin:end]
        if len(self._starts) == 1:
            np.take(
                self._array(0), rows, out=out, mode="clip"
            )  # all are within; "raise" would copy once more
            return
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in set(shards.tolist()):
            places = np.flatnonzero(shards == shard)
            out[places] = self._array(shard)[rows[places] - self._starts[shard]]

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Nothing: there is no payload."""

    def value(self, place: int) -> torch.Tensor:
        """Return a part of the batch."""
        return self._tensor[place]

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add a tensor ``[B, *shape]``."""
        batch[self.reader.name] = self._tensor if kept is None else self._tensor[kept]

    def _array(self, shard: int) -> Any:
        return self.reader.rows_of(shard)


class PictureColumn:
    """Images of one size, each prepared and then decoded into its place.

    Args:
        reader: Reads the field; its `picture_size` is not None.
        count: Images.
        allocate: Gives the memory.
    """

    def __init__(self, reader: FieldReader, count: int, allocate: Allocate) -> None:
        self.reader = reader
        height, width = reader.picture_size or (0, 0)
        channels = reader.field.channels  # type: ignore[attr-defined]  # it is an image field
        tensor = allocate((count, height, width, channels), np.dtype(np.uint8))
        self._out: npt.NDArray[Any] = tensor.numpy()
        self._tensor = tensor.permute(0, 3, 1, 2)
        self._prepared: dict[int, tuple[int, Rendering]] = {}

    def fill(self, begin: int, end: int) -> None:
        """Nothing: they are decoded one by one."""

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Prepare one image."""
        self._prepared[place] = row, self.reader.prepare(row, payload, rng)

    def finish(self, place: int) -> None:
        """Decode one image into the batch."""
        row, rendering = self._prepared.pop(place)
        self.reader.render(row, rendering, self._out[place], self._tensor[place : place + 1])

    def value(self, place: int) -> torch.Tensor:
        """Return a part of the batch, ``uint8[C, H, W]``."""
        return self._tensor[place]

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add a tensor ``uint8[B, C, H, W]``, channels last in memory."""
        batch[self.reader.name] = self._tensor if kept is None else self._tensor[kept]


class ListColumn:
    """Anything else: one value after the other."""

    def __init__(self, reader: FieldReader, count: int) -> None:
        self.reader = reader
        self._values: list[Any] = [None] * count

    def fill(self, begin: int, end: int) -> None:
        """Nothing: they are decoded one by one."""

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Decode one value."""
        self._values[place] = self.reader.decode(row, payload, rng)

    def value(self, place: int) -> Any:
        """Return one value."""
        return self._values[place]

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add what `collate` makes of them."""
        values = self._values if kept is None else [self._values[place] for place in kept]
        add_column(batch, self.reader.name, values, paddings, ids)


def is_decoded(reader: FieldReader) -> bool:
    """Whether the payloads of a field are decoded one by one."""
    return reader.index is None and not reader.is_gathered


def make_column(reader: FieldReader, rows: Rows, starts: Rows, allocate: Allocate) -> Column:
    """Return the column of a field in some rows."""
    if reader.index is not None:
        return IndexColumn(reader, rows)
    if reader.is_gathered:
        return GatheredColumn(reader, rows, starts, allocate)
    if reader.picture_size is not None:
        return PictureColumn(reader, len(rows), allocate)
    return ListColumn(reader, len(rows))
