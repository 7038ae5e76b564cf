"""What is done to a whole batch, on the device where it is: images to normalised floats."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardkit.errors import TransformError


class Normalize:
    """Make floats of the uint8 images of a batch: ``(value / 255 - mean) / std``, channel by channel.

    For whole batches, after they were moved: give it to a `DevicePrefetcher`, or call it in the training loop. Moving
    uint8 and normalising on the device moves a quarter of the bytes. Channels-last batches stay channels-last.

    Args:
        mean: One number a channel, in shares of 255.
        std: One number a channel, in shares of 255, above 0.
        field: The images: ``uint8[B, C, H, W]``, or ``[C, H, W]`` of a sample.
        dtype: Of the result.

    Raises:
        ValueError: There are not as many means as deviations, or a deviation is not above 0.
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        field: str = "image",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if len(mean) != len(std) or not all(each > 0 for each in std):
            raise ValueError(f"mean and std must be as many, and std above 0, not {mean} and {std}")
        self._mean = tuple(mean)
        self._std = tuple(std)
        self._factor = torch.tensor([1 / (255 * each) for each in std], device="cpu").view(-1, 1, 1)
        self._offset = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device="cpu").view(
            -1, 1, 1
        )
        self._field = field
        self._dtype = dtype

    def __repr__(self) -> str:
        """Show what it was made with."""
        shown = f"mean={self._mean}, std={self._std}, field={self._field!r}, dtype={self._dtype}"
        return f"Normalize({shown})"

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with its images as floats; a batch that lost all its samples has none, and stays as it is.

        Raises:
            TransformError: The field is not there, or holds something else than uint8 images of as many channels as
                there are means.
        """
        if self._field not in batch and not batch.get("id", True):
            return dict(batch)
        images = self._images(batch)
        if self._factor.device != images.device:
            self._factor, self._offset = self._factor.to(images.device), self._offset.to(images.device)
        made = images.to(torch.float32).mul_(self._factor).add_(self._offset).to(self._dtype)
        return {**batch, self._field: made}

    def _images(self, batch: Mapping[str, Any]) -> torch.Tensor:
        images = batch.get(self._field)
        channels = len(self._mean)
        if (
            isinstance(images, torch.Tensor)
            and images.dtype == torch.uint8
            and channels in images.shape[-3:-2]
        ):
            return images
        found = f"no such field among {', '.join(batch)}" if images is None else _form(images)
        raise TransformError(
            f"Normalize: {self._field!r} should be uint8 images of {channels} channels, [B, {channels}, H, W], "
            f"as there are {channels} means; there is {found}"
        )


def _form(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list):
        return "a list of them, since their sizes differ: crop or resize them as they are decoded"
    return type(value).__name__
