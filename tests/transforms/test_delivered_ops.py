"""Operations as part of decoding give the same pixels whoever delivers them: in processes, in threads, row by row."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photo_crops import CHINA, FLOWER, encode, expected_of
from torch.utils.data import DataLoader

from shardkit import (
    Contract,
    ImageField,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    collate,
    ingest,
)
from shardkit.errors import CorruptShardError, TransformError
from shardkit.transforms import (
    CenterCrop,
    Compose,
    ImageOp,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)

COUNT = 11
KINDS = {
    "original": ImageField(),
    "jpeg": ImageField(store="jpeg", max_side=100),
    "raw": ImageField(store="raw", resize=(60, 90)),
}
RANDOM = Compose([RandomResizedCrop(12), RandomHorizontalFlip()])
Pixels = dict[str, np.ndarray]


def photo(number: int) -> bytes:
    """Return a part of a photo: JPEGs of many sizes, some of them progressive, and a PNG."""
    source = FLOWER if number % 2 else CHINA
    left, width, height = 20 * number, 90 + 11 * number, 80 + 3 * (7 * number % 11)
    part = source.crop((left, 60, left + width, 60 + height))
    return encode(part, "PNG") if number == 5 else encode(part, quality=90, progressive=number == 3)


RECORDS = [{"id": f"r{number}", "image": photo(number), "label": number % 3} for number in range(COUNT)]


@pytest.fixture(
    scope="module",
    params=[
        ("original", "memmap"),
        ("original", "lmdb"),
        ("jpeg", "lmdb"),
        ("raw", "memmap"),
        ("raw", "lmdb"),
    ],
    ids=" ".join,
)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind, backend = request.param
    out = tmp_path_factory.mktemp("ops") / "out"
    contract = Contract({"image": KINDS[kind], "label": LabelField(num_classes=3)})
    ingest(RECORDS, out, contract, backend=backend, workers=0, records_per_shard=4)
    return out


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ops") / "out"
    contract = Contract({"image": KINDS["original"], "label": LabelField(num_classes=3)})
    ingest(RECORDS, out, contract, workers=0, records_per_shard=4)
    return out


def iterable(path: Path, **options: Any) -> Any:
    return ShardIterableDataset(path, **options)


def sampler(path: Path, workers: int = 0, **options: Any) -> Any:
    names = ("transform", "may_reshape", "on_error", "fields")
    dataset = ShardDataset(path, **{name: options.pop(name) for name in names if name in options})
    context = {"multiprocessing_context": "fork"} if workers else {}
    batches = ShardSampler(dataset, **options)
    return DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=workers, **context)


def threads(path: Path, **options: Any) -> Any:
    return ShardLoader(path, threads=3, **options)


def sampler_in_workers(path: Path, **options: Any) -> Any:
    return sampler(path, workers=2, **options)


def iterable_in_workers(path: Path, **options: Any) -> Any:
    return DataLoader(iterable(path, **options), None, num_workers=2, multiprocessing_context="fork")


HERE: list[Callable[..., Any]] = [sampler, threads]
ELSEWHERE: list[Callable[..., Any]] = [sampler_in_workers, iterable_in_workers]
options = {"batch_size": 4, "seed": 5, "tail": "exact"}


def pixels(loader: Any, field: str = "image") -> Pixels:
    """Id -> what was delivered."""
    return {
        record_id: image.numpy().copy()
        for batch in loader
        for record_id, image in zip(batch["id"], batch.get(field, []), strict=True)
    }


def invert(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": 255 - sample["image"]}


def require_same(found: Pixels, expected: Pixels) -> None:
    assert found.keys() == expected.keys()
    for record_id, image in expected.items():
        np.testing.assert_array_equal(found[record_id], image, err_msg=record_id)


@pytest.mark.parametrize(
    "transform",
    [
        RANDOM,
        CenterCrop(40),
        CenterCrop((20, 30), 0.8),
        Resize(40),
        Compose([Resize(40), CenterCrop(33), RandomHorizontalFlip(1)]),
    ],
    ids=str,
)
def test_threads_and_loaders_deliver_what_is_delivered_row_by_row(data: Path, transform: Any) -> None:
    expected = pixels(iterable(data, transform=transform, **options))
    assert len(expected) == COUNT
    for way in HERE:
        for batch_size in (4, COUNT):  # threads share a batch of more than eight
            others = options | {"batch_size": batch_size}
            require_same(pixels(way(data, transform=transform, **others)), expected)
    if transform is RANDOM:
        return
    dataset = ShardDataset(data, transform)
    require_same(
        {sample["id"]: sample["image"].numpy() for sample in map(dataset.__getitem__, range(COUNT))}, expected
    )
    require_same({record_id: dataset.get(record_id)["image"].numpy() for record_id in expected}, expected)


@pytest.mark.parametrize("way", ELSEWHERE, ids=lambda way: way.__name__)
def test_processes_deliver_what_is_delivered_here(data: Path, way: Any) -> None:
    expected = pixels(iterable(data, transform=RANDOM, **options))
    require_same(pixels(way(data, transform=RANDOM, **options)), expected)


@pytest.mark.parametrize(
    "op", [CenterCrop(40), CenterCrop(20, 0.8, exact=True), Resize((30, 20), exact=True)]
)
def test_what_is_delivered_is_what_the_operation_makes_of_the_whole_picture(data: Path, op: ImageOp) -> None:
    whole = pixels(iterable(data, **options))
    found = pixels(threads(data, transform=op, **options))
    assert len(found) == COUNT
    for record_id, image in whole.items():
        samples = image.transpose(1, 2, 0)
        expected = expected_of(samples, op.steps(samples.shape[:2], None))
        np.testing.assert_allclose(found[record_id].transpose(1, 2, 0), expected, rtol=0, atol=1.5)


def test_the_numbers_come_from_seed_epoch_and_id_alone(originals: Path) -> None:
    made = iterable(originals, transform=RANDOM, **options)
    expected = pixels(made)
    assert len({image.tobytes() for image in expected.values()}) == COUNT
    parts = [
        pixels(threads(originals, transform=RANDOM, rank=rank, world_size=2, seed=5, batch_size=3))
        for rank in (0, 1)
    ]
    require_same(parts[0] | parts[1], expected)
    require_same(pixels(made), expected)
    made.set_epoch(1)
    for other in (pixels(made), pixels(iterable(originals, transform=RANDOM, seed=6))):
        assert all(not np.array_equal(other[record_id], image) for record_id, image in expected.items())


def test_a_resumed_run_crops_as_an_unbroken_one_does(originals: Path) -> None:
    expected = pixels(iterable(originals, transform=RANDOM, **options))
    begun = threads(originals, transform=RANDOM, **options)
    batches = iter(begun)
    seen = pixels([next(batches)])
    resumed = iterable(originals, transform=RANDOM, **options | {"batch_size": 5})
    resumed.load_state_dict(begun.state_dict())
    batches.close()
    require_same(seen | pixels(resumed), expected)


def test_a_record_that_is_drawn_again_is_cropped_anew_the_same_in_every_way(originals: Path) -> None:
    weights = {"weights": [1.0] * 2 + [0.0] * (COUNT - 2), "num_samples": 14, "batch_size": 12}
    for transform in (RANDOM, Compose([RANDOM, invert])):
        found = [
            [
                image.numpy().tobytes()
                for batch in way(originals, transform=transform, **weights)
                for image in batch["image"]
            ]
            for way in (iterable, sampler, threads)
        ]
        assert found[0] == found[1] == found[2]
        assert len(set(found[0])) == 14


def test_the_tail_is_filled_up_with_repeats_that_are_marked(originals: Path) -> None:
    padded = options | {"tail": "pad", "rank": 1, "world_size": 2, "transform": RANDOM}
    batches = [list(way(originals, **padded)) for way in (iterable, sampler, threads)]
    whole = pixels(iterable(originals, transform=RANDOM, **options))
    for delivered in batches:
        assert [len(batch["id"]) for batch in delivered] == [4, 2]
        assert sum(batch["is_pad"].sum().item() for batch in delivered) == 1
        for record_id, image in pixels(delivered).items():
            np.testing.assert_array_equal(image, whole[record_id])


def test_a_batch_is_channels_last_in_memory_and_keeps_its_own(data: Path) -> None:
    now, kept = [], []
    for batch in threads(data, transform=RANDOM, batch_size=2, tail="exact"):
        assert batch["image"].shape[1:] == (3, 12, 12)
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        now.append(batch["image"].clone())
        kept.append(batch["image"])
    assert len(kept) == 6
    assert all(map(torch.equal, now, kept))


def test_a_transform_of_ones_own_takes_what_the_operations_made(data: Path) -> None:
    expected = {
        record_id: 255 - image
        for record_id, image in pixels(iterable(data, transform=RANDOM, **options)).items()
    }
    for way in (
        iterable,
        *HERE,
        ELSEWHERE[0],
    ):  # none of them may reshape: what the operations do is no change
        require_same(pixels(way(data, transform=Compose([RANDOM, invert]), **options)), expected)


def test_operations_behind_a_transform_of_ones_own_are_transforms_themselves(originals: Path) -> None:
    transform = Compose([invert, CenterCrop(20), RANDOM])
    for way in (iterable, *HERE):
        with pytest.raises(
            TransformError, match=r"r\d.*changed 'image' from uint8.* to uint8\[3,12,12\].*may_reshape"
        ):
            list(way(originals, transform=transform, **options))
    free = options | {"may_reshape": True, "transform": transform}
    expected = pixels(iterable(originals, **free))
    for way in (*HERE, iterable_in_workers):
        require_same(pixels(way(originals, **free)), expected)
    assert len({image.tobytes() for image in expected.values()}) == COUNT
    cropped = pixels(threads(originals, **free | {"transform": Compose([invert, CenterCrop(20)])}))
    fused = pixels(threads(originals, transform=CenterCrop(20), **options))
    require_same(cropped, {record_id: 255 - image for record_id, image in fused.items()})


@pytest.mark.parametrize("way", [iterable, *HERE, ELSEWHERE[0]], ids=lambda way: way.__name__)
def test_a_picture_smaller_than_the_crop_is_named(originals: Path, way: Any) -> None:
    message = (
        r"00002: row 0 \(id 'r8'.*\), field 'image': an image of 83x178 is smaller than the crop of 83x179"
    )
    with pytest.raises(TransformError, match=message):
        list(
            way(
                originals,
                transform=Compose([CenterCrop((83, 179)), invert]),
                rows=[8],
                on_error="skip",
                **options,
            )
        )


def damaged(path: Path, payload: bytes) -> None:
    """Overwrite the middle of a payload, wherever it is stored."""
    middle = payload[len(payload) // 2 :][:40]
    for file in path.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        if middle in content:
            file.write_bytes(content.replace(middle, bytes(40)))
            return
    raise AssertionError("the payload was not found")


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
def test_a_damaged_record_is_raised_or_left_out_and_the_others_are_as_ever(
    tmp_path: Path, backend: str
) -> None:
    contract = Contract({"image": KINDS["original"], "label": LabelField(num_classes=3)})
    ingest(RECORDS, tmp_path / "out", contract, backend=backend, workers=0, records_per_shard=6)
    expected = pixels(iterable(tmp_path / "out", transform=RANDOM, **options))
    damaged(tmp_path / "out", RECORDS[7]["image"])
    del expected["r7"]
    for way in (iterable, *HERE):
        with pytest.raises(CorruptShardError, match=r"row 1 \(id 'r7'.*field 'image'"):
            list(way(tmp_path / "out", transform=RANDOM, **options))
        for tail in ("exact", "pad"):
            loader = way(tmp_path / "out", transform=RANDOM, on_error="skip", **options | {"tail": tail})
            batches = list(loader)
            require_same(pixels(batches), expected)
            assert (loader if way is not sampler else loader.dataset).skipped == ["r7"]
            for batch in batches:
                assert batch["image"].is_contiguous(memory_format=torch.channels_last)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pairs") / "out"
    fields = {
        "left": ImageField(),
        "right": ImageField(store="raw", resize=(40, 40)),
        "label": LabelField(num_classes=3),
    }
    records = [
        {"id": record["id"], "left": record["image"], "right": record["image"], "label": record["label"]}
        for record in RECORDS
    ]
    ingest(records, out, Contract(fields), workers=0, records_per_shard=4)
    return out


def test_each_of_two_images_has_operations_of_its_own(pairs: Path) -> None:
    transform = Compose(
        [RandomResizedCrop(12, field="left"), CenterCrop(30, field="right"), Resize(9, "right")]
    )
    for way in (iterable, *HERE):
        batches = list(way(pairs, transform=transform, **options))
        assert {tuple(batch["left"].shape[1:]) for batch in batches} == {(3, 12, 12)}
        assert {tuple(batch["right"].shape[1:]) for batch in batches} == {(3, 9, 9)}
        assert {type(batch["label"]) for batch in batches} == {torch.Tensor}
        expected = {
            field: pixels(iterable(pairs, transform=transform, **options), field)
            for field in ("left", "right")
        }
        for field, images in expected.items():
            require_same(pixels(batches, field), images)
    plain = pixels(iterable(pairs, **options), "right")
    only = pixels(iterable(pairs, transform=CenterCrop(30, field="right"), **options), "right")
    require_same(only, {record_id: image[:, 5:35, 5:35] for record_id, image in plain.items()})


@pytest.mark.parametrize(
    ("op", "fields", "message"),
    [
        (CenterCrop(4), None, r"CenterCrop: what is read has 2 image fields \(left, right\); name one"),
        (Resize(4), ["label"], r"Resize: what is read has no image field; name one"),
        (Resize(4, "label"), None, "Resize: 'label' is no image field that is read; these are: left, right"),
        (Resize(4, "left"), ["right"], "'left' is no image field that is read; these are: right"),
        (Resize(4, "middle"), ["label"], "'middle' is no image field that is read; these are: none"),
    ],
)
def test_it_must_be_clear_which_image_an_operation_is_for(
    pairs: Path, op: ImageOp, fields: Any, message: str
) -> None:
    for way in (iterable, sampler, threads):
        for transform in (op, Compose([op, invert])):
            with pytest.raises(ValueError, match=message):
                way(pairs, transform=transform, fields=fields, **options)
    assert ShardDataset(pairs, CenterCrop(4), fields=["left"])[0]["left"].shape == (3, 4, 4)


def test_without_an_epoch_the_numbers_come_from_torchs_stream(originals: Path) -> None:
    dataset = ShardDataset(originals, RANDOM)
    torch.manual_seed(3)
    first, second = dataset[0]["image"], dataset[0]["image"]
    torch.manual_seed(3)
    assert torch.equal(dataset[0]["image"], first)
    assert torch.equal(dataset[0]["image"], second)
    assert not torch.equal(first, second)
    plain = DataLoader(dataset, 4, shuffle=True, collate_fn=collate)
    assert len(pixels(plain)) == COUNT


def test_what_is_sent_to_a_spawned_worker_does_the_same_operations(originals: Path) -> None:
    transform = Compose([RANDOM, invert])
    made = iterable(originals, transform=transform, **options)
    expected = pixels(made)
    sent = pickle.dumps((made, threads(originals, transform=transform, **options), made.dataset))
    others, loader, dataset = pickle.loads(sent)
    require_same(pixels(others), expected)
    require_same(pixels(loader), expected)
    batches = ShardSampler(dataset, **options)
    require_same(pixels(DataLoader(dataset, batch_sampler=batches, collate_fn=collate)), expected)


def test_a_delivered_batch_can_be_normalised(originals: Path) -> None:
    normalise = Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    for batch in threads(originals, transform=RANDOM, **options):
        made = normalise(batch)["image"]
        assert made.is_contiguous(memory_format=torch.channels_last)
        np.testing.assert_allclose(made, (batch["image"] / 255 - 0.5) / 0.25, atol=1e-5)
    ragged = next(iter(threads(originals, transform=Resize(20), **options)))
    with pytest.raises(TransformError, match="a list of them, since their sizes differ"):
        normalise(ragged)
