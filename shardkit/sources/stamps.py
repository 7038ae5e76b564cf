"""What raw input looks like from outside: stamps, by which a resumed run notices that its input changed."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xxhash

from shardkit.contract import FileContent
from shardkit.sources.source import Stamp

_63_BITS = 2**63 - 1
NO_FILE = Stamp(0, 0)
"""Stamp of a file that is not there, or may not be looked at."""


def stamp_file(path: str) -> Stamp:
    """Return the stamp of one file, links followed; `NO_FILE` where the system refuses to look at it."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: no file can have such a name
        return NO_FILE
    return Stamp(status.st_size, digest_numbers((status.st_size, status.st_mtime_ns, status.st_ctime_ns)))


def combine(stamps: Iterable[Stamp]) -> Stamp:
    """Return one stamp for several things that are read together."""
    together = list(stamps)
    return Stamp(sum(stamp.bytes for stamp in together), digest_numbers(stamp.changed for stamp in together))


def digest_numbers(numbers: Iterable[int]) -> int:
    """Return 63 bits of XXH3 over some whole numbers."""
    return xxhash.xxh3_64_intdigest(b"".join(_framed(b"i", b"%d" % number) for number in numbers)) & _63_BITS


def stamp_value(value: Any) -> Stamp:
    """Return the stamp of a value that a program or a table holds.

    Arrays count by dtype, shape and elements; bytes, text, numbers and None by value; lists, tuples and mappings by
    what is in them; anything else by its `repr`, or by its type where it has none.
    """
    state = xxhash.xxh3_64()
    try:
        size = _feed(state, value)
    except Exception:  # runs code of the values, which may raise anything; a list may also hold itself
        return Stamp(0, xxhash.xxh3_64_intdigest(_type_name(value)) & _63_BITS)
    return Stamp(size, state.intdigest() & _63_BITS)


def bytes_in(value: Any) -> int:
    """Return how many bytes the elements of an array or tensor take; 0 for what is none, or does not tell."""
    try:
        return int(getattr(value, "nbytes", 0))
    except Exception:  # runs code of the value, which may raise anything, as that of a sparse tensor does
        return 0


def _framed(kind: bytes, content: bytes) -> bytes:
    """Return content that no other kind or split of the same bytes equals."""
    return b"%c%d:%b" % (kind, len(content), content)


def _feed(state: Any, value: Any) -> int:  # Any: xxhash publishes no type for its state
    """Add a value to a digest and return its bytes."""
    if isinstance(value, Mapping):
        state.update(b"m%d:" % len(value))
        return sum(_feed(state, part) for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        state.update(b"l%d:" % len(value))
        return sum(_feed(state, part) for part in value)
    kind, content, size = _content(value)
    state.update(b"%b%d:" % (kind, len(content)))
    state.update(content)
    return size


def _content(value: Any) -> tuple[bytes, bytes | memoryview, int]:
    """Return the kind of a single value, the bytes that stand for it, and how many it holds."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b"b", bytes(value), len(value)
    if isinstance(value, str):
        content = value.encode("utf-8", "surrogatepass")
        return b"s", content, len(content)
    if isinstance(value, FileContent):
        named = _framed(b"s", value.name.encode("utf-8", "surrogatepass"))
        return b"f", named + value.data, len(value.data)
    array = _as_array(value)
    if array is not None:
        head = _framed(b"a", f"{array.dtype.str}{array.shape}".encode())
        return b"a", head + array.tobytes(), array.nbytes
    return b"r", _shown(value), bytes_in(value)


def _shown(value: Any) -> bytes:
    """Return what Python shows of a value; its type where it can show nothing."""
    try:
        return repr(value).encode("utf-8", "surrogatepass")
    except (
        Exception
    ):  # runs code of the value, which may raise anything; an int of over 4300 digits does, too
        return b"%x" % value if isinstance(value, int) else _type_name(value)


def _type_name(value: Any) -> bytes:
    return type(value).__qualname__.encode("utf-8", "surrogatepass")


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array of numpy or torch as numpy's, or None if it is none, or holds Python objects."""
    if isinstance(value, int | float | bool | None):
        return None
    try:
        if not hasattr(value, "__array__"):
            return None
        array = np.asarray(value)
    except Exception:  # a tensor on a device, or one that wants a gradient; other types raise what they like
        return None
    return None if array.dtype.hasobject else array
