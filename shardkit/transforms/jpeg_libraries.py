"""Decoding JPEGs on a GPU by nvJPEG, through a library that brings it: torchcodec, or torchvision.

Both have a `decode_jpeg` that takes a list of ``uint8[n]`` on the CPU, whatever the device. torchcodec 0.16 and later
takes over from torchvision, which has deprecated its own since 0.29; torchvision serves versions of torch before 2.11.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import torch

from shardkit.errors import TransformError

DecodeJpegs = Callable[[Sequence[torch.Tensor], str, torch.device], list[torch.Tensor]]
"""Makes ``uint8[C, H, W]`` on a device from bytes, ``uint8[n]`` on the CPU; the mode is RGB or L.

Raises RuntimeError, naming no image, where one of them cannot be decoded."""

_MODES = {"RGB": "RGB", "L": "GRAY"}


def decodes_jpegs(device: torch.device) -> bool:
    """Whether JPEGs are better decoded on a device than on the CPU: where nvJPEG runs."""
    return device.type == "cuda"


@cache
def find_jpeg_decoder() -> DecodeJpegs:
    """Return the decoder of the library that is installed.

    Raises:
        TransformError: None is.
    """
    faults = []
    for module, make in (("torchcodec.decoders", _torchcodec), ("torchvision.io", _torchvision)):
        try:
            return make(import_module(module))
        except (ImportError, OSError, RuntimeError, AttributeError) as error:  # missing, broken or too old
            faults.append(f"{module}: {str(error).partition(chr(10))[0]}")
    raise TransformError(
        'DecodeImages: decoding on a GPU takes torchcodec 0.16 or later: pip install "shardkit[nvjpeg]"; or, for torch '
        f"before 2.11, the torchvision that goes with it ({'; '.join(faults)})"
    )


def _torchcodec(library: Any) -> DecodeJpegs:
    decode_jpeg, modes = library.decode_jpeg, library.ImageReadMode

    def decode(images: Sequence[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
        found: list[torch.Tensor] = decode_jpeg(list(images), mode=modes[_MODES[mode]], device=device)
        return found

    return decode


def _torchvision(library: Any) -> DecodeJpegs:
    decode_jpeg, modes = library.decode_jpeg, library.ImageReadMode

    def decode(images: Sequence[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
        if device.type == "cuda":
            # It writes on a stream of its own, at once, to memory that kernels of this stream may still read.
            torch.cuda.current_stream(device).synchronize()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The image decoding and encoding", DeprecationWarning)
            found: list[torch.Tensor] = decode_jpeg(list(images), mode=modes[_MODES[mode]], device=device)
        return found

    return decode
