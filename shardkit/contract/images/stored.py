"""A stored picture before it is decoded: its size is known, and it can be decoded smaller than it is."""

from collections.abc import Callable

from shardkit.contract.images.resizing import Samples, Size

Room = Callable[[int], Samples]
"""Gives room for so many bytes, ``uint8[n]``: for who knows when it may be used again, as fresh memory is slow."""


class StoredImage:
    """A picture that is decoded when asked for.

    Args:
        size: Height and width as delivered.
        decode: Returns its samples; given a size, those of the picture scaled down, at least of that size; given room,
            in there or not.

    Attributes:
        height: Pixels, as delivered.
        width: Pixels, as delivered.
    """

    def __init__(self, size: Size, decode: Callable[[Size | None, Room | None], Samples]) -> None:
        self.height, self.width = size
        self._decode = decode

    def decode(self, least: Size | None = None, room: Room | None = None) -> Samples:
        """Return the picture as ``uint8[H, W, C]``, read-only or not, a view or not: for who only reads it.

        Args:
            least: Height and width that will do: what comes may then be the whole picture scaled down, not below
                that size, where decoding so is quicker. Then each side is n / 8 of what it was, rounded up, with the
                same n in 1 to 4. By default it comes in full size.
            room: Where it may be put.

        Raises:
            FormatError: It is damaged.
        """
        return self._decode(least, room)
