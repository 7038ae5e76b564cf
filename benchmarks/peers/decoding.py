"""The two ways to make a cropped photo by hand, for peers that leave that to their users.

``pillow`` is what most documentations show. ``simplejpeg`` is the fastest that is known here: libjpeg-turbo through
simplejpeg, and torch's antialiased resize on a channels-last view of the crop.
"""

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import simplejpeg
import torch
from PIL import Image
from reading import Job

Decode = Callable[[bytes], torch.Tensor]
"""Makes ``uint8[size, size, 3]`` of the bytes of a photo."""


def decoder(job: Job) -> Decode:
    """Return the way that the job names; it can be pickled."""
    return partial({"pillow": _with_pillow, "simplejpeg": _with_simplejpeg}[job.how], job)


def centre_square(height: int, width: int, ratio: float) -> tuple[int, int, int]:
    """Return top, left and side of the centre square of `ratio` times the shorter side."""
    side = int(ratio * min(height, width))
    return (height - side) // 2, (width - side) // 2, side


def crop_image(image: Image.Image, job: Job) -> torch.Tensor:
    """Return the crop of a Pillow image, which is decoded here."""
    top, left, side = centre_square(image.height, image.width, job.ratio)
    square = image.convert("RGB").crop((left, top, left + side, top + side))
    if side != job.size:
        square = square.resize((job.size, job.size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(square))


def crop_pixels(pixels: torch.Tensor, job: Job) -> torch.Tensor:
    """Return the crop of decoded pixels ``uint8[H, W, 3]``."""
    top, left, side = centre_square(pixels.shape[0], pixels.shape[1], job.ratio)
    square = pixels[top : top + side, left : left + side].contiguous()
    if side == job.size:
        return square
    channels_last = square[None].permute(0, 3, 1, 2)  # in this order, else torch resizes it as planes
    resized = torch.nn.functional.interpolate(
        channels_last, (job.size, job.size), mode="bilinear", antialias=True
    )
    return resized.permute(0, 2, 3, 1)[0]


def _with_pillow(job: Job, encoded: bytes) -> torch.Tensor:
    return crop_image(Image.open(io.BytesIO(encoded)), job)


def _with_simplejpeg(job: Job, encoded: bytes) -> torch.Tensor:
    return crop_pixels(torch.from_numpy(simplejpeg.decode_jpeg(encoded)), job)
