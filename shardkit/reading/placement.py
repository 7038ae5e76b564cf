"""Which of the ranks this process is."""

import os
from dataclasses import dataclass
from typing import SupportsIndex

import torch

from shardkit.reading.integer import require_integer


@dataclass(frozen=True)
class Placement:
    """Rank and world size.

    Attributes:
        rank: In ``[0, world_size)``.
        world_size: At least 1.
    """

    rank: int
    world_size: int

    @staticmethod
    def given(rank: SupportsIndex | None, world_size: SupportsIndex | None) -> "Placement | None":
        """Return the placement that a caller gave, or None if it gave none.

        Raises:
            TypeError: A number is not an integer; names it.
            ValueError: Only one of the two is given, or the rank is out of its range.
        """
        if rank is None and world_size is None:
            return None
        if rank is None or world_size is None:
            raise ValueError("give both rank and world_size, or neither")
        placement = Placement(require_integer("rank", rank), require_integer("world_size", world_size))
        if placement.world_size < 1:
            raise ValueError(f"world_size must be 1 or more, not {placement.world_size}")
        if not 0 <= placement.rank < placement.world_size:
            raise ValueError(f"rank must lie in [0, {placement.world_size}), not {placement.rank}")
        return placement

    @staticmethod
    def known_or_alone() -> "Placement":
        """Return the placement that torch.distributed tells, or that of the only rank there is.

        Raises:
            ValueError: This is one of several ranks that a launcher such as torchrun started, and nobody said which.
        """
        known = Placement.known()
        if known is None and os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
            raise ValueError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']} in the environment, but torch.distributed is not "
                "initialised, so each rank would get all batches: call torch.distributed.init_process_group first, or "
                "give rank=... and world_size=... (0 and 1 where each rank is to get all)"
            )
        return known or Placement(0, 1)

    @staticmethod
    def known() -> "Placement | None":
        """Return the placement that torch.distributed tells, or None where it is not initialised."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return Placement(distributed.get_rank(), distributed.get_world_size())
        return None
