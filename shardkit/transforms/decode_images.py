"""Batches of encoded images decoded: on CUDA by nvJPEG, with the image operations done there too, else on the CPU."""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex

import torch

from shardkit.contract import Contract, ImageField
from shardkit.errors import TransformError
from shardkit.transforms.compose import Compose, plan, size_after, split
from shardkit.transforms.device_pictures import decode_on_device, take_steps_on_device
from shardkit.transforms.encoded import EncodedBatch, is_encoded
from shardkit.transforms.image_ops import UNUSED_RNG, ImageOp
from shardkit.transforms.jpeg_libraries import decodes_jpegs, find_jpeg_decoder
from shardkit.transforms.randomness import Draws, rng_of
from shardkit.transforms.steps import Recipe, Size, Step


class DecodeImages:
    """Decode the images of a batch that `Encoded` left as they are stored, on the device that the batch goes to.

    Decoding on a GPU is experimental: it has not run on one yet.

    For a `DevicePrefetcher`, as its ``decode``: there it gets each batch while the bytes are still on the CPU, where
    nvJPEG takes them from, and runs on the stream that copies, ahead of the batch's use. On CUDA, JPEGs are decoded by
    nvJPEG in full size, through torchcodec (``pip install "shardkit[nvjpeg]"``, built with CUDA) or torchvision, and
    the operations are done there. Pixels differ a little from those that libjpeg-turbo gives: each decoder interpolates
    colour in its way.

    What is not a plain JPEG (PNG and other formats; CMYK, rotated by EXIF, rare samplings) is decoded on the CPU by
    the contract, in the calling thread, and copied, and so is a JPEG that nvJPEG refuses; and so is everything where
    the device is not CUDA. There operations that are part of decoding do the same in all threads or workers: prefer
    them. A damaged image is raised; ``on_error="skip"`` is a matter of loaders, which see only its bytes.

    Operations that draw random numbers take them from seed, epoch and id: with the seed of a loader of shardkit's,
    what comes is what the loader makes by the same operations (but for draws with replacement: a record that comes
    several times in an epoch is then cropped the same way each time; and for those on two image fields, which share
    their numbers in a loader). `DevicePrefetcher` tells it the epoch: that of the loader of shardkit's, its sampler or
    data set as an iteration begins; of others the one it was set to. (torchdata's loader with workers keeps the epoch
    of a state to those: set the epoch after loading one.) As long as there is none, and in batches without ids,
    they come from torch's stream of the process, as for samples of a plain DataLoader.

    Args:
        contract: Of the data set.
        ops: One image operation, or several in a `Compose`, from which images of one size come.
        field: Name of the image field.
        seed: Decides random numbers, together with epoch and id.

    Raises:
        TypeError: `seed` is no integer.
        ValueError: The field is no image, or has nothing encoded; something else stands among the operations, or images
            of several sizes would come of them.
    """

    def __init__(
        self, contract: Contract, ops: ImageOp | Compose, field: str = "image", seed: SupportsIndex = 0
    ) -> None:
        image = contract.fields.get(field)
        if not isinstance(image, ImageField) or image.layout.is_fixed:
            raise ValueError(f"DecodeImages: {field!r} is no image field that is stored encoded")
        self._ops = _image_ops(ops, field)
        size = size_after(self._ops, image.stored_size)
        if size is None:
            raise ValueError(
                f"DecodeImages: images of several sizes come of {ops!r}: end with one of a size, such as "
                "CenterCrop(224, ratio=0.875)"
            )
        self._image = image
        self._size = size
        self._field = field
        self._seed = index(seed)
        self._draws: Draws | None = None
        self._is_random = any(op.is_random for op in self._ops)

    def __repr__(self) -> str:
        """Show what it does."""
        return f"DecodeImages({self._ops!r}, field={self._field!r}, seed={self._seed})"

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Choose the epoch that random numbers are drawn for, from the next batch on.

        Raises:
            TypeError: `epoch` is no integer.
        """
        self._draws = Draws(Draws.key_of(self._seed, index(epoch)))

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
        if decodes_jpegs(device):
            decoded = self._decode_on_device(images, device)
        else:
            decoded = self._decode_on_cpu(images, range(len(images)))
        return {**batch, self._field: decoded}

    def _decode_on_device(self, images: EncodedBatch, device: torch.device) -> torch.Tensor:
        """Return all images, on the device: those decoded there, and copies of the others between them."""
        shape = (len(images), self._image.channels, *self._size)
        decoded = torch.empty(shape, dtype=torch.uint8, device=device, memory_format=torch.channels_last)
        decode, sizes = find_jpeg_decoder(device), self._plain_sizes(images)
        cpu_places = [place for place in range(len(images)) if place not in sizes]
        for place, picture in decode_on_device(decode, images.values, sizes, self._image.mode, device):
            if picture is None:
                cpu_places.append(place)
            else:
                with images.naming(place):
                    steps = self._steps(images, place, sizes[place])
                    decoded[place].copy_(_taken(picture, sizes[place], steps))
        if cpu_places:
            decoded[torch.tensor(cpu_places, device=device)] = self._decode_on_cpu(images, cpu_places).to(
                device
            )
        return decoded

    def _plain_sizes(self, images: EncodedBatch) -> dict[int, Size]:
        """Return the size of each plain JPEG: those that the device decodes."""
        sizes = {}
        for place in range(len(images)):
            with images.naming(place):
                size = self._image.plain_jpeg_size(images.payload(place))
            if size is not None:
                sizes[place] = size
        return sizes

    def _decode_on_cpu(self, images: EncodedBatch, places: Sequence[int]) -> torch.Tensor:
        """Return the images at some places, decoded by the contract."""
        decoded = torch.empty(
            (len(places), *self._size, self._image.channels), dtype=torch.uint8, device="cpu"
        )
        views = decoded.permute(0, 3, 1, 2)
        for number, place in enumerate(places):
            with images.naming(place):
                image = self._image.open(images.payload(place))
                size = image.height, image.width
                recipe = Recipe(size, self._steps(images, place, size))
                recipe.make_in(image, decoded.numpy(), views, number)
        return views

    def _steps(self, images: EncodedBatch, place: int, size: Size) -> list[Step]:
        if not self._is_random:
            return plan(self._ops, size, UNUSED_RNG)
        rng = rng_of(None, 0, "") if images.ids is None else rng_of(self._draws, 0, images.ids[place])
        return plan(self._ops, size, rng)


def _taken(picture: torch.Tensor, size: Size, steps: Sequence[Step]) -> torch.Tensor:
    """Return a picture after some steps.

    Raises:
        TransformError: It is not of the size that they were decided for.
    """
    if tuple(picture.shape[1:]) != size:
        raise TransformError(
            f"decoded on the device it is {list(picture.shape[1:])}, its header says {list(size)}"
        )
    return take_steps_on_device(picture, steps)


def _image_ops(ops: ImageOp | Compose, field: str) -> list[ImageOp]:
    leading, rest = split(ops)
    others = [op for op in leading if op.field not in (None, field)]
    if rest is not None or others or is_encoded(leading):
        raise ValueError(
            f"DecodeImages: takes image operations for {field!r} and nothing else, not {ops!r}: what is done to whole "
            "batches goes into the DevicePrefetcher's transform"
        )
    return leading
