"""The data set under verification, as tasks carry it: opened once in each process, and the same one in all."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shardkit.store import Store


@dataclass(frozen=True)
class DataSet:
    """Names one generation of a data set.

    Attributes:
        root: Its folder.
        dataset_id: What names its content.
        generation: Its counter of commits.
    """

    root: Path
    dataset_id: str
    generation: int

    @classmethod
    def of(cls, store: Store) -> "DataSet":
        """Return the name of an open data set."""
        return cls(store.path, store.manifest.dataset_id, store.manifest.generation)

    def open(self) -> Store:
        """Return the data set, which this process opens when it first asks and then keeps.

        Raises:
            ShardkitError: It cannot be opened, or was replaced by another.
        """
        return _opened(self)

    @staticmethod
    def forget() -> None:
        """Let go of what this process has opened."""
        _opened.cache_clear()


@lru_cache(maxsize=1)  # opening looks at every file, which would cost more than checking a small shard
def _opened(data: DataSet) -> Store:
    return Store(data.root, data.generation, data.dataset_id)
