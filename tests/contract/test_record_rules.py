from pathlib import Path

import pytest

from shardkit.contract import Contract, LabelField, RecordRules
from shardkit.errors import ContractError

FIELDS = {"label": LabelField(num_classes=2)}


def test_the_column_of_the_id_stands_in_the_contract_file_only_if_it_is_set(tmp_path: Path) -> None:
    contract = Contract(FIELDS, RecordRules(id="file name"))
    contract.save(tmp_path / "c.toml")
    assert 'id = "file name"' in (tmp_path / "c.toml").read_text()
    assert Contract.load(tmp_path / "c.toml") == contract
    assert Contract(FIELDS).to_dict()["records"] == {"missing": "reject", "on_bad": "abort"}


@pytest.mark.parametrize("value", ["", 1, True, ["a"]])
def test_the_column_of_the_id_is_a_text(value: object) -> None:
    tables = Contract(FIELDS).to_dict() | {"records": {"id": value}}
    with pytest.raises(ContractError, match=r"\[records\] id = .*: allowed is a text"):
        Contract.from_dict(tables)
