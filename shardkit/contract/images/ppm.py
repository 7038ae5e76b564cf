"""PBM, PGM and PPM: the header, and the samples of over 8 bits, which Pillow would rescale.

Source: Netpbm manual, https://netpbm.sourceforge.net/doc/ppm.html (and pbm, pgm).
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkit.contract.field import Violation
from shardkit.contract.images.facts import Facts, bad_header, require_size, truncated
from shardkit.contract.reasons import Reason, Warned

_SPACE = rb"(?:[ \t\r\n\v\f]|#[^\r\n]*[\r\n])+"
_SIZE = re.compile(rb"(P[1-6])" + _SPACE + rb"([0-9]{1,10})" + _SPACE + rb"([0-9]{1,10})")
_MAXVAL = re.compile(_SPACE + rb"([0-9]{1,10})")
_COMMENT = re.compile(rb"#[^\r\n]*")
_UNFINISHED = re.compile(rb"P[1-6](?:[0-9\s]|#[^\r\n]*[\r\n])*(?:#[^\r\n]*)?\Z")
_LABELS = {1: "1", 2: "L", 3: "RGB", 4: "1", 5: "L", 6: "RGB"}


@dataclass(slots=True)
class PpmFacts(Facts):
    """Facts of a PNM file.

    Attributes:
        maxval: The sample value that means full brightness.
        is_plain: Samples are decimal text.
        start: Where the samples begin.
    """

    maxval: int = 1
    is_plain: bool = False
    start: int = 0


def inspect(data: bytes, *, complete: bool) -> PpmFacts:
    """Return the header facts of a PBM, PGM or PPM.

    Args:
        data: The file.
        complete: Look at what stands behind the picture as well.

    Raises:
        Violation: ``bad-header`` or ``truncated``.
    """
    size = _SIZE.match(data)
    if size is None:
        raise _no_header(data)
    kind, width, height = int(size[1][1:]), int(size[2]), int(size[3])
    require_size("PPM", width, height)
    maxval, end = 1, size.end()
    if kind not in (1, 4):
        found = _MAXVAL.match(data, end)
        if found is None:
            raise _no_header(data)
        maxval, end = int(found[1]), found.end()
        if not 0 < maxval < 65536:
            raise bad_header(f"the PPM header declares a maxval of {maxval}, which must be 1 to 65535")
    facts = PpmFacts("ppm", width, height, maxval=maxval, is_plain=kind <= 3, start=end + 1)
    facts.depth = max(8, maxval.bit_length())
    channels = 3 if kind in (3, 6) else 1
    facts.mode = _LABELS[kind] if maxval < 256 else ("I;16" if channels == 1 else "RGB;16")
    row = (width + 7) // 8 if kind == 4 else width * channels * (2 if maxval > 255 else 1)
    body = row * height if not facts.is_plain else width * height * channels * (1 if kind == 1 else 2) - 1
    facts.least_bytes = facts.start + body
    if complete and not facts.is_plain:
        _look_behind(data, facts)
    return facts


def wide_samples(data: bytes, facts: PpmFacts) -> npt.NDArray[np.uint8]:
    """Return ``uint8[H, W, C]`` of a picture whose samples have over 8 bits.

    The most significant 8 bits of each sample, where maxval is one less than a power of two; another maxval
    leaves no 8 bits to keep, and samples are scaled: ``round(sample * 255 / maxval)``.

    Raises:
        Violation: ``truncated`` or ``decode-error``.
    """
    channels = 1 if facts.mode == "I;16" else 3
    count = facts.width * facts.height * channels
    samples: npt.NDArray[np.uint32]
    if facts.is_plain:
        samples = _plain_samples(data, facts, count)
    else:
        body = data[facts.start : facts.start + 2 * count]
        if len(body) < 2 * count:
            raise truncated(f"the PPM should hold {2 * count} bytes of samples, it holds {len(body)}")
        samples = np.frombuffer(body, ">u2").astype(np.uint32)
    if samples.max() > facts.maxval:
        raise Violation(Reason.DECODE_ERROR, f"the PPM holds a sample over its maxval of {facts.maxval}")
    if facts.maxval & (facts.maxval + 1) == 0:
        narrow = samples >> np.uint32(facts.depth - 8)
    else:
        narrow = (samples * 510 + facts.maxval) // (2 * facts.maxval)
    return narrow.astype(np.uint8).reshape(facts.height, facts.width, channels)


def _no_header(data: bytes) -> Violation:
    if _UNFINISHED.match(data):
        return truncated(f"the PPM ends after {len(data)} bytes, within its header")
    return bad_header("the PPM header does not give a width, a height and a maxval")


def _plain_samples(data: bytes, facts: PpmFacts, count: int) -> npt.NDArray[np.uint32]:
    words = _COMMENT.sub(b"", data[facts.start - 1 :]).split(None, count)[:count]
    if len(words) < count:
        raise truncated(f"the PPM should hold {count} samples, it holds {len(words)}")
    if not all(word.isdigit() and len(word) <= 10 for word in words):
        raise Violation(Reason.DECODE_ERROR, "the PPM holds a sample that is not a number")
    return np.array([int(word) for word in words], np.int64).clip(0, 1 << 16).astype(np.uint32)


def _look_behind(data: bytes, facts: PpmFacts) -> None:
    """Note what stands after the samples: a Netpbm file may be a sequence of pictures."""
    rest = data[facts.least_bytes :].lstrip()
    if _SIZE.match(rest):
        facts.frames = 2
    elif rest:
        facts.warnings = (Warned.TRAILING_BYTES,)
