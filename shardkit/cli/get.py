"""``shardkit get``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from shardkit.errors import OutputError, RecordNotFoundError
from shardkit.store import Store


def get_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    record_id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there instead of to stdout.")
    ] = None,
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which field; default the first that holds a file.")
    ] = None,
) -> int:
    """Write one field of one record, exactly as stored and with its checksum checked."""
    with Store.open(out) as store:
        column = _column(store, field)
        row = store.row_of(record_id)
        payload = store.payload(row, column)
        store.check(row, column, payload)
        data = bytes(payload)
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return 0
    try:
        output.write_bytes(data)
    except OSError as error:
        raise OutputError(f"{output}: cannot be written: {error.strerror}") from error
    return 0


def _column(store: Store, field: str | None) -> int:
    fields = store.contract.fields
    names = list(fields)
    if field is None:
        return next((at for at, name in enumerate(names) if fields[name].takes_file), 0)
    if field not in names:
        raise RecordNotFoundError(f"the data set has no field {field!r}; it has {', '.join(names)}")
    return names.index(field)
