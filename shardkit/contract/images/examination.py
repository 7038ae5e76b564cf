"""Full decoding at ingest: finds out whether an encoded image is whole, and what was odd about it.

Full means: all coded data is decoded. Pixels are made of it where somebody needs them.

Damage comes before policy: a cut gray image is ``truncated``, whatever is thought of gray.
"""

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from shardkit.contract.field import Violation
from shardkit.contract.images import pillow
from shardkit.contract.images.facts import Facts, Picture
from shardkit.contract.images.inspection import inspect
from shardkit.contract.images.jpeg import JpegFacts
from shardkit.contract.images.jpeg_scans import (
    Scans,
    after_end,
    missing_scans,
    plain_end,
    rebuild,
    walk_scans,
    zero_hole,
)
from shardkit.contract.images.pixels import pixels, require_decodable, turbo_judged, turbo_pixels
from shardkit.contract.images.png import PngFacts, require_rows
from shardkit.contract.images.sniff import sniff
from shardkit.contract.reasons import Reason, Warned

DECODER_WARNINGS = frozenset({Warned.RECOVERED, Warned.EMBEDDED_IMAGES})
"""What ``warnings = "reject"`` refuses. Trailing bytes, a wrong extension and bad metadata never touch the
picture."""
_STDERR = 2


@dataclass(slots=True)
class Examined:
    """A whole image: its header facts, its picture before any policy, and what was noticed."""

    facts: Facts
    picture: Picture
    warnings: tuple[Warned, ...]


def examine(data: bytes, formats: tuple[str, ...], max_pixels: int, *, needs_pixels: bool = True) -> Examined:
    """Decode an image whole and judge whether it is undamaged.

    Not for threads beside others that use the warnings module or, for TIFF, standard error: both are
    redirected.

    Args:
        data: The file.
        formats: Formats let in.
        max_pixels: Images of more are refused.
        needs_pixels: Without, the verdict is the same, and the samples may be stand-ins of their shape.

    Raises:
        Violation: It is no image, is of a format not in `formats`, is damaged, or has too many pixels.
    """
    found = sniff(data)
    if found not in formats:
        raise Violation(Reason.FORMAT_NOT_ALLOWED, f"a {found} image; formats allows {', '.join(formats)}")
    facts = inspect(data, complete=True)
    require_decodable(len(data), facts, max_pixels)
    if isinstance(facts, JpegFacts):
        picture, noticed = _examine_jpeg(data, facts, needs_pixels)
    else:
        picture, noticed = _examine_other(data, facts)
    return Examined(facts, picture, tuple(dict.fromkeys((*facts.warnings, *noticed))))


def _examine_jpeg(data: bytes, facts: JpegFacts, needs_pixels: bool) -> tuple[Picture, list[Warned]]:
    if not facts.is_turbo:
        return _examine_odd_jpeg(data, facts)
    try:
        picture = turbo_pixels(data, facts, strict=True) if needs_pixels else turbo_judged(data, facts)
    except ValueError as error:
        return _recover(data, facts, str(error))
    end = plain_end(data, facts)
    if end is None:
        scans = walk_scans(data, facts)
        _require_scans(facts, scans)
        end = scans.end or len(data)
    else:
        _refuse_zero_hole(data, facts, end)
    noticed = after_end(data, end, facts)
    return picture, [noticed] if noticed else []


def _refuse_zero_hole(data: bytes, facts: JpegFacts, end: int) -> None:
    hole = zero_hole(data, facts, end)
    if hole is not None:
        sentence = f"the coded pixels of the JPEG are lost to zeros from byte {hole} on"
        raise Violation(Reason.DECODER_WARNING, sentence)


def _require_scans(facts: JpegFacts, scans: Scans) -> None:
    missing = missing_scans(facts, scans)
    if missing:
        raise Violation(Reason.INCOMPLETE_SCANS if scans.end else Reason.TRUNCATED, missing)


def _recover(data: bytes, facts: JpegFacts, remark: str) -> tuple[Picture, list[Warned]]:
    """Tell harmless faults from damage: whether libjpeg has no remark about the same scans in a clean stream.

    The pixels are those that reading will get from the original; the clean stream must give the same.
    """
    scans = walk_scans(data, facts)
    if scans.end is None and facts.is_arithmetic:
        raise _damage(remark, scans)  # its decoder reads on in silence where the data ends
    try:
        clean = turbo_pixels(rebuild(data, facts, scans), facts, strict=True)
    except ValueError as error:
        raise _damage(str(error), scans) from error
    _require_scans(facts, scans)
    _refuse_zero_hole(data, facts, plain_end(data, facts) or facts.scan)
    picture = pixels(data, facts)
    if not np.array_equal(picture.samples, clean.samples):
        raise _damage(remark, scans)
    noticed = after_end(data, scans.end, facts) if scans.end else None
    return picture, [Warned.RECOVERED, noticed] if noticed else [Warned.RECOVERED]


def _damage(remark: str, scans: Scans) -> Violation:
    if scans.end is None:
        return Violation(Reason.TRUNCATED, f"the JPEG ends before its picture does (libjpeg: {remark})")
    if remark.startswith(("Corrupt JPEG data", "Premature end", "Inconsistent progression")):
        return Violation(
            Reason.DECODER_WARNING, f"the coded pixels of the JPEG are damaged (libjpeg: {remark})"
        )
    return Violation(Reason.DECODE_ERROR, f"the JPEG cannot be decoded (libjpeg: {remark})")


def _examine_odd_jpeg(data: bytes, facts: JpegFacts) -> tuple[Picture, list[Warned]]:
    """Examine a JPEG of a kind that only Pillow decodes, whose libjpeg keeps its remarks to itself."""
    scans = walk_scans(data, facts)
    picture, noticed = _examine_other(data, facts)
    _require_scans(facts, scans)
    _refuse_zero_hole(data, facts, plain_end(data, facts) or facts.scan)
    if facts.has_junk or scans.end is None:
        clean = pillow.decode(rebuild(data, facts, scans), facts)
        if not np.array_equal(picture.samples, clean.samples):
            raise _damage("two readings of it differ", scans)
        noticed.append(Warned.RECOVERED)
    behind = after_end(data, scans.end, facts) if scans.end else None
    return picture, [*noticed, behind] if behind else noticed


def _examine_other(data: bytes, facts: Facts) -> tuple[Picture, list[Warned]]:
    noticed: list[Warned] = []
    if isinstance(facts, PngFacts):
        require_rows(data, facts)
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        if facts.format == "tiff":
            picture, has_remarks = _with_stderr_caught(data, facts)
            if has_remarks:
                noticed.append(Warned.RECOVERED)
        else:
            picture = pixels(data, facts)
    for record in records:
        if issubclass(record.category, (Image.DecompressionBombWarning, DeprecationWarning)):
            continue
        noticed.append(_meaning(str(record.message)))
    return picture, noticed


def _meaning(message: str) -> Warned:
    lowered = message.lower()
    is_metadata = any(
        word in lowered for word in ("exif", "metadata", "tag", "palette images with transparency")
    )
    return Warned.BAD_METADATA if is_metadata else Warned.RECOVERED


def _with_stderr_caught(data: bytes, facts: Facts) -> tuple[Picture, bool]:
    """Decode a TIFF; return whether libtiff, which prints to file descriptor 2, had anything to say."""
    with tempfile.TemporaryFile() as caught:
        with _stderr_to(caught.fileno()):
            picture = pixels(data, facts)
        return picture, os.fstat(caught.fileno()).st_size > 0


@contextlib.contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    try:
        saved = os.dup(_STDERR)
    except OSError:  # standard error is closed: nothing can reach a terminal
        yield
        return
    os.dup2(descriptor, _STDERR)
    try:
        yield
    finally:
        os.dup2(saved, _STDERR)
        os.close(saved)
