"""The policies over a decoded picture: which are refused, and what the others become.

Only whole pictures come here. Refusing and converting are two steps over the same rules, so that reading,
which only converts, gives what ingest judged.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardkit.contract.field import Violation
from shardkit.contract.images.facts import Picture
from shardkit.contract.reasons import Reason

Samples = npt.NDArray[np.uint8]
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
_UNTURNED = {6: 8, 8: 6}


@dataclass(frozen=True)
class Policies:
    """The keys of an image field that speak about pixels; see :class:`shardkit.contract.image.ImageField`."""

    mode: str
    grayscale: str
    alpha: str
    cmyk: str
    depth16: str
    palette: str
    animated: str
    orientation: str


def refuse(policies: Policies, picture: Picture, depth: int) -> None:
    """Refuse a picture that the policies do not let in.

    Args:
        policies: The rules.
        picture: As decoded.
        depth: Significant bits of a sample as stored.

    Raises:
        Violation: ``animated``, ``depth16``, ``grayscale``, ``colour``, ``cmyk``, ``palette``, ``alpha`` or
            ``orientation``, the first in this order that applies.
    """
    if picture.frames > 1 and policies.animated == "reject":
        raise Violation(
            Reason.ANIMATED, f'{picture.frames} frames or pages; animated = "first" would keep the first'
        )
    if depth > 8 and policies.depth16 == "reject":
        raise Violation(
            Reason.DEPTH16, f'{depth} bits a sample; depth16 = "convert" would keep the most significant 8'
        )
    _refuse_colours(policies, picture)
    if picture.has_alpha and policies.mode != "RGBA" and policies.alpha == "reject":
        raise Violation(
            Reason.ALPHA, 'has transparency; alpha = "drop" or "composite" (over white) would remove it'
        )
    if picture.orientation != 1 and policies.orientation == "reject":
        raise Violation(
            Reason.ORIENTATION, f"metadata gives orientation {picture.orientation}, not 1 (upright)"
        )


def _refuse_colours(policies: Policies, picture: Picture) -> None:
    if picture.is_gray:
        if policies.mode != "L" and policies.grayscale == "reject":
            raise Violation(
                Reason.GRAYSCALE,
                f"a gray image ({picture.label}), mode is {policies.mode}; "
                'grayscale = "convert" would repeat its channel',
            )
        return
    if picture.is_cmyk and policies.cmyk == "reject":
        raise Violation(Reason.CMYK, 'a CMYK image; cmyk = "convert" would turn it into RGB')
    if picture.is_palette and policies.palette == "reject":
        raise Violation(Reason.PALETTE, 'colours out of a palette; palette = "convert" would expand them')
    if policies.mode == "L":
        raise Violation(
            Reason.COLOUR, f"a colour image ({picture.label}), mode is L and no policy takes colour away"
        )


def deliver(policies: Policies, picture: Picture) -> Samples:
    """Return what training gets: C-contiguous ``uint8[H, W, C]`` of the contract's mode.

    Alpha is composited over white: ``round((alpha * sample + (255 - alpha) * 255) / 255)``.
    """
    samples = picture.samples
    if picture.is_cmyk:
        samples = np.asarray(Image.fromarray(samples, "CMYK").convert("RGB"))
    if picture.has_alpha and policies.mode != "RGBA":
        samples = samples[..., :-1] if policies.alpha == "drop" else _over_white(samples)
    samples = _to_mode(samples, policies.mode)
    turn = _turn(policies, picture)
    return np.ascontiguousarray(samples if turn == 1 else orient(samples, turn))


def delivered_size(policies: Policies, picture: Picture) -> tuple[int, int]:
    """Return height and width of what `deliver` makes of the picture, without making it."""
    height, width = picture.samples.shape[:2]
    return (width, height) if _turn(policies, picture) >= 5 else (height, width)


def conversions(policies: Policies, picture: Picture, depth: int) -> tuple[str, ...]:
    """Name the policies that change this picture on its way to training."""
    is_changed = {
        "animated": picture.frames > 1,
        "depth16": depth > 8,
        "grayscale": picture.is_gray and policies.mode != "L",
        "cmyk": picture.is_cmyk,
        "palette": picture.is_palette,
        "alpha": picture.has_alpha and policies.mode != "RGBA",
        "alpha-added": not picture.has_alpha and policies.mode == "RGBA",
        "orientation": picture.orientation != 1 and policies.orientation == "apply",
    }
    return tuple(name for name, changed in is_changed.items() if changed)


def orient(samples: Samples, orientation: int) -> Samples:
    """Return a view of ``[H, W, C]`` samples turned and mirrored as EXIF `orientation` in [1, 8] asks."""
    if orientation >= 5:
        samples = samples.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    return samples


def _turn(policies: Policies, picture: Picture) -> int:
    """Return the orientation still to be applied, or undone where the decoder was ahead of the policy."""
    if policies.orientation == "ignore":
        return _UNTURNED.get(picture.orientation, picture.orientation) if picture.is_oriented else 1
    return 1 if picture.is_oriented else picture.orientation


def _over_white(samples: Samples) -> Samples:
    opacity = samples[..., -1:].astype(np.uint16)
    mixed = samples[..., :-1] * opacity + (255 - opacity) * np.uint16(255)
    return ((mixed + 127) // 255).astype(np.uint8)


def _to_mode(samples: Samples, mode: str) -> Samples:
    """Repeat a gray channel and add an opaque alpha channel where the mode wants them.

    Raises:
        Violation: There are more channels than the mode has, which `refuse` never lets in.
    """
    channels, wanted = samples.shape[2], CHANNELS[mode]
    if channels == wanted:
        return samples
    if channels > wanted:
        raise Violation(Reason.COLOUR, f"{channels} channels, and mode {mode} has {wanted}")
    out = np.empty((*samples.shape[:2], wanted), np.uint8)
    out[..., :3] = samples[..., :3] if channels >= 3 else samples[..., :1]
    if wanted == 4:
        out[..., 3] = samples[..., 1] if channels == 2 else 255
    return out
