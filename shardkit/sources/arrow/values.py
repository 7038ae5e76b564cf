"""What Arrow columns hold as plain values, for the containers that pyarrow reads.

Numbers, bools, text and bytes become Python's; lists of numbers numpy arrays; structs dicts, but a struct of ``bytes``
and ``path``, which is how Hugging Face stores a file, becomes its content. Decimals, dates and times become text.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from shardkit.contract import ArrayField, Field, FileContent, ImageField, JsonField, LabelField, ScalarField
from shardkit.errors import ContractError, SourceError
from shardkit.sources.row_source import RowSource

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    pa = None  # an extra: without it, only what needs it is refused

_Converter = Callable[[Any], Sequence[Any]]
_FILE_KEYS = {"bytes", "path"}
_MAX_FACTS_BYTES = 16 << 20  # of the JSON that describes columns; a million class names take about that


def require_pyarrow(path: str) -> None:
    """Check that pyarrow is installed.

    Raises:
        SourceError: It is not; names the extra.
    """
    if pa is None:
        raise SourceError(
            f'{path}: reading it takes pyarrow; install it with pip install "shardkit[parquet]"'
        )


@contextmanager
def blaming(path: str, what: str) -> Iterator[None]:
    """Turn what pyarrow raises into one line that names the file.

    Raises:
        SourceError: pyarrow, or the system, refused.
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, EOFError) as error:
        shown = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise SourceError(f"{path}: {what}: {shown}") from error


class ArrowSource(RowSource):
    """A container whose columns have Arrow types, which its proposal follows."""

    kind: ClassVar[str] = "file"

    def __init__(self, container: Any, known: Mapping[str, Field]) -> None:
        """Take a container and the fields that its column types stand for.

        Raises:
            SourceError: It cannot be read, or has no rows.
        """
        self._known = dict(known)
        super().__init__(container)

    def _known_fields(self) -> Mapping[str, Field]:
        return self._known

    def _convert(self, spec: Field, value: Any) -> Any:
        return _jsonable(value) if isinstance(spec, JsonField) else value


def known_fields(schema: Any, features: Any) -> dict[str, Field]:
    """Return the fields that column types alone stand for.

    Numbers and bools have their dtype (float16 becomes float32, which a contract has); a Hugging Face ``ClassLabel``
    has its names, an ``Image`` is an image.

    Args:
        schema: The `pyarrow.Schema`.
        features: Column -> description, as Hugging Face `datasets` writes it; whatever its JSON held.
    """
    fields: dict[str, Field] = {}
    for column in schema:
        names = class_names(features, column.name)
        try:
            if is_file_struct(column.type) and _feature_kind(features, column.name) == "Image":
                fields[column.name] = ImageField()
            elif names is not None:
                fields[column.name] = LabelField(classes=names)
            elif (dtype := _scalar_dtype(column.type)) is not None:
                fields[column.name] = ScalarField(dtype)
            elif pa.types.is_fixed_size_list(column.type) and (
                dtype := _scalar_dtype(column.type.value_type)
            ):
                fields[column.name] = ArrayField(dtype, (column.type.list_size,))
        except ContractError:  # names that come twice, …: the values decide
            continue
    return fields


def class_names(features: Any, column: str) -> tuple[str, ...] | None:
    """Return the names of a column that `datasets` calls a ClassLabel, or None."""
    if _feature_kind(features, column) != "ClassLabel":
        return None
    names = features[column].get("names")
    return tuple(names) if isinstance(names, list) and names else None


def _feature_kind(features: Any, column: str) -> Any:
    feature = features.get(column) if isinstance(features, Mapping) else None
    return feature.get("_type") if isinstance(feature, Mapping) else None


def features_of(schema: Any) -> Any:
    """Return what `datasets` noted about the columns in the metadata of a schema, or None."""
    noted = (schema.metadata or {}).get(b"huggingface", b"")
    if not noted or len(noted) > _MAX_FACTS_BYTES:
        return None
    try:
        return json.loads(noted)["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def text_columns(schema: Any) -> tuple[str, ...]:
    """Return the columns of text, any of which may hold paths."""
    return tuple(column.name for column in schema if _is_text(_plain(column.type)))


def file_columns(schema: Any) -> tuple[str, ...]:
    """Return the columns of files as Hugging Face stores them: structs of ``bytes`` and ``path``."""
    return tuple(column.name for column in schema if is_file_struct(column.type))


def is_file_struct(kind: Any) -> bool:
    """Whether a type is a struct of ``bytes`` (binary) and ``path`` (text) and nothing else."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} != _FILE_KEYS or kind.num_fields != 2:
        return False
    path, data = kind.field("path").type, kind.field("bytes").type
    return _is_bytes(data) and (_is_text(path) or pa.types.is_null(path))


def check_columns(schema: Any, path: str) -> tuple[str, ...]:
    """Return the names of the columns.

    Raises:
        SourceError: Two columns have the same name.
    """
    names = schema.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SourceError(f"{path}: two columns are named {twice!r}; names must be distinct")
    return tuple(names)


def rows_of(batch: Any, columns: Sequence[str], path: str) -> Iterator[dict[str, Any]]:
    """Yield the values of each row of a record batch.

    Args:
        batch: A `pyarrow.RecordBatch`, whose offsets and text nobody has checked yet.
        columns: The columns wanted.
        path: What messages call the file.

    Raises:
        SourceError: The batch is damaged, or a column is of a type that no field takes.
    """
    with blaming(path, "the file is damaged"):
        batch.validate(full=True)
    wanted = [name for name in columns if name in batch.schema.names]
    values = []
    for name in wanted:
        convert = _converter(batch.schema.field(name).type)
        if convert is None:
            raise SourceError(
                f"{path}: column {name!r} is of Arrow type {batch.schema.field(name).type}, which no field takes; "
                f"cast it, or leave it out of the contract"
            )
        with blaming(path, f"column {name!r} cannot be read"):
            values.append(convert(batch.column(name)))
    for number in range(batch.num_rows):
        yield {name: column[number] for name, column in zip(wanted, values, strict=True)}


def row_bytes(batch: Any) -> list[int]:
    """Return how many bytes of binary columns each row of a record batch has, by the offsets alone."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in batch.schema.names:
        column = batch.column(name)
        column = column.field("bytes") if is_file_struct(column.type) else column
        if _has_offsets(column.type):
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return [int(size) for size in np.maximum(sizes, 0)]


def _plain(kind: Any) -> Any:
    """Return the type of the values themselves: of an extension's storage, of a dictionary's entries."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    )
    return any(test(kind) for test in tests)


def _has_offsets(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_spelled(kind: Any) -> bool:
    """Whether values of a type are handed on as text."""
    tests = (pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
    return any(test(kind) for test in tests)


def _scalar_dtype(kind: Any) -> str | None:
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return {"halffloat": "float32", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return None


def _converter(kind: Any) -> _Converter | None:
    """Return what makes plain values of an array of this type, or None if nothing does."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors
    if isinstance(kind, pa.BaseExtensionType):
        return _behind(_converter(kind.storage_type), lambda array: array.storage)
    if pa.types.is_dictionary(kind):
        return _behind(_converter(kind.value_type), lambda array: array.dictionary_decode())
    if _is_list(kind):
        return _lists if _converter(kind.value_type) is not None else None
    if is_file_struct(kind):
        return _files
    if pa.types.is_struct(kind):
        return _structs if all(_converter(field.type) is not None for field in kind) else None
    return _single_converter(kind)


def _behind(convert: _Converter | None, unwrap: Callable[[Any], Any]) -> _Converter | None:
    return None if convert is None else lambda array: convert(unwrap(array))


def _single_converter(kind: Any) -> _Converter | None:
    if _is_spelled(kind):
        return lambda array: array.cast(pa.string()).to_pylist()
    if _scalar_dtype(kind) is not None or _is_text(kind) or _is_bytes(kind) or pa.types.is_null(kind):
        return lambda array: array.to_pylist()
    return None


def _files(array: Any) -> list[FileContent | str | None]:
    """Return contents with their names; the path alone where there is no content."""
    return [
        None
        if value is None
        else value["path"]
        if value["bytes"] is None
        else FileContent(value["bytes"], value["path"] or "")
        for value in array.to_pylist()
    ]


def _structs(array: Any) -> list[dict[str, Any] | None]:
    members = {field.name: _convert(array.field(position)) for position, field in enumerate(array.type)}
    valid = array.is_valid().to_pylist()
    return [
        {name: _jsonable(column[row]) for name, column in members.items()} if valid[row] else None
        for row in range(len(array))
    ]


def _lists(array: Any) -> list[Any]:
    """Return one array a row, or one list where elements are no numbers, are null, or make no rectangle."""
    return [None if values is None else _rectangle(values) for values in _nested(array)]


def _nested(array: Any) -> list[Any]:
    """Return the elements of each row: converted, cut along the offsets."""
    valid = array.is_valid().to_pylist()
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        ends = [(row * size, row * size + size) for row in range(len(array))]
        elements = array.values.slice(array.offset * size, len(array) * size)
    else:
        offsets = array.offsets.to_pylist()
        ends = [(start - offsets[0], end - offsets[0]) for start, end in pairwise(offsets)]
        elements = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    if _scalar_dtype(elements.type) is None:
        converted = _convert(elements)
        rows = [converted[start:end] for start, end in ends]
    elif elements.null_count == 0:
        flat = elements.to_numpy(zero_copy_only=False)
        rows = [flat[start:end] for start, end in ends]
    else:  # nulls, if only in place of the elements of a row that is null itself
        rows = [_numbers(elements.slice(start, end - start)) for start, end in ends]
    return [row if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def _numbers(elements: Any) -> Any:
    return elements.to_pylist() if elements.null_count else elements.to_numpy(zero_copy_only=False)


def _rectangle(values: Any) -> Any:
    """Return an array if the elements are arrays of one shape; else lists all the way down."""
    if isinstance(values, np.ndarray):
        return values.copy()  # not a view, which would keep the whole batch
    shapes = {value.shape if isinstance(value, np.ndarray) else None for value in values}
    if len(shapes) == 1 and None not in shapes:
        return np.stack(values)
    return [_jsonable(value) for value in values]


def _jsonable(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _tensors(array: Any) -> list[Any]:
    if array.null_count == 0 and array.storage.values.null_count == 0:
        return [tensor.copy() for tensor in array.to_numpy_ndarray()]
    return [
        value if value is None else _lists(array.storage.slice(row, 1))[0] for row, value in enumerate(array)
    ]


def _convert(array: Any) -> Sequence[Any]:
    convert = _converter(array.type)
    if convert is None:  # checked for every level before
        raise TypeError(f"no plain value for {array.type}")
    return convert(array)
