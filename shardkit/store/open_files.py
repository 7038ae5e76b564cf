"""How many files this process may have open at a time.

A memory map holds a descriptor, and the usual soft limit of 1024 would not do for a thousand shards.
"""

import resource
import weakref
from contextlib import suppress

_REST = 1024  # what the rest of a program usually has open

_reserved: dict[int, int] = {}
"""Files that each live owner may open, by the owner's `id`."""


def reserve_open_files(owner: object, count: int) -> None:
    """Raise the soft limit of open files so that `owner` may open `count`, beside what others have reserved.

    The reservation ends with the owner's life. Where the hard limit is too low, opening fails later with an
    error that says so.
    """
    _reserved[id(owner)] = count
    weakref.finalize(owner, _reserved.pop, id(owner), None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sum(list(_reserved.values())) + _REST
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def describe_limit() -> str:
    """Return the limit as a message tells it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"limit {soft}, at most {hard}"
