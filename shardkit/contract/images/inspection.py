"""One door to the headers of all formats: sniff the bytes, then ask the format's own module."""

from collections.abc import Callable

from shardkit.contract.images import avif, bmp, gif, jpeg, jpeg2000, png, ppm, tiff, webp
from shardkit.contract.images.facts import Facts
from shardkit.contract.images.jpeg import JpegFacts
from shardkit.contract.images.sniff import sniff

_SCAN = b"\xff\xda"
_LENGTH_BYTES = 2
_MOST_HEADERS = 1024
_LONGEST_HEADER = 4096

_INSPECTORS: dict[str, Callable[..., Facts]] = {
    "jpeg": jpeg.inspect,
    "png": png.inspect,
    "webp": webp.inspect,
    "gif": gif.inspect,
    "bmp": bmp.inspect,
    "tiff": tiff.inspect,
    "ppm": ppm.inspect,
    "avif": avif.inspect,
    "jpeg2000": jpeg2000.inspect,
}


def inspect(data: bytes, *, complete: bool) -> Facts:
    """Return the header facts of an image of any format, decoding nothing.

    Args:
        data: The file.
        complete: Also check what only matters once, at ingest: checksums, pages, what stands behind the
            picture. The facts that decoding goes by are the same either way.

    Raises:
        Violation: The bytes are no image that is read here, or its header is broken.
    """
    return _INSPECTORS[sniff(data)](data, complete=complete)


def inspect_again(data: bytes) -> Facts:
    """Return the header facts of an image that was inspected when it was stored.

    JPEGs that one encoder made of pictures of one size often have the same header, byte for byte. Its facts are found
    once and remembered: they follow from these bytes alone, up to the length of the scan header, with which they end.

    Raises:
        Violation: As for `inspect`.
    """
    scan = data.find(_SCAN, 0, _LONGEST_HEADER)
    header = data[: scan + len(_SCAN) + _LENGTH_BYTES]
    known = _seen_headers.get(header)
    if known is not None and known.segments[-1].end <= len(data):
        return known
    facts = inspect(data, complete=False)
    if isinstance(facts, JpegFacts) and facts.scan == scan:
        if len(_seen_headers) >= _MOST_HEADERS:
            _seen_headers.clear()
        _seen_headers[header] = facts
    return facts


_seen_headers: dict[bytes, JpegFacts] = {}
