"""What a pass delivered: samples, pixels and tokens counted, and a digest of ids and labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import xxhash

from shardkit.contract import Contract, mask_name
from shardkit.reading import Batch


class Delivered:
    """Counts what comes, batch by batch, at a cost of microseconds each.

    Args:
        contract: Says which fields are images, tokens, labels and scalars.

    Attributes:
        samples: How many came.
        batches: In how many batches.
        pixels: Height times width of the images as they were delivered, summed; None if there are no image fields.
        tokens: Tokens that came, what pads a batch left out; None if there are no token fields.
    """

    def __init__(self, contract: Contract) -> None:
        self._images = _names_of(contract, "image")
        self._sequences = _names_of(contract, "tokens")
        self._numbers = [*_names_of(contract, "label"), *_names_of(contract, "scalar")]
        self._ids: list[Sequence[str]] = []
        self._values: dict[str, list[Any]] = {name: [] for name in self._numbers}
        self.samples = self.batches = 0
        self.pixels = 0 if self._images else None
        self.tokens = 0 if self._sequences else None

    def add(self, batch: Batch) -> None:
        """Count a batch. No tensor of it is kept: those of a worker each hold a file open."""
        self.batches += 1
        self.samples += len(batch["id"])
        self._ids.append(batch["id"])
        for name in self._numbers:
            self._values[name] += _plain(batch.get(name, ()))
        if self.pixels is not None:
            self.pixels += sum(_pixels(batch.get(name, ())) for name in self._images)
        if self.tokens is not None:
            self.tokens += sum(_tokens(batch, name) for name in self._sequences)

    def digest(self) -> str:
        """Return what any delivery of the same ids with the same labels and scalars has, in whatever order."""
        ids = [record_id for batch in self._ids for record_id in batch]
        columns = [column for column in self._values.values() if len(column) == len(ids)]
        lines = sorted(map(repr, zip(ids, *columns, strict=True)))
        return xxhash.xxh3_128_hexdigest("\n".join(lines).encode())


def _names_of(contract: Contract, kind: str) -> list[str]:
    return [name for name, field in contract.fields.items() if field.kind == kind]


def _plain(values: Any) -> list[Any]:  # Any: a transform may have made anything of a field, here and below
    return list(values.tolist() if isinstance(values, torch.Tensor) else values)


def _pixels(images: Any) -> int:
    if isinstance(images, torch.Tensor):
        return len(images) * images.shape[-2] * images.shape[-1] if images.dim() == 4 else 0
    return sum(
        image.shape[-2] * image.shape[-1]
        for image in images
        if isinstance(image, torch.Tensor) and image.dim() == 3
    )


def _tokens(batch: Mapping[str, Any], name: str) -> int:
    mask = batch.get(mask_name(name))
    if mask is not None:
        return int(mask.sum())
    return sum(len(sequence) for sequence in batch.get(name, ()))
