"""Pictures made smaller, or of one exact size, before they are stored.

The filter is Lanczos, applied to all pixels: of Pillow's filters it keeps the most detail with the least aliasing
(Pillow's handbook, "Filters comparison table"), and what is stored once is seen in every epoch. A box filter, or
scaling by the JPEG decoder, would be several times as fast and leave steps and moire behind.
"""

import numpy as np
import numpy.typing as npt
from PIL import Image

Samples = npt.NDArray[np.uint8]
Size = tuple[int, int]
FITS = ("crop", "stretch")
_PIL_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def image_of(samples: Samples) -> Image.Image:
    """Return ``uint8[H, W, C]``, C in 1 to 4, as a Pillow image of mode L, LA, RGB or RGBA."""
    channels = samples.shape[2]
    return Image.fromarray(samples[..., 0] if channels == 1 else samples, _PIL_MODES[channels])


def shrink(samples: Samples, max_side: int) -> Samples:
    """Return `samples` with the longer side at `max_side` pixels at most, shape kept."""
    height, width = samples.shape[:2]
    longer = max(height, width)
    if longer <= max_side:
        return samples
    size = (max(1, round(height * max_side / longer)), max(1, round(width * max_side / longer)))
    return _scale(samples, size, (0, 0, width, height))


def resize(samples: Samples, size: Size, fit: str) -> Samples:
    """Return `samples` as a picture of exactly `size`, ``[H, W]``; as they are where they have it already.

    Args:
        samples: ``uint8[H, W, C]``, C in 1 to 4. Transparent pixels lend no colour to their neighbours.
        size: Height and width wanted.
        fit: ``crop``: scaled, shape kept, until it covers `size`, and the middle cut out; ``stretch``: each side
            scaled by itself.
    """
    height, width = samples.shape[:2]
    if (height, width) == size:
        return samples
    if fit == "stretch":
        return _scale(samples, size, (0, 0, width, height))
    share = min(height / size[0], width / size[1])
    across, down = size[1] * share, size[0] * share
    left, top = (width - across) / 2, (height - down) / 2
    box = (max(0.0, left), max(0.0, top), min(width, left + across), min(height, top + down))
    return _scale(samples, size, box)


def _scale(samples: Samples, size: Size, box: tuple[float, float, float, float]) -> Samples:
    """Return the part of a picture within `box` (left, top, right, bottom) as a picture of `size`."""
    scaled = image_of(samples).resize((size[1], size[0]), Image.Resampling.LANCZOS, box=box)
    return np.ascontiguousarray(np.asarray(scaled).reshape(*size, samples.shape[2]))
