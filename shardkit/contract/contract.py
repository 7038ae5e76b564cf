"""The contract: which fields a record has, and the judgement of one record against them.

It knows nothing of where records come from or go to. The contract file is read and written in
``toml_file.py``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from shardkit.contract.field import Checked, Field, FileContent, Violation, check_field_name, mask_name
from shardkit.contract.keys import check_choice, check_text, show_value, wrong_key
from shardkit.contract.kinds import build_field, build_from_keys, did_you_mean
from shardkit.contract.reasons import Reason
from shardkit.contract.record_id import find_id_fault, show_id
from shardkit.contract.rejection import Rejection
from shardkit.contract.toml_file import TomlFile, render_toml, write_text
from shardkit.errors import ContractError, RecordRejectedError

_TABLES = ("fields", "records")
_PLAIN = (str, bytes, int, float, FileContent, np.generic, np.ndarray)
"""Values that run no code of their own when they are judged: what is raised then is a fault of ours."""


@dataclass(frozen=True)
class RecordRules:
    """What names a record, and what happens to one that does not fit.

    Attributes:
        missing: A record that lacks a field which has no default: ``"reject"``.
        on_bad: What a rejected record does to the run: ``"abort"`` commits nothing, ``"quarantine"`` copies
            the original aside and goes on, ``"skip"`` reports it and goes on.
        id: Column that names the records, where rows have columns; None takes the usual ones, ``id`` first.
    """

    missing: str = "reject"
    on_bad: str = "abort"
    id: str | None = None

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, ("reject",))
        check_choice("on_bad", self.on_bad, ("abort", "quarantine", "skip"))
        if self.id is not None:
            check_text("id", self.id)


@dataclass(frozen=True)
class CheckedRecord:
    """A record that fits the contract.

    Attributes:
        id: The record's name.
        source: Where it stands in the raw input.
        values: One checked value a field, in contract order.
    """

    id: str
    source: str
    values: tuple[Checked, ...]


@dataclass(frozen=True)
class Contract:
    """What every record of a data set must be.

    Attributes:
        fields: Name to field; the order is the order of the stored columns.
        records: What happens to a record that does not fit.

    Raises:
        ContractError: There is no field, or a name may not name one: of its own, or beside a field that is padded.

    Example:
        >>> contract = Contract({"label": LabelField(classes=("cat", "dog"))})
        >>> contract.check({"id": "a", "label": "dog"}).values[0].seen
        'dog'
    """

    fields: Mapping[str, Field]
    records: RecordRules = field(default_factory=RecordRules)

    def __post_init__(self) -> None:
        if not self.fields:
            raise ContractError("the contract has no fields: it needs a table such as [fields.image]")
        for name, spec in self.fields.items():
            check_field_name(name)
            if spec.padding is not None and mask_name(name) in self.fields:
                raise ContractError(
                    f"field name {mask_name(name)!r} is not allowed: batches hold the mask of {name!r} under it",
                    keys=("fields", mask_name(name)),
                )
        # A copy, so that the caller's later changes miss it.
        object.__setattr__(self, "fields", dict(self.fields))

    def judge(self, record_id: str, source: str, values: Mapping[str, Any]) -> CheckedRecord | Rejection:
        """Hold one record against the contract. Never raises for bad data.

        Args:
            record_id: The record's name.
            source: Where it stands in the raw input, for people.
            values: Field name to raw value; None, or no entry, where there is none: it is then the field's
                default, if it has one. Names that the contract does not know are passed over.
        """
        fault = find_id_fault(record_id)
        if fault is not None:
            return Rejection(show_id(record_id), source, Reason.BAD_ID, fault)
        checked = []
        for name, spec in self.fields.items():
            try:
                checked.append(_check_value(name, spec, values.get(name)))
            except Violation as violation:
                return Rejection(record_id, source, violation.reason, violation.sentence, name)
        return CheckedRecord(record_id, source, tuple(checked))

    def check(self, record: Mapping[str, Any]) -> CheckedRecord:
        """Hold one record, a mapping with ``"id"`` and one value a field, against the contract.

        Entries that the contract does not name are passed over, as ingestion does with further columns; a misspelt
        name fails all the same, unless its field has a default.

        Raises:
            RecordRejectedError: The record does not fit; names the id, the field, the reason code and why.
        """
        verdict = self.judge(record.get("id", ""), "", record)
        if isinstance(verdict, CheckedRecord):
            return verdict
        where = f"record {verdict.id!r}" + (f", field {verdict.field!r}" if verdict.field else "")
        raise RecordRejectedError(
            f"{where}: {verdict.reason.value}: {verdict.sentence}",
            record_id=verdict.id,
            field=verdict.field,
            reason=verdict.reason,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the contract as JSON- and TOML-ready tables. The order of ``"fields"`` carries meaning."""
        return {
            "fields": {name: spec.to_dict() for name, spec in self.fields.items()},
            "records": {key: value for key, value in asdict(self.records).items() if value is not None},
        }

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> "Contract":
        """Return the contract that `to_dict` described.

        Raises:
            ContractError: Names the table, the key and what is allowed; ``error.context["keys"]`` is the path
            to it.
        """
        for key in tables:
            if key not in _TABLES:
                hint = did_you_mean(key, _TABLES)
                raise _at((key,), f"[{key}]: unknown table{hint}; allowed are [fields.NAME] and [records]")
        specs = {name: _build_spec(name, table) for name, table in _table(tables, ("fields",)).items()}
        try:
            rules = build_from_keys(RecordRules, _table(tables, ("records",)))
        except ContractError as error:
            raise _in_table(("records",), error) from None
        return cls(specs, rules)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Contract":
        """Read a contract file (TOML).

        Raises:
            ContractError: Names the file, the line, the key and what is allowed.
        """
        document = TomlFile.read(path)
        try:
            return cls.from_dict(document.tables)
        except ContractError as error:
            raise ContractError(document.locate(error.context.get("keys", ()), str(error))) from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the contract file (TOML), in one step: a file of that name is replaced whole or not at all.

        Raises:
            OutputError: The system refused.
        """
        write_text(path, render_toml(self.to_dict()))


def _check_value(name: str, spec: Field, value: Any) -> Checked:
    """Judge one value, or what stands in for one that is missing.

    Raises:
        Violation: It does not fit, or raises whatever it does when it is looked at.
    """
    try:
        if not spec.is_missing(value):
            return spec.check(value)
    except Violation:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or isinstance(value, _PLAIN):
            raise
        sentence = (
            f"a value of type {type(value).__name__} cannot be looked at: it raises {type(error).__name__}"
        )
        raise Violation(Reason.WRONG_TYPE, sentence) from error
    if spec.fallback is None:
        raise Violation(Reason.MISSING_FIELD, f"there is no value for {name!r}")
    return spec.fallback


def _at(keys: tuple[str, ...], text: str) -> ContractError:
    return ContractError(text, keys=keys)


def _in_table(table: tuple[str, ...], error: ContractError) -> ContractError:
    """Put the table in front of an error about one of its keys."""
    key = error.context.get("key")
    return _at((*table, key) if key else table, f"[{'.'.join(table)}] {error}")


def _table(tables: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, Any]:
    found = tables.get(keys[-1], {})
    if not isinstance(found, Mapping):
        raise _at(keys, str(wrong_key(".".join(keys), found, f"it must be a table, [{'.'.join(keys)}]")))
    return found


def _build_spec(name: str, table: object) -> Field:
    keys = ("fields", name)
    if not isinstance(table, Mapping):
        allowed = f'it must be a table, [fields.{show_value(name).strip(chr(34))}] with a key "type"'
        raise _at(keys, str(wrong_key(".".join(keys), table, allowed)))
    try:
        check_field_name(name)
        return build_field(table)
    except ContractError as error:
        raise _in_table(keys, error) from None
