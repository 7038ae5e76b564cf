"""Where a caller's arrays, ids and class numbers come in: what torch or numpy trips over is taken, or refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from read_datasets import write_records

from shardkit import Contract, ShardDataset, ShardIterableDataset
from shardkit.errors import RecordNotFoundError
from shardkit.store import Store

COUNT = 40


def write(root: Path, fields: dict[str, Any]) -> Path:
    """Forty records r0, r1, ...; the label is the row modulo 4, every other field the row."""
    records = [
        {"id": f"r{row}", **{name: row % 4 if name == "label" else row for name in fields}}
        for row in range(COUNT)
    ]
    return write_records(root, "memmap", Contract.from_dict({"fields": fields}), records)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fields = {"label": {"type": "label", "num_classes": 4}, "age": {"type": "scalar", "dtype": "int32"}}
    return write(tmp_path_factory.mktemp("borders") / "data", fields)


@pytest.fixture(scope="module")
def two_labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    label = {"type": "label", "num_classes": COUNT}
    return write(tmp_path_factory.mktemp("borders") / "data", {"kind": label, "site": label})


def read_only(values: Any) -> Any:
    values.setflags(write=False)
    return values


def drawn(path: Path, weights: Any) -> list[str]:
    data = ShardIterableDataset(path, 10, weights=weights, num_samples=200, seed=5)
    return [record_id for batch in data for record_id in batch["id"]]


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [
        np.arange(COUNT, dtype=np.float64)[::-1],
        np.arange(COUNT)[::-1],
        np.repeat(np.arange(COUNT, dtype=np.float64)[::-1], 2)[::2],
        read_only(np.arange(COUNT, dtype=np.float64)[::-1].copy()),
        np.arange(COUNT, dtype=">f8")[::-1],
    ],
    ids=["backwards", "integers", "strided", "read-only", "big-endian"],
)
def test_weights_of_any_layout_draw_alike(path: Path, weights: Any) -> None:
    assert drawn(path, weights) == drawn(path, [float(COUNT - 1 - row) for row in range(COUNT)])


def test_weights_are_a_copy_of_what_was_given(path: Path) -> None:
    weights = np.ones(COUNT)
    data = ShardIterableDataset(path, 10, weights=weights)
    before = data.state_dict()
    weights[:] = np.arange(COUNT)
    assert data.state_dict() == before
    data.set_weights({"r3": 9.0})
    assert weights[3] == 3


@pytest.mark.parametrize("rows", [None, [1, 2, 3]])
def test_weights_whose_sum_overflows_are_refused(path: Path, rows: Sequence[int] | None) -> None:
    with pytest.raises(ValueError, match=r"weights .* sum"):
        ShardIterableDataset(path, weights=np.full(COUNT, 1e308), rows=rows)


def test_weights_of_rows_that_are_not_chosen_do_not_count_in_the_sum(path: Path) -> None:
    data = ShardIterableDataset(path, weights=np.full(COUNT, 1e308), rows=[7])
    assert [record_id for batch in data for record_id in batch["id"]] == ["r7"]


def test_changed_weights_whose_sum_overflows_are_refused_and_change_nothing(path: Path) -> None:
    data = ShardIterableDataset(path, 10, weights=np.ones(COUNT))
    before = data.state_dict()
    with pytest.raises(ValueError, match=r"weights .* sum"):
        data.set_weights({"r1": 1e308, "r2": 1e308})
    assert data.state_dict() == before


# --- choosing rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [np.array([1, 3]), np.array([1, 3], dtype=np.uint8), [np.int32(1), 3], np.array([3, 1, 3])]
)
def test_numpy_integers_are_class_numbers(path: Path, labels: Any) -> None:
    data = ShardDataset(path)
    assert data.select(labels=labels).tolist() == [row for row in range(COUNT) if row % 4 in (1, 3)]
    assert data.select(labels=np.unique(data.labels)).tolist() == list(range(COUNT))


@pytest.mark.parametrize("label", [True, np.True_, 1.0, np.float64(1), np.int64(4), np.int64(-1), 4, "1"])
def test_what_is_no_class_number_is_refused(path: Path, label: Any) -> None:
    with pytest.raises(LookupError, match="has no class"):
        ShardDataset(path).select(labels=[label])


def test_one_id_is_one_id(path: Path) -> None:
    data = ShardDataset(path)
    assert data.select(ids="r12").tolist() == data.select(ids=["r12"]).tolist() == [12]
    assert data.select(ids=np.array(["r3", "r1"])).tolist() == [1, 3]
    with pytest.raises(RecordNotFoundError, match="'nobody'"):
        data.select(ids="nobody")


def test_a_row_number_beyond_int64_is_no_row(path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows must lie in \[0, 40\)"):
        ShardIterableDataset(path, rows=np.array([2**64 - 1], dtype=np.uint64))


# --- the label field -------------------------------------------------------------------------------------------------


def test_which_label_field_is_meant_is_asked_in_the_same_words_everywhere(two_labels: Path) -> None:
    said = rf"^{two_labels}: the contract has label fields kind, site: choose one with column\(name\)$"
    data = ShardDataset(two_labels)
    with pytest.raises(LookupError, match=said):
        _ = data.labels
    with pytest.raises(LookupError, match=said):
        data.select(labels=[1])
    with pytest.raises(LookupError, match=said):
        ShardIterableDataset(two_labels, weights={"0": 1.0})


@pytest.mark.parametrize("name", ["age", "nothing"])
def test_a_name_that_is_no_label_field_is_answered_with_those_that_are(path: Path, name: str) -> None:
    with pytest.raises(LookupError, match=rf"^{path}: '{name}' is no label field; these are: label$"):
        ShardIterableDataset(path, stratify=name)


def test_a_named_label_field_is_found_among_several(two_labels: Path) -> None:
    data = ShardIterableDataset(two_labels, batch_size=COUNT, stratify="site")
    assert sorted(next(iter(data))["site"].tolist()) == list(range(COUNT))


# --- preloading ------------------------------------------------------------------------------------------------------


def test_rows_of_fixed_size_are_gone_through_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    payloads = Store.payloads
    monkeypatch.setattr(
        Store, "payloads", lambda store, row, columns: taken.append(row) or payloads(store, row, columns)
    )
    data = ShardDataset(path, preload=True)
    assert taken == list(range(COUNT))
    assert data[7]["age"] == 7
