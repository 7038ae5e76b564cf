"""Parts of large arrays: `ShardDataset.slice` reads what it is asked for and copies nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from read_datasets import png, write_records

from shardkit.contract import Contract
from shardkit.errors import CorruptShardError
from shardkit.reading import ShardDataset
from shardkit.store import BACKENDS

CONTRACT = Contract.from_dict(
    {
        "fields": {
            "volume": {"type": "array", "dtype": "int16", "shape": [4, 3, 5]},
            "label": {"type": "label", "num_classes": 3},
            "track": {"type": "array", "dtype": "float64", "shape": [-1, 2]},
            "words": {"type": "tokens", "dtype": "uint16"},
            "picture": {"type": "image", "store": "raw", "size": [5, 6]},
            "photo": {"type": "image"},
            "caption": {"type": "text"},
        }
    }
)
ARRAYS = ["volume", "track", "words", "picture"]


def make_record(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (5, 6, 3), np.uint8)
    return {
        "id": f"r{number}",
        "volume": rng.integers(-999, 999, (4, 3, 5), np.int16),
        "label": number % 3,
        "track": rng.random((number, 2)),
        "words": rng.integers(0, 65_536, 3 + number, np.uint16),
        "picture": pixels,
        "photo": png(pixels),
        "caption": "text",
    }


RECORDS = [make_record(number) for number in range(8)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Eight records in three shards, by backend."""
    root = tmp_path_factory.mktemp("slice")
    return {backend: write_records(root / backend, backend, CONTRACT, RECORDS, 3) for backend in BACKENDS}


@pytest.fixture(scope="module")
def opened(paths: dict[str, Path]) -> dict[tuple[str, bool], ShardDataset]:
    return {
        (backend, preload): ShardDataset(path, preload=preload)
        for backend, path in paths.items()
        for preload in (False, True)
    }


@pytest.fixture
def data(opened: dict[tuple[str, bool], ShardDataset]) -> ShardDataset:
    """On memmap shards."""
    return opened["memmap", False]


def as_delivered(field: str, row: int) -> np.ndarray:
    value: np.ndarray = RECORDS[row][field]
    return value.transpose(2, 0, 1) if field == "picture" else value


@st.composite
def basic_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Integers and slices for some of the axes, with an Ellipsis or None among them at times."""
    key: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        whole = st.integers(-size, size - 1) if size else st.slices(0)
        key.append(draw(st.one_of(whole, st.slices(size))))
    if draw(st.booleans()):
        key.append(draw(st.sampled_from([None, ...])))
    return key[0] if len(key) == 1 and draw(st.booleans()) else tuple(key)


@given(data=st.data())
def test_a_part_is_what_numpy_picks_from_the_whole(
    opened: dict[tuple[str, bool], ShardDataset], data: st.DataObject
) -> None:
    row, field = data.draw(st.integers(0, 7)), data.draw(st.sampled_from(ARRAYS))
    whole = as_delivered(field, row)
    key = data.draw(basic_keys(whole.shape))
    for dataset in opened.values():
        part = dataset.slice(row, field, key)
        assert part.dtype == whole.dtype
        assert np.shape(part) == np.shape(whole[key])
        assert np.array_equal(part, whole[key])


def test_it_is_a_part_of_what_the_sample_holds(opened: dict[tuple[str, bool], ShardDataset]) -> None:
    for dataset in opened.values():
        for field in ARRAYS:
            whole = dataset[5][field]
            part = torch.from_numpy(dataset.slice(5, field, np.s_[1:3]).copy())
            assert torch.equal(part.to(whole.dtype), whole[1:3])


@pytest.mark.parametrize("field", ARRAYS)
def test_it_is_a_read_only_view_of_the_memory_map(data: ShardDataset, field: str) -> None:
    first, second = data.slice(7, field, np.s_[:2]), data.slice(7, field, np.s_[1:])
    assert np.shares_memory(first, second)
    with pytest.raises(ValueError, match="read-only"):
        first[...] = 0


def test_a_data_set_in_memory_gives_views_of_that_on_any_backend(
    opened: dict[tuple[str, bool], ShardDataset],
) -> None:
    for backend in BACKENDS:
        dataset = opened[backend, True]
        for field in ARRAYS:
            first, second = dataset.slice(7, field, ...), dataset.slice(7, field, np.s_[1:])
            assert np.shares_memory(first, second)
            assert not first.flags.writeable


def test_it_outlives_the_data_set(paths: dict[str, Path]) -> None:
    parts = [
        ShardDataset(path, preload=preload).slice(2, "volume", 3)
        for path in paths.values()
        for preload in (False, True)
    ]
    for part in parts:
        assert np.array_equal(part, RECORDS[2]["volume"][3])


def resident_kilobytes(name: str) -> int:
    """Return how much of the files of a name is mapped into this process's memory."""
    found, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            found = line.endswith(name)
        elif found and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc/self/smaps")
@pytest.mark.parametrize("shape", [[64, 1 << 20], [-1, 1 << 20]])
def test_only_the_pages_asked_for_come_into_memory(tmp_path: Path, shape: list[int]) -> None:
    contract = Contract.from_dict({"fields": {"volume": {"type": "array", "dtype": "uint8", "shape": shape}}})
    record = {"id": "large", "volume": np.zeros((64, 1 << 20), np.uint8)}
    data = ShardDataset(write_records(tmp_path / "d", "memmap", contract, [record]))
    name = str(tmp_path / "d/shards/00000" / ("volume.npy" if shape[0] == 64 else "volume.bin"))
    part = data.slice(0, "volume", np.s_[10:12, :4096])
    assert not part.any()
    assert 8 <= resident_kilobytes(name) <= 8192
    assert not data.slice(0, "volume", np.s_[:]).any()
    assert resident_kilobytes(name) >= 65536  # so what was measured is what it seems


@pytest.mark.parametrize("index", [-1, np.int64(7), torch.tensor(7)])
def test_the_row_is_an_index_as_of_a_sample(data: ShardDataset, index: Any) -> None:
    assert data.slice(index, "words", 0) == RECORDS[7]["words"][0]


def test_a_row_that_is_none_is_refused(data: ShardDataset) -> None:
    with pytest.raises(IndexError, match="index 8 is out of range: there are 8 records"):
        data.slice(8, "volume", 0)
    with pytest.raises(TypeError, match="not a bool"):
        data.slice(True, "volume", 0)


@pytest.mark.parametrize("field", ["photo", "caption", "label", "nothing"])
def test_a_field_that_holds_no_array_is_refused_naming_those_that_do(data: ShardDataset, field: str) -> None:
    with pytest.raises(
        LookupError, match=f"'{field}' cannot be read in part.*volume, track, words, picture$"
    ):
        data.slice(0, field, 0)


def test_a_field_that_is_not_read_is_refused(paths: dict[str, Path]) -> None:
    for fields, these in ((["words", "photo"], "words$"), (["photo"], "none$")):
        with pytest.raises(LookupError, match=f"'volume' cannot be read in part.*: {these}"):
            ShardDataset(paths["memmap"], fields=fields).slice(0, "volume", 0)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (4, "out of bounds"),
        (np.s_[0, 0, 0, 0], "too many indices"),
        ("a", "only integers, slices"),
        (np.s_["a":], "slice indices must be integers"),
        (np.s_[::0], "slice step cannot be zero"),
        (2**70, "indices"),
    ],
)
def test_a_key_that_does_not_fit_is_an_index_error_naming_record_and_field(
    data: ShardDataset, key: Any, words: str
) -> None:
    with pytest.raises(
        IndexError,
        match=r"shards/00002: row 0 \(id 'r6', .*\), field 'volume', int16\[4, 3, 5\]: .*" + words,
    ):
        data.slice(6, "volume", key)


def test_lists_and_masks_pick_copies(data: ShardDataset) -> None:
    whole = RECORDS[3]["volume"]
    for key in ([3, 0], whole > 0):
        part = data.slice(3, "volume", key)
        assert np.array_equal(part, whole[key])
        assert part.flags.writeable


def test_a_part_is_not_held_against_the_checksum(tmp_path: Path) -> None:
    path = write_records(tmp_path / "d", "memmap", CONTRACT, RECORDS)
    file = path / "shards/00000/track.bin"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    data = ShardDataset(path, verify_checksums=True)
    assert np.array_equal(data.slice(7, "track", np.s_[:-1]), RECORDS[7]["track"][:-1])
    assert data.slice(7, "track", (-1, -1)) != RECORDS[7]["track"][-1, -1]
    with pytest.raises(CorruptShardError, match="checksum"):
        data[7]


def test_sizes_that_do_not_fit_what_is_stored_are_damage(tmp_path: Path) -> None:
    path = write_records(tmp_path / "d", "memmap", CONTRACT, RECORDS)
    file = path / "shards/00000/track.bin"
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(
        CorruptShardError, match=r"shards/00000: row 5 \(id 'r5', .*'track': cannot be decoded"
    ):
        ShardDataset(path).slice(5, "track", 0)
