"""The checksums of the format: one for each stored value, one for each file (docs/format.md, "Integrity").

XXH3 is specified at https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

import os
from collections.abc import Sequence

import xxhash

from shardkit.contract import Payload
from shardkit.store.folder import open_regular

_CHUNK = 1 << 20

SOURCE_DIGEST_BYTES = 16
"""Bytes of the digest of what a record was made from: an XXH3-128 in canonical form."""


def id_hash(encoded_id: bytes | memoryview) -> int:
    """Return the XXH3-64 of an id's UTF-8 bytes: its key in the index, and the seed of its checksums."""
    return xxhash.xxh3_64_intdigest(encoded_id)


def record_checksums(record_id: str, payloads: Sequence[Payload]) -> list[int]:
    """Return one checksum a payload: XXH3-64, seeded by the id so that no value can change owners.

    Args:
        record_id: The id of the record, without surrogates.
        payloads: One payload a column.

    Returns:
        Integers in ``[0, 2**64)``.
    """
    seed = id_hash(record_id.encode())
    return [xxhash.xxh3_64_intdigest(payload, seed) for payload in payloads]


def digest_file(path: str | os.PathLike[str]) -> str:
    """Return the XXH3-128 of a file as 32 lower-case hexadecimal digits.

    Raises:
        OSError: It cannot be read, or is not a regular file.
    """
    digest = xxhash.xxh3_128()
    descriptor, _ = open_regular(path)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
