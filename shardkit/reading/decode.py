"""One field of the stored records, and how its values are had: from the index, from an array, or by decoding."""

import math
import random
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from shardkit.contract import Contract, ImageField, Payload
from shardkit.contract.images.stored import StoredImage
from shardkit.errors import CorruptShardError, FormatError, TransformError
from shardkit.reading.records import Records
from shardkit.reading.stored_array import view_of
from shardkit.transforms.compose import plan, size_after
from shardkit.transforms.encoded import EncodedImage, check_encoded, is_encoded
from shardkit.transforms.image_ops import UNUSED_RNG, ImageOp
from shardkit.transforms.scratch import Block
from shardkit.transforms.steps import Picture, Recipe, Size

T = TypeVar("T")


class _Scratch(threading.local):
    """Of each thread: what it picks from a shard before it goes to its places."""

    def __init__(self) -> None:
        self.block = Block()


_scratch = _Scratch()
_MOST_RECIPES = 4096  # sizes of pictures


class FieldReader:
    """Reads one field of an open store. Safe in threads and after a fork.

    Args:
        store: The records of the open data set.
        name: The field.
        verify_checksums: True checks every payload; None checks those of a field of varying size; False checks none.
        ops: What becomes of an image as it is decoded.

    Attributes:
        name: The field.
        column: Its number in the store.
        field: Its kind, which decodes.
        layout: How its payloads lie.
        is_checked: Whether each payload is held against its checksum before it is decoded.
        index: Its values over all rows, or None where payloads are decoded.
        is_random: Whether the operations draw random numbers.
    """

    def __init__(
        self, store: Records, name: str, verify_checksums: bool | None, ops: Sequence[ImageOp] = ()
    ) -> None:
        self._store = store
        self._ops = ops
        self.name = name
        self.column = next(number for number, column in enumerate(store.columns) if column.name == name)
        self.field = store.contract.fields[name]
        self.layout = layout = self.field.layout
        self.is_checked = not layout.is_fixed if verify_checksums is None else verify_checksums
        self.index: npt.NDArray[Any] | None = None
        if layout.is_single and not self.is_checked:
            values = store.column(name)
            self.index = None if values is None else np.asarray(values)
        self.is_random = any(op.is_random for op in ops)
        self._stays_encoded = is_encoded(ops)
        self._starts = np.array(store.starts, dtype=np.int64)
        self._recipes: dict[Size, Recipe] = {}
        self._arrays: dict[int, npt.NDArray[np.void] | None] = {}

    @property
    def is_gathered(self) -> bool:
        """Whether its values are copied as they are stored, without decoding any."""
        return self.layout.is_fixed and not (self.is_checked or self._ops or self.layout.is_single)

    @property
    def is_decoded(self) -> bool:
        """Whether its payloads are decoded one by one."""
        return self.index is None and not self.is_gathered

    @cached_property
    def picture_size(self) -> Size | None:
        """Height and width of every picture as delivered, or None where they vary or it is no image."""
        return size_after(self._ops, self.field.stored_size) if isinstance(self.field, ImageField) else None

    def from_index(self, row: int) -> Any:
        """Return the value of a row in the index: a Python int for a label, else a numpy scalar."""
        index: Any = self.index
        return index.item(row) if self.field.kind == "label" else index[row]

    def gather(self, rows: npt.NDArray[np.int64], out: npt.NDArray[np.void]) -> None:
        """Copy the values in some rows, ``int64[k]``, into as many places, by `as_rows`.

        Raises:
            CorruptShardError: A payload is damaged; names shard, row, id and field.
        """
        starts = self._starts
        if len(starts) == 1:
            self._gather_part(0, rows, rows, out, slice(None))
            return
        parts = np.searchsorted(starts, rows, side="right") - 1
        for part in set(parts.tolist()):
            places = np.flatnonzero(parts == part)
            chosen = rows[places]
            self._gather_part(part, chosen, chosen - starts[part], out, places)

    def _gather_part(
        self,
        part: int,
        rows: npt.NDArray[np.int64],
        rows_in_part: npt.NDArray[np.int64],
        out: npt.NDArray[np.void],
        places: Any,  # Any: what numpy takes to pick some
    ) -> None:
        array = self._rows_of(part)
        if array is None:
            out[places] = self._payloads(rows, out.dtype)
        elif isinstance(places, slice):
            np.take(array, rows_in_part, out=out, mode="clip")  # all are within; "raise" would copy once more
        else:
            found = _scratch.block.room(len(rows) * out.dtype.itemsize).view(out.dtype)
            out[places] = np.take(array, rows_in_part, out=found, mode="clip")

    def _payloads(self, rows: npt.NDArray[np.int64], dtype: "np.dtype[np.void]") -> npt.NDArray[np.void]:
        """Return payloads of some rows, each of which has the size of `dtype`."""
        values = np.empty(len(rows), dtype)
        for place, row in enumerate(rows.tolist()):
            (payload,) = self._store.payloads(row, (self.column,))
            if len(payload) != dtype.itemsize:
                raise self._damaged(row, FormatError(f"{len(payload)} bytes, expected {dtype.itemsize}"))
            values[place] = np.frombuffer(payload, dtype)[0]
        return values

    def _rows_of(self, part: int) -> npt.NDArray[np.void] | None:
        """Return the field in a part by `as_rows`, or None if it has no memory map.

        Made once, for that costs more than to read a small batch.
        """
        if part not in self._arrays:
            array = self._store.array(part, self.column)
            self._arrays[part] = None if array is None else as_rows(array)
        return self._arrays[part]

    def decode(self, row: int, payload: Payload, rng: random.Random | None = None) -> Any:
        """Return the value in a payload as a sample holds it: arrays as tensors of their own, images ``[C,H,W]``.

        An image that stays encoded is its bytes, ``uint8[n]``.

        An image stays ``[H,W,C]`` in memory, as decoded: `collate` and convolutions take it so without another
        copy.

        Raises:
            CorruptShardError: It is damaged; names shard, row, id and field.
            TransformError: An operation cannot be done.
        """
        if self._stays_encoded:
            if self.is_checked:
                self._store.check(row, self.column, payload)
            return EncodedImage.copy_of(payload)
        if self._ops:
            image, recipe = self.prepare(row, payload, rng)
            picture = self._undamaged(row, lambda: recipe.make(image))
            return torch.from_numpy(np.array(picture, order="C", copy=True)).permute(2, 0, 1)
        value = self.value(row, payload)
        if not isinstance(value, np.ndarray):
            return value
        tensor = torch.from_numpy(value if value.flags.writeable else value.copy())
        return tensor.permute(2, 0, 1) if self.field.kind == "image" else tensor

    def prepare(self, row: int, payload: Payload, rng: random.Random | None) -> tuple[StoredImage, Recipe]:
        """Return the picture in a payload, checked and ready to be decoded, and what the operations do to it.

        Raises:
            CorruptShardError: It is damaged; names shard, row, id and field.
            TransformError: An operation cannot be done.
        """
        field = self.field
        if not isinstance(field, ImageField):
            raise TypeError(f"{self.name!r} is no image")
        if self.is_checked:
            self._store.check(row, self.column, payload)
        image = self._undamaged(row, lambda: field.open(payload))
        try:
            return image, self._recipe((image.height, image.width), rng)
        except TransformError as error:
            raise TransformError(f"{self._store.where(row)}, field {self.name!r}: {error}") from None

    def _recipe(self, size: Size, rng: random.Random | None) -> Recipe:
        """Return what is done to a picture of a size: decided once for each, where no random numbers are drawn."""
        if self.is_random:
            return Recipe(size, plan(self._ops, size, rng or UNUSED_RNG))
        recipe = self._recipes.get(size)
        if recipe is None:
            if len(self._recipes) >= _MOST_RECIPES:
                self._recipes.clear()
            recipe = self._recipes[size] = Recipe(size, plan(self._ops, size, UNUSED_RNG))
        return recipe

    def render(
        self,
        row: int,
        prepared: tuple[StoredImage, Recipe],
        pictures: Picture,
        tensor: torch.Tensor,
        place: int,
    ) -> None:
        """Decode a picture that was prepared into its place among those of a batch; see `Recipe.make_in`.

        Raises:
            CorruptShardError: It is damaged; names shard, row, id and field.
        """
        try:
            image, recipe = prepared
            recipe.make_in(image, pictures, tensor, place)
        except FormatError as error:
            raise self._damaged(row, error) from None

    def value(self, row: int, payload: Payload) -> Any:
        """Return the value in a payload as the contract decodes it.

        Raises:
            CorruptShardError: It is damaged; names shard, row, id and field.
        """
        if self.is_checked:
            self._store.check(row, self.column, payload)
        return self._undamaged(row, lambda: self.field.decode(payload))

    def part(self, row: int, payload: Payload, key: Any) -> Any:  # Any: what numpy takes, and gives
        """Return what a key of numpy's picks from the array in a payload; nothing is checked, and the rest not read.

        Raises:
            IndexError: The key does not fit the array; names shard, row, id and field.
            CorruptShardError: The payload's length does not fit the field.
        """
        try:
            array = view_of(self.field, payload)
        except FormatError as error:
            raise self._damaged(row, error) from None
        try:
            return array[key]
        except (IndexError, TypeError, ValueError) as error:
            form = f"{array.dtype.name}{list(array.shape)}"
            raise IndexError(f"{self._store.where(row)}, field {self.name!r}, {form}: {error}") from None

    def _undamaged(self, row: int, read: Callable[[], T]) -> T:
        try:
            return read()
        except FormatError as error:
            raise self._damaged(row, error) from None

    def _damaged(self, row: int, error: FormatError) -> CorruptShardError:
        return CorruptShardError(
            f"{self._store.where(row)}, field {self.name!r}: cannot be decoded: {type(error).__name__}: {error}; "
            f"`shardkit verify` tells whether the shard was altered"
        )


def as_rows(array: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """Return a view of an array as one opaque element a row, which numpy copies at once: ``void[rows]``."""
    row_bytes = array.itemsize * math.prod(array.shape[1:])
    return np.ndarray((len(array),), dtype=f"V{row_bytes}", buffer=array)


def ops_by_field(
    ops: Sequence[ImageOp], contract: Contract, names: Sequence[str]
) -> dict[str, list[ImageOp]]:
    """Return the operations of each image field, in their order.

    Args:
        ops: Those that a transform begins with.
        contract: Of the data set.
        names: Fields that are read.

    Raises:
        ValueError: It is not clear which field an operation is for, or that is no image or not read; or one does not go
            with the others.
    """
    images = [name for name in names if isinstance(contract.fields[name], ImageField)]
    found: dict[str, list[ImageOp]] = {}
    for op in ops:
        if op.field is None and len(images) != 1:
            has = f"{len(images)} image fields ({', '.join(images)})" if images else "no image field"
            raise ValueError(f"{type(op).__name__}: what is read has {has}; name one, field=...")
        name = images[0] if op.field is None else op.field
        if name not in images:
            known = ", ".join(images) or "none"
            raise ValueError(
                f"{type(op).__name__}: {name!r} is no image field that is read; these are: {known}"
            )
        found.setdefault(name, []).append(op)
    for name, each in found.items():
        check_encoded(each, name, contract.fields[name])
    return found
