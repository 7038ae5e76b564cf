"""What the documents say of the contract is what the code does."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from shardkit.contract import Contract, ImageField, Reason, Warned

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = (ROOT / "docs" / "contract.md").read_text()


def test_the_examples_are_contracts() -> None:
    for document in (CONTRACT, (ROOT / "README.md").read_text()):
        for example in re.findall(r"```toml\n(.*?)```", document, re.DOTALL):
            assert Contract.from_dict(tomllib.loads(example)).fields


def test_every_key_of_an_image_is_documented() -> None:
    assert [key.name for key in fields(ImageField) if f"`{key.name}`" not in CONTRACT] == []


def test_every_code_is_documented_and_no_other() -> None:
    section = CONTRACT.split("## Reasons")[1].split("## Folders")[0]
    documented = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)*)`", section))
    assert documented == {code.value for code in (*Reason, *Warned)}
