import pytest

from shardkit.contract import Contract, ImageField, LabelField, TextField, override
from shardkit.errors import ContractError

CONTRACT = Contract({"left": ImageField(), "right": ImageField(cmyk="convert"), "text": TextField()})


def test_policies_go_to_every_image_field_and_leave_the_rest() -> None:
    changed = override(CONTRACT, {"grayscale": "convert"}, "skip")
    assert changed.fields == {
        "left": ImageField(grayscale="convert"),
        "right": ImageField(grayscale="convert", cmyk="convert"),
        "text": TextField(),
    }
    assert list(changed.fields) == ["left", "right", "text"]
    assert changed.records.on_bad == "skip"
    assert override(CONTRACT, {}) == CONTRACT


@pytest.mark.parametrize(
    ("policies", "on_bad", "text"),
    [
        (
            {"greyscale": "convert"},
            None,
            'greyscale = "convert": unknown key; did you mean "grayscale"?; allowed are mode, grayscale, alpha',
        ),
        ({"kind": "label"}, None, 'kind = "label": unknown key'),
        ({"grayscale": "maybe"}, None, 'grayscale = "maybe": allowed are "reject", "convert"'),
        ({}, "ignore", 'on_bad = "ignore": allowed are "abort"'),
    ],
)
def test_a_setting_that_is_not_allowed_is_named_with_what_is(
    policies: dict[str, str], on_bad: str | None, text: str
) -> None:
    with pytest.raises(ContractError) as caught:
        override(CONTRACT, policies, on_bad)
    assert text in str(caught.value)


def test_a_policy_needs_an_image_field() -> None:
    with pytest.raises(ContractError, match="grayscale is set, but the contract has no image field"):
        override(Contract({"label": LabelField(num_classes=2)}), {"grayscale": "convert"})
