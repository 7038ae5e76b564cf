"""What makes a run the same as another one: all that decides which bytes it writes, in one digest.

A run notes it in its summary, so that it is known for what it was after its journal is gone.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from shardkit.sources import Part


class RunIdentity:
    """Takes in the description of a run, then the input of each of its tasks in order."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._digest = xxhash.xxh3_128(json.dumps(described, sort_keys=True).encode())

    def add(self, task_input: str) -> None:
        """Add what `digest_input` says of the next task."""
        self._digest.update(task_input.encode())

    def hexdigest(self) -> str:
        """Return the digest of all that was taken in."""
        return self._digest.hexdigest()


def digest_part(part: Part) -> str:
    """Return a digest of which records a part holds: their ids and marks, and what is known against them."""
    table = [
        part.first,
        list(part.ids),
        [int(mark) for mark in part.marks],
        [[position, part.bad[position].to_dict()] for position in sorted(part.bad)],
    ]
    return xxhash.xxh3_128_hexdigest(json.dumps(table, ensure_ascii=True).encode())


def digest_input(records: str, stamps: Sequence[int]) -> str:
    """Return a digest of what a task reads: `digest_part` of its records, and the stamps of their raw input."""
    return xxhash.xxh3_128_hexdigest(json.dumps([records, list(stamps)]).encode())
