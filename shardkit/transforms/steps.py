"""What is done to one picture, step by step, once it was decided; and a decoder that does no more than they need.

Pictures are ``uint8[H, W, C]`` (``[H, W, C]`` of other dtypes where a transform made them so).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

from shardkit.contract.images.stored import StoredImage

Size = tuple[int, int]
"""Height and width in pixels."""
Picture = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """Keep a part.

    Attributes:
        top, left: Its first row and column.
        height, width: Its size in pixels.
    """

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Make it of another size.

    Attributes:
        height, width: That size in pixels.
        is_exact: Whether all pixels must have a say in it: the decoder then makes them all.
    """

    height: int
    width: int
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class Mirror:
    """Turn left and right around."""


Step = Cut | Scale | Mirror


def render(image: StoredImage, steps: Sequence[Step], out: Picture | None = None) -> Picture:
    """Decode a picture and take the steps.

    Args:
        image: What is decoded, in a smaller scale where the steps shrink it to that anyway.
        steps: In order; what they cut lies within the picture.
        out: Takes the result, ``uint8[H, W, C]`` of its size, C-contiguous; else it is a new array or a view.

    Raises:
        FormatError: The picture is damaged.
    """
    first = steps[0] if steps else None
    cut = first if isinstance(first, Cut) else Cut(0, 0, image.height, image.width)
    rest = steps[1:] if cut is first else steps
    samples = image.decode(_least(image, cut, rest))
    return take_steps(samples, [_rescaled(cut, image, samples), *rest], out)


def take_steps(samples: Picture, steps: Sequence[Step], out: Picture | None = None) -> Picture:
    """Return a picture after some steps, in `out` if there is one; without, it may be a view of `samples`."""
    for number, step in enumerate(steps):
        if isinstance(step, Cut):
            samples = samples[step.top : step.top + step.height, step.left : step.left + step.width]
        elif isinstance(step, Mirror):
            samples = samples[:, ::-1]
        elif samples.shape[:2] != (step.height, step.width):
            is_last = out is not None and number == len(steps) - 1
            samples = _scaled(samples, step, out if is_last else None)
    if out is None or samples is out:
        return samples
    np.copyto(out, samples)
    return out


def _least(image: StoredImage, cut: Cut, rest: Sequence[Step]) -> Size | None:
    """Return the size of the whole picture in which the part is still as large as it is scaled to next."""
    scale = rest[0] if rest else None
    if not isinstance(scale, Scale) or scale.is_exact:
        return None
    height = -(-scale.height * image.height // cut.height)
    width = -(-scale.width * image.width // cut.width)
    return height, width


def _rescaled(cut: Cut, image: StoredImage, samples: Picture) -> Cut:
    """Return the part in a picture that was decoded smaller, to the nearest pixel."""
    height, width = samples.shape[:2]
    if (height, width) == (image.height, image.width):
        return cut
    top, bottom = (round(row * height / image.height) for row in (cut.top, cut.top + cut.height))
    left, right = (round(column * width / image.width) for column in (cut.left, cut.left + cut.width))
    return Cut(top, left, bottom - top, right - left)


def _scaled(samples: Picture, size: Scale, out: Picture | None) -> Picture:
    """Scale by torch's antialiased bilinear filter, within 1 of Pillow's."""
    if not samples.flags.writeable or min(samples.strides) < 0:  # which torch takes no view of
        samples = samples.copy()
    picture = torch.from_numpy(samples).permute(2, 0, 1).unsqueeze(0)
    wanted = [size.height, size.width]
    if out is None:
        made = interpolate(picture, wanted, mode="bilinear", antialias=True)
        scaled: Picture = made.squeeze(0).permute(1, 2, 0).numpy()
        return scaled
    into = torch.from_numpy(out).permute(2, 0, 1).unsqueeze(0)
    # what interpolate() calls, which itself takes no `out`: a copy would cost as much as half of the filter
    torch.ops.aten._upsample_bilinear2d_aa.out(picture, wanted, False, None, None, out=into)
    return out
