"""What a record must be: the contract file, its field types, and the judgement of one record."""

from shardkit.contract.array import ArrayField
from shardkit.contract.binary import BytesField
from shardkit.contract.contract import CheckedRecord, Contract, RecordRules
from shardkit.contract.field import (
    Checked,
    Field,
    FileContent,
    Layout,
    Padding,
    Payload,
    Violation,
    mask_name,
)
from shardkit.contract.image import ImageField
from shardkit.contract.json_field import JsonField
from shardkit.contract.label import LabelField
from shardkit.contract.override import override
from shardkit.contract.reasons import Reason, Warned
from shardkit.contract.record_id import find_id_fault, show_id
from shardkit.contract.rejection import Rejection
from shardkit.contract.scalar import ScalarField
from shardkit.contract.text import TextField
from shardkit.contract.tokens import TokensField
from shardkit.contract.toml_file import render_toml, write_text

__all__ = [
    "ArrayField",
    "BytesField",
    "Checked",
    "CheckedRecord",
    "Contract",
    "Field",
    "FileContent",
    "ImageField",
    "JsonField",
    "LabelField",
    "Layout",
    "Padding",
    "Payload",
    "Reason",
    "RecordRules",
    "Rejection",
    "ScalarField",
    "TextField",
    "TokensField",
    "Violation",
    "Warned",
    "find_id_fault",
    "mask_name",
    "override",
    "render_toml",
    "show_id",
    "write_text",
]
