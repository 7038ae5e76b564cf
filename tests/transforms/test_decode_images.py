"""DecodeImages gives what the CPU path delivers; its road to the device is taken here with a stand-in for nvJPEG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import torch
from photo_crops import CHINA, FLOWER, encode
from PIL import Image
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    DevicePrefetcher,
    ImageField,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
    ingest,
)
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
    device_pictures,
)
from shardkit.transforms.jpeg_libraries import find_jpeg_decoder

CONTRACT = Contract({"image": ImageField(cmyk="convert", grayscale="convert")})
AUGMENT = Compose([RandomResizedCrop((20, 30), exact=True), RandomHorizontalFlip()])
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
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("images") / "out"
    ingest([{"id": name, "image": data} for name, data in IMAGES.items()], out, CONTRACT, workers=0)
    return out


@pytest.fixture(scope="module")
def delivered(path: Path) -> dict[str, np.ndarray]:
    """Id -> what the loader makes of it when the operation is a part of decoding."""
    return images_of(ShardLoader(path, 3, transform=CROP, tail="exact"))


def images_of(batches: Any) -> dict[str, np.ndarray]:
    """Id -> image, as ints."""
    return {
        name: image.numpy().astype(int)
        for batch in batches
        for name, image in zip(batch["id"], batch["image"], strict=True)
    }


class Library:
    """Stands in for nvJPEG on a device that is the CPU, and notes what it is asked for.

    Attributes:
        asked: JPEGs, of each call.
        refused: Those that it does not decode.
        fault: What it raises in any case.
    """

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []
        self.refused: list[bytes] = []
        self.fault: Exception | None = None

    def __call__(self, images: Sequence[torch.Tensor], mode: str, device: torch.device) -> list[torch.Tensor]:
        self.asked.append([bytes(image.tolist()) for image in images])
        if self.fault is not None:
            raise self.fault
        return [self._decode(data, mode) for data in self.asked[-1]]

    def _decode(self, data: bytes, mode: str) -> torch.Tensor:
        try:
            if data in self.refused:
                raise ValueError("no such sampling")
            picture = simplejpeg.decode_jpeg(data, {"RGB": "RGB", "L": "GRAY"}[mode])
        except ValueError as error:
            raise RuntimeError(f"nvJPEG status 5: {error}") from error
        return torch.from_numpy(picture).permute(2, 0, 1).contiguous()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    stand_in = Library()
    monkeypatch.setattr(decode_images, "decodes_jpegs", lambda device: True)
    monkeypatch.setattr(decode_images, "find_jpeg_decoder", lambda device: stand_in)
    return stand_in


def assert_alike(batch: dict[str, Any], delivered: dict[str, np.ndarray], within: int) -> None:
    images = batch["image"]
    assert (images.dtype, images.shape) == (torch.uint8, (len(IMAGES), 3, 20, 30))
    assert images.is_contiguous(memory_format=torch.channels_last)
    for name, image in zip(batch["id"], images.numpy(), strict=True):
        difference = image.astype(int) - delivered[name]
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
    monkeypatch.setattr(device_pictures, "MOST_PIXELS", 90 * 80 + 71 * 130)
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


@pytest.mark.parametrize("on_device", [True, False])
def test_random_operations_draw_what_they_draw_as_a_part_of_decoding(
    path: Path, monkeypatch: pytest.MonkeyPatch, on_device: bool
) -> None:
    monkeypatch.setattr(decode_images, "decodes_jpegs", lambda device: on_device)
    monkeypatch.setattr(decode_images, "find_jpeg_decoder", lambda device: Library())
    options: dict[str, Any] = {"batch_size": 3, "seed": 5, "tail": "exact"}
    plain = ShardLoader(path, transform=AUGMENT, **options)
    encoded = ShardLoader(path, transform=Encoded(), **options)
    batches = DevicePrefetcher(encoded, "cpu", decode=DecodeImages(CONTRACT, AUGMENT, seed=5))
    epochs = []
    for epoch in (0, 3):
        if epoch:
            plain.set_epoch(epoch)
            batches.set_epoch(epoch)
        expected, found = images_of(plain), images_of(batches)
        assert found.keys() == expected.keys() == IMAGES.keys()
        for name, image in found.items():
            assert np.abs(image - expected[name]).max() <= on_device, name
        epochs.append(expected)
    assert (epochs[0]["420"] != epochs[1]["420"]).any()


@pytest.mark.parametrize("way", ["threads", "sampler", "iterable"])
def test_the_epoch_is_that_of_the_source_also_where_a_state_is_loaded(path: Path, way: str) -> None:
    def begin(transform: Any) -> Any:
        if way == "threads":
            return ShardLoader(path, 2, transform=transform, tail="exact")
        if way == "iterable":
            return DataLoader(ShardIterableDataset(path, 2, transform=transform, tail="exact"), None)
        data = ShardDataset(path, transform)
        return DataLoader(data, batch_sampler=ShardSampler(data, 2, tail="exact"), collate_fn=collate)

    plain = DevicePrefetcher(begin(AUGMENT), "cpu")
    plain.set_epoch(2)
    expected = images_of(plain)
    batches, again = (
        DevicePrefetcher(begin(Encoded()), "cpu", decode=DecodeImages(CONTRACT, AUGMENT)) for _ in range(2)
    )
    batches.set_epoch(2)
    first = next(iter(batches))
    again.load_state_dict(batches.state_dict())
    found = images_of([first]) | images_of(again)
    assert found.keys() == expected.keys()
    assert all((image == expected[name]).all() for name, image in found.items())


def test_without_an_epoch_or_ids_random_operations_draw_from_the_stream_of_torch(library: Library) -> None:
    decode = DecodeImages(CONTRACT, AUGMENT)
    nameless = {"image": batch_of(PLAIN)["image"]}
    for batch in (batch_of(PLAIN), nameless):
        torch.manual_seed(1)
        first, second = (decode(batch, "cpu")["image"] for _ in range(2))
        torch.manual_seed(1)
        assert torch.equal(decode(batch, "cpu")["image"], first)
        assert not torch.equal(first, second)
        decode.set_epoch(0)
    first, second = (decode(batch_of(PLAIN), "cpu")["image"] for _ in range(2))
    assert torch.equal(first, second)


def test_a_plain_loader_takes_its_epoch_from_the_prefetcher() -> None:
    def batches() -> DevicePrefetcher:
        return DevicePrefetcher([batch_of(PLAIN)], "cpu", decode=DecodeImages(CONTRACT, AUGMENT))

    one, other = batches(), batches()
    one.set_epoch(1)
    other.set_epoch(1)
    first = images_of(one)
    assert all((image == first[name]).all() for name, image in images_of(other).items())
    other.set_epoch(2)
    assert any((image != first[name]).any() for name, image in images_of(other).items())


def test_gray_images_have_one_channel(library: Library) -> None:
    contract = Contract({"photo": ImageField(mode="L")})
    gray = torch.from_numpy(np.frombuffer(PLAIN["gray"], np.uint8).copy())
    batch = DecodeImages(contract, CenterCrop(30), "photo")({"id": ["g"], "photo": [gray]}, "cpu")
    expected = simplejpeg.decode_jpeg(PLAIN["gray"], "GRAY")[35:65, 25:55, 0]
    assert batch["photo"].shape == (1, 1, 30, 30)
    np.testing.assert_array_equal(batch["photo"][0, 0].numpy(), expected)
    assert len(library.asked) == 1


def test_what_the_library_refuses_is_decoded_by_the_contract(
    library: Library, delivered: dict[str, np.ndarray]
) -> None:
    library.refused = [PLAIN["444"], PLAIN["gray"]]
    batch = DecodeImages(CONTRACT, CROP)(batch_of(IMAGES), "cpu")
    assert_alike(batch, delivered, within=1)
    for name in ("444", "gray"):
        np.testing.assert_array_equal(batch["image"][list(IMAGES).index(name)].numpy(), delivered[name])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut-header", PLAIN["420"][:400]),
        ("cut-png", OTHERS["png"][:-500]),
    ],
)
def test_an_image_that_nobody_can_decode_is_named(library: Library, name: str, data: bytes) -> None:
    with pytest.raises(TransformError, match=f"^{name}, field 'image': .*cannot be decoded"):
        DecodeImages(CONTRACT, CROP)(batch_of({**PLAIN, name: data}), "cpu")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), torch.AcceleratorError("it failed")])
def test_what_the_device_lacks_is_not_blamed_on_an_image(library: Library, error: Exception) -> None:
    library.fault = error
    with pytest.raises(type(error)) as raised:
        DecodeImages(CONTRACT, CROP)(batch_of(PLAIN), "cpu")
    assert raised.value is error
    assert len(library.asked) == 1


def test_a_batch_with_no_plain_jpeg_asks_the_library_for_none(
    library: Library, delivered: dict[str, np.ndarray]
) -> None:
    images = DecodeImages(CONTRACT, CROP)(batch_of(OTHERS), "cpu")["image"]
    assert library.asked == []
    for name, image in zip(OTHERS, images.numpy(), strict=True):
        np.testing.assert_array_equal(image, delivered[name])


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
    path: Path, delivered: dict[str, np.ndarray]
) -> None:
    loader = ShardLoader(path, len(IMAGES), transform=Encoded(), tail="exact")
    decode = DecodeImages(loader.dataset.contract, CROP)
    (batch,) = DevicePrefetcher(loader, "cpu", decode=decode)
    assert_alike(batch, delivered, within=0)
    (moved,) = DevicePrefetcher(loader, "meta", decode=decode)
    assert (moved["image"].device.type, moved["image"].shape) == ("meta", (len(IMAGES), 3, 20, 30))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_batches_are_those_of_the_cpu_but_for_rounding(delivered: dict[str, np.ndarray]) -> None:
    try:
        find_jpeg_decoder(torch.device("cuda"))
    except TransformError as error:
        pytest.skip(str(error))
    batches = [batch_of(IMAGES) for _ in range(20)]
    for batch in DevicePrefetcher(batches, "cuda", depth=3, decode=DecodeImages(CONTRACT, CROP)):
        images = batch["image"].cpu().numpy().astype(int)
        torch.empty_like(batch["image"]).fill_(255)
        for name, image in zip(batch["id"], images, strict=True):
            assert np.abs(image - delivered[name]).mean() < 3, name
