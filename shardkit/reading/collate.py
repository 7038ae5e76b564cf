"""How samples become a batch: a plain dict of tensors and lists, which torch pins and moves like any other.

In a DataLoader worker the tensors are stacked straight into shared memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data._utils.collate import (
    default_collate_fn_map,
)  # as the documentation of default_collate says

from shardkit.contract import Padding, mask_name
from shardkit.errors import TransformError
from shardkit.reading.allocation import allocate, is_channels_last, stack
from shardkit.reading.padding import PaddedValues, holds_numbers, may_be_padded
from shardkit.reading.worker_batch import as_made_here
from shardkit.store import BatchIdView
from shardkit.transforms.encoded import EncodedImage, EncodedImages

Sample = dict[str, Any]
"""One sample: ``"id"`` (str) and a value for each field."""
Batch = dict[str, Any]
"""One batch: ``"id"`` (list of str) and, for each field, a tensor with the samples on axis 0, or a list.

Beside a field that is padded stands its mask, ``NAME_mask``."""

Paddings = Mapping[str, Padding]
"""How the fields that are padded are padded; the others are not among them."""

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


class PaddedSample(dict[str, Any]):
    """A sample of a data set whose contract pads fields: a dict that carries along how, for `collate`.

    Args:
        values: The sample.
        paddings: How its fields are padded.
    """

    __slots__ = ("paddings",)

    def __init__(self, values: Sample, paddings: Paddings) -> None:
        super().__init__(values)
        self.paddings = paddings

    def __reduce__(self) -> tuple[Any, ...]:
        return (PaddedSample, (dict(self), self.paddings))


class PreparedSamples(Sequence[Sample], ABC):
    """The samples of a batch that is all but made: `collate` asks for it, anything else gets its samples."""

    @abstractmethod
    def batch(self) -> Batch:
        """Return the batch."""


class NoSamples(PreparedSamples):
    """The samples of a batch all of which a transform left out, where the batch would mark repeats."""

    def batch(self) -> Batch:
        """Return a batch of none."""
        return {"id": BatchIds(), "is_pad": torch.zeros(0, dtype=torch.bool, device="cpu")}

    def __len__(self) -> int:
        return 0

    @overload
    def __getitem__(self, position: int) -> Sample: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Sample]: ...

    def __getitem__(self, position: int | slice) -> Sample | Sequence[Sample]:
        return ()[position]


class BatchIds(list[str]):
    """The ids of a batch: a list by which both `collate` and torch's own collation know a batch, and refuse it.

    The batch itself stays a plain dict, which is what tools that take trees apart expect.
    """

    __slots__ = ()


def _refuse_batches(*_: Any, **__: Any) -> NoReturn:
    raise ValueError(
        "what is to be batched are batches already, as ShardIterableDataset delivers them: give the DataLoader "
        "batch_size=None"
    )


default_collate_fn_map[BatchIds] = _refuse_batches
default_collate_fn_map[BatchIdView] = _refuse_batches
default_collate_fn_map[EncodedImage] = EncodedImages.collated


def collate(samples: Sequence[Mapping[str, Any] | None]) -> Batch:
    """Return the batch of some samples; use it as ``collate_fn`` of a DataLoader.

    A field that the contract pads (tokens; an array with a ``pad_value``) becomes one tensor, filled up with the
    contract's value to the largest sample of the batch or to ``max_length``: ``[B, L]`` for tokens. Beside it stands
    ``NAME_mask``, ``bool[B, *varying axes]``, true where the elements of a sample are. Samples know of it from their
    data set, also where a transform made new ones. A transform may bring a mask of its own under that name; where
    it turned the values into something else than arrays of numbers with as many axes, they are treated like any
    others:

    - tensors of one shape and dtype are stacked: ``[C,H,W]`` to ``[B,C,H,W]``. Samples that are
      channels-last in memory (decoded images are) give a batch that is channels-last in memory, at the cost
      of one plain copy;
    - numpy arrays of one shape and dtype, which a transform may give, are stacked to a tensor;
    - tensors or arrays of different shapes or dtypes stay a list of them, and so do images left encoded;
    - ints become ``int64[B]``, bools ``bool[B]``, floats ``float64[B]``, numpy scalars a tensor of their
      dtype;
    - all else (ids, text, bytes, JSON objects) stays a list, and so do values of mixed types.

    How fields are padded is known as long as one sample of the batch is the object that the data set delivered. A
    data set of your own around it should add to that object (``sample = data[i]; sample["extra"] = 1``): a copy such
    as ``{**data[i], "extra": 1}`` is a plain dict, whose values stay a list. Or add it in a transform, which may.

    None, which stands for a filtered sample, is left out; if none is left the batch is ``{"id": []}``.

    Args:
        samples: Samples as a dataset delivers them, all with the same keys.

    Raises:
        TransformError: Two samples differ in their keys, or a transform made values that cannot be padded.
        ValueError: They are batches.
    """
    if isinstance(samples, PreparedSamples):
        return samples.batch()
    if isinstance(samples, Mapping):
        _refuse_batches()
    kept = [sample for sample in samples if sample is not None]
    if not kept:
        return {"id": BatchIds()}
    first = kept[0]
    if isinstance(first.get("id"), BatchIds | BatchIdView):
        _refuse_batches()
    for sample in kept:
        if sample.keys() != first.keys():
            raise TransformError(
                f"samples {first.get('id')!r} and {sample.get('id')!r} of one batch have different fields: "
                f"{sorted(first)} and {sorted(sample)}; a transform must give every sample the same fields"
            )
    batch: Batch = {}
    paddings = _paddings_of(kept)
    ids = [sample.get("id") for sample in kept]
    for key in first:
        add_column(
            batch, key, [sample[key] for sample in kept], paddings, ids, has_mask=mask_name(key) in first
        )
    return as_made_here(batch)


def add_column(
    batch: Batch,
    key: str,
    values: list[Any],
    paddings: Paddings,
    ids: Sequence[Any],
    *,
    has_mask: bool = False,
) -> None:
    """Add one value of each sample to a batch, as `collate` does, and its mask where they are padded.

    Args:
        batch: Takes them.
        key: Their name.
        values: At least one.
        paddings: How fields are padded.
        ids: Of the samples, for messages.
        has_mask: Whether the samples bring a mask of their own.

    Raises:
        TransformError: They cannot be padded.
    """
    if key in paddings and may_be_padded(values[0], paddings[key]):
        padded = PaddedValues(values, paddings[key], key, ids)
        batch[key] = padded.tensor()
        if not has_mask:
            batch[mask_name(key)] = padded.mask()
    else:
        batch[key] = BatchIds(values) if key == "id" else _join(values)


def _paddings_of(samples: Sequence[Mapping[str, Any]]) -> Paddings:
    """Return how fields are padded, as any sample tells it: those of one batch have one data set."""
    return next((sample.paddings for sample in samples if isinstance(sample, PaddedSample)), {})


def _join(values: list[Any]) -> Any:  # Any: one value of each sample, a tensor or a list of them
    kind = type(values[0])
    if any(type(value) is not kind for value in values):
        return values
    if issubclass(kind, EncodedImage):
        return EncodedImages(values)
    if issubclass(kind, torch.Tensor):
        return _stack(values)
    if kind is np.ndarray and _are_stackable(values):
        return _stack_arrays(values)
    if kind in _DTYPES and not (kind is int and _exceeds_int64(values)):
        return torch.tensor(values, dtype=_DTYPES[kind], device="cpu")
    if issubclass(kind, np.bool_ | np.number):
        return torch.from_numpy(np.array(values, dtype=values[0].dtype))
    return values


def _are_stackable(arrays: list[npt.NDArray[Any]]) -> bool:
    """Whether all have one shape and one numeric dtype."""
    first = arrays[0]
    return holds_numbers(first) and all(
        array.shape == first.shape and array.dtype == first.dtype for array in arrays
    )


def _exceeds_int64(values: list[int]) -> bool:
    """Whether one of `values` is a number that JSON may hold and a tensor may not."""
    return min(values) < -(2**63) or max(values) >= 2**63


def _stack_arrays(arrays: list[npt.NDArray[Any]]) -> torch.Tensor:
    stacked = allocate((len(arrays), *arrays[0].shape), arrays[0].dtype)
    np.stack(arrays, out=stacked.numpy())
    return stacked


def _stack(tensors: list[torch.Tensor]) -> torch.Tensor | list[torch.Tensor]:
    first = tensors[0]
    if any(tensor.shape != first.shape or tensor.dtype != first.dtype for tensor in tensors):
        return tensors
    if all(map(is_channels_last, tensors)):
        return stack([tensor.permute(1, 2, 0) for tensor in tensors]).permute(0, 3, 1, 2)
    return stack(tensors)
