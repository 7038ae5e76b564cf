"""What contract the columns of a container suggest."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    Field,
    FileContent,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    ScalarField,
    TextField,
    Violation,
    find_id_fault,
)
from shardkit.contract.field import check_field_name
from shardkit.contract.images.sniff import sniff
from shardkit.contract.npy import read_npy
from shardkit.contract.numerals import is_bool, read_real, read_whole
from shardkit.errors import ContractError, SourceError
from shardkit.sources.columns import (
    ID,
    IMAGE,
    IMAGE_COLUMNS,
    KEY,
    LABEL,
    LABEL_COLUMNS,
    PATH,
    describe_columns,
)
from shardkit.sources.container import Container, Row

MAX_CLASSES = 100_000
_LOOKED_AT = 64
"""Rows whose bytes are looked at; a pass over all of them would read every picture."""
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_ALL_EXACT = 2**53  # up to which a float64 holds every whole number
_READ_IN_FULL = 10**39  # below which `read_whole` gives the very number
_MIXED = "mixed"
_NOTHING = frozenset({"nan", "na", "n/a", "#n/a", "none", "null", "nil"})
_NPY = b"\x93NUMPY"  # https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
_IMAGES_ALL_THE_SAME = (Reason.UNSUPPORTED, Reason.FORMAT_NOT_ALLOWED)


@dataclass
class Guess:
    """What the values of one column allow so far."""

    is_empty: bool = True
    is_whole: bool = True
    is_real: bool = True
    is_exact: bool = True
    is_text: bool = True
    is_truth: bool = True
    is_array: bool = True
    greatest: int = -1
    least: int = 0
    names: set[str] = field(default_factory=set)
    contents: Counter[str] = field(default_factory=Counter)
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    @property
    def is_content(self) -> bool:
        """Whether there are bytes among the values."""
        return bool(self.contents)

    def add(self, value: Any, is_label: bool) -> None:
        """Take one more value into account. An empty cell says nothing of the others: ingestion will name it."""
        if value is None or (isinstance(value, str) and value == ""):
            return
        self.is_empty = False
        if isinstance(value, str):
            if is_label and len(self.names) <= MAX_CLASSES:
                self.names.add(value)
        else:
            self._add_other(value)
        whole = read_whole(value)
        self.is_whole = self.is_whole and whole is not None
        self.is_real = self.is_real and (whole is not None or read_real(value) is not None)
        self.is_truth = self.is_truth and is_bool(value)
        self.is_array = self.is_array and isinstance(value, np.ndarray)
        if whole is not None:
            self.is_exact = self.is_exact and _is_exact(whole)
            self.greatest, self.least = max(self.greatest, whole), min(self.least, whole)

    def _add_other(self, value: Any) -> None:
        """Take a value into account that is no text."""
        self.is_text = False
        if isinstance(value, bytes | FileContent):
            data = value.data if isinstance(value, FileContent) else value
            kind = _kind_of(data)
            self.contents[kind] += 1
            if kind == "array":
                with contextlib.suppress(Violation):
                    self._add_array(read_npy(data))
        elif isinstance(value, np.ndarray):
            self._add_array(value)

    def _add_array(self, value: np.ndarray[Any, Any]) -> None:
        shape = value.shape
        dtype = value.dtype.name
        if self.shape is None:
            self.dtype, self.shape = dtype, shape
        elif self.dtype != dtype or len(self.shape) != len(shape):
            self.dtype = _MIXED
        else:
            self.shape = tuple(old if old == new else -1 for old, new in zip(self.shape, shape, strict=True))


class Proposal(NamedTuple):
    """A contract that columns suggest.

    Attributes:
        contract: The contract.
        remarks: Column -> what a person should know of it, such as why it is left out.
    """

    contract: Contract
    remarks: Mapping[str, str]


def propose_contract(
    container: Container, folder: str, known: Mapping[str, Field] = MappingProxyType({})
) -> Proposal:
    """Return the contract that the columns suggest, after one pass over all rows.

    ``path``, ``image``, or an ``id`` that names a file becomes an image, and so do columns of bytes that mostly begin
    as images do; other bytes stay bytes. ``label`` becomes a label: numbered if all its values are whole numbers from
    0, else with its distinct names as classes. Any other column becomes an array, a bool or a number if all its
    values are, a text if they are texts, else json; a number of a type that holds all of them to the last digit.
    Columns whose name cannot name a field are left out, which is remarked.

    Args:
        container: The columns and rows.
        folder: Where relative paths start.
        known: Column -> field, where the types of the container say as much. A label still follows its values, if it is
            no label yet.

    Raises:
        SourceError: There is no column to make a field of, or the label column suggests nothing.
    """
    image = _find_path_column(container, folder)
    given = [column for column in container.columns if column not in (ID, KEY, image)]
    remarks = {
        column: fault for column in given if (fault := find_name_fault(_field_name(column))) is not None
    }
    columns = [column for column in given if column not in remarks]
    guesses = _look(container, {name: Guess() for name in columns if not _is_settled(name, known)})
    specs: dict[str, Field] = {"image": ImageField()} if image is not None else {}
    for column in columns:
        guess = guesses.get(column)
        spec = known[column] if guess is None else _guess_field(column, guess, container.name)
        name = _field_name(column) if isinstance(spec, ImageField | LabelField) else column
        is_free = name == column or not any(
            _field_name(other) == name for other in columns if other != column
        )
        specs.setdefault(name if is_free else column, spec)
        if guess is not None and isinstance(spec, TextField | JsonField) and _holds_too_large(guess):
            remarks[column] = f"{spec.kind}, since no type of numbers holds all of its whole numbers exactly"
    if not specs:
        found = describe_columns(container.columns)
        why = "".join(f"; {column!r} is {remark}" for column, remark in islice(remarks.items(), 1))
        raise SourceError(f"{container.name}: no column to make a field of; {found}{why}")
    return Proposal(Contract(specs), remarks)


def find_name_fault(column: str) -> str | None:
    """Return why a column is left out, and what to do, if its name cannot name a field; None if it can."""
    try:
        check_field_name(column)
    except ContractError as error:
        return f"left out: {error}; rename it"
    return None


def _is_settled(column: str, known: Mapping[str, Field]) -> bool:
    return isinstance(known.get(column), LabelField) or (column in known and column not in LABEL_COLUMNS)


def _look(container: Container, guesses: dict[str, Guess]) -> Mapping[str, Guess]:
    """Add all rows to the guesses; of columns that hold bytes, the first rows only."""
    columns = list(guesses)
    if columns:
        _add_rows(islice(container.scan(columns, Counter()), _LOOKED_AT), columns, guesses)
    further = [column for column in columns if not guesses[column].is_content]
    if further:
        _add_rows(islice(container.scan(further, Counter()), _LOOKED_AT, None), further, guesses)
    return guesses


def _add_rows(rows: Iterator[Row], columns: list[str], guesses: Mapping[str, Guess]) -> None:
    for row in rows:
        if row.fault is None:
            for column in columns:
                guesses[column].add(row.values.get(column), is_label=column in LABEL_COLUMNS)


def _find_path_column(container: Container, folder: str) -> str | None:
    """Return the column that names image files, or None; ids do if the first of them is a file's path."""
    for column in (PATH, IMAGE):
        if column in container.path_columns:
            return column
    if ID not in container.path_columns:
        return None
    first = next(container.scan((ID,), Counter()))
    path = first.values.get(ID)
    is_path = isinstance(path, str) and find_id_fault(path) is None
    return ID if is_path and os.path.isfile(os.path.join(folder, str(path))) else None


def _guess_field(column: str, guess: Guess, name: str) -> Field:
    if guess.is_content:
        return _guess_content(guess)
    return guess_label(guess, name, column) if column in LABEL_COLUMNS else guess_value(guess)


def guess_label(guess: Guess, name: str, column: str = LABEL) -> LabelField:
    """Return the label field that a column suggests: numbers from 0, or the distinct names in it.

    Raises:
        SourceError: It suggests neither.
    """
    if guess.is_whole and guess.least == 0 and 0 <= guess.greatest < _INT64[-1]:
        return LabelField(num_classes=guess.greatest + 1)
    if guess.is_real or not guess.is_text:
        raise SourceError(
            f"{name}: column {column!r} holds neither whole numbers from 0 nor names; write a contract"
        )
    odd = _odd_number(guess.names)
    if odd is not None:
        raise SourceError(
            f"{name}: column {column!r} holds numbers, but not all in plain digits: {odd[:40]!a}; write a contract, or "
            f"mend the column"
        )
    if len(guess.names) > MAX_CLASSES:
        raise SourceError(
            f"{name}: column {column!r} holds over {MAX_CLASSES} distinct names; write a contract"
        )
    return LabelField(
        classes=tuple(sorted(guess.names, key=lambda text: text.encode("utf-8", "surrogatepass")))
    )


def _odd_number(names: set[str]) -> str | None:
    """Return the least of the names that keeps them from being numbers, where that was meant; None if they are names.

    Numbers of several digits that all have as many are names: ``01`` to ``12``.
    """
    if all(name.isascii() and name.isdigit() for name in names) and len(set(map(len, names))) == 1:
        return None
    numbers = {name for name in names if _is_number_of_a_kind(name)}
    if not numbers or any(name.strip().lower() not in _NOTHING for name in names - numbers):
        return None
    return min(name for name in names if read_whole(name) is None)


def _is_number_of_a_kind(name: str) -> bool:
    """Whether anybody would take a text for a number: ``+1``, ``1.0``, ``1_0``, ``0x1``, ``" 1"``, ``1,000``."""
    plain = name.replace(",", "")
    if name.strip().lower() in _NOTHING:
        return False
    for read in (float, lambda text: int(text, 0)):
        with contextlib.suppress(ValueError):
            read(plain)
            return True
    return False


def guess_value(guess: Guess) -> Field:
    """Return the field that a further column suggests."""
    if guess.is_empty:
        return TextField()
    if guess.is_array:
        return _guess_array(guess)
    if guess.is_truth:
        return ScalarField("bool")
    if not guess.is_real or _holds_too_large(guess):
        return TextField() if guess.is_text else JsonField()
    return ScalarField(_whole_dtype(guess) or "float64")


def _whole_dtype(guess: Guess) -> str | None:
    """Return the dtype that holds all of the whole numbers that were seen; None if none does, or there were others."""
    if not guess.is_whole:
        return None
    if guess.least in _INT64 and guess.greatest in _INT64:
        return "int64"
    return "uint64" if guess.least == 0 and guess.greatest in _UINT64 else None


def _holds_too_large(guess: Guess) -> bool:
    """Whether there are numbers only, and whole ones among them that no dtype holds beside the others."""
    if guess.is_whole:
        return _whole_dtype(guess) is None
    return guess.is_real and not guess.is_exact


def _is_exact(whole: int) -> bool:
    """Whether a float64 holds a whole number to the last digit."""
    size = abs(whole)
    return size <= _ALL_EXACT or (size < _READ_IN_FULL and int(float(size)) == size)


def _guess_array(guess: Guess) -> Field:
    try:
        return ArrayField(str(guess.dtype), guess.shape or ())
    except ContractError:  # a dtype that no contract has, or several of them
        return JsonField()


def _guess_content(guess: Guess) -> Field:
    """Return an image field if most of the bytes begin as images do, so that a damaged one changes nothing."""
    kind, count = guess.contents.most_common(1)[0]
    if kind == "image" and 2 * count > guess.contents.total():
        return ImageField()
    if guess.shape is not None and set(guess.contents) == {"array"}:
        return _guess_array(guess)
    return BytesField()


def _kind_of(data: bytes) -> str:
    if data.startswith(_NPY):
        return "array"
    try:
        sniff(data)
    except Violation as violation:
        return "image" if violation.reason in _IMAGES_ALL_THE_SAME else "bytes"
    return "image"


def _field_name(column: str) -> str:
    """Return the name that a field of this column may better have: ``jpg`` is an image, ``cls`` a label."""
    return IMAGE if column in IMAGE_COLUMNS else LABEL if column in LABEL_COLUMNS else column
