"""Where the files of an index lie, and which columns it keeps over all rows (docs/format.md, "Index")."""

from collections.abc import Sequence

from shardkit.store.backend import Column

IDS = "ids.bin"
OFFSETS = "ids.offsets.npy"
HASHES = "hashes.npy"
ROWS = "rows.npy"
REJECTED = "rejected.jsonl"


def index_folder(generation: int) -> str:
    """Return the folder of an index, relative to the data set."""
    return f"index/{generation:05d}"


def indexed_columns(columns: Sequence[Column]) -> list[int]:
    """Return the numbers of the columns that the index keeps: those of one fixed-size value without axes."""
    return [number for number, column in enumerate(columns) if column.layout.is_single]


def column_path(generation: int, name: str) -> str:
    """Return the file that holds one column over all rows."""
    return f"{index_folder(generation)}/columns/{name}.npy"


def index_paths(generation: int, columns: Sequence[Column]) -> list[str]:
    """Return every file of an index, in manifest order."""
    folder = index_folder(generation)
    names = [f"{folder}/{name}" for name in (IDS, OFFSETS, HASHES, ROWS, REJECTED)]
    return names + [column_path(generation, columns[number].name) for number in indexed_columns(columns)]
