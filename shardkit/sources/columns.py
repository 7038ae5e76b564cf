"""Which column of a container names the records, and which serves which field."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardkit.contract import Contract, LabelField
from shardkit.errors import SourceError
from shardkit.sources.container import Container

ID, KEY, PATH, IMAGE, LABEL = "id", "__key__", "path", "image", "label"
IMAGE_COLUMNS = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "avif", "jp2", "img")
"""Columns, called after the suffix of a file, that serve the one file field without a column of its own."""
LABEL_COLUMNS = (LABEL, "cls")
"""Columns that serve the one label field without a column of its own; WebDataset calls a class ``cls``."""

MAX_COLUMNS = 100_000


@dataclass(frozen=True)
class Columns:
    """Which column of a container serves what.

    Attributes:
        id: Column that names the records, or None where the container itself does.
        fields: Field name -> column, in the order of the contract. A field with a default may have none.
    """

    id: str | None
    fields: Mapping[str, str]


def gather_columns(rows: Iterable[Iterable[str]], name: str) -> tuple[str, ...]:
    """Return the names that occur in any row, in order of first appearance.

    Raises:
        SourceError: They are too many to be columns.
    """
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
        if len(columns) > MAX_COLUMNS:
            raise SourceError(
                f"{name}: its rows have over {MAX_COLUMNS} different columns, such as {next(reversed(columns))!r}; is "
                f"what should be a value used as a name?"
            )
    return tuple(columns)


def find_id_column(container: Container) -> str | None:
    """Return the column that names the records if no contract says otherwise, or None if there is none."""
    columns = container.columns
    if ID in columns or KEY in columns:
        return ID if ID in columns else KEY
    return next((column for column in (PATH, IMAGE) if column in container.path_columns), None)


def choose_columns(contract: Contract, container: Container, has_names: bool) -> Columns:
    """Return the column of the id and of each field.

    A field takes the column of its name. The one file field that has none takes ``path``, or ``id`` if that may hold
    paths, or a column called after an image's suffix; the one label field that has none takes ``label`` or ``cls``. A
    file field with a default takes no column but that of its name.
    The id is what the contract's ``[records] id`` says; or else in column ``id`` or ``__key__``; or else it is the path
    of the first file.

    Args:
        contract: The fields.
        container: The columns there are.
        has_names: Whether the container has a name of its own for each row, for want of a column.

    Raises:
        SourceError: A column is missing; names those that there are.
    """
    columns, name = container.columns, container.name
    chosen = {spec: spec for spec in contract.fields if spec in columns}
    files = [spec for spec, kind in contract.fields.items() if kind.takes_file and kind.default is None]
    labels = [spec for spec, kind in contract.fields.items() if isinstance(kind, LabelField)]
    ids = [ID] if ID in container.path_columns else []
    _serve(files, chosen, columns, (PATH, *ids, *IMAGE_COLUMNS))
    _serve(labels, chosen, columns, LABEL_COLUMNS)
    for spec, kind in contract.fields.items():
        if spec not in chosen and kind.default is None:
            stand_ins = [PATH] if spec in files else [LABEL] if spec in labels else []
            wanted = " or ".join(repr(column) for column in dict.fromkeys([spec, *stand_ins]))
            raise SourceError(f"{name}: no column {wanted} for field {spec!r}; {describe_columns(columns)}")
    in_order = {spec: chosen[spec] for spec in contract.fields if spec in chosen}
    return Columns(_choose_id(contract, container, has_names, in_order), in_order)


def _choose_id(
    contract: Contract, container: Container, has_names: bool, chosen: Mapping[str, str]
) -> str | None:
    asked = contract.records.id
    columns = container.columns
    if asked is not None and asked not in columns:
        raise SourceError(
            f"{container.name}: no column {asked!r}, which [records] id asks for; {describe_columns(columns)}"
        )
    named = next((column for column in (asked, ID, KEY) if column in columns), None)
    if named is not None:
        return named
    files = (chosen[spec] for spec, kind in contract.fields.items() if kind.takes_file and spec in chosen)
    path = next((column for column in files if column in container.path_columns), None)
    if path is None and not has_names:
        found = describe_columns(columns)
        raise SourceError(f"{container.name}: no column 'id' or 'path' that names the records; {found}")
    return path


def _serve(
    specs: Sequence[str], chosen: dict[str, str], columns: Sequence[str], stand_ins: Iterable[str]
) -> None:
    """Give the one field of `specs` that has no column the first stand-in there is."""
    left = [spec for spec in specs if spec not in chosen]
    stand_in = next((column for column in stand_ins if column in columns and column not in chosen), None)
    if len(left) == 1 and stand_in is not None:
        chosen[left[0]] = stand_in


def describe_columns(columns: Sequence[str]) -> str:
    """Name the columns there are in quotes, so that spaces around a name show."""
    shown = ", ".join(repr(column) for column in columns[:30])
    hint = ""
    if len(columns) == 1:
        split = {";": "semicolons", "\t": "tabs (.tsv)", "|": "bars"}
        sign = next((word for mark, word in split.items() if mark in columns[0]), None)
        hint = f"; it looks separated by {sign}, but .csv takes commas, and .tsv tabs" if sign else ""
    elif any("\0" in column for column in columns):
        hint = "; NUL characters in a name mean UTF-16: save the table as UTF-8"
    elif any(column != column.strip() for column in columns):
        hint = "; spaces around a name count"
    return f"found {shown or 'none'}{hint}"
