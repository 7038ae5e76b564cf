"""The state of a run: a few numbers that say what was delivered, for a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.errors import StateError

_VERSION = 1


@dataclass(frozen=True)
class State:
    """Where in which sequence a run is. Says nothing of ranks, workers or batch sizes: any others may go on.

    Attributes:
        dataset_id: Which data set.
        generation: Which generation of it.
        seed: Of the orders.
        shuffle: Kind of order.
        sampling: Digest of what else decides the rows; empty for all rows once.
        length: Positions in an epoch.
        epoch: The epoch.
        position: Positions of it that all ranks together have delivered, in ``[0, length]``.
    """

    dataset_id: str
    generation: int
    seed: int
    shuffle: str
    sampling: str
    length: int
    epoch: int
    position: int

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values, for `torch.save` or JSON."""
        return {"version": _VERSION} | self.__dict__

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "State":
        """Return the state that `to_dict` described.

        Raises:
            StateError: It is none, or of a later version.
        """
        if not isinstance(table, Mapping) or "version" not in table:
            raise StateError("this is no state of a shardkit loader: it has no key 'version'")
        if table["version"] != _VERSION:
            raise StateError(
                f"the state is of version {table['version']!r}; this shardkit reads {_VERSION}: "
                "load it with the shardkit that saved it"
            )
        values: dict[str, Any] = {}
        for name, kind in cls.__annotations__.items():
            value = table.get(name)
            if type(value) is not kind:
                raise StateError(
                    f"the state's {name} is {value!r}; expected is a value of type {kind.__name__}"
                )
            values[name] = value
        state = cls(**values)
        if not (0 <= state.position <= state.length and 0 <= state.epoch < 2**63):
            raise StateError(
                f"the state's epoch {state.epoch} and position {state.position} of {state.length} cannot be"
            )
        return state

    def require_same(self, found: "State", path: str) -> None:
        """Check that this state continues the sequence that `found` belongs to.

        Raises:
            StateError: It does not; says what differs.
        """
        if (self.dataset_id, self.generation) != (found.dataset_id, found.generation):
            raise StateError(
                f"{path}: the state was saved with generation {self.generation} of data set {self.dataset_id}, and "
                f"this is generation {found.generation} of {found.dataset_id}: what is left of the epoch cannot be "
                "told; begin an epoch anew"
            )
        for name in ("shuffle", "sampling", "length"):
            old, new = getattr(self, name), getattr(found, name)
            if old != new:
                what = "rows, weights or strata" if name == "sampling" else name
                raise StateError(
                    f"{path}: the state was saved with other {what} ({old or 'none'!r}, now {new or 'none'!r}): "
                    "open the data with the same, or begin an epoch anew"
                )
