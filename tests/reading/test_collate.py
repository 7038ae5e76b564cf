"""How samples become a batch."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from read_datasets import write_records
from torch.utils.data import DataLoader, Dataset, default_collate

from shardkit.contract import ArrayField, Contract, LabelField, Padding, TextField, TokensField
from shardkit.errors import TransformError
from shardkit.reading import ShardDataset, ShardIterableDataset, collate
from shardkit.reading.collate import PaddedSample


def test_each_kind_of_value_becomes_what_is_documented() -> None:
    batch = collate(
        [
            {
                "id": "a",
                "x": torch.zeros(2),
                "n": 1,
                "f": 0.5,
                "b": True,
                "s": np.float16(2),
                "t": "t",
                "j": {"k": 1},
            },
            {
                "id": "b",
                "x": torch.ones(2),
                "n": 2,
                "f": 1.5,
                "b": False,
                "s": np.float16(3),
                "t": "u",
                "j": {},
            },
        ]
    )
    assert batch["id"] == ["a", "b"]
    assert batch["x"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert (batch["n"].dtype, batch["n"].tolist()) == (torch.int64, [1, 2])
    assert (batch["f"].dtype, batch["f"].tolist()) == (torch.float64, [0.5, 1.5])
    assert (batch["b"].dtype, batch["b"].tolist()) == (torch.bool, [True, False])
    assert (batch["s"].dtype, batch["s"].tolist()) == (torch.float16, [2.0, 3.0])
    assert batch["t"] == ["t", "u"]
    assert batch["j"] == [{"k": 1}, {}]


def test_images_are_stacked_as_they_lie_in_memory() -> None:
    pixels = torch.arange(2 * 4 * 5 * 3, dtype=torch.uint8).reshape(2, 4, 5, 3)
    samples = [{"id": str(number), "image": pixels[number].permute(2, 0, 1)} for number in range(2)]
    image = collate(samples)["image"]
    assert image.shape == (2, 3, 4, 5)
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(image, pixels.permute(0, 3, 1, 2))


def test_images_of_mixed_memory_formats_are_stacked_all_the_same() -> None:
    last = torch.arange(60, dtype=torch.uint8).reshape(4, 5, 3).permute(2, 0, 1)
    image = collate([{"id": "a", "image": last}, {"id": "b", "image": last.contiguous()}])["image"]
    assert torch.equal(image[0], last)
    assert torch.equal(image[1], last)


def test_tensors_that_differ_in_shape_or_dtype_stay_a_list() -> None:
    small, large, other = torch.zeros(3, 4, 4), torch.zeros(3, 5, 4), torch.zeros(3, 4, 4, dtype=torch.uint8)
    for pair in ([small, large], [small, other]):
        values = collate([{"id": str(number), "image": image} for number, image in enumerate(pair)])["image"]
        assert values[0] is pair[0]
        assert values[1] is pair[1]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64])
def test_tensors_of_every_stored_dtype_are_stacked(dtype: torch.dtype) -> None:
    stacked = collate([{"id": "a", "x": torch.zeros(2, dtype=dtype)}] * 2)["x"]
    assert (stacked.dtype, stacked.shape) == (dtype, (2, 2))


def test_numpy_arrays_of_one_shape_and_dtype_are_stacked_and_others_stay_a_list() -> None:
    ones, twos, wide = np.ones(2, np.int16)[::-1], np.full(2, 2, np.int16), np.zeros(2, np.int32)
    stacked = collate([{"id": "a", "x": ones}, {"id": "b", "x": twos}])["x"]
    assert (stacked.dtype, stacked.tolist()) == (torch.int16, [[1, 1], [2, 2]])
    for pair in ([ones, wide], [ones, ones[:1]], [np.array(["a"]), np.array(["b"])]):
        assert collate([{"id": str(number), "x": value} for number, value in enumerate(pair)])["x"] == pair


def test_filtered_samples_are_left_out() -> None:
    assert collate([None, {"id": "a", "n": 1}, None]) == {"id": ["a"], "n": torch.tensor([1])}


def test_nothing_left_gives_a_batch_without_ids() -> None:
    assert collate([]) == collate([None, None]) == {"id": []}


def test_values_of_mixed_types_and_integers_beyond_64_bits_stay_a_list() -> None:
    batch = collate([{"id": "a", "j": 1, "k": 2**70}, {"id": "b", "j": "one", "k": 1}])
    assert batch["j"] == [1, "one"]
    assert batch["k"] == [2**70, 1]


def test_samples_with_different_fields_are_an_error_naming_both() -> None:
    with pytest.raises(TransformError, match=r"'a' and 'b'.*\['id', 'x'\] and \['id', 'y'\]"):
        collate([{"id": "a", "x": 1}, {"id": "b", "y": 1}])


TOKENS = Padding(0, (-1,))


def padded(padding: Padding, *values: Any) -> list[dict[str, Any]]:
    return [
        PaddedSample({"id": str(number), "x": value}, {"x": padding}) for number, value in enumerate(values)
    ]


def test_sequences_are_padded_to_the_longest_beside_a_mask() -> None:
    values = torch.tensor([1, 2, 3]), torch.tensor([4]), torch.zeros(0, dtype=torch.int64)
    batch = collate(padded(Padding(-1, (-1,)), *values))
    assert batch["x"].tolist() == [[1, 2, 3], [4, -1, -1], [-1, -1, -1]]
    assert batch["x_mask"].tolist() == [[True, True, True], [True, False, False], [False, False, False]]
    assert (batch["x"].dtype, batch["x_mask"].dtype) == (torch.int64, torch.bool)
    assert list(batch) == ["id", "x", "x_mask"]
    assert type(batch) is dict


def test_sequences_are_padded_to_the_length_that_the_contract_gives() -> None:
    batch = collate(padded(Padding(0, (-1,), 4), torch.tensor([1, 2]), torch.tensor([3])))
    assert batch["x"].tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]
    assert batch["x_mask"].tolist() == [[True, True, False, False], [True, False, False, False]]


def test_a_batch_of_nothing_but_empty_sequences_has_no_columns() -> None:
    batch = collate(padded(TOKENS, *[torch.zeros(0, dtype=torch.int32)] * 2))
    assert (batch["x"].shape, batch["x"].dtype, batch["x_mask"].shape) == ((2, 0), torch.int32, (2, 0))


def test_the_mask_has_the_varying_axes_and_only_those() -> None:
    small, large = torch.full((1, 2, 2), 1.5), torch.full((3, 2, 1), 2.5)
    batch = collate(padded(Padding(0.5, (-1, 2, -1)), small, large))
    assert batch["x"].shape == (2, 3, 2, 2)
    assert batch["x"][0].tolist() == [[[1.5, 1.5]] * 2, [[0.5, 0.5]] * 2, [[0.5, 0.5]] * 2]
    assert batch["x"][1].tolist() == [[[2.5, 0.5]] * 2] * 3
    assert batch["x_mask"].tolist() == [
        [[True, True], [False, False], [False, False]],
        [[True, False], [True, False], [True, False]],
    ]


@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6), min_size=1, max_size=5), st.booleans()
)
def test_what_the_mask_lets_through_is_every_sequence(sequences: list[list[int]], is_long: bool) -> None:
    values = [torch.tensor(sequence, dtype=torch.int32) for sequence in sequences]
    batch = collate(padded(Padding(7, (-1,), 6 if is_long else None), *values))
    assert [row[mask].tolist() for row, mask in zip(batch["x"], batch["x_mask"], strict=True)] == sequences
    assert (batch["x"][~batch["x_mask"]] == 7).all()
    assert batch["x"].shape == (len(sequences), 6 if is_long else max(map(len, sequences)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_arrays_of_two_varying_axes_come_back_through_their_mask(shapes: list[tuple[int, int]]) -> None:
    values = [torch.arange(rows * 2 * width).reshape(rows, 2, width) for rows, width in shapes]
    batch = collate(padded(Padding(-1, (-1, 2, -1)), *values))
    for row, mask, value in zip(batch["x"], batch["x_mask"], values, strict=True):
        assert mask.sum() == value.shape[0] * value.shape[2]
        assert row.movedim(1, 2)[mask].flatten().tolist() == value.movedim(1, 2).flatten().tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint16, torch.uint64, torch.bool])
def test_every_dtype_is_padded(dtype: torch.dtype) -> None:
    batch = collate(padded(TOKENS, torch.ones(2, dtype=dtype), torch.ones(1, dtype=dtype)))
    assert (batch["x"].dtype, batch["x"].tolist()) == (dtype, [[1, 1], [1, 0]])


def test_numpy_arrays_of_a_transform_are_padded_and_tensors_keep_their_gradient() -> None:
    read_only = np.arange(2)
    read_only.flags.writeable = False
    assert collate(padded(TOKENS, read_only[::-1], np.arange(1)))["x"].tolist() == [[1, 0], [0, 0]]
    weight = torch.ones(2, requires_grad=True)
    collate(padded(TOKENS, weight, weight[:1]))["x"].sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2, 1]


def test_what_a_transform_made_another_kind_of_value_is_treated_like_any_other() -> None:
    assert collate(padded(TOKENS, "a", "b")) == {"id": ["0", "1"], "x": ["a", "b"]}
    words = [np.array(["a"]), np.array(["b", "c"])]
    assert collate(padded(TOKENS, *words)) == {"id": ["0", "1"], "x": words}
    assert set(collate(padded(TOKENS, torch.tensor(1), torch.tensor(2)))) == {"id", "x"}


def test_a_mask_that_the_samples_bring_stands() -> None:
    samples = padded(TOKENS, torch.tensor([1, 2]), torch.tensor([3, 4]))
    for sample in samples:
        sample["x_mask"] = torch.tensor([True, False])
    assert collate(samples)["x_mask"].tolist() == [[True, False], [True, False]]


@pytest.mark.parametrize(
    ("padding", "second", "said"),
    [
        (
            TOKENS,
            torch.zeros(1, dtype=torch.int32),
            r"int32\[1\] cannot be padded to one tensor with int64\[2\]",
        ),
        (TOKENS, torch.zeros(1, 1, dtype=torch.int64), r"int64\[1, 1\] cannot be padded"),
        (TOKENS, "text", "a value of type str cannot be padded"),
        (
            Padding(0, (-1,), 2),
            torch.zeros(3, dtype=torch.int64),
            r"int64\[3\] is longer than max_length = 2",
        ),
    ],
)
def test_what_cannot_be_padded_is_an_error_naming_sample_field_and_shapes(
    padding: Padding, second: object, said: str
) -> None:
    with pytest.raises(TransformError, match=rf"sample '1', field 'x': {said}"):
        collate(padded(padding, torch.zeros(2, dtype=torch.int64), second))


def test_axes_that_do_not_vary_must_agree() -> None:
    said = r"float32\[1, 3\] cannot be padded to one tensor with float32\[1, 2\]"
    with pytest.raises(TransformError, match=said):
        collate(padded(Padding(0, (-1, 2)), torch.zeros(1, 2), torch.zeros(1, 3)))


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda sample: pickle.loads(pickle.dumps(sample))]
)
def test_a_copy_of_a_sample_is_padded_as_well(duplicate: Callable[[Any], Any]) -> None:
    samples = padded(TOKENS, torch.tensor([1, 2]), torch.tensor([3]))
    assert collate([duplicate(sample) for sample in samples])["x"].tolist() == [[1, 2], [3, 0]]


SEQUENCES = [[1, 2, 3], [], [4], [5, 6], [], []]


@pytest.fixture
def sequences(tmp_path: Path, backend: str) -> Path:
    """Six records with tokens and other arrays of varying length, in two shards."""
    fields = {
        "label": LabelField(num_classes=10),
        "tokens": TokensField("uint16", pad_value=-100),
        "points": ArrayField("float32", (-1, 2), pad_value=0),
        "loose": ArrayField("uint8", (-1,)),
        "text": TextField(),
    }
    records = [
        {
            "id": str(number),
            "label": number,
            "tokens": tokens,
            "points": np.full((number, 2), number, np.float32),
            "loose": tokens,
            "text": str(tokens),
        }
        for number, tokens in enumerate(SEQUENCES)
    ]
    return write_records(tmp_path / "data", backend, Contract(fields), records, rows_per_shard=4)


def unpadded(batch: dict[str, Any]) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(batch["tokens"], batch["tokens_mask"], strict=True)]


def shifted(sample: dict[str, Any]) -> dict[str, Any]:
    return dict(sample) | {"tokens": sample["tokens"] + 1}


def test_a_data_set_delivers_tensors_and_tells_collate_how_to_pad_them(sequences: Path) -> None:
    data = ShardDataset(sequences)
    assert data[0]["tokens"].tolist() == [1, 2, 3]
    assert data[0]["tokens"].dtype == torch.int32
    one_by_one = [data[row] for row in range(6)]
    for samples in (one_by_one, data.__getitems__(range(6)), [data.get(str(row)) for row in range(6)]):
        batch = collate(samples)
        assert unpadded(batch) == SEQUENCES
        assert batch["tokens"].tolist()[2] == [4, -100, -100]
        assert batch["points"].shape == (6, 5, 2)
        assert batch["points_mask"].sum(1).tolist() == list(range(6))
        assert isinstance(batch["loose"], list)
        assert list(batch) == [
            *("id", "label", "tokens", "tokens_mask", "points", "points_mask", "loose", "text"),
        ]


def test_samples_are_plain_dicts_where_nothing_that_is_read_is_padded(sequences: Path) -> None:
    data = ShardDataset(sequences, fields=["label", "loose"])
    for sample in (data[0], data.__getitems__([0])[0]):
        assert type(sample) is dict
    assert type(ShardDataset(sequences)[0]) is PaddedSample


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_new_dict_of_a_transform_is_padded_as_well(sequences: Path, num_workers: int) -> None:
    by_rows = ShardDataset(sequences, transform=shifted, may_reshape=True)
    by_batch = ShardIterableDataset(sequences, 6, shuffle=False, transform=shifted, may_reshape=True)
    for loader in (
        DataLoader(by_rows, 6, num_workers=num_workers, collate_fn=collate),
        DataLoader(by_batch, None, num_workers=num_workers),
    ):
        (batch,) = loader
        assert unpadded(batch) == [[token + 1 for token in tokens] for tokens in SEQUENCES]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_worker_delivers_a_batch_of_empty_sequences(sequences: Path, num_workers: int) -> None:
    data = ShardDataset(sequences, fields=["tokens"])
    loader = DataLoader(data, 3, sampler=[1, 4, 5], num_workers=num_workers, collate_fn=collate)
    (batch,) = loader
    assert (batch["tokens"].shape, batch["tokens_mask"].shape) == ((3, 0), (3, 0))


def test_repeats_that_fill_the_last_batch_are_padded_and_marked(sequences: Path) -> None:
    data = ShardIterableDataset(sequences, 4, shuffle=False, tail="pad", rank=1, world_size=4)
    (batch,) = data
    assert batch["id"] == ["2", "3"]
    assert batch["is_pad"].tolist() == [False, False]
    assert unpadded(batch) == [[4], [5, 6]]
    (last,) = ShardIterableDataset(sequences, 4, shuffle=False, tail="pad", rank=3, world_size=4)
    assert last["is_pad"].tolist() == [True, True]
    assert unpadded(last) == [[1, 2, 3], []]


def test_torch_itself_collates_such_samples_where_their_shapes_agree(sequences: Path) -> None:
    batch = default_collate([ShardDataset(sequences, fields=["label", "tokens"])[0]])
    assert batch["tokens"].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("pad_value", "dtype", "fits"),
    [
        (-100, torch.uint8, False),
        (-100, torch.int8, True),
        (-129, torch.int8, False),
        (256, torch.uint8, False),
        (255, torch.uint8, True),
        (0.5, torch.int32, False),
        (2.0, torch.int32, True),
        (1e9, torch.float16, False),
        (-1e9, torch.bfloat16, True),
        (0.1, torch.float32, True),
        (2, torch.bool, False),
        (True, torch.bool, True),
        (-1, torch.uint64, False),
    ],
)
def test_a_pad_value_is_never_turned_into_another_by_a_narrower_dtype(
    pad_value: float, dtype: torch.dtype, fits: bool
) -> None:
    samples = padded(Padding(pad_value, (-1,)), torch.zeros(1, dtype=dtype), torch.zeros(2, dtype=dtype))
    if fits:
        assert collate(samples)["x"][0, 1] == torch.tensor(pad_value, dtype=dtype)
        return
    shown = str(dtype).removeprefix("torch.")
    with pytest.raises(TransformError, match=rf"field 'x': {shown} does not hold pad_value = {pad_value},"):
        collate(samples)


def test_an_array_pads_with_what_numpy_prints_as_the_largest_float32() -> None:
    padding = ArrayField("float32", (-1,), pad_value=3.4028235e38).padding
    assert padding is not None
    assert (
        collate(padded(padding, torch.zeros(0), torch.zeros(1)))["x"][0, 0] == torch.finfo(torch.float32).max
    )


@pytest.mark.parametrize("copied", [0, 1])
def test_one_sample_of_the_data_set_tells_how_the_whole_batch_is_padded(copied: int) -> None:
    samples: list[dict[str, Any]] = padded(TOKENS, torch.tensor([1, 2]), torch.tensor([3]))
    samples[copied] = {**samples[copied]}
    batch = collate(samples)
    assert batch["x"].tolist() == [[1, 2], [3, 0]]
    assert batch["x_mask"].tolist() == [[True, True], [True, False]]


class Wrapper(Dataset[dict[str, Any]]):
    """A data set of somebody's own around one of ours, which adds to its samples as documented."""

    def __init__(self, data: ShardDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self.data[index]
        assert sample is not None
        sample["extra"] = index
        return sample


def test_a_data_set_around_ours_that_adds_to_samples_keeps_their_padding(sequences: Path) -> None:
    (batch,) = DataLoader(Wrapper(ShardDataset(sequences)), 6, collate_fn=collate)
    assert unpadded(batch) == SEQUENCES
    assert batch["extra"].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("collate_fn", [None, collate])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_whole_batches_are_not_batched_again(
    sequences: Path, collate_fn: Callable[[Any], Any] | None, num_workers: int
) -> None:
    batches = ShardIterableDataset(sequences, 4, fields=["label"])
    with pytest.raises(ValueError, match="give the DataLoader batch_size=None"):
        next(iter(DataLoader(batches, num_workers=num_workers, collate_fn=collate_fn)))


def test_a_batch_is_a_plain_dict_and_its_ids_are_a_list_of_text(sequences: Path) -> None:
    for num_workers in (0, 1):
        batch = next(
            iter(DataLoader(ShardIterableDataset(sequences, 6, shuffle=False), None, num_workers=num_workers))
        )
        assert type(batch) is dict
        assert batch["id"] == ["0", "1", "2", "3", "4", "5"]
        assert all(type(record_id) is str for record_id in batch["id"])
