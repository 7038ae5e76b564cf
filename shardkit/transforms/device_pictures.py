"""Pictures that a device decodes, group by group, and the steps of image operations, taken there.

Which images those are, and what becomes of all others, is a matter of ``decode_images.py``.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.nn.functional import interpolate

from shardkit.transforms.jpeg_libraries import DEVICE_ERRORS, DecodeJpegs
from shardkit.transforms.steps import Cut, Mirror, Size, Step

MOST_PIXELS = 1 << 26
"""Pixels decoded at once on a device: 200 MB of RGB, which is enough to keep it busy with photos."""


def decode_on_device(
    decode: DecodeJpegs,
    images: Sequence[torch.Tensor],
    sizes: Mapping[int, Size],
    mode: str,
    device: torch.device,
) -> Iterator[tuple[int, torch.Tensor | None]]:
    """Yield places and pictures, ``uint8[C, H, W]`` on the device; None where its decoder refuses one.

    Args:
        decode: Of a library.
        images: ``uint8[n]`` each, on the CPU.
        sizes: Place among them -> height and width, of each that is to be decoded.
        mode: RGB or L.
        device: Where they are decoded.
    """
    for places in _groups(sizes):
        group = [images[place] for place in places]
        yield from zip(places, _pictures(decode, group, mode, device), strict=True)


def _pictures(
    decode: DecodeJpegs, images: list[torch.Tensor], mode: str, device: torch.device
) -> list[torch.Tensor | None]:
    """Return the pictures of some images: of each by itself where all together fail, which names none of them."""
    try:
        return [*decode(images, mode, device)]
    except DEVICE_ERRORS:
        raise
    except RuntimeError:
        if len(images) == 1:
            return [None]
    return [picture for image in images for picture in _pictures(decode, [image], mode, device)]


def _groups(sizes: Mapping[int, Size]) -> Iterator[list[int]]:
    """Yield the places in groups that are decoded at once."""
    group: list[int] = []
    pixels = 0
    for place, (height, width) in sizes.items():
        if group and pixels + height * width > MOST_PIXELS:
            yield group
            group, pixels = [], 0
        group.append(place)
        pixels += height * width
    if group:
        yield group


def take_steps_on_device(picture: torch.Tensor, steps: Sequence[Step]) -> torch.Tensor:
    """Return a picture, ``uint8[C, H, W]``, after some steps; it may be a view.

    The filter is that of `take_steps`, in floating point, as torch has it for whole numbers on CPUs only: within 1.
    """
    for step in steps:
        if isinstance(step, Cut):
            picture = picture[:, step.top : step.top + step.height, step.left : step.left + step.width]
        elif isinstance(step, Mirror):
            picture = picture.flip(-1)
        elif picture.shape[1:] != (step.height, step.width):
            size = (step.height, step.width)
            scaled = interpolate(picture[None].to(torch.float32), size, mode="bilinear", antialias=True)
            picture = scaled[0].round_().to(torch.uint8)
    return picture
