"""A request to ingest: what, how, and where to."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shardkit.contract import Contract
from shardkit.ingestion.output import Mode
from shardkit.ingestion.plan import IngestSettings, shard_size
from shardkit.ingestion.quarantine import Quarantine
from shardkit.sources import Source
from shardkit.store import versions

RULES = "rules"
"""Key of the journal for what was to become of bad records: no part of what decides which bytes a run writes."""
_ORDER = "order of the fields"


@dataclass(frozen=True)
class Request:
    """What is to be ingested, and how.

    Attributes:
        source: Where the records come from.
        contract: What they must be.
        settings: How they are written.
        root: The output folder.
        mode: What becomes of a data set that stands there.
        quarantine: Where the originals of rejected records go, or None.
        progress: Whether to show a progress bar.
        remarks: Column of the source -> why the contract, which was taken from the source, passes it over or how.
    """

    source: Source
    contract: Contract
    settings: IngestSettings
    root: Path
    mode: Mode
    quarantine: Quarantine | None
    progress: bool
    remarks: Mapping[str, str]

    @cached_property
    def total(self) -> int | None:
        """Number of records in the source, or None where nobody can know."""
        return self.source.count()

    @cached_property
    def shard_size(self) -> int:
        """Input records a shard."""
        return self.settings.records_per_shard or shard_size(self.total, self.contract)

    def describe(self, generation: int) -> dict[str, Any]:
        """Return all that decides which bytes a run writes for a generation, the records aside; JSON-ready.

        What is done with bad records is left out: a run that was aborted by one may be continued without it.
        """
        return {
            "mode": self.mode,
            "generation": generation,
            "source": type(self.source).__name__,
            "records": self.total,
            "contract": _ordered(self.contract.to_dict()["fields"]),
            "backend": self.settings.backend,
            "records_per_shard": self.shard_size,
            "shuffle_seed": self.settings.shuffle_seed,
            "written_by": versions(),
        }


def contract_of(begun: Mapping[str, Any]) -> Contract | None:
    """Return the contract of a run from what its journal says, or None if that is damaged."""
    try:
        fields = dict(begun["contract"])
        order = fields.pop(_ORDER)
        return Contract.from_dict({"fields": {name: fields[name] for name in order}, "records": begun[RULES]})
    except (KeyError, TypeError, ValueError):
        return None


def _ordered(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with their order as a value: JSON objects are equal in any order."""
    return dict(fields) | {_ORDER: list(fields)}
