"""Judges an LMDB file by its two meta pages before LMDB opens it (docs/format.md, "lmdb shards").

LMDB maps the file and follows the page numbers in it: one that is cut kills the process with SIGBUS.
The layout is that of LMDB 0.9 on a 64-bit little-endian machine (MDB_page, MDB_meta and MDB_db in
https://github.com/LMDB/lmdb/blob/LMDB_0.9/libraries/liblmdb/mdb.c).
"""

import os
import struct
from dataclasses import dataclass

PAGE_HEADER_BYTES = 16

_PAGE_HEADER = struct.Struct("<QHHHH")  # number, padding, flags, lower, upper
_META_FLAG = 0x08
_META = struct.Struct("<IIQQ")  # magic, version, address, size of the map
_TABLE = struct.Struct("<IHHQQQQQ")  # padding, flags, depth, branch, leaf and overflow pages, entries, root
_TAIL = struct.Struct("<QQ")  # last page, transaction
_META_BYTES = _META.size + 2 * _TABLE.size + _TAIL.size
_MAGIC = 0xBEEFC0DE
_VERSION = 1
_PAGE_SIZES = tuple(1 << bits for bits in range(12, 17))
_MAX_DEPTH = 32  # CURSOR_STACK in mdb.c


class LmdbFault(Exception):
    """What is wrong with an LMDB file, as the end of a sentence that begins with its path."""


@dataclass(frozen=True)
class LmdbMeta:
    """One meta page.

    Attributes:
        page_size: Bytes a page.
        map_size: Size of the writer's map.
        flags: Of the main table.
        depth: Levels of the main table's tree.
        entries: Of the main table.
        root: Page number of the tree's root.
        last_page: Highest page number in use.
        transaction: The meta page with the higher one counts.
    """

    page_size: int
    map_size: int
    flags: int
    depth: int
    entries: int
    root: int
    last_page: int
    transaction: int


def check_header(descriptor: int, size: int, entries: int) -> LmdbMeta:
    """Return the meta page that LMDB will go by, if the file is sound as far as its meta pages tell.

    Args:
        descriptor: An open file.
        size: Its size.
        entries: Records that it should hold, at least 1.

    Raises:
        LmdbFault: A meta page is not sound, or does not agree with `size` and `entries`.
    """
    meta = read_meta(descriptor)
    if (meta.last_page + 1) * meta.page_size != size or meta.map_size < size:
        pages = meta.last_page + 1
        raise LmdbFault(f"its header speaks of {pages} pages of {meta.page_size} bytes, not of {size} bytes")
    if meta.entries != entries:
        raise LmdbFault(f"its header counts {meta.entries} records, the manifest {entries}")
    if meta.flags != 0 or not 1 <= meta.depth <= _MAX_DEPTH or not 2 <= meta.root <= meta.last_page:
        raise LmdbFault("the root of its tree is not sound")
    return meta


def read_meta(descriptor: int) -> LmdbMeta:
    """Return the meta page that LMDB will go by. What it says of pages and entries is not checked.

    Raises:
        LmdbFault: A meta page is not sound.
    """
    first = _read_meta(descriptor, 0, 0)
    second = _read_meta(descriptor, first.page_size, 1)
    if first.page_size != second.page_size:
        raise LmdbFault("its two headers disagree about the page size")
    return second if second.transaction > first.transaction else first


def _read_meta(descriptor: int, offset: int, number: int) -> LmdbMeta:
    data = os.pread(descriptor, PAGE_HEADER_BYTES + _META_BYTES, offset)
    if len(data) < PAGE_HEADER_BYTES + _META_BYTES:
        raise LmdbFault("it is too short for an LMDB file")
    page, _, page_flags, _, _ = _PAGE_HEADER.unpack_from(data)
    magic, version, _, map_size = _META.unpack_from(data, PAGE_HEADER_BYTES)
    if (page, page_flags, magic) != (number, _META_FLAG, _MAGIC):
        raise LmdbFault("it does not begin like an LMDB file")
    if version != _VERSION:
        raise LmdbFault(f"it is of LMDB data version {version}, not {_VERSION}")
    tables = PAGE_HEADER_BYTES + _META.size
    page_size = _TABLE.unpack_from(data, tables)[0]  # LMDB keeps it in the first table's padding
    if page_size not in _PAGE_SIZES:
        raise LmdbFault(f"its header says a page has {page_size} bytes")
    _, flags, depth, _, _, _, entries, root = _TABLE.unpack_from(data, tables + _TABLE.size)
    last_page, transaction = _TAIL.unpack_from(data, tables + 2 * _TABLE.size)
    return LmdbMeta(page_size, map_size, flags, depth, entries, root, last_page, transaction)
