"""One key of a field at a time holds something else: that is a valid contract or a ContractError, never a traceback."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.contract.kinds import KINDS, build_field
from shardkit.errors import ContractError

TABLES: dict[str, dict[str, Any]] = {
    "image": {
        "mode": "RGB",
        "grayscale": "reject",
        "alpha": "drop",
        "cmyk": "convert",
        "depth16": "convert",
        "palette": "reject",
        "animated": "first",
        "orientation": "ignore",
        "formats": ["jpeg", "png"],
        "warnings": "reject",
        "min_size": [1, 1],
        "max_size": [64, 64],
        "size": [32, 32],
        "max_pixels": 4096,
        "store": "jpeg",
        "max_side": 32,
        "quality": 90,
        "subsampling": "420",
    },
    "label": {"classes": ["cat", "dog"], "first": 1},
    "scalar": {"dtype": "float32", "min": -1.0, "max": 1.0, "finite": True},
    "array": {"dtype": "int16", "shape": [-1, 3], "min": -1, "max": 1, "finite": True, "pad_value": 0},
    "text": {"max_length": 10, "min_length": 1, "encoding": "cp1252"},
    "tokens": {
        "dtype": "uint16",
        "max_length": 10,
        "min_length": 1,
        "overflow": "truncate",
        "vocab_size": 10,
        "pad": "max_length",
        "pad_value": -100,
    },
    "bytes": {"max_bytes": 10},
    "json": {},
}
MAY_BE_LEFT_OPEN = {
    *("size", "max_side", "quality", "subsampling", "min", "max", "max_length", "max_bytes"),
    *("pad_value", "vocab_size"),
}
NEEDED = {
    ("tokens", "max_length"),
    ("tokens", "pad_value"),
}  # truncation needs the one; the other is a number always
KEYS = [("label", "num_classes"), *((kind, key) for kind, table in TABLES.items() for key in table)]
NEVER_RIGHT = [
    b"x",
    math.nan,
    -math.inf,
    10**400,
    -(10**5000),
    "\ud800",
    "line\nbreak",
    {"a": 10**5000},
    {},
    [],
    [[]],
    [None, None],
    [True, True],
    [math.nan, 1],
    [10**5000, 1],
    [np.array([1, 2]), 1],
    np.zeros((3, 3)),
    np.array(["cat", "dog"]),
    object(),
    {"cat", "dog"},
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


def table_with(kind: str, key: str, value: Any) -> dict[str, Any]:
    table = {} if key == "num_classes" else TABLES[kind]
    return {"type": kind, **table, key: value}


def test_every_kind_is_tried() -> None:
    assert TABLES.keys() == KINDS.keys()
    for kind, table in TABLES.items():
        assert build_field({"type": kind, **table}).kind == kind


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_what_is_right_for_no_key_is_refused_in_one_line_that_names_the_key(kind: str, key: str) -> None:
    for value in NEVER_RIGHT:
        with pytest.raises(ContractError) as caught:
            build_field(table_with(kind, key, value))
        assert caught.value.context["key"] == key
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_only_a_limit_may_be_none(kind: str, key: str) -> None:
    table = table_with(kind, key, None)
    if key in MAY_BE_LEFT_OPEN and (kind, key) not in NEEDED:
        assert key not in build_field(table).to_dict()
    else:
        with pytest.raises(ContractError):
            build_field(table)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KEYS), ANYTHING)
def test_anything_at_all_makes_a_field_or_a_contract_error(place: tuple[str, str], value: Any) -> None:
    table = table_with(*place, value)
    try:
        field = build_field(table)
    except ContractError:
        return
    assert build_field(field.to_dict()) == field
