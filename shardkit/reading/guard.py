"""What a transform may do to a sample: by default, change values only.

A transform that changes a shape breaks batches far from where it stands, and one that drops samples makes
an epoch silently shorter; both are errors unless the data set was opened with leave to do so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shardkit.errors import TransformError
from shardkit.reading.collate import Sample
from shardkit.transforms.compose import Transform


class TransformGuard:
    """Applies a transform and holds its result against the sample that went in.

    Args:
        transform: Takes a sample, which it may change in place, and returns the sample to deliver, or None.
        may_reshape: Whether fields may change shape, dtype or type, or be dropped.
        may_filter: Whether it may return None.
    """

    def __init__(self, transform: Transform, *, may_reshape: bool, may_filter: bool) -> None:
        self._transform = transform
        self._may_reshape = may_reshape
        self._may_filter = may_filter

    def __call__(self, sample: Sample, where: Callable[[], str]) -> Sample | None:
        """Return the transformed sample, or None if it was filtered.

        Args:
            sample: As decoded.
            where: Gives the words that name the sample in a message.

        Raises:
            TransformError: The transform raised, or did what it has no leave for; names shard, row and id.
        """
        record_id = sample["id"]
        before = {} if self._may_reshape else forms_of(sample)
        try:
            result = self._transform(sample)
        except Exception as error:  # the user's code may raise anything
            raise TransformError(
                f"{where()}: the transform raised {type(error).__name__}: {error}{_hint_at_the_dict(sample, error)}"
            ) from error
        if result is None:
            if not self._may_filter:
                forms = ", ".join(f"{name} {form}" for name, form in before.items()) or "the sample"
                raise TransformError(
                    f"{where()}: the transform returned None for {forms}; open the data set with "
                    f"may_filter=True if it may leave samples out"
                )
            return None
        if not isinstance(result, dict):
            raise TransformError(
                f"{where()}: the transform returned a value of type {_form(result)}, not a sample (a dict)"
            )
        if result.get("id") != record_id:
            raise TransformError(
                f"{where()}: the transform changed the id to {result.get('id')!r}; it must stay"
            )
        change = find_change(before, result)
        if change is not None:
            raise TransformError(f"{where()}: the transform {change.sentence}; {change.advice}")
        return result


@dataclass(frozen=True)
class Change:
    """What a transform did that needs leave.

    Attributes:
        sentence: Such as ``"changed 'image' from uint8[3,16,16] to float32[3,16,16]"``.
        advice: What to do about it.
    """

    sentence: str
    advice: str


def forms_of(sample: Sample) -> dict[str, str]:
    """Return the form of each field of a sample: see `find_change`."""
    return {name: _form(sample[name]) for name in sample if name != "id"}


def find_change(before: Mapping[str, str], result: Sample) -> Change | None:
    """Return the first change that a transform may make only with ``may_reshape=True``, or None.

    Args:
        before: What `forms_of` returned of the sample before: a transform may change it in place.
        result: The sample after.
    """
    for name, form in before.items():
        if name not in result:
            return Change(
                f"dropped the field {name!r}",
                "read fewer with fields=..., or open the data set with may_reshape=True",
            )
        found = _form(result[name])
        if found != form:
            advice = "open the data set with may_reshape=True if it may"
            if form.startswith("uint8[") and found.startswith("float"):
                advice += (
                    "; or leave uint8 to the device: DevicePrefetcher(..., transform=Normalize(mean, std)) makes "
                    "floats of whole batches there"
                )
            return Change(f"changed {name!r} from {form} to {found}", advice)
    return None


def _hint_at_the_dict(sample: Sample, error: Exception) -> str:
    """Return what a transform takes, if it seems to have taken the sample for the image in it."""
    is_dict_at_fault = isinstance(error, TypeError | AttributeError | ValueError) and any(
        each.__name__ in str(error) for each in (dict, type(sample))
    )
    if not is_dict_at_fault:
        return ""
    tensors = [name for name, value in sample.items() if isinstance(value, torch.Tensor)]
    shown = f", such as sample[{tensors[0]!r}]" if tensors else ""
    return f"; a transform takes the sample, a dict, and returns it: change what is in it{shown}"


def _form(value: Any) -> str:
    """Return dtype and shape of a tensor, such as ``uint8[3,16,16]``; of any other value, its type.

    That of a numpy scalar is its dtype, such as ``numpy.float32``.
    """
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{','.join(map(str, value.shape))}]"
    if isinstance(value, np.generic):
        return f"numpy.{value.dtype}"
    return type(value).__name__
