"""DecodeImages gives what the CPU path delivers; its road to the device is taken here with a stand-in for nvJPEG."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import torch
from photo_crops import CHINA, FLOWER, encode
from PIL import Image

from shardkit import Contract, DevicePrefetcher, ImageField, LabelField, ShardLoader, ingest
from shardkit.errors import TransformError
from shardkit.transforms import (
    CenterCrop,
    Compose,
    DecodeImages,
    Encoded,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    decode_images,
    jpeg_libraries,
)

CONTRACT = Contract({"image": ImageField(cmyk="convert", grayscale="convert")})
CROP = CenterCrop((20, 30), ratio=0.875, exact=True)
ROTATED = Image.Exif()
ROTATED[0x0112] = 6
PLAIN = {
    "420": encode(CHINA.crop((0, 200, 90, 280)), quality=90),
    "444": encode(FLOWER.crop((50, 50, 121, 180)), quality=90, subsampling="4:4:4"),
    "gray": encode(CHINA.crop((300, 200, 380, 300)).convert("L"), quality=90),
    "progressive": encode(CHINA.crop((100, 200, 199, 260)), quality=90, progressive=True),
}
OTHERS = {
    "png": encode(FLOWER.crop((0, 0, 70, 60)), "PNG"),
    "cmyk": encode(FLOWER.crop((0, 0, 80, 50)).convert("CMYK"), quality=90),
    "rotated": encode(CHINA.crop((0, 200, 80, 250)), quality=90, exif=ROTATED),
}
IMAGES = {
    name: data
    for pair in zip(PLAIN.items(), [*OTHERS.items(), None], strict=True)
    for name, data in filter(None, pair)
}


def batch_of(images: dict[str, bytes]) -> dict[str, Any]:
    tensors = [torch.from_numpy(np.frombuffer(data, np.uint8).copy()) for data in images.values()]
    return {"id": list(images), "image": tensors, "label": torch.arange(len(images))}


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Id -> what the loader makes of it when the operation is a part of decoding."""
    out = tmp_path_factory.mktemp("images") / "out"
    ingest([{"id": name, "image": data} for name, data in IMAGES.items()], out, CONTRACT, workers=0)
    return {
        name: image.numpy()
        for batch in ShardLoader(out, 3, transform=CROP, tail="exact")
        for name, image in zip(batch["id"], batch["image"], strict=True)
    }


class Library:
    """Stands in for nvJPEG on a device that is the CPU, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []

    def __call__(self, images: Sequence[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
        self.asked.append([bytes(image.tolist()) for image in images])
        return [self._decode(data, mode) for data in self.asked[-1]]

    def _decode(self, data: bytes, mode: str) -> torch.Tensor:
        try:
            picture = simplejpeg.decode_jpeg(data, {"RGB": "RGB", "L": "GRAY"}[mode])
        except ValueError as error:
            raise RuntimeError(f"nvJPEG status 5: {error}") from error
        return torch.from_numpy(picture).permute(2, 0, 1).contiguous()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    stand_in = Library()
    monkeypatch.setattr(decode_images, "decodes_jpegs", lambda device: True)
    monkeypatch.setattr(decode_images, "find_jpeg_decoder", lambda: stand_in)
    return stand_in


def assert_alike(batch: dict[str, Any], delivered: dict[str, np.ndarray], within: int) -> None:
    images = batch["image"]
    assert (images.dtype, images.shape) == (torch.uint8, (len(IMAGES), 3, 20, 30))
    assert images.is_contiguous(memory_format=torch.channels_last)
    for name, image in zip(batch["id"], images.numpy(), strict=True):
        difference = image.astype(int) - delivered[name].astype(int)
        assert np.abs(difference).max() <= within, name
        assert abs(difference.mean()) < 0.1, name


def test_on_the_cpu_it_gives_what_decoding_with_the_operation_gives(delivered: dict[str, np.ndarray]) -> None:
    batch = DecodeImages(CONTRACT, CROP)(batch_of(IMAGES), "cpu")
    assert_alike(batch, delivered, within=0)
    assert batch["label"].tolist() == list(range(len(IMAGES)))


def test_the_device_decodes_plain_jpegs_and_the_contract_the_others(
    library: Library, delivered: dict[str, np.ndarray]
) -> None:
    batch = DecodeImages(CONTRACT, CROP)(batch_of(IMAGES), "cpu")
    assert library.asked == [[PLAIN[name] for name in IMAGES if name in PLAIN]]
    assert_alike(batch, delivered, within=1)  # the filter is in floating point


def test_pictures_of_many_pixels_are_decoded_in_groups(
    library: Library, delivered: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_images, "MOST_PIXELS", 90 * 80 + 71 * 130)
    batch = DecodeImages(CONTRACT, CROP)(batch_of(IMAGES), "cpu")
    assert [len(asked) for asked in library.asked] == [2, 2]
    assert_alike(batch, delivered, within=1)


@pytest.mark.parametrize("op", [Resize((9, 12)), CenterCrop(16), Compose([CenterCrop(40), Resize((50, 60))])])
def test_every_operation_is_done_as_on_the_cpu(library: Library, op: Any) -> None:
    plain = batch_of(PLAIN)
    there = DecodeImages(CONTRACT, op)(plain, "cpu")["image"].numpy().astype(int)
    library.asked.clear()
    for name, image in zip(PLAIN, there, strict=True):
        samples = simplejpeg.decode_jpeg(PLAIN[name], "RGB")
        sample: Any = {"id": name, "image": torch.from_numpy(samples).permute(2, 0, 1)}
        for each in op.transforms if isinstance(op, Compose) else [op]:
            sample = each(sample)
        assert np.abs(image - sample["image"].numpy().astype(int)).max() <= 1, name


def test_random_operations_draw_from_the_stream_of_torch(library: Library) -> None:
    decode = DecodeImages(CONTRACT, Compose([RandomResizedCrop(12), RandomHorizontalFlip()]))
    torch.manual_seed(1)
    first, second = (decode(batch_of(PLAIN), "cpu")["image"] for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(decode(batch_of(PLAIN), "cpu")["image"], first)
    assert not torch.equal(first, second)


def test_gray_images_have_one_channel(library: Library) -> None:
    contract = Contract({"photo": ImageField(mode="L")})
    gray = torch.from_numpy(np.frombuffer(PLAIN["gray"], np.uint8).copy())
    batch = DecodeImages(contract, CenterCrop(30), "photo")({"id": ["g"], "photo": [gray]}, "cpu")
    expected = simplejpeg.decode_jpeg(PLAIN["gray"], "GRAY")[35:65, 25:55, 0]
    assert batch["photo"].shape == (1, 1, 30, 30)
    np.testing.assert_array_equal(batch["photo"][0, 0].numpy(), expected)
    assert len(library.asked) == 1


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("cut-pixels", PLAIN["420"][:-500], "cpu cannot decode it: nvJPEG status 5"),
        ("cut-header", PLAIN["420"][:400], "before its first scan"),
        ("cut-png", OTHERS["png"][:-500], "cannot be decoded"),
    ],
)
def test_a_damaged_image_is_named(library: Library, name: str, data: bytes, words: str) -> None:
    with pytest.raises(TransformError, match=f"^{name}, field 'image': .*{words}"):
        DecodeImages(CONTRACT, CROP)(batch_of({**PLAIN, name: data}), "cpu")


@pytest.mark.parametrize("data", [PLAIN["420"][:400], OTHERS["png"][:-500]])
def test_a_damaged_image_is_named_on_the_cpu(data: bytes) -> None:
    with pytest.raises(TransformError, match=r"^cut, field 'image': .*cannot be decoded"):
        DecodeImages(CONTRACT, CROP)(batch_of({**PLAIN, "cut": data}), "cpu")


def test_an_operation_that_does_not_fit_names_the_image(library: Library) -> None:
    for images in (PLAIN, OTHERS):
        with pytest.raises(
            TransformError, match=f"{next(iter(images))}, .* is smaller than the crop of 500x500"
        ):
            DecodeImages(CONTRACT, CenterCrop(500))(batch_of(images), "cpu")


def test_a_picture_of_another_size_than_its_header_says_is_refused(library: Library) -> None:
    library._decode = lambda data, mode: torch.zeros(3, 5, 5, dtype=torch.uint8)  # type: ignore[method-assign]
    with pytest.raises(TransformError, match=r"420, .*is \[5, 5\], its header says \[80, 90\]"):
        DecodeImages(CONTRACT, CROP)(batch_of(PLAIN), "cpu")


@pytest.mark.parametrize(
    ("ops", "field", "words"),
    [
        (CenterCrop(8), "label", "'label' is no image field that is stored encoded"),
        (CenterCrop(8), "raw", "'raw' is no image field that is stored encoded"),
        (Resize(8), "image", "images of several sizes"),
        (Compose([CenterCrop(8), dict]), "image", "image operations for 'image' and nothing else"),
        (Compose([CenterCrop(8, field="raw")]), "image", "image operations for 'image' and nothing else"),
        (Encoded(), "image", "image operations for 'image' and nothing else"),
    ],
)
def test_what_cannot_make_a_batch_is_refused_when_it_is_made(ops: Any, field: str, words: str) -> None:
    raw = ImageField(store="raw", resize=(8, 8))
    contract = Contract({"image": ImageField(), "raw": raw, "label": LabelField(num_classes=1)})
    with pytest.raises(ValueError, match=words):
        DecodeImages(contract, ops, field)


def test_a_batch_of_none_stays_and_decoded_images_are_refused() -> None:
    decode = DecodeImages(CONTRACT, CROP)
    assert decode({"id": []}, "cpu") == {"id": []}
    for images in (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [torch.zeros(3, 8, 8, dtype=torch.uint8)]):
        with pytest.raises(
            TransformError, match=r"should be a list of encoded images.*transform=Encoded\(\)"
        ):
            decode({"id": ["a", "b"], "image": images}, "cpu")
    with pytest.raises(TransformError, match="no such field among id"):
        decode({"id": ["a"]}, "cpu")


def test_through_a_prefetcher_encoded_images_come_out_decoded(
    tmp_path: Path, delivered: dict[str, np.ndarray]
) -> None:
    ingest(
        [{"id": name, "image": data} for name, data in IMAGES.items()], tmp_path / "out", CONTRACT, workers=0
    )
    loader = ShardLoader(tmp_path / "out", len(IMAGES), transform=Encoded(), tail="exact")
    decode = DecodeImages(loader.dataset.contract, CROP)
    (batch,) = DevicePrefetcher(loader, "cpu", decode=decode)
    assert_alike(batch, delivered, within=0)
    (moved,) = DevicePrefetcher(loader, "meta", decode=decode)
    assert (moved["image"].device.type, moved["image"].shape) == ("meta", (len(IMAGES), 3, 20, 30))


def test_without_a_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(jpeg_libraries, "import_module", missing)
    jpeg_libraries.find_jpeg_decoder.cache_clear()
    with pytest.raises(TransformError, match=r'pip install "shardkit\[nvjpeg\]".*torchvision.io: No module'):
        jpeg_libraries.find_jpeg_decoder()


@pytest.mark.parametrize("name", ["torchcodec.decoders", "torchvision.io"])
def test_each_library_is_called_as_it_wants(
    name: str, library: Library, delivered: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name.split(".")[0])

    def only(wanted: str) -> Any:
        if wanted != name:
            raise ModuleNotFoundError(wanted)
        return import_module(name)

    monkeypatch.setattr(jpeg_libraries, "import_module", only)
    jpeg_libraries.find_jpeg_decoder.cache_clear()
    monkeypatch.setattr(decode_images, "find_jpeg_decoder", jpeg_libraries.find_jpeg_decoder)
    assert_alike(DecodeImages(CONTRACT, CROP)(batch_of(IMAGES), "cpu"), delivered, within=2)
    jpeg_libraries.find_jpeg_decoder.cache_clear()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_batches_are_those_of_the_cpu_but_for_rounding(delivered: dict[str, np.ndarray]) -> None:
    try:
        jpeg_libraries.find_jpeg_decoder()
    except TransformError as error:
        pytest.skip(str(error))
    batches = [batch_of(IMAGES) for _ in range(20)]
    for batch in DevicePrefetcher(batches, "cuda", depth=3, decode=DecodeImages(CONTRACT, CROP)):
        images = batch["image"].cpu().numpy().astype(int)
        torch.empty_like(batch["image"]).fill_(255)
        for name, image in zip(batch["id"], images, strict=True):
            assert np.abs(image - delivered[name].astype(int)).mean() < 3, name
