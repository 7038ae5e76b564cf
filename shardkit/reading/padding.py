"""Arrays of varying shape as one tensor and the mask of what is real in it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shardkit.contract import Padding
from shardkit.errors import TransformError
from shardkit.reading.allocation import stack


def may_be_padded(value: Any, padding: Padding) -> bool:  # Any: a transform may have made anything of it
    """Whether `value` is an array of numbers, of torch or numpy, with as many axes as the contract says."""
    is_array = isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and holds_numbers(value))
    return is_array and len(value.shape) == len(padding.shape)


def holds_numbers(array: npt.NDArray[Any]) -> bool:
    """Whether elements are numbers or truth values, which torch has, and not text or objects."""
    return issubclass(array.dtype.type, np.bool_ | np.number)


class PaddedValues:
    """The values of one field in the samples of a batch, which are to be padded to one shape.

    Args:
        values: One array a sample.
        padding: How they are padded.
        name: The field, for messages.
        ids: The samples, for messages.

    Raises:
        TransformError: Values differ in dtype or in the size of an axis that is not padded, or one is larger than
            what is padded to; names the sample. Or their dtype does not hold what fills them up.
    """

    def __init__(self, values: Sequence[Any], padding: Padding, name: str, ids: Sequence[str]) -> None:
        self._padding = padding
        self._axes = [axis for axis, size in enumerate(padding.shape) if size == -1]
        form = self._form(values[0])
        for value, record_id in zip(values, ids, strict=True):
            if self._form(value) != form:
                raise TransformError(
                    f"sample {record_id!r}, field {name!r}: {_describe(value)} cannot be padded to one tensor with "
                    f"{_describe(values[0])}: a transform must keep dtypes alike, and the axes that do not vary"
                )
        self._values: list[torch.Tensor] = [
            value if isinstance(value, torch.Tensor) else _to_tensor(value) for value in values
        ]
        self._require_held(name)
        self._sizes = np.array([value.shape for value in self._values])
        self._shape = self._sizes.max(0).tolist()
        if padding.length is not None:
            self._require_length(padding.length, name, ids)
            self._shape = [
                padding.length if axis in self._axes else size for axis, size in enumerate(self._shape)
            ]

    def tensor(self) -> torch.Tensor:
        """Return the values padded: ``[B, *shape]``, in shared memory if this is a DataLoader worker."""
        blank = torch.full(self._shape, self._padding.value, dtype=self._values[0].dtype, device="cpu")
        padded = _repeat(blank, len(self._values))
        target: Any = padded  # Any: the tensor, or numpy's view of the same memory
        values: Sequence[Any] = self._values
        # numpy copies small rows twice as fast; it has no bfloat16, and takes no tensor that needs a gradient
        with suppress(TypeError, RuntimeError):
            target, values = padded.numpy(), [value.numpy() for value in self._values]
        for number, value in enumerate(values):
            target[(number, *map(slice, value.shape))] = value
        return padded

    def mask(self) -> torch.Tensor:
        """Return which elements are real: ``bool[B, *varying axes]``, in shared memory as the tensor is."""
        lengths = [self._shape[axis] for axis in self._axes]
        mask = _repeat(torch.ones(lengths, dtype=torch.bool, device="cpu"), len(self._values))
        is_real = mask.numpy()  # on an array this small, numpy is done before torch has woken its threads
        for place, axis in enumerate(self._axes):
            reach = self._sizes[:, axis].reshape(-1, *[1] * len(lengths))
            positions = np.arange(lengths[place]).reshape(-1, *[1] * (len(lengths) - place - 1))
            np.logical_and(is_real, positions < reach, out=is_real)
        return mask

    def _form(self, value: Any) -> tuple[Any, ...]:
        """Return what all values must have in common; nothing for what cannot be padded at all."""
        if not may_be_padded(value, self._padding):
            return ()
        kept = self._padding.shape
        return (value.dtype, *[size for size, wanted in zip(value.shape, kept, strict=True) if wanted != -1])

    def _require_held(self, name: str) -> None:
        """Refuse to fill up with another number than the contract's, which is what torch would make of it."""
        dtype, value = self._values[0].dtype, self._padding.value
        if not _holds(dtype, value):
            raise TransformError(
                f"field {name!r}: {_shown(dtype)} does not hold pad_value = {value}, with which the contract pads: a "
                f"transform must keep a dtype that does"
            )

    def _require_length(self, length: int, name: str, ids: Sequence[str]) -> None:
        for record_id, value in zip(ids, self._values, strict=True):
            if any(value.shape[axis] > length for axis in self._axes):
                raise TransformError(
                    f"sample {record_id!r}, field {name!r}: {_describe(value)} is longer than max_length = {length}, "
                    f"to which the contract pads"
                )


def _to_tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _holds(dtype: torch.dtype, value: bool | int | float) -> bool:
    """Whether a dtype has a whole number as such, or for a float one that is nearest to it."""
    if dtype == torch.bool:
        return value in (0, 1)
    if dtype.is_floating_point or dtype.is_complex:
        return abs(value) <= torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max and value == int(value)


def _shown(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _describe(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return f"a value of type {type(value).__name__}"
    return f"{_shown(value.dtype)}{list(value.shape)}"


def _repeat(blank: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``[count, *blank.shape]``: torch's own collation knows where it must lie."""
    return stack([blank] * count)
