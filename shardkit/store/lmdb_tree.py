"""Walks the tree of an LMDB file and checks all that LMDB takes on trust (docs/format.md, "lmdb shards").

Shards hold keys of eight bytes, which are checked as well; files of others may hold any keys.

LMDB follows the page numbers and node offsets of its tree unchecked, so that one flipped bit in them can end
the process with a signal; shards are read by what this walk found. It touches the branch and leaf pages, not the
values outside them. After it, damage can only make a look-up miss or a value differ, which the reader and the
checksums notice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.store.lmdb_header import PAGE_HEADER_BYTES, LmdbFault, LmdbMeta

NODE_AND_KEY_BYTES = 16
"""Of a leaf node of a shard, before its value."""
OUTSIDE = 0x01
"""Flag of a node (F_BIGDATA): the value has pages of its own."""

_BRANCH = 0x01
_LEAF = 0x02
_FLAGS, _LOWER, _UPPER, _POINTERS = 5, 6, 7, 8  # 16-bit words of a page
_NODE_BYTES = 8  # two words of size (or page number), flags, key size
_KEY_BYTES = 8
_PAGE_NUMBER_BYTES = 8
_TABLE = 0x02  # F_SUBDATA: the value is a named database
_DAMAGED = "its tree is damaged"
_LEAVES_AT_ONCE = 4096

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


def check_tree(file: memoryview, meta: LmdbMeta) -> tuple[_Numbers, _Numbers]:
    """Make sure that every row of a mapped file can be looked up without leaving it.

    Args:
        file: The whole file.
        meta: As `check_header` returned it.

    Returns:
        The leaf pages in the order of their rows, and the first row of each: ``int64[leaves]``.

    Raises:
        LmdbFault: A page or node is not sound, or the keys are not the rows ``0, 1, 2, …``.
    """
    words, leaves = _find_leaves(file, meta, _KEY_BYTES)
    nodes = _nodes(words, leaves, _LEAF, meta, _KEY_BYTES)
    _check_leaves(words, nodes, meta)
    return leaves, np.flatnonzero(np.diff(nodes.page, prepend=-1))


def check_tree_of_any(file: memoryview, meta: LmdbMeta) -> None:
    """Make sure that LMDB can go through all entries of a mapped file without leaving it, whatever their keys.

    Memory stays bounded, however many entries there are.

    Args:
        file: The whole file, at least as long as the pages up to `meta.last_page`.
        meta: With a root between page 2 and `last_page`, and a depth that was checked.

    Raises:
        LmdbFault: A page or node is not sound, or a value is a named database.
    """
    words, leaves = _find_leaves(file, meta, None)
    found = 0
    for start in range(0, len(leaves), _LEAVES_AT_ONCE):
        nodes = _nodes(words, leaves[start : start + _LEAVES_AT_ONCE], _LEAF, meta, 0)
        if (_word(words, nodes, 2) & _TABLE).any():
            raise LmdbFault("it holds named databases; only the main one is read")
        _check_values(words, nodes, meta)
        found += len(nodes.page)
    if found != meta.entries:
        raise LmdbFault(_DAMAGED)


def _find_leaves(file: memoryview, meta: LmdbMeta, key_bytes: int | None) -> tuple[_Words, _Numbers]:
    """Return the file as 16-bit words, a row each page, and the numbers of its leaf pages in order."""
    pages = file[: len(file) // meta.page_size * meta.page_size]
    words = np.frombuffer(pages, "<u2").reshape(-1, meta.page_size // 2)
    level = np.array([meta.root])
    for _ in range(meta.depth - 1):
        level = _children(words, _nodes(words, level, _BRANCH, meta, 0), meta, key_bytes)
    return words, level


def _nodes(words: _Words, pages: _Numbers, kind: int, meta: LmdbMeta, key_bytes: int) -> _Nodes:
    """Return the nodes of `pages`, which must be of `kind`, each with head and `key_bytes` inside its page."""
    heads = words[pages, :_POINTERS].astype(np.int64)
    lower, upper = heads[:, _LOWER], heads[:, _UPPER]
    counts = (lower - PAGE_HEADER_BYTES) // 2
    _require(heads[:, _FLAGS] == kind, counts >= 1, lower % 2 == 0, lower <= upper, upper <= meta.page_size)
    total = int(counts.sum())
    # No tree has more. This stops a crafted one from growing at each level.
    if total > max(meta.entries, meta.last_page):
        raise LmdbFault(_DAMAGED)
    page = np.repeat(pages, counts)
    position = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = words[page, _POINTERS + position].astype(np.int64)
    fixed = _NODE_BYTES + key_bytes
    _require(offset % 2 == 0, offset >= np.repeat(upper, counts), offset + fixed <= meta.page_size)
    return _Nodes(page, offset)


def _children(words: _Words, nodes: _Nodes, meta: LmdbMeta, key_bytes: int | None) -> _Numbers:
    """Return the pages that branch nodes lead to; all keys must have `key_bytes`, if given."""
    found = _word(words, nodes, 3)
    child = _word(words, nodes, 0) | _word(words, nodes, 1) << 16 | _word(words, nodes, 2) << 32
    _require(
        (found == 0) | (found == key_bytes) | (key_bytes is None),  # the first key of a page is left out
        nodes.offset + _NODE_BYTES + found <= meta.page_size,
        child >= 2,
        child <= meta.last_page,
    )
    return child


def _check_leaves(words: _Words, nodes: _Nodes, meta: LmdbMeta) -> None:
    if len(nodes.page) != meta.entries:
        raise LmdbFault(_DAMAGED)
    _require(_word(words, nodes, 3) == _KEY_BYTES)
    key = np.zeros_like(nodes.page)
    for word in range(4, 8):  # big-endian
        key = key << 16 | _word(words, nodes, word).astype(np.uint16).byteswap().astype(np.int64)
    _require(key == np.arange(meta.entries))
    _check_values(words, nodes, meta)


def _check_values(words: _Words, nodes: _Nodes, meta: LmdbMeta) -> None:
    """Make sure that key and value of each leaf node are inside its page, or the value inside the file."""
    size = _word(words, nodes, 0) | _word(words, nodes, 1) << 16
    flags = _word(words, nodes, 2)
    value = nodes.offset + _NODE_BYTES + _word(words, nodes, 3)
    is_outside = flags == OUTSIDE
    held = np.where(is_outside, _PAGE_NUMBER_BYTES, size)
    _require((flags == 0) | is_outside, value + held <= meta.page_size)
    # A key of odd length puts the page number at an odd byte.
    places = value[is_outside, None] + np.arange(_PAGE_NUMBER_BYTES)
    first = words.view(np.uint8)[nodes.page[is_outside, None], places].view("<i8")[:, 0]
    pages = (PAGE_HEADER_BYTES + size[is_outside] - 1) // meta.page_size + 1
    _require(first >= 2, first <= meta.last_page, first + pages <= meta.last_page + 1)


def _word(words: _Words, nodes: _Nodes, number: int) -> _Numbers:
    """Return one 16-bit word of every node, counted from the node's beginning."""
    picked: Any = words[nodes.page, nodes.offset // 2 + number]
    return np.asarray(picked, np.int64)


def _require(*conditions: npt.NDArray[np.bool_]) -> None:
    if not all(condition.all() for condition in conditions):
        raise LmdbFault(_DAMAGED)
