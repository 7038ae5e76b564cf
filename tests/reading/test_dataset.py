"""ShardDataset in one process: indexing, decoding, raw reads, checksums, transforms."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from read_datasets import as_float, crop, drop_label_one, fail_on_label_two, png, write_records

from shardkit.contract import Contract
from shardkit.errors import CorruptShardError, DatasetNotFoundError, RecordNotFoundError, TransformError
from shardkit.reading import ShardDataset


def test_a_sample_has_a_value_of_the_documented_type_for_each_field(path: Path) -> None:
    sample = ShardDataset(path)[4]
    assert list(sample) == ["id", "image", "label", "weight", "vector", "caption", "extra"]
    assert sample["id"] == "folder/4.png"
    assert sample["image"].dtype == torch.uint8
    assert sample["image"].shape == (3, 16, 16)
    assert sample["image"].unique().tolist() == [80]
    assert sample["image"].permute(1, 2, 0).is_contiguous()
    assert (sample["label"], type(sample["label"])) == (1, int)
    assert (sample["weight"], type(sample["weight"])) == (2.0, np.float32)
    assert sample["vector"].dtype == torch.int16
    assert sample["vector"].tolist() == [[4, 4, 4], [4, 4, 4]]
    assert sample["caption"] == "number 4"
    assert sample["extra"] == {"n": 4}


@pytest.mark.parametrize("verify_checksums", [None, True, False])
def test_a_batch_holds_the_same_samples_as_single_reads(path: Path, verify_checksums: bool | None) -> None:
    data = ShardDataset(path, verify_checksums=verify_checksums)
    rows = [9, 0, 4, 3, 4]
    for row, sample in zip(rows, data.__getitems__(rows), strict=True):
        single = data[row]
        assert sample.keys() == single.keys()
        for name, value in single.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, sample[name])
                assert value.stride() == sample[name].stride()
            else:
                assert (value, type(value)) == (sample[name], type(sample[name]))


def test_channels_are_first_by_shape_for_images_stored_raw(tmp_path: Path, backend: str) -> None:
    contract = Contract.from_dict({"fields": {"image": {"type": "image", "store": "raw", "size": [2, 3]}}})
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    records = [{"id": str(number), "image": pixels + number} for number in range(3)]
    data = ShardDataset(write_records(tmp_path / "data", backend, contract, records))
    for sample in (data[1], data.__getitems__([2, 1])[1]):
        assert sample["image"].shape == (3, 2, 3)
        assert sample["image"].permute(1, 2, 0).tolist() == (pixels + 1).tolist()


def test_tensors_belong_to_the_caller(path: Path) -> None:
    data = ShardDataset(path)
    for sample in (data[2], data.__getitems__([2, 2])[0]):
        sample["vector"].fill_(99)
        sample["image"].fill_(99)
    assert data[2]["vector"].unique().tolist() == [2]
    assert data[2]["image"].unique().tolist() == [40]


@pytest.mark.parametrize("index", [-1, 9, np.int64(9), np.uint8(9), torch.tensor(9), torch.tensor([-1])])
def test_any_integer_is_an_index(memmap_path: Path, index: Any) -> None:
    data = ShardDataset(memmap_path)
    assert (
        data[index]["id"] == data.read(index)["id"] == data.__getitems__([index])[0]["id"] == "folder/9.png"
    )


@pytest.mark.parametrize("index", [True, np.True_, torch.tensor(True), 1.0, "1", None, slice(0, 2), [1]])
def test_what_is_no_integer_is_a_type_error(memmap_path: Path, index: Any) -> None:
    data = ShardDataset(memmap_path)
    for read in (data.__getitem__, data.read):
        with pytest.raises(TypeError, match="integer"):
            read(index)


@pytest.mark.parametrize("index", [10, -11, 2**70])
def test_past_the_end_is_an_index_error(memmap_path: Path, index: int) -> None:
    data = ShardDataset(memmap_path)
    for read in (data.__getitem__, data.read, lambda row: data.__getitems__([row])):
        with pytest.raises(IndexError, match="10 records"):
            read(index)


def test_iteration_ends(path: Path) -> None:
    data = ShardDataset(path)
    assert [sample["id"] for sample in data] == list(data.ids) == [f"folder/{row}.png" for row in range(10)]
    assert len(data) == 10


def test_a_record_is_found_by_its_id(path: Path) -> None:
    data = ShardDataset(path)
    assert data.get("folder/7.png")["caption"] == "number 7"
    with pytest.raises(RecordNotFoundError, match=r"folder/10\.png"):
        data.get("folder/10.png")
    for wrong in (5, None, b"folder/7.png"):
        with pytest.raises(TypeError, match="an id is a str"):
            data.get(wrong)  # type: ignore[arg-type]


def test_several_rows_at_once_are_pointed_to_the_batched_read(memmap_path: Path) -> None:
    with pytest.raises(TypeError, match=r"not list.*__getitems__.*batch_sampler="):
        ShardDataset(memmap_path)[[0, 1]]  # type: ignore[index]


def test_it_shows_where_it_is_and_what_it_reads(memmap_path: Path) -> None:
    data = ShardDataset(memmap_path, fields=["label", "image"])
    assert repr(data) == f"<ShardDataset {memmap_path}: 10 records; fields image, label>"
    assert repr(ShardDataset(memmap_path, fields=[])).endswith(": 10 records; no fields>")


@pytest.mark.parametrize("verify_checksums", [None, True, False])
def test_read_gives_what_is_stored(
    path: Path, records: list[dict[str, Any]], verify_checksums: bool | None
) -> None:
    record = ShardDataset(path, verify_checksums=verify_checksums).read(5)
    assert record == {
        "id": "folder/5.png",
        "image": records[5]["image"],
        "label": 2,
        "weight": np.float32(2.5),
        "vector": np.full((2, 3), 5, "<i2").tobytes(),
        "caption": b"number 5",
        "extra": b'{"n":5}',
    }
    assert type(record["label"]) is int


def test_labels_and_columns_come_for_all_rows_at_once(path: Path) -> None:
    data = ShardDataset(path)
    assert data.labels.dtype == np.int64
    assert data.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert data.column("weight").tolist() == [row / 2 for row in range(10)]
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 1


@pytest.mark.parametrize(
    ("names", "words"), [([], "no label field"), (["a", "b"], r"a, b: choose one with column")]
)
def test_labels_without_exactly_one_label_field_say_what_there_is(
    tmp_path: Path, names: list[str], words: str
) -> None:
    fields = {name: {"type": "label", "num_classes": 2} for name in names} | {"text": {"type": "text"}}
    record = {"id": "x", "text": "t"} | dict.fromkeys(names, 1)
    data = ShardDataset(
        write_records(tmp_path / "d", "memmap", Contract.from_dict({"fields": fields}), [record])
    )
    with pytest.raises(LookupError, match=words):
        _ = data.labels


def test_only_the_fields_asked_for_are_read(path: Path) -> None:
    data = ShardDataset(path, fields=["label", "image"])
    assert list(data[0]) == list(data.read(0)) == list(data.__getitems__([0])[0]) == ["id", "image", "label"]
    assert ShardDataset(path, fields=[])[3] == {"id": "folder/3.png"}


def test_labels_and_scalars_are_read_without_the_shards(path: Path) -> None:
    data = ShardDataset(path, fields=["label", "weight"])
    shutil.rmtree(path / "shards")
    expected = {"id": "folder/5.png", "label": 2, "weight": 2.5}
    assert data[5] == data.read(5) == data.__getitems__([5])[0] == expected


def test_a_field_not_asked_for_may_be_damaged(memmap_path: Path) -> None:
    flip_last_byte(memmap_path / "shards/00000/image.bin")
    assert ShardDataset(memmap_path, fields=["label"], verify_checksums=True)[3]["label"] == 0


def test_an_unknown_field_is_an_error_naming_those_there_are(memmap_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'imag'; its fields are image, label, weight"):
        ShardDataset(memmap_path, fields=["imag"])
    with pytest.raises(TypeError, match=r"\['image'\]"):
        ShardDataset(memmap_path, fields="image")


def test_a_folder_that_is_no_data_set_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=str(tmp_path)):
        ShardDataset(tmp_path)


def test_it_pickles_small_and_opens_when_used(path: Path) -> None:
    data = ShardDataset(path, transform=crop, may_reshape=True, may_filter=True)
    assert data[0] is not None
    pickled = pickle.dumps(data)
    assert len(pickled) < 4000
    assert pickle.loads(pickled)[3]["id"] == "folder/3.png"
    assert list(pickle.loads(pickled).ids) == list(data.ids)


def test_a_data_set_replaced_in_between_is_not_taken_for_the_old_one(
    memmap_path: Path, tmp_path: Path, contract: Contract, records: list[dict[str, Any]]
) -> None:
    pickled = pickle.dumps(ShardDataset(memmap_path))
    memmap_path.rename(tmp_path / "old")
    write_records(memmap_path, "memmap", contract, records[:5])
    with pytest.raises(ValueError, match="replaced"):
        pickle.loads(pickled)[0]


def flip_last_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("field", ["image", "caption", "extra", "blob", "ragged"])
def test_every_field_of_varying_size_is_checked_as_it_is_decoded(tmp_path: Path, field: str) -> None:
    kinds = {
        "image": {"type": "image"},
        "caption": {"type": "text"},
        "extra": {"type": "json"},
        "blob": {"type": "bytes"},
        "ragged": {"type": "array", "dtype": "uint8", "shape": [-1]},
    }
    records = [
        {
            "id": f"folder/{number}.png",
            "image": png(np.full((4, 4, 3), number, np.uint8)),
            "caption": "one",
            "extra": [number],
            "blob": b"blob",
            "ragged": np.arange(number + 1, dtype=np.uint8),
        }
        for number in range(4)
    ]
    memmap_path = write_records(tmp_path / "data", "memmap", Contract.from_dict({"fields": kinds}), records)
    flip_last_byte(memmap_path / f"shards/00000/{field}.bin")
    data = ShardDataset(memmap_path)
    for read in (data.__getitem__, lambda row: data.__getitems__([0, row])):
        with pytest.raises(
            CorruptShardError, match=r"shards/00000: row 3 .*folder/3\.png.*'" + field + "'.*checksum"
        ):
            read(3)
    assert data.read(3)["id"] == "folder/3.png"


def test_fixed_size_values_are_checked_only_if_asked_for(memmap_path: Path) -> None:
    flip_last_byte(memmap_path / "shards/00001/vector.npy")
    assert ShardDataset(memmap_path)[7]["vector"][1, 2] == 7 ^ 256
    data = ShardDataset(memmap_path, verify_checksums=True)
    for read in (data.__getitem__, data.read, lambda row: data.__getitems__([row])):
        with pytest.raises(CorruptShardError, match=r"shards/00001: row 3 .*folder/7\.png.*'vector'"):
            read(7)


def test_damage_is_still_named_where_checksums_are_not_looked_at(memmap_path: Path) -> None:
    file = memmap_path / "shards/00000/image.bin"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(
        CorruptShardError,
        match=r"shards/00000: row 1 \(id 'folder/1\.png', ingested from test\), field 'image'",
    ):
        ShardDataset(memmap_path, verify_checksums=False)[1]


def test_a_transform_may_change_values(memmap_path: Path) -> None:
    data = ShardDataset(memmap_path, transform=lambda sample: sample | {"image": 255 - sample["image"]})
    assert data[1]["image"].unique().tolist() == [235]
    assert data.__getitems__([1])[0]["image"].unique().tolist() == [235]


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (crop, r"'image' from uint8\[3,16,16\] to uint8\[3,8,8\].*may_reshape=True"),
        (as_float, r"'image' from uint8\[3,16,16\] to float32\[3,16,16\].*DevicePrefetcher.*Normalize"),
        (lambda sample: sample | {"image": "gone"}, r"'image' from uint8\[3,16,16\] to str"),
        (lambda sample: sample | {"label": "cat"}, r"'label' from int to str.*may_reshape=True"),
        (lambda sample: sample | {"label": None}, r"'label' from int to NoneType"),
        (lambda sample: sample | {"label": 1.0}, r"'label' from int to float"),
        (lambda sample: sample | {"label": torch.tensor(1)}, r"'label' from int to int64\[\]"),
        (lambda sample: sample | {"weight": np.float64(1)}, r"'weight' from numpy.float32 to numpy.float64"),
        (lambda sample: sample | {"weight": 1.0}, r"'weight' from numpy.float32 to float;"),
        (lambda sample: {"id": sample["id"]}, r"dropped the field 'image'"),
        (lambda sample: None, r"returned None for image uint8\[3,16,16\].*may_filter=True"),
        (lambda sample: sample | {"id": "other"}, r"the id to 'other'"),
        (lambda sample: list(sample), r"a value of type list, not a sample"),
        (lambda sample: sample["image"].unknown, r"raised AttributeError: .*unknown'$"),
        (
            lambda image: image / 255,
            r"raised TypeError: .*'dict'.*takes the sample, a dict.*sample\['image'\]",
        ),
        (lambda image: image.float(), r"raised AttributeError: 'dict'.*takes the sample, a dict"),
        (lambda sample: sample["image"].resize_(3, 4, 4) and None, r"raised RuntimeError"),
    ],
)
def test_a_transform_that_breaks_its_promise_is_an_error_naming_the_sample(
    memmap_path: Path, transform: Any, words: str
) -> None:
    data = ShardDataset(memmap_path, transform=transform)
    with pytest.raises(
        TransformError, match=r"shards/00001: row 2 \(id 'folder/6\.png', ingested from test\): .*" + words
    ):
        data[6]


def test_a_change_of_shape_in_place_is_noticed(memmap_path: Path) -> None:
    def shrink(sample: dict[str, Any]) -> dict[str, Any]:
        sample["vector"].resize_(1, 2)
        return sample

    with pytest.raises(TransformError, match=r"int16\[2,3\] to int16\[1,2\]"):
        ShardDataset(memmap_path, transform=shrink)[0]


def test_a_value_of_the_same_type_may_change(memmap_path: Path) -> None:
    changed = {"label": 2, "weight": np.float32(9), "caption": "other", "extra": {}}
    data = ShardDataset(memmap_path, transform=lambda sample: sample | changed)
    assert {name: data[0][name] for name in changed} == changed


def test_with_leave_a_transform_may_reshape_and_drop_but_not_rename(memmap_path: Path) -> None:
    data = ShardDataset(memmap_path, transform=crop, may_reshape=True)
    assert data[0]["image"].shape == (3, 8, 8)
    dropping = ShardDataset(memmap_path, transform=lambda sample: {"id": sample["id"]}, may_reshape=True)
    assert dropping[0] == {"id": "folder/0.png"}
    renaming = ShardDataset(memmap_path, transform=lambda sample: {"x": 1}, may_reshape=True)
    with pytest.raises(TransformError, match="the id to None"):
        renaming[0]


def test_filtered_samples_are_left_out_and_counted(memmap_path: Path) -> None:
    data = ShardDataset(memmap_path, transform=drop_label_one, may_filter=True)
    assert data.filtered == []
    assert data[4] is None
    assert [sample["id"] for sample in data.__getitems__([0, 1, 2])] == ["folder/0.png", "folder/2.png"]
    assert data.filtered == ["folder/1.png", "folder/4.png"]


def test_the_original_error_of_a_transform_is_kept(memmap_path: Path) -> None:
    data = ShardDataset(memmap_path, transform=fail_on_label_two)
    with pytest.raises(TransformError, match="raised ZeroDivisionError: nothing to divide") as raised:
        data[2]
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_classes_have_the_names_that_the_contract_pins(tmp_path: Path) -> None:
    fields = {"kind": {"type": "label", "classes": ["cat", "dog"]}}
    contract = Contract.from_dict({"fields": fields})
    data = ShardDataset(write_records(tmp_path / "d", "memmap", contract, [{"id": "x", "kind": "dog"}]))
    assert data.classes == ("cat", "dog")
    assert data.classes[data.labels[0]] == "dog"


def test_classes_without_names_are_an_error_that_says_so(path: Path) -> None:
    with pytest.raises(LookupError, match="'label' have no names: they are 0 to 2"):
        _ = ShardDataset(path).classes
