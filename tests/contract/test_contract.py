import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.contract import (
    ArrayField,
    BytesField,
    Checked,
    CheckedRecord,
    Contract,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    RecordRules,
    Rejection,
    ScalarField,
    TextField,
    TokensField,
)
from shardkit.errors import ContractError, RecordRejectedError

CONTRACT = Contract({"label": LabelField(classes=("cat", "dog")), "weight": ScalarField("float32")})


def test_a_record_that_fits_gives_one_checked_value_a_field_in_contract_order() -> None:
    record = CONTRACT.judge("a/1.jpg", "a/1.jpg", {"weight": 0.5, "label": "dog"})
    assert isinstance(record, CheckedRecord)
    assert (record.id, record.source) == ("a/1.jpg", "a/1.jpg")
    assert [bytes(checked.payload) for checked in record.values] == [
        b"\x01\0\0\0\0\0\0\0",
        np.float32(0.5).tobytes(),
    ]
    assert [checked.seen for checked in record.values] == ["dog", ""]


def test_a_misfit_is_rejected_with_id_source_field_and_reason() -> None:
    verdict = CONTRACT.judge("x", "t.csv line 7", {"label": "cow", "weight": 1.0})
    assert isinstance(verdict, Rejection)
    assert (verdict.id, verdict.source, verdict.field) == ("x", "t.csv line 7", "label")
    assert verdict.reason is Reason.LABEL_UNKNOWN


@pytest.mark.parametrize("weight", [None, ""])
def test_a_value_that_is_not_there_is_a_missing_field(weight: object) -> None:
    verdict = CONTRACT.judge("x", "", {"label": "cat", "weight": weight})
    assert isinstance(verdict, Rejection)
    assert (verdict.reason, verdict.field) == (Reason.MISSING_FIELD, "weight")


def test_a_field_that_the_record_lacks_is_a_missing_field() -> None:
    verdict = CONTRACT.judge("x", "", {"label": "cat"})
    assert isinstance(verdict, Rejection)
    assert (verdict.reason, verdict.field) == (Reason.MISSING_FIELD, "weight")


@pytest.mark.parametrize(
    ("record_id", "shown", "word"),
    [
        ("", "", "empty"),
        ("  ", "  ", "blank"),
        ("a\0b", "a\\x00b", "NUL"),
        ("caf\udce9.jpg", "caf\\xe9.jpg", "UTF-8"),
        ("\ud800", "\\ud800", "UTF-8"),
        (7, "7", "int"),
    ],
)
def test_a_bad_id_is_rejected_and_shown_as_text_that_utf8_can_hold(
    record_id: str, shown: str, word: str
) -> None:
    verdict = CONTRACT.judge(record_id, "", {"label": "cat", "weight": 1})
    assert isinstance(verdict, Rejection)
    assert (verdict.reason, verdict.id) == (Reason.BAD_ID, shown)
    assert word in verdict.sentence
    json.dumps(verdict.to_dict(), ensure_ascii=False).encode("utf-8")


def test_an_id_may_have_65535_bytes_and_no_more() -> None:
    values = {"label": "cat", "weight": 1}
    assert isinstance(CONTRACT.judge("é" * 32_767 + "a", "", values), CheckedRecord)
    verdict = CONTRACT.judge("é" * 32_768, "", values)
    assert isinstance(verdict, Rejection)
    assert "65536 bytes" in verdict.sentence
    assert len(verdict.id) < 300


def test_check_returns_a_record_and_passes_over_entries_that_are_no_field() -> None:
    record = CONTRACT.check({"id": "a", "label": 1, "weight": 2, "photographer": "x"})
    assert record.values[0].seen == "dog"


def test_check_raises_with_id_field_reason_and_sentence() -> None:
    with pytest.raises(
        RecordRejectedError, match=r"record 'a', field 'label': label-unknown: .*'dgo'"
    ) as caught:
        CONTRACT.check({"id": "a", "label": "dgo", "weight": 2})
    assert caught.value.context["reason"] is Reason.LABEL_UNKNOWN


def test_check_of_a_record_without_an_id_says_so() -> None:
    with pytest.raises(RecordRejectedError, match="bad-id: the id is empty"):
        CONTRACT.check({"label": "cat", "weight": 2})


def test_the_mask_of_a_field_that_is_not_padded_may_be_a_field() -> None:
    fields = {"x": ArrayField("int8", (-1,)), "x_mask": ArrayField("bool", (-1,))}
    assert list(Contract(fields).fields) == ["x", "x_mask"]
    with pytest.raises(ContractError, match="'x_mask'"):
        Contract(fields | {"x": ArrayField("int8", (-1,), pad_value=0)})


def test_several_image_fields_are_judged_each_on_its_own() -> None:
    contract = Contract({"left": ImageField(), "right": ImageField()})
    verdict = contract.judge("a", "", {"left": None, "right": b""})
    assert isinstance(verdict, Rejection)
    assert verdict.field == "left"


def test_a_contract_survives_pickling_with_its_order() -> None:
    contract = Contract({"b": TextField(), "a": TextField()})
    again = pickle.loads(pickle.dumps(contract))
    assert again == contract
    assert list(again.fields) == ["b", "a"]


def test_a_contract_does_not_follow_later_changes_of_the_mapping_it_was_made_of() -> None:
    specs = {"a": TextField()}
    contract = Contract(specs)
    specs["b"] = TextField()
    assert list(contract.fields) == ["a"]


@pytest.mark.parametrize("name", ["id", "is_pad", "checksum", "a b", "1a", "", "é", "a" * 65, "a.b"])
def test_a_name_that_may_not_name_a_field_is_refused(name: str) -> None:
    with pytest.raises(ContractError, match="field name"):
        Contract({name: TextField()})


@pytest.mark.parametrize(
    ("tables", "text", "keys"),
    [
        ({}, "has no fields", ()),
        ({"fields": {}}, "has no fields", ()),
        ({"fields": 3}, "fields = 3: it must be a table", ("fields",)),
        ({"feilds": {}}, '[feilds]: unknown table; did you mean "fields"?', ("feilds",)),
        ({"fields": {"a": 3}}, "fields.a = 3: it must be a table", ("fields", "a")),
        ({"fields": {"a": {}}}, '[fields.a] no key "type"', ("fields", "a")),
        (
            {"fields": {"a": {"type": "imag"}}},
            '[fields.a] type = "imag": allowed are "image", "label", "scalar", "array", "text", "tokens", '
            '"bytes", "json"; did you mean "image"?',
            ("fields", "a", "type"),
        ),
        (
            {"fields": {"a": {"type": "label", "class": ["x"]}}},
            '[fields.a] class = ["x"]: unknown key; did you mean "classes"?; allowed are classes',
            ("fields", "a", "class"),
        ),
        ({"fields": {"a": {"type": "scalar"}}}, '[fields.a] no key "dtype"', ("fields", "a")),
        (
            {"fields": {"a": {"type": "image", "grayscale": "maybe"}}},
            '[fields.a] grayscale = "maybe": allowed are "reject", "convert"',
            ("fields", "a", "grayscale"),
        ),
        (
            {"fields": {"a": {"type": "text"}}, "records": {"on_bad": "ignore"}},
            '[records] on_bad = "ignore": allowed are "abort", "quarantine", "skip"',
            ("records", "on_bad"),
        ),
        (
            {"fields": {"id": {"type": "text"}}},
            "[fields.id] field name 'id' is not allowed",
            ("fields", "id"),
        ),
        (
            {"fields": {"x": {"type": "tokens"}, "x_mask": {"type": "text"}}},
            "field name 'x_mask' is not allowed: batches hold the mask of 'x' under it",
            ("fields", "x_mask"),
        ),
    ],
)
def test_wrong_tables_are_refused_naming_table_key_and_what_is_allowed(
    tables: dict[str, object], text: str, keys: tuple[str, ...]
) -> None:
    with pytest.raises(ContractError) as caught:
        Contract.from_dict(tables)
    assert text in str(caught.value)
    assert caught.value.context.get("keys", ()) == keys


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_LABELS = st.one_of(
    st.builds(LabelField, classes=st.lists(_WORDS, min_size=1, max_size=5, unique=True).map(tuple)),
    st.builds(LabelField, num_classes=st.integers(1, 2**63 - 1)),
)
_BOUNDS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(-1e300, 1e300, allow_nan=False))
_SCALARS = st.builds(
    lambda low, high, finite: (
        ScalarField("float64", low, high, finite)
        if low is None or high is None or low <= high
        else ScalarField("int8", finite=finite)
    ),
    _BOUNDS,
    _BOUNDS,
    st.booleans(),
)
_ARRAYS = st.builds(
    ArrayField,
    dtype=st.sampled_from(["uint8", "float32", "int64"]),
    shape=st.lists(st.sampled_from([-1, 1, 7, 32]), min_size=1, max_size=4).map(tuple),
)
_IMAGES = st.builds(ImageField, grayscale=st.sampled_from(["reject", "convert"]), min_size=st.just((2, 3)))
_FIELDS = st.one_of(
    _LABELS,
    _SCALARS,
    _ARRAYS,
    _IMAGES,
    st.builds(TextField, st.none() | st.integers(1, 2**31)),
    st.builds(TextField, encoding=st.sampled_from(["utf-8", "cp1252"]), default=st.none() | _WORDS),
    st.builds(
        TokensField,
        dtype=st.sampled_from(["int32", "uint16"]),
        pad_value=st.integers(-1, 5),
        default=st.none() | st.lists(st.integers(0, 9), max_size=4),
    ),
    st.builds(BytesField, st.none() | st.integers(1, 2**40)),
    st.just(JsonField()),
)
_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,10}", fullmatch=True).filter(
    lambda name: name not in ("id", "is_pad", "checksum") and not name.endswith("_mask")
)
_CONTRACTS = st.builds(
    Contract,
    st.dictionaries(_NAMES, _FIELDS, min_size=1, max_size=5),
    st.builds(RecordRules, on_bad=st.sampled_from(["abort", "quarantine", "skip"])),
)


@given(_CONTRACTS)
def test_any_contract_comes_back_from_its_file_and_from_its_json(
    tmp_path_factory: pytest.TempPathFactory, contract: Contract
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    contract.save(path)
    loaded = Contract.load(path)
    assert loaded == contract
    assert list(loaded.fields) == list(contract.fields)
    assert Contract.from_dict(json.loads(json.dumps(contract.to_dict()))) == contract


def test_a_fault_of_ours_is_not_taken_for_one_of_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TextField, value: object) -> Checked:
        raise KeyError("ours")

    monkeypatch.setattr(TextField, "check", fail)
    contract = Contract({"text": TextField()})
    with pytest.raises(KeyError, match="ours"):
        contract.judge("a", "", {"text": "plain"})
    verdict = contract.judge("a", "", {"text": object()})
    assert isinstance(verdict, Rejection)
    assert verdict.sentence == "a value of type object cannot be looked at: it raises KeyError"
