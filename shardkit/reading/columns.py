"""A batch in the making, field by field: what is stored side by side is read so, the rest row by row into its place."""

import random
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from shardkit.contract import Payload
from shardkit.contract.images.stored import StoredImage
from shardkit.reading.allocation import Allocate
from shardkit.reading.collate import Batch, Paddings, add_column
from shardkit.reading.decode import FieldReader, as_rows
from shardkit.transforms.steps import Recipe, Size

Rows = npt.NDArray[np.int64]


class Column(Protocol):
    """The values of one field in the rows of a batch."""

    def value(self, place: int) -> Any:
        """Return the value at one place, as a sample holds it."""

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add the values to a batch, those at all places or at some."""


class DecodedColumn(Column, Protocol):
    """One whose payloads are decoded one by one."""

    reader: FieldReader

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Decode the value at one place, or prepare that."""

    def finish(self, place: int) -> None:
        """Decode what was prepared."""


class IndexColumn:
    """Labels and scalars, which the index holds for all rows."""

    def __init__(self, reader: FieldReader, rows: Rows) -> None:
        self._reader = reader
        self._rows = rows

    def value(self, place: int) -> Any:
        """Return a Python int of a label, else a numpy scalar."""
        return self._reader.from_index(int(self._rows[place]))

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add a tensor: ``int64[B]`` of labels."""
        batch[self._reader.name] = self._tensor(self._rows if kept is None else self._rows[kept])

    def part(self, begin: int, end: int) -> torch.Tensor:
        """Return the values at the places from `begin` to `end`: ``int64[end - begin]`` of labels."""
        return self._tensor(self._rows[begin:end])

    def _tensor(self, rows: Rows) -> torch.Tensor:
        index: Any = self._reader.index
        values = index[rows]
        return torch.from_numpy(values.astype(np.int64) if self._reader.field.kind == "label" else values)


class GatheredColumn:
    """Values of one shape and dtype, copied as they are stored.

    Args:
        reader: Reads the field.
        rows: ``int64[B]``.
        allocate: Gives the memory.
    """

    def __init__(self, reader: FieldReader, rows: Rows, allocate: Allocate) -> None:
        self._reader = reader
        self._rows = rows
        tensor = allocate((len(rows), *reader.layout.shape), np.dtype(reader.layout.dtype))
        self._array = tensor.numpy()
        self._out = as_rows(self._array)
        self._tensor = tensor.permute(0, 3, 1, 2) if reader.field.kind == "image" else tensor

    def fill(self, begin: int, end: int) -> None:
        """Copy the values at some places.

        Raises:
            CorruptShardError: One of them is damaged.
        """
        self._reader.gather(self._rows[begin:end], self._out[begin:end])

    def fill_one(self, place: int, _: int) -> None:
        """Copy the value at one place.

        Raises:
            CorruptShardError: It is damaged.
        """
        self.fill(place, place + 1)

    def value(self, place: int) -> torch.Tensor:
        """Return a part of the batch."""
        return self._tensor[place]

    def part(self, begin: int, end: int) -> torch.Tensor:
        """Return the values at the places from `begin` to `end`, ``[end - begin, *shape]``.

        Its storage is no larger, as if nothing stood beside it: what is done to that of a batch, or saved of it, is not
        done to others.
        """
        values = torch.from_numpy(self._array[begin:end])
        return values.permute(0, 3, 1, 2) if self._reader.field.kind == "image" else values

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add a tensor ``[B, *shape]``."""
        batch[self._reader.name] = self._tensor if kept is None else self._tensor[kept]


class PictureColumn:
    """Images of one size, each prepared and then decoded into its place.

    Args:
        reader: Reads the field, an image.
        size: Height and width of all of them.
        count: Images.
        allocate: Gives the memory.
    """

    def __init__(self, reader: FieldReader, size: Size, count: int, allocate: Allocate) -> None:
        self.reader = reader
        channels = reader.field.channels  # type: ignore[attr-defined]  # it is an image field
        tensor = allocate((count, *size, channels), np.dtype(np.uint8))
        self._out: npt.NDArray[Any] = tensor.numpy()
        self._tensor = tensor.permute(0, 3, 1, 2)
        self._prepared: dict[int, tuple[int, tuple[StoredImage, Recipe]]] = {}

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Prepare one image."""
        self._prepared[place] = row, self.reader.prepare(row, payload, rng)

    def finish(self, place: int) -> None:
        """Decode one image into the batch."""
        row, prepared = self._prepared.pop(place)
        self.reader.render(row, prepared, self._out, self._tensor, place)

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

    def put(self, place: int, row: int, payload: Payload, rng: random.Random | None) -> None:
        """Decode one value."""
        self._values[place] = self.reader.decode(row, payload, rng)

    def finish(self, place: int) -> None:
        """Nothing: it was decoded."""

    def value(self, place: int) -> Any:
        """Return one value."""
        return self._values[place]

    def add_to(self, batch: Batch, kept: list[int] | None, paddings: Paddings, ids: Sequence[str]) -> None:
        """Add what `collate` makes of them."""
        values = self._values if kept is None else [self._values[place] for place in kept]
        add_column(batch, self.reader.name, values, paddings, ids)


def make_column(reader: FieldReader, rows: Rows, allocate: Allocate) -> Column:
    """Return the column of a field in some rows."""
    if reader.index is not None:
        return IndexColumn(reader, rows)
    if reader.is_gathered:
        return GatheredColumn(reader, rows, allocate)
    if reader.picture_size is not None:
        return PictureColumn(reader, reader.picture_size, len(rows), allocate)
    return ListColumn(reader, len(rows))
