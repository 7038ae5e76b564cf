"""Batches of encoded images decoded on the device, by nvJPEG on CUDA, with the image operations done there too."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import interpolate

from shardkit.contract import Contract, ImageField
from shardkit.errors import FormatError, TransformError
from shardkit.transforms.compose import Compose, plan, split
from shardkit.transforms.encoded import is_encoded
from shardkit.transforms.image_ops import UNUSED_RNG, ImageOp
from shardkit.transforms.jpeg_libraries import DecodeJpegs, decodes_jpegs, find_jpeg_decoder
from shardkit.transforms.randomness import rng_of
from shardkit.transforms.steps import Cut, Mirror, Rendering, Size, Step

MOST_PIXELS = 1 << 26
"""Pixels decoded at once on a device: 200 MB of RGB, which is enough to keep it busy with photos."""


class DecodeImages:
    """Decode the images of a batch that `Encoded` left as they are stored, on the device that the batch goes to.

    For a `DevicePrefetcher`, as its ``decode``: there it gets each batch while the bytes are still on the CPU, where
    nvJPEG takes them from, and runs on the stream that copies, ahead of the batch's use. On CUDA, JPEGs are decoded by
    nvJPEG in full size, through torchcodec (``pip install "shardkit[nvjpeg]"``) or torchvision, and the operations are
    done there. Pixels differ a little from those that libjpeg-turbo gives: each decoder interpolates colour in its way.

    What is not a plain JPEG (PNG and other formats; CMYK, rotated by EXIF, rare samplings) is decoded on the CPU by
    the contract, and copied; and so is everything where the device is not CUDA, in the calling thread. There operations
    that are part of decoding do the same in all threads or workers: prefer them.

    Operations that draw random numbers take them from torch's stream of the process: a batch does not know its epoch.

    Args:
        contract: Of the data set.
        ops: One image operation, or several in a `Compose`, from which images of one size come.
        field: Name of the image field.

    Raises:
        ValueError: The field is no image, or has nothing encoded; something else stands among the operations, or images
            of several sizes would come of them.
    """

    def __init__(self, contract: Contract, ops: ImageOp | Compose, field: str = "image") -> None:
        image = contract.fields.get(field)
        if not isinstance(image, ImageField) or image.layout.is_fixed:
            raise ValueError(f"DecodeImages: {field!r} is no image field that is stored encoded")
        self._ops = _image_ops(ops, field)
        size = image.stored_size
        for op in self._ops:
            size = op.output_size(size)
        if size is None:
            raise ValueError(
                f"DecodeImages: images of several sizes come of {ops!r}: end with one of a size, such as "
                "CenterCrop(224, ratio=0.875)"
            )
        self._image = image
        self._size = size
        self._field = field

    def __repr__(self) -> str:
        """Show what it does."""
        return f"DecodeImages({self._ops!r}, field={self._field!r})"

    def __call__(self, batch: Mapping[str, Any], device: torch.device | str) -> dict[str, Any]:
        """Return the batch with its images as ``uint8[B, C, H, W]``, channels last in memory, on the device.

        Elsewhere than on CUDA they are on the CPU, for whoever moves the rest. A batch that lost all its samples stays
        as it is.

        Raises:
            TransformError: The field is not there or holds something else; an image is damaged, or the operations do
                not fit it; names its id. Or there is no library for CUDA.
        """
        if self._field not in batch and not batch.get("id", True):
            return dict(batch)
        images = EncodedBatch(batch, self._field)
        device = torch.device(device)
        on_device = self._plain_sizes(images) if decodes_jpegs(device) else {}
        elsewhere = [place for place in range(len(images)) if place not in on_device]
        made = self._decode_here(images, elsewhere)
        if on_device:
            made = self._decode_there(images, on_device, device, elsewhere, made)
        return {**batch, self._field: made}

    def _plain_sizes(self, images: "EncodedBatch") -> dict[int, Size]:
        """Return the size of each plain JPEG: those that the device decodes."""
        sizes = {}
        for place in range(len(images)):
            with images.naming(place):
                size = self._image.plain_jpeg_size(images.payload(place))
            if size is not None:
                sizes[place] = size
        return sizes

    def _decode_here(self, images: "EncodedBatch", places: Sequence[int]) -> torch.Tensor:
        """Return the images at some places, decoded on the CPU."""
        made = torch.empty((len(places), *self._size, self._image.channels), dtype=torch.uint8, device="cpu")
        views = made.permute(0, 3, 1, 2)
        for number, place in enumerate(places):
            with images.naming(place):
                image = self._image.open(images.payload(place))
                rendering = Rendering(image, self._steps((image.height, image.width)))
                rendering.make_in(made.numpy(), views, number)
        return views

    def _decode_there(
        self,
        images: "EncodedBatch",
        sizes: Mapping[int, Size],
        device: torch.device,
        elsewhere: Sequence[int],
        others: torch.Tensor,
    ) -> torch.Tensor:
        """Return all images: those that have a size here decoded on the device, the others copied between them."""
        shape = (len(images), self._image.channels, *self._size)
        made = torch.empty(shape, dtype=torch.uint8, device=device, memory_format=torch.channels_last)
        for places in _groups(sizes):
            for place, picture in zip(places, self._pictures(images, places, device), strict=True):
                with images.naming(place):
                    made[place].copy_(self._taken(picture, sizes[place]))
        if elsewhere:
            made[torch.tensor(elsewhere, device=device)] = others.to(device)
        return made

    def _pictures(
        self, images: "EncodedBatch", places: Sequence[int], device: torch.device
    ) -> list[torch.Tensor]:
        """Return the pictures at some places, ``uint8[C, H, W]`` of their sizes, decoded on the device."""
        decode, mode = find_jpeg_decoder(), self._image.mode
        try:
            return decode([images.values[place] for place in places], mode, device)
        except RuntimeError:  # which does not say of which image
            return [self._alone(images, place, decode, mode, device) for place in places]

    def _alone(
        self, images: "EncodedBatch", place: int, decode: DecodeJpegs, mode: str, device: torch.device
    ) -> torch.Tensor:
        with images.naming(place):
            try:
                (picture,) = decode([images.values[place]], mode, device)
            except RuntimeError as error:
                raise TransformError(f"{device} cannot decode it: {error}") from error
        return picture

    def _taken(self, picture: torch.Tensor, size: Size) -> torch.Tensor:
        if tuple(picture.shape[1:]) != size:
            raise TransformError(
                f"decoded on the device it is {list(picture.shape[1:])}, its header says {list(size)}"
            )
        return take_steps_on_device(picture, self._steps(size))

    def _steps(self, size: Size) -> list[Step]:
        is_random = any(op.is_random for op in self._ops)
        return plan(self._ops, size, rng_of(None, 0, "") if is_random else UNUSED_RNG)


class EncodedBatch:
    """The encoded images of a batch.

    Args:
        batch: A batch of a loader.
        field: Name of the images.

    Attributes:
        values: One ``uint8[n]`` a sample, on the CPU.

    Raises:
        TransformError: There are none.
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
        self._ids: Sequence[str] = batch.get("id", range(len(values)))
        self._field = field

    def __len__(self) -> int:
        return len(self.values)

    def payload(self, place: int) -> bytes:
        """Return the bytes of one image."""
        return self.values[place].numpy().tobytes()

    @contextmanager
    def naming(self, place: int) -> Iterator[None]:
        """Let errors about one image name it."""
        try:
            yield
        except (FormatError, TransformError) as error:
            raise TransformError(f"{self._ids[place]}, field {self._field!r}: {error}") from error


def take_steps_on_device(picture: torch.Tensor, steps: Sequence[Step]) -> torch.Tensor:
    """Return a picture, ``uint8[C, H, W]``, after some steps; it may be a view.

    The filter is that of `take_steps`, in floating point, as torch has it for whole numbers on CPUs only: within 1.
    """
    for step in steps:
        if isinstance(step, Cut):
            picture = picture[:, step.top : step.top + step.height, step.left : step.left + step.width]
        elif isinstance(step, Mirror):
            picture = picture.flip(-1)
        elif picture.shape[1:] != (step.height, step.width):
            size = (step.height, step.width)
            scaled = interpolate(picture[None].to(torch.float32), size, mode="bilinear", antialias=True)
            picture = scaled[0].round_().to(torch.uint8)
    return picture


def _image_ops(ops: ImageOp | Compose, field: str) -> list[ImageOp]:
    leading, rest = split(ops)
    others = [op for op in leading if op.field not in (None, field)]
    if rest is not None or others or is_encoded(leading):
        raise ValueError(
            f"DecodeImages: takes image operations for {field!r} and nothing else, not {ops!r}: what is done to whole "
            "batches goes into the DevicePrefetcher's transform"
        )
    return leading


def _is_encoded_image(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype == torch.uint8
        and value.dim() == 1
        and value.device.type == "cpu"
    )


def _groups(sizes: Mapping[int, Size]) -> Iterator[list[int]]:
    """Yield the places in groups that are decoded at once."""
    group: list[int] = []
    pixels = 0
    for place, (height, width) in sizes.items():
        if group and pixels + height * width > MOST_PIXELS:
            yield group
            group, pixels = [], 0
        group.append(place)
        pixels += height * width
    yield group
