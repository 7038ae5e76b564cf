"""Image operations that are part of decoding: crop before resize, at the smallest scale that serves, into the batch.

Each decides from the size of a picture, and from random numbers, which steps are taken; ``steps.py`` takes them. As
transforms they can also be called on a decoded sample.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from shardkit.errors import TransformError
from shardkit.transforms.randomness import rng_of
from shardkit.transforms.steps import Cut, Mirror, Scale, Size, Step, take_steps

Sample = dict[str, Any]
UNUSED_RNG = random.Random(0)
"""For operations that draw no numbers."""
_ATTEMPTS = 10
"""Random crops tried before the middle is taken, as torchvision does; fewer than one in 10,000 photos needs more."""


class ImageOp(ABC):
    """What becomes of an image as it is decoded.

    Given to a data set or loader as ``transform`` (alone, or first in a `Compose`), it is part of decoding. Called on
    a sample, it works on the tensor in it, ``[C, H, W]`` of any dtype that torch resizes.

    Args:
        field: Name of the image field; by default the one that the contract has.

    Attributes:
        is_random: Whether it draws random numbers.
    """

    is_random: ClassVar[bool] = False

    def __init__(self, field: str | None = None) -> None:
        self.field = field

    def __repr__(self) -> str:
        """Show what it was made with."""
        given = {name.lstrip("_"): value for name, value in vars(self).items() if value is not None}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @abstractmethod
    def steps(self, size: Size, rng: random.Random) -> list[Step]:
        """Return what is done to a picture of a size.

        Raises:
            TransformError: It cannot be done.
        """

    @abstractmethod
    def output_size(self, size: Size | None) -> Size | None:
        """Return the size that comes of pictures of a size (None: of any); None if that varies."""

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample with its image changed.

        Raises:
            TransformError: There is no such image in it, or it is a batch, or it cannot be done.
        """
        self._require_one(sample)
        name = self.field or _the_image(sample)
        picture = _image_in(sample, name).permute(1, 2, 0).numpy()
        rng = rng_of(None, 0, "") if self.is_random else UNUSED_RNG
        done = take_steps(picture, self.steps((picture.shape[0], picture.shape[1]), rng))
        return sample | {name: torch.from_numpy(done.copy()).permute(2, 0, 1)}

    def _require_one(self, sample: Sample) -> None:
        if not isinstance(sample.get("id", ""), str):
            raise TransformError(
                f"{type(self).__name__} takes a sample, and this is a batch: give image operations to the data set or "
                "the loader, transform=..., where they are part of decoding; a DevicePrefetcher's transform takes "
                "batches, as Normalize does"
            )


class Resize(ImageOp):
    """Scale to a size, by an antialiased bilinear filter.

    Args:
        size: Height and width; or an int, which the shorter side becomes, while the shape is kept.
        field: Name of the image field; by default the one that the contract has.
        exact: Decode all pixels even where the decoder could make a smaller picture at once, which is several times
            as fast for large photos. It differs from it as two good filters do, and by up to half a pixel in place: a
            part is cut out of the smaller picture at whole pixels.

    Raises:
        ValueError: A side is less than 1.
    """

    def __init__(self, size: int | Sequence[int], field: str | None = None, *, exact: bool = False) -> None:
        super().__init__(field)
        both = size_of(size)
        self._size = size if isinstance(size, int) else both
        self._exact = exact

    def steps(self, size: Size, rng: random.Random) -> list[Step]:
        """Return one step."""
        return [Scale(*self._wanted(size), self._exact)]

    def output_size(self, size: Size | None) -> Size | None:
        """Return the size asked for; where the shape is kept it depends on the picture's."""
        if isinstance(self._size, tuple):
            return self._size
        return None if size is None else self._wanted(size)

    def _wanted(self, size: Size) -> Size:
        if isinstance(self._size, tuple):
            return self._size
        height, width = size
        if height <= width:
            return self._size, int(self._size * width / height)
        return int(self._size * height / width), self._size


class CenterCrop(ImageOp):
    """Cut out the middle.

    Args:
        size: Height and width of what is delivered; or an int, for a square.
        ratio: Without, `size` pixels are cut out. With it, the largest part of that shape is taken, times `ratio`
            (0.875 is common), and scaled to `size`.
        field: Name of the image field; by default the one that the contract has.
        exact: As for `Resize`.

    Raises:
        ValueError: A side is less than 1, or `ratio` is not in (0, 1].
    """

    def __init__(
        self,
        size: int | Sequence[int],
        ratio: float | None = None,
        field: str | None = None,
        *,
        exact: bool = False,
    ) -> None:
        super().__init__(field)
        if ratio is not None and not 0 < ratio <= 1:
            raise ValueError(f"ratio must lie in (0, 1], not {ratio}")
        self._size = size_of(size)
        self._ratio = ratio
        self._exact = exact

    def steps(self, size: Size, rng: random.Random) -> list[Step]:
        """Return the cut, and the scaling if there is a ratio.

        Raises:
            TransformError: The picture is smaller than what is to be cut out.
        """
        height, width = self._size
        if self._ratio is None:
            if height > size[0] or width > size[1]:
                raise TransformError(
                    f"an image of {size[0]}x{size[1]} is smaller than the crop of {height}x{width}: resize it first, "
                    "or give a ratio"
                )
            return [_middle(size, self._size)]
        largest = min(size[0], size[1] * height / width), min(size[1], size[0] * width / height)
        part = max(1, int(self._ratio * largest[0])), max(1, int(self._ratio * largest[1]))
        return [_middle(size, part), Scale(height, width, self._exact)]

    def output_size(self, size: Size | None) -> Size | None:
        """Return the size asked for."""
        return self._size


class RandomResizedCrop(ImageOp):
    """Cut out a part of random place, size and shape, and scale it: the usual augmentation of photos.

    The choice is that of C. Szegedy et al., "Going Deeper with Convolutions" (CVPR 2015, section 6), as torchvision
    makes it: area uniform in `scale`, the logarithm of width to height uniform in that of `ratio`. Where ten tries do
    not fit the picture, the middle is taken. It depends on seed, epoch and id alone.

    Args:
        size: Height and width of what is delivered; or an int, for a square.
        scale: Least and greatest area of the part, as shares of the picture's.
        ratio: Least and greatest width to height of the part.
        field: Name of the image field; by default the one that the contract has.
        exact: As for `Resize`.

    Raises:
        ValueError: A number is out of its range, or a least is above its greatest.
    """

    is_random = True

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        field: str | None = None,
        *,
        exact: bool = False,
    ) -> None:
        super().__init__(field)
        if not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(f"scale must be two shares, 0 < least <= greatest <= 1, not {scale}")
        if not 0 < ratio[0] <= ratio[1] < math.inf:
            raise ValueError(f"ratio must be two numbers, 0 < least <= greatest, not {ratio}")
        self._size = size_of(size)
        self._scale = scale
        self._ratio = ratio
        self._exact = exact

    def steps(self, size: Size, rng: random.Random) -> list[Step]:
        """Return the cut and the scaling."""
        return [self._part(size, rng), Scale(*self._size, self._exact)]

    def output_size(self, size: Size | None) -> Size | None:
        """Return the size asked for."""
        return self._size

    def _part(self, size: Size, rng: random.Random) -> Cut:
        height, width = size
        low, high = math.log(self._ratio[0]), math.log(self._ratio[1])
        for _ in range(_ATTEMPTS):
            area = height * width * rng.uniform(*self._scale)
            shape = math.exp(rng.uniform(low, high))
            part = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
            if 0 < part[0] <= height and 0 < part[1] <= width:
                return Cut(rng.randint(0, height - part[0]), rng.randint(0, width - part[1]), *part)
        shape = min(max(width / height, self._ratio[0]), self._ratio[1])
        part = min(height, max(1, round(width / shape))), min(width, max(1, round(height * shape)))
        return Cut((height - part[0]) // 2, (width - part[1]) // 2, *part)


class RandomHorizontalFlip(ImageOp):
    """Turn left and right around, or not.

    Args:
        p: How often, in [0, 1].
        field: Name of the image field; by default the one that the contract has.

    Raises:
        ValueError: `p` is not in [0, 1].
    """

    is_random = True

    def __init__(self, p: float = 0.5, field: str | None = None) -> None:
        super().__init__(field)
        if not 0 <= p <= 1:
            raise ValueError(f"p must lie in [0, 1], not {p}")
        self._p = p

    def steps(self, size: Size, rng: random.Random) -> list[Step]:
        """Return one step, or none."""
        return [Mirror()] if rng.random() < self._p else []

    def output_size(self, size: Size | None) -> Size | None:
        """Return the same size."""
        return size


def size_of(size: int | Sequence[int]) -> Size:
    """Return height and width; of an int, a square.

    Raises:
        ValueError: They are not one or two whole numbers of 1 or more.
    """
    sides = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(sides) != 2 or not all(type(side) is int and side >= 1 for side in sides):
        raise ValueError(
            f"size must be a whole number of 1 or more, or two of them, height and width, not {size!r}"
        )
    return sides[0], sides[1]


def _middle(size: Size, part: Size) -> Cut:
    top, left = (round((whole - kept) / 2) for whole, kept in zip(size, part, strict=True))
    return Cut(top, left, *part)


def _image_in(sample: Sample, name: str) -> torch.Tensor:
    value = sample.get(name)
    if isinstance(value, torch.Tensor) and value.dim() == 3 and value.numel():
        return value
    found = f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
    raise TransformError(f"{sample.get('id')}: {name!r} should be an image, a tensor [C, H, W], not {found}")


def _the_image(sample: Sample) -> str:
    names = [
        name
        for name, value in sample.items()
        if isinstance(value, torch.Tensor) and value.dim() == 3 and not name.endswith("_mask")
    ]
    if len(names) != 1:
        raise TransformError(
            f"{sample.get('id')}: {len(names)} values look like images ({', '.join(names) or 'none'}): "
            "name one, field=..."
        )
    return names[0]
