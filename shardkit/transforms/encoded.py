"""Images that are left undecoded, for a decoder on the device: the operation that asks for it, and what is delivered.

Decoding them is a matter of ``decode_images.py``.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch

from shardkit.contract import Field, Payload
from shardkit.errors import FormatError, TransformError
from shardkit.transforms.image_ops import ImageOp, Sample
from shardkit.transforms.steps import Size, Step


class EncodedImage(torch.Tensor):
    """The stored bytes of one image, ``uint8[n]``: a tensor by which `collate` knows not to stack it.

    What is computed from it is a plain tensor.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as Parameter has it

    @staticmethod
    def copy_of(payload: Payload) -> "EncodedImage":
        """Return a copy of a payload."""
        copied: EncodedImage = torch.from_numpy(np.frombuffer(payload, np.uint8).copy()).as_subclass(
            EncodedImage
        )
        return copied


class EncodedImages(list[torch.Tensor]):
    """The stored bytes of the images of a batch: a list of ``uint8[n]`` on the CPU.

    It stays on the CPU where the rest of a batch is pinned and moved, since that is where decoders take bytes from,
    those of a GPU too. Between processes it goes as one block, not as a file descriptor for each image.
    """

    __slots__ = ()

    @classmethod
    def collated(
        cls, images: Sequence[torch.Tensor], **_: Any
    ) -> "EncodedImages":  # Any: of torch's, for nesting
        """Return the images of some samples: what torch's own collation is told to make of an `EncodedImage` each."""
        return cls(images)

    def pin_memory(self) -> "EncodedImages":
        """Return it as it is."""
        return self

    def to(self, device: torch.device, non_blocking: bool = False) -> "EncodedImages":
        """Return it as it is."""
        return self

    def record_stream(self, stream: Any) -> None:  # Any: torch.cuda.Stream is untyped
        """Do nothing: it has no memory of a device."""

    def __copy__(self) -> "EncodedImages":
        """Return a list of the same images: torch copies lists as it collates, by `__reduce__` if by nothing else."""
        return type(self)(self)

    def __reduce__(self) -> tuple[Any, ...]:
        block = torch.cat(self) if self else torch.empty(0, dtype=torch.uint8, device="cpu")
        return _split, (block, [len(image) for image in self])


def _split(block: torch.Tensor, lengths: list[int]) -> EncodedImages:
    return EncodedImages(torch.split(block, lengths))


class EncodedBatch:
    """The encoded images of a batch, as whoever decodes them wants them.

    Args:
        batch: A batch of a loader.
        field: Name of the images.

    Attributes:
        values: One ``uint8[n]`` a sample, on the CPU.
        ids: Of the samples; None in a batch that has none.

    Raises:
        TransformError: There are no encoded images.
    """

    def __init__(self, batch: Mapping[str, Any], field: str) -> None:
        values = batch.get(field)
        if not isinstance(values, list) or not all(map(_is_encoded_image, values)):
            found = f"no such field among {', '.join(batch)}" if values is None else type(values).__name__
            raise TransformError(
                f"DecodeImages: {field!r} should be a list of encoded images, uint8[n] on the CPU; there is {found}: "
                "open the data set with transform=Encoded(), and give DecodeImages to a DevicePrefetcher as decode="
            )
        self.values: list[torch.Tensor] = values
        self.ids: Sequence[str] | None = batch.get("id")
        self._field = field

    def __len__(self) -> int:
        return len(self.values)

    def payload(self, place: int) -> bytes:
        """Return the bytes of one image."""
        return self.values[place].numpy().tobytes()

    @contextmanager
    def naming(self, place: int) -> Iterator[None]:
        """Let errors about one image name it, by its id or by its place."""
        try:
            yield
        except (FormatError, TransformError) as error:
            name = place if self.ids is None else self.ids[place]
            raise TransformError(f"{name}, field {self._field!r}: {error}") from error


def _is_encoded_image(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype == torch.uint8
        and value.dim() == 1
        and value.device.type == "cpu"
    )


class Encoded(ImageOp):
    """Leave an image as it is stored, to be decoded later: by `DecodeImages`, on the device, or by code of your own.

    Given to a data set or loader as ``transform`` (alone, or first in a `Compose`): the sample then holds the stored
    bytes as ``uint8[n]``, a copy of its own that was held against its checksum as usual, and a batch a list of them,
    whether it is made by `collate`, by a loader of shardkit's or by torch's own ``default_collate``. No other image
    operation goes with it for the same field. An image field that is stored raw has nothing encoded.

    Args:
        field: Name of the image field; by default the one that the contract has.

    Example:
        >>> loader = ShardLoader("out/", batch_size=256, transform=Encoded())
        >>> decode = DecodeImages(loader.dataset.contract, CenterCrop(224, ratio=0.875))
        >>> for batch in DevicePrefetcher(loader, "cuda", decode=decode):
        ...     loss = model(batch["image"])
    """

    def steps(self, size: Size, rng: random.Random) -> list[Step]:
        """Return none."""
        return []

    def output_size(self, size: Size | None) -> Size | None:
        """Return None: nothing is decoded that would have a size."""
        return None

    def __call__(self, sample: Sample) -> NoReturn:
        """Refuse: the image of a sample is decoded already.

        Raises:
            TransformError: Always.
        """
        raise TransformError(f"{sample.get('id')}: {self!r} is a part of decoding: {HINT}")


HINT = "give it as the transform of a data set or loader, alone or first in a Compose"
"""Where `Encoded` belongs."""


def is_encoded(ops: Sequence[ImageOp]) -> bool:
    """Whether the operations of a field leave it undecoded."""
    return any(isinstance(op, Encoded) for op in ops)


def check_encoded(ops: Sequence[ImageOp], name: str, field: Field) -> None:
    """Refuse operations of one field that do not go together.

    Raises:
        ValueError: There are others beside `Encoded`, or nothing encoded is stored.
    """
    if not is_encoded(ops):
        return
    if len(ops) > 1:
        raise ValueError(
            f"Encoded: it leaves {name!r} undecoded, so no other image operation goes with it, and there are "
            f"{list(ops)}: give those to DecodeImages instead"
        )
    if field.layout.is_fixed:
        raise ValueError(
            f"Encoded: {name!r} is stored raw, as its pixels, so there is nothing encoded to deliver: leave Encoded out"
        )
