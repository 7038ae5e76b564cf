"""Transforms by name, for a command line, which has no other way to give one."""

import functools
import importlib
import os
import sys
from dataclasses import dataclass

from shardkit.contract import Contract
from shardkit.transforms import CenterCrop, Compose, ImageOp, RandomResizedCrop, Transform

_OWN_NAMES = ("none", "center", "random")

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
    """Return the transform that is named; one of ours is applied to every image field.

    Args:
        given: ``"none"``, ``"center:SIZE"``, ``"random:SIZE"``; ``"module:name"``, which is imported, from the current
            folder too; or a transform.
        contract: Of the data set.

    Raises:
        ValueError: There is none of that name, or it cannot be imported, or the data set has no images for it.
    """
    if given is None or given == "none":
        return NamedTransform("none", None)
    if not isinstance(given, str):
        return NamedTransform(getattr(given, "__name__", type(given).__name__), given)
    if is_imported(given):
        return NamedTransform(given, _imported(given))
    images = [name for name, field in contract.fields.items() if field.kind == "image"]
    if not images:
        raise ValueError(f'transform "{given}" is for images, and the data set has no image field')
    return NamedTransform(given, Compose([_named_op(given, field) for field in images]))


def is_imported(name: str) -> bool:
    """Return whether a name means a transform of the user's own, ``"module:name"``."""
    return name.partition(":")[0] not in _OWN_NAMES


def _imported(given: str) -> Transform:
    module, _, name = given.partition(":")
    if not module or not name:
        raise ValueError(
            f'transform must be "none", "center:SIZE", "random:SIZE" or "module:name", not "{given}"'
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:  # importing runs the module, which may raise anything
        raise ValueError(
            f'transform "{given}" cannot be imported: {type(error).__name__}: {error}'
        ) from error
    if not callable(found):
        raise ValueError(f'transform "{given}" is of type {type(found).__name__}, which cannot be called')
    return found


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
