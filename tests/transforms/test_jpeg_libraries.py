"""The library that decodes JPEGs on a device: the first that can, called when that is ready."""

from collections.abc import Callable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simplejpeg
import torch

from shardkit.errors import TransformError
from shardkit.transforms import jpeg_libraries
from shardkit.transforms.jpeg_libraries import find_jpeg_decoder

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
MODES = {"RGB": "color", "GRAY": "gray"}
TORCHCODEC, TORCHVISION = "torchcodec.decoders", "torchvision.io"


class Libraries(dict[str, Any]):
    """Those that are installed: name -> its `decode_jpeg`."""

    def load(self, name: str) -> Any:
        if name not in self:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return SimpleNamespace(decode_jpeg=self[name], ImageReadMode=MODES)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Libraries]:
    installed = Libraries()
    monkeypatch.setattr(jpeg_libraries, "import_module", installed.load)
    find_jpeg_decoder.cache_clear()
    yield installed
    find_jpeg_decoder.cache_clear()


def squares_of(shade: int, side: int = 64, place: torch.device = CPU) -> Callable[..., list[Any]]:
    """A `decode_jpeg` that makes gray squares of whatever it gets."""

    def decode_jpeg(images: list[torch.Tensor], mode: str, device: torch.device) -> list[Any]:
        picture = torch.full((3 if mode == "color" else 1, side, side), shade, dtype=torch.uint8)
        return [SimpleNamespace(shape=picture.shape, device=place, shade=shade) for _ in images]

    return decode_jpeg


def failing(error: Exception) -> Callable[..., list[Any]]:
    def decode_jpeg(images: list[torch.Tensor], mode: str, device: torch.device) -> list[Any]:
        raise error

    return decode_jpeg


def shade_by(decode: Any, device: torch.device = CPU) -> int:
    (picture,) = decode([torch.zeros(1, dtype=torch.uint8)], "L", device)
    assert picture.shape[0] == 1
    shade: int = picture.shade
    return shade


def test_the_first_that_is_installed_is_taken_and_tried_once(libraries: Libraries) -> None:
    tried = []

    def decode_jpeg(images: list[torch.Tensor], mode: str, device: torch.device) -> list[Any]:
        tried.append(simplejpeg.decode_jpeg(images[0].numpy()).shape)
        return squares_of(1)(images, mode, device)

    libraries |= {TORCHVISION: squares_of(2), TORCHCODEC: decode_jpeg}
    decode = find_jpeg_decoder(CPU)
    assert tried == [(64, 64, 3)]
    assert find_jpeg_decoder(CPU) is decode
    assert len(tried) == 1
    del libraries[TORCHCODEC]
    find_jpeg_decoder.cache_clear()
    assert shade_by(find_jpeg_decoder(CPU)) == 2


@pytest.mark.parametrize(
    "first",
    [
        failing(RuntimeError("not built with nvJPEG")),
        failing(ValueError("unknown device")),
        squares_of(1, side=8),
        squares_of(1, place=torch.device("meta")),
    ],
)
def test_one_that_cannot_decode_a_small_jpeg_leaves_its_turn_to_the_other(
    libraries: Libraries, first: Any
) -> None:
    libraries |= {TORCHCODEC: first, TORCHVISION: squares_of(2)}
    assert shade_by(find_jpeg_decoder(CPU)) == 2


def test_where_none_can_it_is_said_why_and_what_to_install(libraries: Libraries) -> None:
    libraries[TORCHCODEC] = failing(RuntimeError("not built with nvJPEG\nat line 5"))
    with pytest.raises(TransformError) as raised:
        find_jpeg_decoder(CPU)
    message = str(raised.value)
    assert 'pip install "shardkit[nvjpeg]"' in message
    assert "torchcodec.decoders: not built with nvJPEG; torchvision.io: No module named" in message


def test_a_device_without_memory_is_no_fault_of_a_library(libraries: Libraries) -> None:
    libraries |= {TORCHCODEC: failing(torch.OutOfMemoryError("full")), TORCHVISION: squares_of(2)}
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        find_jpeg_decoder(CPU)


@pytest.mark.parametrize("name", [TORCHCODEC, TORCHVISION])
def test_each_waits_for_what_the_stream_has_queued_before_it_writes(
    libraries: Libraries, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    log = []

    def stream_of(device: torch.device) -> Any:
        return SimpleNamespace(synchronize=lambda: log.append(f"wait on {device}"))

    def decode_jpeg(images: list[torch.Tensor], mode: str, device: torch.device) -> list[Any]:
        log.append(f"decode {len(images)}")
        return squares_of(1, place=GPU)(images, mode, device)

    monkeypatch.setattr(torch.cuda, "current_stream", stream_of)
    libraries[name] = decode_jpeg
    decode = find_jpeg_decoder(GPU)
    log.clear()
    decode([torch.zeros(1, dtype=torch.uint8)] * 3, "RGB", GPU)
    assert log == ["wait on cuda:0", "decode 3"]


@pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
@pytest.mark.parametrize("name", [TORCHCODEC, TORCHVISION])
def test_the_libraries_themselves_are_called_as_they_want(
    name: str, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name.split(".")[0])
    monkeypatch.setattr(
        jpeg_libraries,
        "import_module",
        lambda wanted: import_module(name) if wanted == name else libraries.load(wanted),
    )
    square = np.full((24, 32, 3), 77, np.uint8)
    data = torch.from_numpy(np.frombuffer(simplejpeg.encode_jpeg(square), np.uint8).copy())
    decode = find_jpeg_decoder(CPU)
    for mode, channels in (("RGB", 3), ("L", 1)):
        for picture in decode([data, data], mode, CPU):
            assert (picture.dtype, picture.shape) == (torch.uint8, (channels, 24, 32))
            assert (picture.int() - 77).abs().max() <= 2
