import json
import math
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardkit.contract import (
    ArrayField,
    BytesField,
    CheckedRecord,
    Contract,
    Field,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    Rejection,
    ScalarField,
    TextField,
    TokensField,
)
from shardkit.errors import ContractError

FIELDS: list[tuple[Field, Any]] = [
    (LabelField(classes=("cat", "dog"), default="dog"), 1),
    (LabelField(num_classes=3, default="2"), 2),
    (LabelField(num_classes=3, first=1, default=3), 2),
    (ScalarField("int64", default=-1), -1),
    (ScalarField("float32", default="0.5"), 0.5),
    (ScalarField("bool", default=False), False),
    (ArrayField("int16", (2, 2), default=[[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (ArrayField("float32", (2,), default=0.5), [0.5, 0.5]),
    (ArrayField("int64", (2,), default=2**63 - 1), [2**63 - 1] * 2),
    (ArrayField("bool", (2,), default=True), [True, True]),
    (ArrayField("uint8", (-1, 2), default=[[1, 2]]), [[1, 2]]),
    (ArrayField("uint8", (-1,), default=[]), []),
    (TextField(default=""), ""),
    (TextField(default="wörd"), "wörd"),
    (TextField(encoding="utf-16", default="wörd"), "wörd"),
    (BytesField(default="wörd"), "wörd".encode()),
    (BytesField(default=b""), b""),
    (JsonField(default={"a": [1, None]}), {"a": [1, None]}),
    (JsonField(default="null"), None),
    (TokensField(default=[]), []),
    (TokensField(default="5 6"), [5, 6]),
]


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize(("field", "expected"), FIELDS)
def test_a_record_without_a_value_is_given_the_default_and_counted(field: Field, expected: Any) -> None:
    contract = Contract({"x": field})
    for values in ({}, {"x": None}):
        record = contract.judge("a", "", values)
        assert isinstance(record, CheckedRecord)
        assert plain(field.decode(record.values[0].payload)) == expected
        assert record.values[0].converted == ("default",)


@pytest.mark.parametrize(("field", "expected"), FIELDS)
def test_a_default_comes_back_from_file_json_and_pickle(field: Field, expected: Any, tmp_path: Path) -> None:
    contract = Contract({"x": field})
    contract.save(tmp_path / "contract.toml")
    text = json.dumps(contract.to_dict(), allow_nan=False)
    for again in (
        Contract.load(tmp_path / "contract.toml"),
        Contract.from_dict(json.loads(text)),
        pickle.loads(pickle.dumps(contract)),
    ):
        assert again == contract
        assert json.dumps(again.to_dict()) == text
        assert plain(again.fields["x"].decode(again.check({"id": "a"}).values[0].payload)) == expected


def test_a_field_without_a_default_has_no_such_key_and_rejects_as_ever() -> None:
    contract = Contract({"x": ScalarField("int8"), "y": ScalarField("int8", default=0)})
    assert contract.to_dict()["fields"]["x"] == {"type": "scalar", "dtype": "int8", "finite": True}
    verdict = contract.judge("a", "", {"y": 1})
    assert isinstance(verdict, Rejection)
    assert (verdict.reason, verdict.field) == (Reason.MISSING_FIELD, "x")


def test_a_value_that_is_there_is_kept_and_a_bad_one_is_still_rejected() -> None:
    contract = Contract({"x": ScalarField("int8", default=7)})
    assert contract.check({"id": "a", "x": 0}).values[0].payload == b"\0"
    assert contract.check({"id": "a", "x": 0}).values[0].converted == ()
    verdict = contract.judge("a", "", {"x": "much"})
    assert isinstance(verdict, Rejection)
    assert verdict.reason is Reason.WRONG_TYPE


def test_an_empty_cell_is_the_default_but_for_text_which_may_be_empty() -> None:
    contract = Contract({"n": ScalarField("int8", default=7), "t": TextField(default="none")})
    record = contract.check({"id": "a", "n": "", "t": ""})
    assert [checked.payload for checked in record.values] == [b"\x07", b""]


def test_values_stay_in_contract_order_whichever_are_missing() -> None:
    specs = {name: ScalarField("uint8", default=number) for number, name in enumerate("cab")}
    record = Contract(specs).check({"id": "a", "a": 9})
    assert [checked.payload for checked in record.values] == [b"\0", b"\x09", b"\x02"]
    assert list(Contract.from_dict(Contract(specs).to_dict()).fields) == ["c", "a", "b"]


def test_default_is_the_last_key_of_a_table_and_of_what_is_allowed() -> None:
    assert list(ScalarField("int8", default=0).to_dict()) == ["type", "dtype", "finite", "default"]
    with pytest.raises(ContractError, match=r"allowed are dtype, min, max, finite, default$"):
        Contract.from_dict({"fields": {"x": {"type": "scalar", "dtype": "int8", "defalt": 0}}})


def test_a_truncated_default_is_counted_for_both() -> None:
    field = TokensField(max_length=1, overflow="truncate", default=[1, 2])
    assert Contract({"x": field}).check({"id": "a"}).values[0].converted == ("overflow", "default")


@pytest.mark.parametrize("value", [math.nan, np.float32("nan"), "nan"])
def test_a_default_that_is_not_a_number_stands_in_the_contract_as_text(value: object) -> None:
    for field in (
        ScalarField("float32", finite=False, default=value),
        ArrayField("float32", (2,), finite=False, default=value),
    ):
        assert field.to_dict()["default"] == "nan"
        assert np.isnan(field.decode(Contract({"x": field}).check({"id": "a"}).values[0].payload)).all()


@pytest.mark.parametrize(
    "value", [np.array([[1], [2]]), torch.tensor([[1], [2]]), ((1,), (2,)), [[np.int8(1)], [2]]]
)
def test_arrays_and_tuples_stand_in_the_contract_as_lists_of_their_own(value: Any) -> None:
    field = ArrayField("int8", (-1, 1), default=value)
    assert field.default == [[1], [2]]
    assert field == ArrayField("int8", (-1, 1), default=[[1], [2]])
    assert hash(field) == hash(ArrayField("int8", (-1, 1)))
    field.to_dict()["default"].append(3)
    assert field.default == [[1], [2]]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"type": "label", "classes": ["cat"], "default": "cow"},
            "default = \"cow\": the label is 'cow', which is no",
        ),
        (
            {"type": "label", "num_classes": 3, "default": 3},
            "default = 3: the label is 3; allowed are 0 to 2",
        ),
        ({"type": "label", "num_classes": 3, "default": True}, "default = true: "),
        ({"type": "scalar", "dtype": "uint8", "default": 256}, "default = 256: the value is 256; allowed"),
        ({"type": "scalar", "dtype": "uint8", "default": ""}, 'default = "": the value is'),
        ({"type": "scalar", "dtype": "float32", "default": math.nan}, 'default = "nan": the value is'),
        (
            {"type": "array", "dtype": "uint8", "shape": [2], "default": [1]},
            "default = [1]: the array's shape is [1]",
        ),
        ({"type": "array", "dtype": "uint8", "shape": [-1], "default": 0}, "default = 0: where an axis"),
        (
            {"type": "array", "dtype": "uint8", "shape": [2], "max": 3, "default": 4},
            "default = 4: the value is 4",
        ),
        (
            {"type": "array", "dtype": "uint8", "shape": [2], "default": {}},
            "default = {}: a value of type dict",
        ),
        (
            {"type": "array", "dtype": "float32", "shape": [1], "finite": False, "default": [math.nan]},
            "type str",
        ),
        ({"type": "text", "default": 3}, "default = 3: a value of type int is no text"),
        ({"type": "text", "max_length": 1, "default": "ab"}, 'default = "ab": the text has 2 characters'),
        ({"type": "text", "default": "\ud800"}, "lone surrogate"),
        ({"type": "text", "default": b"a"}, "a value of type bytes is neither"),
        ({"type": "bytes", "default": 3}, "default = 3: a value of type int is no bytes"),
        ({"type": "bytes", "default": b"\xff"}, "these bytes are not UTF-8"),
        ({"type": "bytes", "max_bytes": 1, "default": "é"}, "2 bytes; at most 1"),
        ({"type": "json", "default": "{"}, 'default = "{": the text cannot be taken'),
        ({"type": "json", "default": math.inf}, "NaN or infinity"),
        ({"type": "tokens", "vocab_size": 3, "default": [3]}, "default = [3]: the tokens reach"),
        ({"type": "tokens", "default": 3}, "default = 3: a value of type int is no array"),
        ({"type": "image", "default": "cat.jpg"}, 'default = "cat.jpg": an image field takes none'),
    ],
)
def test_a_default_that_does_not_fit_is_refused_naming_field_key_and_why(
    table: dict[str, Any], said: str
) -> None:
    with pytest.raises(ContractError) as caught:
        Contract.from_dict({"fields": {"x": table}})
    assert str(caught.value).startswith("[fields.x] default = ")
    assert said in str(caught.value)
    assert caught.value.context["keys"] == ("fields", "x", "default")
    assert "\n" not in str(caught.value)


def test_a_contract_with_a_large_default_is_read_without_making_it() -> None:
    tracemalloc.start()
    try:
        field = ArrayField("uint8", (2**26,), default=0)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert field.default == 0


@pytest.mark.parametrize("kind", [TextField, BytesField, JsonField, TokensField])
def test_lists_without_end_are_refused_in_one_line(kind: type[Field]) -> None:
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(ContractError, match=r"^default = \[\[\[\[…\]\]\]\]: .*(nested deeper|no bytes)"):
        kind(default=deep)


def test_an_image_made_in_python_takes_no_default_either() -> None:
    with pytest.raises(ContractError, match="an image field takes none"):
        ImageField(default=b"")
