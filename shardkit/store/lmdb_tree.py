"""Walks the tree of an LMDB file and checks all that LMDB takes on trust (docs/format.md, "lmdb shards").

LMDB follows the page numbers and node offsets of its tree unchecked, so that one flipped bit in them can end
the process with a signal. This walk touches the branch and leaf pages, not the values outside them. After it,
damage can only make a look-up miss or a value differ, which the reader and the checksums notice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.store.lmdb_header import PAGE_HEADER_BYTES, LmdbFault, LmdbMeta

_BRANCH = 0x01
_LEAF = 0x02
_FLAGS, _LOWER, _UPPER, _POINTERS = 5, 6, 7, 8  # 16-bit words of a page
_NODE_BYTES = 8  # two words of size (or page number), flags, key size
_KEY_BYTES = 8
_OUTSIDE = 0x01  # F_BIGDATA: the value has pages of its own
_DAMAGED = "its tree is damaged"

_Numbers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class _Nodes:
    """The nodes of some pages, in order.

    Attributes:
        page: Page of each node.
        offset: Where in that page it begins, in bytes; even.
    """

    page: _Numbers
    offset: _Numbers


def check_tree(file: memoryview, meta: LmdbMeta) -> None:
    """Make sure that LMDB can look up every row of a mapped file without leaving it.

    Args:
        file: The whole file.
        meta: As `check_header` returned it.

    Raises:
        LmdbFault: A page or node is not sound, or the keys are not the rows ``0, 1, 2, …``.
    """
    words = np.frombuffer(file, "<u2").reshape(-1, meta.page_size // 2)
    level = np.array([meta.root])
    for _ in range(meta.depth - 1):
        level = _children(words, _nodes(words, level, _BRANCH, meta), meta)
    _check_leaves(words, _nodes(words, level, _LEAF, meta), meta)


def _nodes(words: _Words, pages: _Numbers, kind: int, meta: LmdbMeta) -> _Nodes:
    """Return the nodes of `pages`, which must be of `kind`, each with its fixed part inside its page."""
    heads = words[pages, :_POINTERS].astype(np.int64)
    lower, upper = heads[:, _LOWER], heads[:, _UPPER]
    counts = (lower - PAGE_HEADER_BYTES) // 2
    _require(heads[:, _FLAGS] == kind, counts >= 1, lower % 2 == 0, lower <= upper, upper <= meta.page_size)
    total = int(counts.sum())
    if total > max(
        meta.entries, meta.last_page
    ):  # no tree has more; stops a crafted one from growing at each level
        raise LmdbFault(_DAMAGED)
    page = np.repeat(pages, counts)
    position = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = words[page, _POINTERS + position].astype(np.int64)
    fixed = _NODE_BYTES + (_KEY_BYTES if kind == _LEAF else 0)
    _require(offset % 2 == 0, offset >= np.repeat(upper, counts), offset + fixed <= meta.page_size)
    return _Nodes(page, offset)


def _children(words: _Words, nodes: _Nodes, meta: LmdbMeta) -> _Numbers:
    key_bytes = _word(words, nodes, 3)
    child = _word(words, nodes, 0) | _word(words, nodes, 1) << 16 | _word(words, nodes, 2) << 32
    _require(
        (key_bytes == 0) | (key_bytes == _KEY_BYTES),  # the first key of a page is left out
        nodes.offset + _NODE_BYTES + key_bytes <= meta.page_size,
        child >= 2,
        child <= meta.last_page,
    )
    return child


def _check_leaves(words: _Words, nodes: _Nodes, meta: LmdbMeta) -> None:
    if len(nodes.page) != meta.entries:
        raise LmdbFault(_DAMAGED)
    size = _word(words, nodes, 0) | _word(words, nodes, 1) << 16
    flags = _word(words, nodes, 2)
    _require(_word(words, nodes, 3) == _KEY_BYTES, (flags == 0) | (flags == _OUTSIDE))
    key = np.zeros_like(nodes.page)
    for word in range(4, 8):  # big-endian
        key = key << 16 | _word(words, nodes, word).astype(np.uint16).byteswap().astype(np.int64)
    _require(key == np.arange(meta.entries))
    inside = flags == 0
    _require((nodes.offset + _NODE_BYTES + _KEY_BYTES + size)[inside] <= meta.page_size)
    outside = _Nodes(nodes.page[~inside], nodes.offset[~inside])
    _require(outside.offset + _NODE_BYTES + _KEY_BYTES + 8 <= meta.page_size)
    first = np.zeros_like(outside.page)
    for word in range(4):
        first |= _word(words, outside, 8 + word) << 16 * word
    pages = (PAGE_HEADER_BYTES + size[~inside] - 1) // meta.page_size + 1
    _require(first >= 2, first <= meta.last_page, first + pages <= meta.last_page + 1)


def _word(words: _Words, nodes: _Nodes, number: int) -> _Numbers:
    """Return one 16-bit word of every node, counted from the node's beginning."""
    picked: Any = words[nodes.page, nodes.offset // 2 + number]
    return np.asarray(picked, np.int64)


def _require(*conditions: npt.NDArray[np.bool_]) -> None:
    if not all(condition.all() for condition in conditions):
        raise LmdbFault(_DAMAGED)
