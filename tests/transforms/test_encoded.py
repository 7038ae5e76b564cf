"""Images left encoded: every loader delivers the stored bytes, and what does not go with that is refused at once."""

import copy
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_crops import CHINA, encode
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    ImageField,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    collate,
    ingest,
)
from shardkit.errors import CorruptShardError, TransformError
from shardkit.transforms import CenterCrop, Compose, Encoded, RandomHorizontalFlip, Resize

COUNT = 7
SAME_LENGTH = encode(CHINA.crop((0, 0, 9, 9)), "BMP")
RECORDS = [
    {"id": f"r{row}", "image": encode(CHINA.crop((row, 200, row + 30, 250)), quality=80), "label": 0}
    for row in range(COUNT)
]


def write(out: Path, image: ImageField, records: list[dict[str, Any]], backend: str = "memmap") -> Path:
    contract = Contract({"image": image, "label": LabelField(num_classes=1)})
    ingest(records, out, contract, backend=backend, workers=0, records_per_shard=3)
    return out


@pytest.fixture(scope="module", params=["memmap", "lmdb"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("encoded") / "out", ImageField(), RECORDS, request.param)


def workers(data: Any, size: int | None, **options: Any) -> Any:
    return DataLoader(data, size, num_workers=2, multiprocessing_context="fork", **options)


def mapped_in_workers(path: Path, **options: Any) -> Any:
    return workers(ShardDataset(path, **options), 3, collate_fn=collate)


def iterable_in_workers(path: Path, **options: Any) -> Any:
    return workers(ShardIterableDataset(path, 3, tail="exact", **options), None)


LOADERS: dict[str, Callable[..., Any]] = {
    "threads": partial(ShardLoader, batch_size=3, tail="exact"),
    "preloaded": partial(ShardLoader, batch_size=3, tail="exact", preload=True),
    "mapped": mapped_in_workers,
    "iterable": iterable_in_workers,
}


@pytest.mark.parametrize("loader", LOADERS)
def test_a_batch_is_a_list_of_the_stored_bytes(path: Path, loader: str) -> None:
    found = {}
    for batch in LOADERS[loader](path, transform=Encoded()):
        assert isinstance(batch["image"], list)
        assert {(image.dtype, image.dim()) for image in batch["image"]} == {(torch.uint8, 1)}
        assert batch["label"].tolist() == [0] * len(batch["id"])
        found |= {
            name: bytes(image.tolist()) for name, image in zip(batch["id"], batch["image"], strict=True)
        }
    assert found == {record["id"]: record["image"] for record in RECORDS}


def test_a_sample_holds_bytes_of_its_own(path: Path) -> None:
    data = ShardDataset(path, transform=Encoded("image"))
    image = data[1]["image"]
    assert isinstance(image, torch.Tensor)
    image.zero_()
    assert bytes(data[1]["image"].tolist()) == RECORDS[1]["image"]
    assert data.read(1)["image"] == RECORDS[1]["image"]


def test_images_of_one_length_stay_a_list_whatever_stands_behind_them(tmp_path: Path) -> None:
    records = [{"id": f"r{row}", "image": SAME_LENGTH, "label": 0} for row in range(2)]
    path = write(tmp_path / "out", ImageField(), records)
    seen = []

    def look(sample: dict[str, Any]) -> dict[str, Any]:
        seen.append(len(sample["image"]))
        return sample

    for transform in (Encoded(), Compose([Encoded(), look])):
        data = ShardDataset(path, transform=transform)
        for (batch,) in (DataLoader(data, 2, collate_fn=collate), ShardLoader(path, 2, transform=transform)):
            assert isinstance(batch["image"], list)
    assert seen == [len(SAME_LENGTH)] * 4


def test_a_batch_is_pickled_as_one_block_and_stays_on_the_cpu(path: Path) -> None:
    (batch, *_) = ShardLoader(path, 3, transform=Encoded())
    images = batch["image"]
    again = pickle.loads(pickle.dumps(images))
    assert type(again) is type(images)
    assert list(map(bytes, map(torch.Tensor.tolist, again))) == list(
        map(bytes, map(torch.Tensor.tolist, images))
    )
    assert {image.untyped_storage().data_ptr() for image in again} == {again[0].untyped_storage().data_ptr()}
    assert images.pin_memory() is images.to(torch.device("meta"), non_blocking=True) is images
    assert pickle.loads(pickle.dumps(type(images)())) == []


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_collation_of_torch_makes_the_same_list_of_them(path: Path, num_workers: int) -> None:
    data = ShardDataset(path, transform=Encoded())
    context = "fork" if num_workers else None
    (batch,) = DataLoader(data, COUNT, num_workers=num_workers, multiprocessing_context=context)
    assert type(batch["image"]) is type(collate([data[0]])["image"])
    assert [bytes(image.tolist()) for image in batch["image"]] == [record["image"] for record in RECORDS]


def test_a_copy_of_the_list_has_the_same_images(path: Path) -> None:
    (batch, *_) = ShardLoader(path, 3, transform=Encoded())
    copied = copy.copy(batch["image"])
    assert type(copied) is type(batch["image"])
    assert copied is not batch["image"]
    assert all(mine is theirs for mine, theirs in zip(copied, batch["image"], strict=True))


def test_damage_is_found_by_the_checksum(tmp_path: Path) -> None:
    path = write(tmp_path / "out", ImageField(), RECORDS)
    stored = next(path.glob("shards/00000/image.bin"))
    content = bytearray(stored.read_bytes())
    content[len(RECORDS[0]["image"]) + 200] ^= 1
    stored.write_bytes(content)
    data = ShardDataset(path, transform=Encoded())
    with pytest.raises(CorruptShardError, match="r1"):
        data[1]
    assert len(ShardDataset(path, transform=Encoded(), verify_checksums=False)[1]["image"])
    loader = ShardLoader(path, COUNT, transform=Encoded(), on_error="skip", tail="exact", shuffle=False)
    assert [batch["id"] for batch in loader] == [["r0", "r2", "r3", "r4", "r5", "r6"]]
    assert loader.skipped == ["r1"]


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (Compose([Encoded(), CenterCrop(8)]), "no other image operation"),
        (Compose([RandomHorizontalFlip(field="image"), Encoded()]), "no other image operation"),
        (Compose([Encoded(), Encoded()]), "no other image operation"),
        (Compose([dict, Compose([Encoded()])]), "stands behind <class 'dict'>"),
        (Encoded("label"), "no image field"),
    ],
)
def test_what_does_not_go_with_it_is_refused_when_the_data_set_is_opened(
    path: Path, transform: Any, words: str
) -> None:
    for kind in (ShardDataset, ShardLoader, ShardIterableDataset):
        options = {} if kind is ShardDataset else {"batch_size": 2}
        with pytest.raises(ValueError, match=words):
            kind(path, transform=transform, **options)


def test_pixels_that_are_stored_raw_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "out", ImageField(store="raw", resize=(8, 8)), RECORDS)
    with pytest.raises(ValueError, match=re.escape("'image' is stored raw")):
        ShardDataset(path, transform=Encoded())


def test_with_two_images_one_stays_encoded_and_the_other_is_decoded(tmp_path: Path) -> None:
    contract = Contract({"left": ImageField(), "right": ImageField()})
    photo = RECORDS[0]["image"]
    ingest([{"id": "a", "left": photo, "right": photo}], tmp_path / "out", contract, workers=0)
    data = ShardDataset(tmp_path / "out", transform=Compose([Encoded("left"), Resize((6, 5), "right")]))
    assert bytes(data[0]["left"].tolist()) == photo
    assert data[0]["right"].shape == (3, 6, 5)
    with pytest.raises(ValueError, match="2 image fields"):
        ShardDataset(tmp_path / "out", transform=Encoded())


def test_called_on_a_decoded_sample_it_says_where_it_belongs() -> None:
    with pytest.raises(TransformError, match=r"a: Encoded\(\) is a part of decoding"):
        Encoded()({"id": "a", "image": torch.zeros(3, 4, 4, dtype=torch.uint8)})
