"""The values of an LMDB shard by row, straight from the mapped file (docs/format.md, "lmdb shards").

The tree was walked and checked when the shard was opened, so a look-up needs no second walk: where each leaf page lies
is known by then. Nor does it need LMDB, which forbids that a file be open twice in a process or be used after a fork,
and which would follow a file that is altered meanwhile out of its map.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable

from shardkit.store.lmdb_header import PAGE_HEADER_BYTES, LmdbFault, LmdbMeta
from shardkit.store.lmdb_tree import NODE_AND_KEY_BYTES, OUTSIDE, check_tree

_POINTERS = PAGE_HEADER_BYTES // 2  # in 16-bit words, as pages are counted below
_ALTERED = "leads out of the file"
_unpack_node = struct.Struct("<IH2x8xQ").unpack_from
"""Size of the value, flags; behind the key the first page of a value that has pages of its own."""


def open_values(file: memoryview, meta: LmdbMeta) -> Callable[[int], memoryview]:
    """Check the tree of a shard, and return what gets the value of a row that there is.

    Any number of threads may call it, and forked children. It returns a view, which keeps the file mapped, and raises
    LmdbFault if the file was altered since.

    Args:
        file: The whole file, mapped, which is as long as its last page says.
        meta: As `check_header` returned it.

    Raises:
        LmdbFault: The tree is not sound.
    """
    leaves, first_rows = (numbers.data for numbers in check_tree(file, meta))
    words = file.cast("H")
    page_size = meta.page_size

    def get(row: int) -> memoryview:
        leaf = bisect_right(first_rows, row) - 1
        page = leaves[leaf] * page_size
        try:
            node = page + words[page // 2 + _POINTERS + row - first_rows[leaf]]
            size, flags, outside = _unpack_node(file, node)
        except (IndexError, struct.error):
            raise LmdbFault(_ALTERED) from None
        begin = outside * page_size + PAGE_HEADER_BYTES if flags == OUTSIDE else node + NODE_AND_KEY_BYTES
        value = file[begin : begin + size]
        if len(value) != size:
            raise LmdbFault(_ALTERED)
        return value

    return get
