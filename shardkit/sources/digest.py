"""The digest of a record's raw input, which its shard keeps: by it a source that changed in silence is found."""

from collections.abc import Iterable, Mapping
from typing import Any

import xxhash

from shardkit.contract import FileContent

NO_DIGEST = bytes(16)
"""Of a record that was made from no file and no bytes: its values themselves are what can be compared."""


def source_digest(values: Mapping[str, Any], names: Iterable[str]) -> bytes:
    """Return the XXH3-128 of the one file (or bytes) among some raw values; of several, that of their digests.

    Args:
        values: Field name to raw value.
        names: The fields, in contract order.
    """
    digests = []
    for name in names:
        value = values.get(name)
        content = value.data if isinstance(value, FileContent) else value
        if isinstance(content, bytes):
            digests.append(xxhash.xxh3_128_digest(content))
    if not digests:
        return NO_DIGEST
    return digests[0] if len(digests) == 1 else xxhash.xxh3_128_digest(b"".join(digests))
