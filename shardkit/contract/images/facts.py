"""What the header of an encoded image says about it, whatever its format."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkit.contract.field import Violation
from shardkit.contract.reasons import Reason, Warned


@dataclass(slots=True)
class Facts:
    """Header facts of one image; found without decoding a pixel.

    Attributes:
        format: One of :data:`shardkit.contract.images.sniff.FORMATS`.
        width: Pixels, as stored (before orientation).
        height: Pixels, as stored.
        mode: What the report counts the image under, such as ``"CMYK"`` or ``"RGB;16"``; empty: the decoder's
            mode.
        depth: Significant bits of a sample as stored. Over 8, the ``depth16`` policy decides.
        shift: Bits to drop from the decoder's 16-bit samples to keep the most significant 8.
        is_inverted: Zero means white in samples that the decoder hands over as they are.
        is_gray: The format stores one luminance channel, though its decoder may deliver three.
        frames: Pictures that the file plays or pages through; 1 for a still image.
        orientation: EXIF orientation in [1, 8].
        is_oriented: The decoder has already applied `orientation`.
        is_cut: The header points at data beyond the end of the file.
        least_bytes: The fewest bytes that can hold this many pixels in this encoding; 0 where there is no
            such bound.
        unsupported: Why no decoder here reads it truly; empty if one does.
        colour_space: Name of a colour space that no policy converts; empty otherwise.
        warnings: What was noticed on the way.
        pixel_data: The bytes to give the decoder, where metadata has been left out; None: all bytes of the
            file.
    """

    format: str
    width: int
    height: int
    mode: str = ""
    depth: int = 8
    shift: int = 8
    is_inverted: bool = False
    is_gray: bool = False
    frames: int = 1
    orientation: int = 1
    is_oriented: bool = False
    is_cut: bool = False
    least_bytes: int = 0
    unsupported: str = ""
    colour_space: str = ""
    warnings: tuple[Warned, ...] = ()
    pixel_data: bytes | None = None


def bad_header(sentence: str) -> Violation:
    """Return the verdict on a known format with a broken header."""
    return Violation(Reason.BAD_HEADER, sentence)


def truncated(sentence: str) -> Violation:
    """Return the verdict on a file that ends before its image does."""
    return Violation(Reason.TRUNCATED, sentence)


def require_size(name: str, width: int, height: int) -> None:
    """Check that a declared size is a size.

    Raises:
        Violation: A side is not positive.
    """
    if width <= 0 or height <= 0:
        raise bad_header(f"the {name} header declares {width}x{height} pixels")


def unseen(height: int, width: int, channels: int) -> npt.NDArray[np.uint8]:
    """Return a stand-in for the samples of a picture that nobody looks at: its shape, no memory, read-only."""
    return np.ndarray((height, width, channels), np.uint8, buffer=b"\0", strides=(0, 0, 0))


@dataclass(slots=True)
class Picture:
    """A decoded image before any policy has touched it.

    Attributes:
        samples: ``uint8[H, W, C]``: C is 1 (gray), 2 (gray, alpha), 3 (RGB), 4 (RGB, alpha; or CMYK). Samples
            of over 8 bits are already cut to their most significant 8. Of a picture that was only judged, they
            may be a stand-in (:func:`unseen`).
        label: What the report counts it under.
        is_cmyk: The four channels are cyan, magenta, yellow and black, 255 meaning full ink.
        is_palette: The colours came out of a palette.
        frames: Pictures in the file.
        orientation: EXIF orientation in [1, 8].
        is_oriented: `samples` already stand upright.
    """

    samples: npt.NDArray[np.uint8]
    label: str
    is_cmyk: bool = False
    is_palette: bool = False
    frames: int = 1
    orientation: int = 1
    is_oriented: bool = False

    @property
    def channels(self) -> int:
        """Length of the last axis."""
        return int(self.samples.shape[2])

    @property
    def is_gray(self) -> bool:
        """Whether there is a luminance channel and no colour."""
        return self.channels <= 2

    @property
    def has_alpha(self) -> bool:
        """Whether the last channel is opacity."""
        return not self.is_cmyk and self.channels in (2, 4)
