"""What is loaded as a state: refused, in plain words, where it does not continue the sequence it is loaded into."""

from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    Contract,
    LabelField,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    ingest,
)
from shardkit.errors import StateError

CONTRACT = Contract({"label": LabelField(num_classes=3)})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("state") / "out"
    ingest([{"id": f"r{row}", "label": row % 3} for row in range(23)], out, CONTRACT, workers=0)
    return out


def test_a_state_of_another_generation_is_refused_in_plain_words(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ingest([{"id": "a", "label": 0}], out, CONTRACT, workers=0)
    state = ShardLoader(out, 2).state_dict()
    ingest([{"id": "b", "label": 0}], out, workers=0, append=True)
    for source in (ShardIterableDataset(out, 2), ShardSampler(ShardDataset(out), 2), ShardLoader(out, 2)):
        with pytest.raises(StateError, match=r"out: .* generation 1 .* generation 2 .* begin an epoch anew"):
            source.load_state_dict(state)
        assert len(source) == 1


def test_a_state_of_another_data_set_or_sampling_is_refused_by_what_differs(
    path: Path, tmp_path: Path
) -> None:
    state = ShardLoader(path).state_dict()
    ingest([{"id": "a", "label": 0}], tmp_path / "out", CONTRACT, workers=0)
    with pytest.raises(StateError, match=f"of data set {state['dataset_id']}"):
        ShardLoader(tmp_path / "out").load_state_dict(state)
    with pytest.raises(StateError, match="shuffle"):
        ShardLoader(path, shuffle=False).load_state_dict(state)
    with pytest.raises(StateError, match="rows, weights or strata"):
        ShardLoader(path, rows=[1, 2]).load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [{"position": -1}, {"position": 24}, {"epoch": -1}, {"epoch": "1"}, {"seed": None}, {"version": 2}],
)
def test_a_state_that_cannot_be_is_refused_by_name(path: Path, change: dict[str, Any]) -> None:
    loader = ShardLoader(path)
    with pytest.raises(StateError, match=next(iter(change))):
        loader.load_state_dict(loader.state_dict() | change)


@pytest.mark.parametrize("other", [{}, [], {"model": {}}])
def test_what_is_no_state_is_refused(path: Path, other: Any) -> None:
    with pytest.raises(StateError, match="no state"):
        ShardLoader(path).load_state_dict(other)
