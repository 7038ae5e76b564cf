"""What is said of a record that was not stored: one line of reports/rejected.jsonl."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shardkit.contract.reasons import Reason


@dataclass(frozen=True)
class Rejection:
    """One rejected record.

    Attributes:
        id: The record's id, or the best name it has where the id itself is bad.
        source: Where it stands in the raw input, such as ``cats/1.jpg`` or ``labels.csv row 7``.
        reason: Stable code.
        sentence: One plain sentence for a person. Of the record's contents it may quote a label, a number or
            the text in place of one, escaped and cut to 40 characters; never an image, a text or JSON.
        field: The field at fault, or None for the record as a whole.
        digest: XXH3-128 of the raw input, 32 hexadecimal digits, or None if it could not be had.
        copies: Names of the files in the quarantine that its original was copied to.
    """

    id: str
    source: str
    reason: Reason
    sentence: str
    field: str | None = None
    digest: str | None = None
    copies: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the report; it has ``copies`` where there are any."""
        table: dict[str, Any] = asdict(self) | {"reason": self.reason.value}
        if not table.pop("copies"):
            return table
        return table | {"copies": list(self.copies)}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Rejection":
        """Return the rejection that `to_dict` described.

        Raises:
            KeyError, TypeError, ValueError: It is no such object.
        """
        return cls(
            str(table["id"]),
            str(table["source"]),
            Reason(table["reason"]),
            str(table["sentence"]),
            table.get("field"),
            table.get("digest"),
            tuple(map(str, table.get("copies", ()))),
        )
