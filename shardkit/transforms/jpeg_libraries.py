"""Decoding JPEGs on a GPU by nvJPEG, through a library that brings it: torchcodec, or torchvision.

Both have a `decode_jpeg` that takes a list of ``uint8[n]`` on the CPU, whatever the device. torchcodec 0.16 and later
takes over from torchvision, which has deprecated its own since 0.29; torchvision serves versions of torch before 2.11.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import simplejpeg
import torch

from shardkit.errors import TransformError

DecodeJpegs = Callable[[Sequence[torch.Tensor], str, torch.device], list[torch.Tensor]]
"""Makes ``uint8[C, H, W]`` on a device from bytes, ``uint8[n]`` on the CPU; the mode is RGB or L.

Raises RuntimeError, naming no image, where one of them cannot be decoded; and one of `DEVICE_ERRORS` for the rest."""

# AcceleratorError came with torch 2.8. Before, a device that failed says so with the next call that is no decoding.
DEVICE_ERRORS: tuple[type[RuntimeError], ...] = (
    torch.cuda.OutOfMemoryError,
    getattr(torch, "AcceleratorError", torch.cuda.OutOfMemoryError),
)
"""What has nothing to do with the images: the device has no memory left, or failed."""

_MODES = {"RGB": "RGB", "L": "GRAY"}
_LIBRARIES = ("torchcodec.decoders", "torchvision.io")
_SIDE = 64  # pixels, of the square that a library is tried with


def decodes_jpegs(device: torch.device) -> bool:
    """Whether JPEGs are better decoded on a device than on the CPU: where nvJPEG runs."""
    return device.type == "cuda"


@cache
def find_jpeg_decoder(device: torch.device) -> DecodeJpegs:
    """Return the decoder of the first library that is installed and decodes a JPEG on a device.

    Raises:
        TransformError: None does; says why.
    """
    faults = []
    for name in _LIBRARIES:
        try:
            decode = _decoder_of(import_module(name))
            _try(decode, device)
        except DEVICE_ERRORS:
            raise
        except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
            faults.append(f"{name}: {str(error).partition(chr(10))[0]}")
        else:
            return decode
    raise TransformError(
        f"DecodeImages: no library here decodes a JPEG on {device}, which takes torchcodec 0.16 or later, built with "
        'CUDA: pip install "shardkit[nvjpeg]"; or, for torch before 2.11, the torchvision that goes with it '
        f"({'; '.join(faults)})"
    )


def _decoder_of(library: Any) -> DecodeJpegs:  # Any: a module that may not be installed
    decode_jpeg, modes = library.decode_jpeg, library.ImageReadMode

    def decode(images: Sequence[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
        _wait_for_queued(device)
        found: list[torch.Tensor] = decode_jpeg(list(images), mode=modes[_MODES[mode]], device=device)
        return found

    return decode


def _wait_for_queued(device: torch.device) -> None:
    """Wait for the current stream, kernels of which may still read the memory that pictures are about to be written to.

    PyTorch's allocator hands out memory as soon as it is freed on its stream, since what follows there runs later.
    nvJPEG's hardware engine (of A100, H100 and later) does not keep to the stream, though, and writes at once
    (https://github.com/meta-pytorch/torchcodec/pull/1634, merged after torchcodec 0.16); and torchvision decodes on a
    stream of its own, which waits for no other (https://github.com/pytorch/vision/pull/9606).
    """
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _try(decode: DecodeJpegs, device: torch.device) -> None:
    """Decode a small gray square.

    Raises:
        RuntimeError: It came out wrong, or the library raised that: built without nvJPEG, say.
    """
    square = np.full((_SIDE, _SIDE, 3), 128, np.uint8)
    data = np.frombuffer(simplejpeg.encode_jpeg(square), np.uint8).copy()
    (picture,) = decode([torch.from_numpy(data)], "RGB", device)
    if picture.shape != (3, _SIDE, _SIDE) or picture.device.type != device.type:
        raise RuntimeError(
            f"made {list(picture.shape)} on {picture.device} of a JPEG of {_SIDE}x{_SIDE} pixels"
        )
