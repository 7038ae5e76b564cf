"""docs/contract.md says what each key of each type means."""

import re
from pathlib import Path

import pytest

from shardkit.contract.field import keys_of
from shardkit.contract.kinds import KINDS
from shardkit.contract.text import ENCODINGS
from shardkit.contract.tokens import DTYPES

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text()


def section(kind: str) -> str:
    return DOCUMENT.split(f'## `type = "{kind}"`\n')[1].split("\n## ")[0]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "json"])
def test_the_table_of_a_type_has_its_keys_and_no_others(kind: str) -> None:
    first_cells = re.findall(r"^\| (`.*?) \|", section(kind), re.MULTILINE)
    documented = [key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)]
    own = [key.name for key in keys_of(KINDS[kind]) if not key.kw_only]
    assert sorted(documented) == sorted(own)


def test_every_encoding_and_every_dtype_of_tokens_is_named_in_order() -> None:
    assert ", ".join(f'`"{name}"`' for name in ENCODINGS) in section("text")
    assert ", ".join(f'`"{name}"`' for name in DTYPES) in section("tokens")


def test_json_has_no_key_but_the_default_that_all_types_share() -> None:
    assert [key.name for key in keys_of(KINDS["json"])] == ["default"]
    assert "## `default`" in DOCUMENT
