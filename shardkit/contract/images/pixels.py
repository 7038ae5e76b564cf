"""The one decision how an image becomes pixels, shared by ingest and reading so that they cannot drift apart.

A JPEG goes to simplejpeg wherever its header says that the pixels are those of Pillow; everything else goes
to Pillow, except wide PNM samples, which Pillow would rescale. Which way is a matter of header facts alone.

A JPEG that is only judged needs no pixels: all that libjpeg finds fault with, it finds in the coded data, and of
DCT-based JPEGs it decodes every code at any scale.
"""

import numpy as np
import numpy.typing as npt
import simplejpeg

from shardkit.contract.field import Payload, Violation
from shardkit.contract.images import pillow
from shardkit.contract.images.facts import Facts, Picture, unseen
from shardkit.contract.images.jpeg import DCT_FRAMES, JpegFacts
from shardkit.contract.images.ppm import PpmFacts, wide_samples
from shardkit.contract.images.stored import Room
from shardkit.contract.reasons import Reason

_COLORSPACES = {1: "GRAY", 3: "RGB", 4: "CMYK"}
_CHANNELS = {"GRAY": 1, "RGB": 3}
_SMALLEST = {"min_height": 1, "min_width": 1, "min_factor": 8}
"""The scale of 1/8: a pixel of the DC coefficient of each block, with no inverse DCT."""
_BLOCKS_WITHOUT_OVERFLOW = 1 << 16
"""Each adds at most 2**15 - 1 to the DC coefficient, whose overflow of 32 bits libjpeg looks for only in the
components that it delivers (jdhuff.c). Below, gray alone will do, which saves the conversion of colours."""


def pixels(data: bytes, facts: Facts) -> Picture:
    """Decode an image whole, as leniently as its decoder is.

    Raises:
        Violation: It cannot be decoded.
    """
    if isinstance(facts, JpegFacts) and facts.is_turbo:
        try:
            return turbo_pixels(data, facts, strict=False)
        except ValueError:
            return pillow.decode(data, facts)
    if isinstance(facts, PpmFacts) and facts.depth > 8:
        return Picture(wide_samples(data, facts), facts.mode, frames=facts.frames)
    return pillow.decode(data, facts)


def turbo_pixels(data: bytes, facts: JpegFacts, *, strict: bool) -> Picture:
    """Decode a JPEG by simplejpeg; `strict` makes an error of every remark that libjpeg has.

    Raises:
        ValueError: What libjpeg said.
    """
    channels = len(facts.components)
    buffer = None if strict else _room_for_all(data, channels, _blank)
    samples = simplejpeg.decode_jpeg(data, _COLORSPACES[channels], strict=strict, buffer=buffer)
    is_cmyk = channels == 4
    if is_cmyk:
        samples = (
            255 - samples
        )  # stored is the inverse of ink, as Adobe does; Pillow takes that for granted too
    return Picture(samples, facts.mode, is_cmyk=is_cmyk, orientation=facts.orientation)


def turbo_judged(data: bytes, facts: JpegFacts) -> Picture:
    """Decode all coded data of a JPEG without making its pixels; return the picture with stand-ins for them.

    In 0.6 of the time, libjpeg has the same remarks as with `turbo_pixels`: at its smallest scale it still decodes
    the codes of all coefficients and leaves out what comes after (jdhuff.c: ``ac_needed``; jdphuff.c, jdarith.c).

    Raises:
        ValueError: What libjpeg said.
    """
    if facts.frame not in DCT_FRAMES:  # a lossless JPEG is never scaled
        return turbo_pixels(data, facts, strict=True)
    channels = len(facts.components)
    blocks = (facts.width // 8 + 4) * (facts.height // 8 + 4)  # of the largest component, padded
    is_small = blocks <= _BLOCKS_WITHOUT_OVERFLOW
    delivered = 1 if is_small and channels == 3 else channels
    room = _room_for_all(data, delivered, strict=True)
    simplejpeg.decode_jpeg(data, _COLORSPACES[delivered], strict=True, buffer=room, **_SMALLEST)
    return Picture(
        unseen(facts.height, facts.width, channels),
        facts.mode,
        is_cmyk=channels == 4,
        orientation=facts.orientation,
    )


def decode_turbo(
    data: Payload,
    facts: JpegFacts,
    colorspace: str,
    least: tuple[int, int] | None = None,
    room: Room | None = None,
) -> npt.NDArray[np.uint8]:
    """Return ``uint8[H, W, C]`` in simplejpeg's `colorspace`, as leniently as it decodes.

    Args:
        data: The JPEG.
        facts: Its header facts.
        colorspace: RGB or GRAY.
        least: Height and width that will do. Then the picture comes at the smallest of the scales 4/8, 3/8, 2/8 and
            1/8 that has them: libjpeg-turbo is quicker at those, and slower than in full size at those between.
        room: Where to put it.

    Raises:
        ValueError: What libjpeg said.
    """
    scaled: dict[str, int] = {}
    is_enough = least is not None and 2 * max(least[0] / facts.height, least[1] / facts.width) <= 1
    if least is not None and is_enough and facts.frame in DCT_FRAMES:  # a lossless JPEG is never scaled
        scaled = {"min_height": least[0], "min_width": least[1], "min_factor": 2}
    channels = _CHANNELS[colorspace]
    buffer = None
    if scaled:
        buffer = _room_for_all(data, channels, room)
    elif room is not None:  # simplejpeg refuses it, were it too small by libjpeg's reading of the header
        buffer = room(facts.height * facts.width * channels)
    samples: npt.NDArray[np.uint8]
    try:
        samples = simplejpeg.decode_jpeg(data, colorspace, strict=True, buffer=buffer, **scaled)
    except ValueError:  # libjpeg has a remark at least
        blank = _room_for_all(data, channels, _blank)
        samples = simplejpeg.decode_jpeg(data, colorspace, strict=False, buffer=blank, **scaled)
    return samples


def _room_for_all(
    data: Payload, channels: int, room: Room | None = None, *, strict: bool = False
) -> npt.NDArray[np.uint8]:
    """Return room for all pixels of a JPEG, also of one that is to be scaled, by libjpeg's own reading of the header.

    Were it to take the JPEG for a lossless one after all, it would write them, whatever the scale, and simplejpeg by
    itself takes memory for the scaled ones.

    Raises:
        ValueError: What libjpeg said.
    """
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data, strict=strict)
    except KeyError as error:  # where it is not strict, it looks up names that libjpeg did not tell it
        raise ValueError("libjpeg cannot read the header") from error
    nbytes = height * width * channels
    return np.empty(nbytes, np.uint8) if room is None else room(nbytes)


def _blank(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return memory for lenient decoding: libjpeg may give up midway, and what it left out must not be older pixels."""
    return np.zeros(nbytes, np.uint8)


def require_decodable(nbytes: int, facts: Facts, max_pixels: int) -> None:
    """Refuse, before a pixel is decoded or memory is taken, what cannot or must not be decoded.

    Raises:
        Violation: ``unsupported``, ``colour-space``, ``too-many-pixels`` or ``truncated``.
    """
    if facts.unsupported:
        raise Violation(Reason.UNSUPPORTED, facts.unsupported)
    if facts.colour_space:
        raise Violation(Reason.COLOUR_SPACE, f"colour space {facts.colour_space}, which no policy converts")
    require_pixels(facts.width, facts.height, max_pixels)
    if nbytes < facts.least_bytes:
        raise Violation(
            Reason.TRUNCATED,
            f"{facts.width}x{facts.height} pixels need {facts.least_bytes} bytes at least as {facts.format}, "
            f"there are {nbytes}",
        )


def require_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuse a picture of too many pixels.

    Raises:
        Violation: ``too-many-pixels``.
    """
    if width * height > max_pixels:
        raise Violation(
            Reason.TOO_MANY_PIXELS,
            f"{width}x{height} is {width * height} pixels, max_pixels allows {max_pixels}",
        )
