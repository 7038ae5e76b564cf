"""Contracts changed by a few settings: what the command line's flags do to a contract."""

from collections.abc import Mapping
from dataclasses import replace

from shardkit.contract.contract import Contract
from shardkit.contract.field import keys_of
from shardkit.contract.image import ImageField
from shardkit.contract.kinds import require_known
from shardkit.errors import ContractError


def override(contract: Contract, policies: Mapping[str, str], on_bad: str | None = None) -> Contract:
    """Return `contract` with image policies, such as ``{"grayscale": "convert"}``, and ``on_bad`` replaced.

    The policies go to every image field.

    Raises:
        ContractError: A policy is unknown, its value is not allowed, or there is no image field to take it.
    """
    require_known(policies, [key.name for key in keys_of(ImageField) if not key.kw_only])  # its own keys
    images = {name: spec for name, spec in contract.fields.items() if isinstance(spec, ImageField)}
    if policies and not images:
        raise ContractError(f"{next(iter(policies))} is set, but the contract has no image field")
    changed = {name: replace(spec, **policies) for name, spec in images.items()}  # type: ignore[arg-type]  # str keys
    records = replace(contract.records, on_bad=on_bad) if on_bad is not None else contract.records
    return Contract(dict(contract.fields) | changed, records)
