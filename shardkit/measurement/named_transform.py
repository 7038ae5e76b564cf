"""Transforms by name, for a command line, which has no other way to give one."""

from dataclasses import dataclass

from shardkit.contract import Contract
from shardkit.transforms import CenterCrop, Compose, ImageOp, RandomResizedCrop, Transform

CENTER_RATIO = 0.875
"""Of the largest square that fits: the usual crop of photos in evaluation, 224 of 256."""


@dataclass(frozen=True)
class NamedTransform:
    """A transform, and what a report calls it.

    Attributes:
        name: Such as ``"center:224"``.
        transform: Takes a sample; None for none.
    """

    name: str
    transform: Transform | None


def choose_transform(given: Transform | str | None, contract: Contract) -> NamedTransform:
    """Return the transform that is named, applied to every image field; one of the caller's own stays what it is.

    Args:
        given: ``"none"``, ``"center:SIZE"``, ``"random:SIZE"``, or a transform.
        contract: Of the data set.

    Raises:
        ValueError: There is none of that name, or the data set has no images for it.
    """
    if given is None or given == "none":
        return NamedTransform("none", None)
    if not isinstance(given, str):
        return NamedTransform(getattr(given, "__name__", type(given).__name__), given)
    images = [name for name, field in contract.fields.items() if field.kind == "image"]
    if not images:
        raise ValueError(f'transform "{given}" is for images, and the data set has no image field')
    return NamedTransform(given, Compose([_named_op(given, field) for field in images]))


def _named_op(name: str, field: str) -> ImageOp:
    kind, _, size = name.partition(":")
    is_number = size.isascii() and size.isdecimal() and int(size) >= 1
    if is_number and kind == "center":
        return CenterCrop(int(size), CENTER_RATIO, field)
    if is_number and kind == "random":
        return RandomResizedCrop(int(size), field=field)
    raise ValueError(
        f'transform must be "none", "center:SIZE" or "random:SIZE", such as "center:224", not "{name}"'
    )
