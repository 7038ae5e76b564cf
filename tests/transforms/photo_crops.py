"""Encoded photos, and what torchvision's v2 transforms are defined to make of the part of a picture."""

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from shardkit.contract import ImageField
from shardkit.transforms import ImageOp
from shardkit.transforms.steps import Cut, Mirror, Recipe, Step

Samples = npt.NDArray[np.uint8]
CHINA, FLOWER = (Image.fromarray(array) for array in load_sample_images().images)


def encode(image: Image.Image | Samples, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(out, kind, **options)
    return out.getvalue()


def rendered(field: ImageField, data: bytes, steps: Sequence[Step]) -> Samples:
    """Decode a picture and take the steps: to a new one, and, with the same result, to a place in a batch."""
    image = field.open(data)
    recipe = Recipe((image.height, image.width), steps)
    made = recipe.make(image)
    batch = torch.full((3, *made.shape), 77, dtype=torch.uint8)
    recipe.make_in(image, batch.numpy(), batch.permute(0, 3, 1, 2), 1)
    np.testing.assert_array_equal(batch[1].numpy(), made)
    assert (batch[::2] == 77).all()
    return made


def triangles(side: int, wanted: int) -> npt.NDArray[np.float64]:
    """Return the antialiased bilinear filter from one length to another, as the matrix ``[wanted, side]``.

    Each of the pixels wanted is centred on its share of the side, and weighs those within two shares (two pixels, where
    it grows) by their distance, as Pillow and torch do.
    """
    share = side / wanted
    centres = (np.arange(wanted) + 0.5)[:, None] * share
    distances = np.abs(np.arange(side) + 0.5 - centres) / max(share, 1.0)
    weights = np.maximum(1 - distances, 0)
    return weights / weights.sum(axis=1, keepdims=True)


def expected_of(samples: Samples, steps: Sequence[Step]) -> npt.NDArray[np.float64]:
    """Take the steps on all pixels, in floating point: slow and plain."""
    picture = samples.astype(np.float64)
    for step in steps:
        if isinstance(step, Cut):
            picture = picture[step.top : step.top + step.height, step.left : step.left + step.width]
        elif isinstance(step, Mirror):
            picture = picture[:, ::-1]
        else:
            down, across = triangles(picture.shape[0], step.height), triangles(picture.shape[1], step.width)
            picture = np.tensordot(across, np.tensordot(down, picture, (1, 0)), (1, 1)).swapaxes(0, 1)
    return picture


def psnr(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    error = np.mean((found.astype(float) - expected.astype(float)) ** 2)
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def cut_of(op: ImageOp, size: tuple[int, int], rng: Any = None) -> tuple[int, int, int, int]:
    """Return top, left, height and width of the part that an operation cuts out of a picture of a size."""
    cut = op.steps(size, rng)[0]
    assert isinstance(cut, Cut)
    return cut.top, cut.left, cut.height, cut.width
