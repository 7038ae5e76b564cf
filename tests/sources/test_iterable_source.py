import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardkit import ingest
from shardkit.contract import (
    ArrayField,
    CheckedRecord,
    Contract,
    Field,
    JsonField,
    LabelField,
    Reason,
    RecordRules,
    Rejection,
    ScalarField,
    TokensField,
)
from shardkit.errors import SourceError
from shardkit.sources import IterableSource, RawRecord, open_source

CONTRACT = Contract({"x": ArrayField("float32", (2,)), "label": LabelField(num_classes=3)})


def record(number: int) -> dict[str, Any]:
    return {"id": f"r{number}", "x": np.full(2, number, np.float32), "label": number % 3}


class MapStyle(torch.utils.data.Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, Any]:
        return record(index)


def judged(source: IterableSource, size: int = 2) -> list[CheckedRecord | Rejection]:
    verdicts: list[CheckedRecord | Rejection] = []
    for part in source.parts(size):
        worker_source, worker_part = pickle.loads(pickle.dumps((source, part)))
        for raw in worker_source.read(worker_part, CONTRACT):
            is_raw = isinstance(raw, RawRecord)
            verdicts.append(CONTRACT.judge(raw.id, raw.source, raw.values) if is_raw else raw)
    return verdicts


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: [record(0), record(1), record(2)], 3),
        (lambda: (record(number) for number in range(3)), None),
        (MapStyle, 3),
    ],
)
def test_lists_generators_and_map_style_data_sets_give_the_same_records(make: Any, count: int | None) -> None:
    source = open_source(make())
    assert isinstance(source, IterableSource)
    assert source.count() == count
    verdicts = judged(source)
    assert [verdict.id for verdict in verdicts] == ["r0", "r1", "r2"]
    assert [verdict.source for verdict in verdicts] == ["record 0", "record 1", "record 2"]
    assert all(isinstance(verdict, CheckedRecord) for verdict in verdicts)


def test_a_generator_is_taken_part_by_part_and_only_once() -> None:
    taken = []

    def make() -> Iterator[dict[str, Any]]:
        for number in range(10):
            taken.append(number)
            yield record(number)

    source = IterableSource(make())
    parts = source.parts(3)
    assert next(parts).ids == ["r0", "r1", "r2"]
    assert taken == [0, 1, 2]
    assert [part.first for part in parts] == [3, 6, 9]
    with pytest.raises(SourceError, match="consumed before"):
        next(source.parts(3))


def test_a_list_may_be_taken_again() -> None:
    source = IterableSource([record(0)])
    assert len(judged(source)) == len(judged(source)) == 1


def test_a_buffer_that_the_program_fills_again_does_not_change_earlier_records() -> None:
    def make() -> Iterator[dict[str, Any]]:
        shared: dict[str, Any] = {"x": np.zeros(2, np.float32), "label": 0}
        for number in range(3):
            shared["id"] = f"r{number}"
            shared["x"][:] = number
            yield shared

    verdicts = judged(IterableSource(make()), size=3)
    assert [
        np.frombuffer(v.values[0].payload, "<f4")[0] for v in verdicts if isinstance(v, CheckedRecord)
    ] == [0, 1, 2]


@pytest.mark.parametrize(
    ("bad", "shown", "reason", "word"),
    [
        ({"label": 1}, "record 1", Reason.BAD_ID, 'no "id"'),
        ({"id": 3}, "record 1", Reason.BAD_ID, "type int"),
        ({"id": ""}, "record 1", Reason.BAD_ID, "empty"),
        ({"id": "\udce9"}, "\\xe9", Reason.BAD_ID, "UTF-8"),
        ((np.zeros(2), 1), "record 1", Reason.BAD_ROW, "is a tuple; expected is a mapping"),
        ({"id": "r1", "x": [0.0, 0.0]}, "r1", Reason.MISSING_FIELD, "'label'"),
    ],
)
def test_a_record_without_a_usable_id_or_shape_is_rejected_and_the_rest_kept(
    bad: Any, shown: str, reason: Reason, word: str
) -> None:
    first, second, third = judged(IterableSource([record(0), bad, record(2)]))
    assert isinstance(second, Rejection)
    assert (second.id, second.reason) == (shown, reason)
    assert word in second.sentence
    assert (first.id, third.id) == ("r0", "r2")


def test_a_source_travels_without_its_records() -> None:
    source = IterableSource([record(number) for number in range(1000)])
    assert len(pickle.dumps(source)) < 500


def test_it_proposes_no_contract() -> None:
    with pytest.raises(SourceError, match="give one"):
        IterableSource([record(0)]).propose()


@pytest.mark.parametrize("raw", [3, None, {"id": "a"}])
def test_what_holds_no_records_is_refused(raw: Any) -> None:
    with pytest.raises(SourceError, match="not a path, an iterable of records"):
        open_source(raw)


class Raising:
    """Raises an error of no kind that anybody expects, whatever is asked of it."""

    def __repr__(self) -> str:
        raise KeyError("repr")

    def __len__(self) -> int:
        raise KeyError("len")

    def __index__(self) -> int:
        raise KeyError("index")

    def __array__(self, *_: object, **__: object) -> Any:
        raise KeyError("array")

    @property
    def nbytes(self) -> int:
        raise KeyError("nbytes")

    @property
    def dtype(self) -> Any:
        raise KeyError("dtype")


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("field", "good", "bad", "reason"),
    [
        pytest.param(ScalarField("float64"), 1, 10**5000, Reason.OUT_OF_RANGE, id="huge-scalar"),
        pytest.param(JsonField(), [1], 10**5000, Reason.BAD_JSON, id="huge-json"),
        (JsonField(), [1], {"a": [10**5000]}, Reason.BAD_JSON),
        (JsonField(), [1], ENDLESS, Reason.BAD_JSON),
        (ArrayField("float32", (1,)), [1], [10**5000], Reason.OUT_OF_RANGE),
        (ArrayField("float32", (2, 2)), np.ones((2, 2), "f4"), torch.eye(2).to_sparse(), Reason.WRONG_TYPE),
        (ScalarField("float32"), 1, torch.tensor(1.0, device="meta"), Reason.WRONG_TYPE),
        (ScalarField("float32"), 1, Raising(), Reason.WRONG_TYPE),
        (ArrayField("float32", (1,)), [1], Raising(), Reason.WRONG_TYPE),
        (ArrayField("float32", (1,)), [1], [Raising()], Reason.WRONG_TYPE),
        (TokensField(), [1], Raising(), Reason.WRONG_TYPE),
        (LabelField(num_classes=2), 1, Raising(), Reason.WRONG_TYPE),
    ],
)
def test_a_value_that_raises_when_it_is_looked_at_costs_its_own_record_only(
    tmp_path: Path, field: Field, good: Any, bad: Any, reason: Reason
) -> None:
    records = [{"id": name, "x": value} for name, value in (("a", good), ("b", bad), ("c", good))]
    report = ingest(records, tmp_path / "out", Contract({"x": field}, RecordRules(on_bad="skip")), workers=0)
    assert report.stored == 2
    assert [(rejection.id, rejection.reason) for rejection in report.rejections] == [("b", reason)]
