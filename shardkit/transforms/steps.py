"""What is done to one picture, step by step, once it was decided; and a decoder that does no more than they need.

Pictures are ``uint8[H, W, C]`` (``[H, W, C]`` of other dtypes where a transform made them so).
"""

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

from shardkit.contract.images.stored import StoredImage
from shardkit.transforms.scratch import MOST_KEPT, Block

Size = tuple[int, int]
"""Height and width in pixels."""
Picture = npt.NDArray[Any]
_filter = torch.ops.aten._upsample_bilinear2d_aa.out


class Cut(NamedTuple):
    """Keep a part.

    Attributes:
        top, left: Its first row and column.
        height, width: Its size in pixels.
    """

    top: int
    left: int
    height: int
    width: int


class Scale(NamedTuple):
    """Make it of another size.

    Attributes:
        height, width: That size in pixels.
        is_exact: Whether all pixels must have a say in it: the decoder then makes them all.
    """

    height: int
    width: int
    is_exact: bool = False


class Mirror(NamedTuple):
    """Turn left and right around."""


Step = Cut | Scale | Mirror


class Recipe:
    """What is done to pictures of one size: what is cut out, what that is scaled to, and what is left to do.

    It is made once for each size where nothing is random. Code that runs between two pictures finds the caches full of
    pixels, takes several times as long, and keeps other threads from the interpreter.

    Args:
        size: Height and width of the pictures.
        steps: In order; what they cut lies within such a picture.
    """

    __slots__ = ("_cut", "_least", "_rest", "_scale", "_size")

    def __init__(self, size: Size, steps: Sequence[Step]) -> None:
        first = steps[0] if steps else None
        self._size = size
        self._cut = first if isinstance(first, Cut) else Cut(0, 0, *size)
        self._rest = steps[1:] if self._cut is first else steps
        scale = self._rest[0] if self._rest else None
        self._scale = scale if isinstance(scale, Scale) and len(self._rest) == 1 else None
        self._least = _least(size, self._cut, scale)

    def make(self, image: StoredImage) -> Picture:
        """Return a picture as a new array, or a view of what was decoded: in a smaller scale, if that serves.

        Raises:
            FormatError: It is damaged.
        """
        samples = image.decode(self._least)
        return take_steps(samples, [_rescaled(self._cut, self._size, samples), *self._rest])

    def make_in(self, image: StoredImage, pictures: Picture, tensor: torch.Tensor, place: int) -> None:
        """Put a picture among those of a batch.

        Args:
            image: Is decoded.
            pictures: Those of the batch, ``uint8[B, H, W, C]``, C-contiguous.
            tensor: The same as ``uint8[B, C, H, W]``.
            place: Which of them it is.

        Raises:
            FormatError: It is damaged.
        """
        samples = image.decode(self._least, _scratch.decoded.room)
        cut = self._cut if self._least is None else _rescaled(self._cut, self._size, samples)
        part = samples[cut.top : cut.top + cut.height, cut.left : cut.left + cut.width]
        size = pictures.shape[1:3]
        if self._scale is None or part.shape[:2] == size:
            pictures[place] = take_steps(part, self._rest)
            return
        dense, dense_view = _scratch.dense(part.shape)
        dense[:] = part  # the filter is half as fast again on a dense picture
        # What interpolate() calls, which itself takes no `out`: a copy would cost as much as half of the filter.
        _filter(dense_view, size, False, None, None, out=tensor[place : place + 1])


def take_steps(samples: Picture, steps: Sequence[Step]) -> Picture:
    """Return a picture after some steps; it may be a view of `samples`."""
    for step in steps:
        if isinstance(step, Cut):
            samples = samples[step.top : step.top + step.height, step.left : step.left + step.width]
        elif isinstance(step, Mirror):
            samples = samples[:, ::-1]
        elif samples.shape[:2] != (step.height, step.width):
            samples = _scaled(samples, step)
    return samples


def _least(size: Size, cut: Cut, scale: Step | None) -> Size | None:
    """Return the size of the whole picture in which the part is still as large as it is scaled to next."""
    if not isinstance(scale, Scale) or scale.is_exact:
        return None
    height = -(-scale.height * size[0] // cut.height)
    width = -(-scale.width * size[1] // cut.width)
    return height, width


def _rescaled(cut: Cut, size: Size, samples: Picture) -> Cut:
    """Return the part in a picture that was decoded smaller, to the nearest pixels of that."""
    height, width = samples.shape[:2]
    if (height, width) == size:
        return cut
    eighths = min(8 * height // size[0], 8 * width // size[1])  # sides were rounded up
    top, rows = _shrunk(cut.top, cut.height, eighths, height)
    left, columns = _shrunk(cut.left, cut.width, eighths, width)
    return Cut(top, left, rows, columns)


def _shrunk(start: int, length: int, eighths: int, side: int) -> tuple[int, int]:
    """Return where a stretch of a side begins and how long it is, a pixel at least, in that side scaled down."""
    begin = min((eighths * start + 4) // 8, side - 1)
    end = (eighths * (start + length) + 4) // 8
    return begin, max(1, end - begin)


def _scaled(samples: Picture, size: Scale) -> Picture:
    """Scale by torch's antialiased bilinear filter, within 1 of Pillow's."""
    made = interpolate(_view(samples.copy()), (size.height, size.width), mode="bilinear", antialias=True)
    scaled: Picture = made.squeeze(0).permute(1, 2, 0).numpy()
    return scaled


def _view(samples: Picture) -> torch.Tensor:
    """Return ``[1, C, H, W]``, by its strides channels-last: the filter then takes its quick way."""
    return torch.from_numpy(samples)[None].permute(0, 3, 1, 2)


class _Scratch(threading.local):
    """Of each thread: where it decodes, and where it puts what it cuts out."""

    def __init__(self) -> None:
        self.decoded = Block()
        self._cut = Block()
        self._latest: tuple[tuple[int, ...], Picture, torch.Tensor] | None = None

    def dense(self, shape: tuple[int, ...]) -> tuple[Picture, torch.Tensor]:
        """Return room for a picture, ``uint8[H, W, C]``, and the same as `_view` gives it, until the next time."""
        if self._latest is not None and self._latest[0] == shape:  # crops of one size are common
            return self._latest[1:]
        dense = self._cut.room(math.prod(shape)).reshape(shape)
        view = _view(dense)
        self._latest = (shape, dense, view) if dense.nbytes <= MOST_KEPT else None
        return dense, view


_scratch = _Scratch()
