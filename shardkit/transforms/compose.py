"""Several transforms, one after the other; the image operations that come first are part of decoding."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from shardkit.transforms.encoded import HINT, Encoded
from shardkit.transforms.image_ops import ImageOp, Sample
from shardkit.transforms.steps import Cut, Scale, Size, Step

Transform = Callable[[Sample], Sample | None]
"""Takes a sample, which it may change in place, and returns the one to deliver, or None to leave it out."""


class Compose:
    """Transforms, one after the other. What stands behind one that left the sample out is not called.

    Args:
        transforms: Image operations and any others, which may be composed themselves. Those image operations that
            come first are part of decoding.

    Example:
        >>> augment = Compose([RandomResizedCrop(224), RandomHorizontalFlip(), my_own])
        >>> loader = ShardLoader("out/", transform=augment)

    Raises:
        TypeError: One of them cannot be called.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        flat: list[Transform] = []
        for transform in transforms:
            if not callable(transform):
                raise TypeError(f"a transform is called with a sample, which {transform!r} cannot be")
            flat.extend(transform.transforms if isinstance(transform, Compose) else [transform])
        self.transforms: tuple[Transform, ...] = tuple(flat)

    def __repr__(self) -> str:
        """Show the transforms."""
        return f"Compose({list(self.transforms)!r})"

    def __call__(self, sample: Sample) -> Sample | None:
        """Return what the last transform made."""
        result: Any = sample
        for transform in self.transforms:
            if result is None:
                return None
            result = transform(result)
        return result  # type: ignore[no-any-return]  # what a user's transform returns is checked by who calls


def split(transform: Transform | None) -> tuple[list[ImageOp], Transform | None]:
    """Return the image operations that are part of decoding, and what is left to do after it.

    Raises:
        TypeError: It is no transform.
        ValueError: `Encoded` stands where the image is decoded already.
    """
    if transform is None:
        return [], None
    if not callable(transform):
        raise TypeError(
            f"a transform is called with a sample, which a {type(transform).__name__} cannot be; for several, "
            "Compose([...])"
        )
    if isinstance(transform, ImageOp):
        return [transform], None
    if not isinstance(transform, Compose):
        return [], transform
    leading: list[ImageOp] = []
    for each in transform.transforms:
        if not isinstance(each, ImageOp):
            break
        leading.append(each)
    rest = transform.transforms[len(leading) :]
    if any(isinstance(each, Encoded) for each in rest):
        raise ValueError(f"Encoded: it stands behind {rest[0]!r}, which takes decoded samples: {HINT}")
    return leading, Compose(rest) if rest else None


def plan(ops: Sequence[ImageOp], size: Size, rng: random.Random) -> list[Step]:
    """Return all that some operations do to a picture of a size.

    Raises:
        TransformError: One of them cannot be done.
    """
    steps: list[Step] = []
    for op in ops:
        for step in op.steps(size, rng):
            steps.append(step)
            if isinstance(step, Cut | Scale):
                size = step.height, step.width
    return steps


def size_after(ops: Sequence[ImageOp], size: Size | None) -> Size | None:
    """Return the size that comes of pictures of a size (None: of any) by some operations; None if that varies."""
    for op in ops:
        size = op.output_size(size)
    return size
