"""One door to the headers of all formats: sniff the bytes, then ask the format's own module."""

from collections.abc import Callable

from shardkit.contract.images import avif, bmp, gif, jpeg, jpeg2000, png, ppm, tiff, webp
from shardkit.contract.images.facts import Facts
from shardkit.contract.images.sniff import sniff

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
