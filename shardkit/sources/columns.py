"""Which column of a table serves which field, and what contract the columns suggest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardkit.contract import (
    Contract,
    Field,
    ImageField,
    JsonField,
    LabelField,
    ScalarField,
    TextField,
)
from shardkit.contract.field import check_field_name
from shardkit.contract.numerals import read_real, read_whole
from shardkit.errors import ContractError, SourceError

ID, PATH, IMAGE, LABEL = "id", "path", "image", "label"
MAX_CLASSES = 100_000
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Columns:
    """Which column of a table serves what.

    Attributes:
        id: Column that names the records.
        fields: Field name -> column.
    """

    id: str
    fields: Mapping[str, str]


def choose_columns(contract: Contract, columns: Sequence[str], name: str) -> Columns:
    """Return the column of the id and of each field.

    A field takes the column of its name. The one file field that has none takes ``path``, or else ``id``; the
    one label field that has none takes ``label``. Without a column ``id``, the path of the file is the id.

    Args:
        contract: The fields.
        columns: Names of the columns there are.
        name: What messages call the table.

    Raises:
        SourceError: A column is missing; names those that there are.
    """
    chosen = {spec: spec for spec in contract.fields if spec in columns}
    files = [spec for spec, kind in contract.fields.items() if kind.takes_file]
    labels = [spec for spec, kind in contract.fields.items() if isinstance(kind, LabelField)]
    _serve(files, chosen, columns, (PATH, ID))
    _serve(labels, chosen, columns, (LABEL,))
    missing = next((spec for spec in contract.fields if spec not in chosen), None)
    if missing is not None:
        names = dict.fromkeys(
            [missing, *([PATH] if missing in files else [LABEL] if missing in labels else [])]
        )
        wanted = " or ".join(repr(column) for column in names)
        raise SourceError(f"{name}: no column {wanted} for field {missing!r}; {_found(columns)}")
    if ID in columns:
        return Columns(ID, chosen)
    if not files:
        raise SourceError(f"{name}: no column 'id' or 'path' that names the records; {_found(columns)}")
    return Columns(chosen[files[0]], chosen)


def _serve(
    specs: Sequence[str], chosen: dict[str, str], columns: Sequence[str], stand_ins: Iterable[str]
) -> None:
    """Give the one field of `specs` that has no column the first stand-in there is."""
    left = [spec for spec in specs if spec not in chosen]
    stand_in = next((column for column in stand_ins if column in columns and column not in chosen), None)
    if len(left) == 1 and stand_in is not None:
        chosen[left[0]] = stand_in


def _found(columns: Sequence[str]) -> str:
    """Name the columns there are in quotes, so that spaces around a name show."""
    shown = ", ".join(repr(column) for column in columns[:30])
    hint = ""
    if len(columns) == 1:
        split = {";": "semicolons", "\t": "tabs (.tsv)", "|": "bars"}
        sign = next((word for mark, word in split.items() if mark in columns[0]), None)
        hint = f"; it looks separated by {sign}, and .csv takes commas" if sign else ""
    elif any(column != column.strip() for column in columns):
        hint = "; spaces around a name count"
    return f"found {shown or 'none'}{hint}"


@dataclass
class Guess:
    """What the values of one column allow so far."""

    is_empty: bool = True
    is_whole: bool = True
    is_real: bool = True
    is_text: bool = True
    greatest: int = -1
    least: int = 0
    names: set[str] = field(default_factory=set)

    def add(self, value: Any, is_label: bool) -> None:
        """Take one more value into account. An empty cell says nothing of the others: ingestion will name it."""
        if value is None or value == "":
            return
        self.is_empty = False
        whole = read_whole(value)
        self.is_whole = self.is_whole and whole is not None and whole in _INT64
        self.is_real = self.is_real and (whole is not None or read_real(value) is not None)
        self.is_text = self.is_text and isinstance(value, str)
        if whole is not None:
            self.greatest, self.least = max(self.greatest, whole), min(self.least, whole)
        if is_label and isinstance(value, str) and len(self.names) <= MAX_CLASSES:
            self.names.add(value)


def guess_label(guess: Guess, name: str) -> LabelField:
    """Return the label field that a column suggests: numbers from 0, or the distinct names in it.

    Raises:
        SourceError: It suggests neither.
    """
    if guess.is_whole and guess.least == 0 and 0 <= guess.greatest < _INT64[-1]:
        return LabelField(num_classes=guess.greatest + 1)
    if guess.is_real or not guess.is_text:
        raise SourceError(
            f"{name}: column 'label' holds neither whole numbers from 0 nor names; write a contract"
        )
    if len(guess.names) > MAX_CLASSES:
        raise SourceError(f"{name}: column 'label' holds over {MAX_CLASSES} distinct names; write a contract")
    return LabelField(
        classes=tuple(sorted(guess.names, key=lambda text: text.encode("utf-8", "surrogatepass")))
    )


def guess_value(guess: Guess) -> Field:
    """Return the field that a further column suggests."""
    if guess.is_empty:
        return TextField()
    if guess.is_whole:
        return ScalarField("int64")
    if guess.is_real:
        return ScalarField("float64")
    return TextField() if guess.is_text else JsonField()


def propose_contract(
    columns: Sequence[str], guesses: Mapping[str, Guess], image: str | None, name: str
) -> Contract:
    """Return the contract that the columns suggest.

    Args:
        columns: All columns.
        guesses: What the values of each column but ``id`` allow.
        image: Column that names image files, or None.
        name: What messages call the table.

    Raises:
        SourceError: There is no column to make a field of, or the label column suggests nothing.
    """
    specs: dict[str, Field] = {"image": ImageField()} if image is not None else {}
    for column in columns:
        if column in (ID, image) or column in specs or not _may_name_a_field(column):
            continue
        specs[column] = (
            guess_label(guesses[column], name) if column == LABEL else guess_value(guesses[column])
        )
    if not specs:
        raise SourceError(f"{name}: no column to make a field of; {_found(columns)}")
    return Contract(specs)


def _may_name_a_field(column: str) -> bool:
    try:
        check_field_name(column)
    except ContractError:
        return False
    return True
