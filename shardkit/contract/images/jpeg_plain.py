"""JPEGs so common that every decoder makes the same picture of them, within rounding: those that a GPU may decode.

Sources: ITU-T T.81, B.2.2 (frames); T.872, 6.5.3 (APP14, which says that three components are RGB as they are).
"""

from shardkit.contract.images.jpeg import JpegFacts

_HUFFMAN_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_APP14 = 0xEE
_ADOBE = b"Adobe"
_TRANSFORM_AT = 4 + 11  # behind marker and length; the name, and three numbers of two bytes, stand before it
_RGB_IDS = tuple(b"RGB")
_PLAIN_LUMA = frozenset({(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)})
"""Sampling factors of luma to chroma of 1 by 1 that nvJPEG lists: 4:4:4, 4:2:2, 4:4:0, 4:2:0 and 4:1:1."""


def is_plain(data: bytes, facts: JpegFacts) -> bool:
    """Whether a JPEG is upright, Huffman-coded, and gray or YCbCr in a common subsampling."""
    if facts.orientation != 1 or facts.frame not in _HUFFMAN_FRAMES:
        return False
    if len(facts.components) == 1:
        return True
    luma, *chroma = [(across, down) for _, across, down in facts.components]
    return luma in _PLAIN_LUMA and set(chroma) == {(1, 1)} and not _is_rgb(data, facts)


def _is_rgb(data: bytes, facts: JpegFacts) -> bool:
    for segment in facts.segments:
        if segment.marker == _APP14 and data.startswith(_ADOBE, segment.start + 4):
            at = segment.start + _TRANSFORM_AT
            return at < segment.end and data[at] == 0
    return tuple(number for number, *_ in facts.components) == _RGB_IDS
