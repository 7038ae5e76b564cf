"""``shardkit get``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import shardkit
from shardkit.errors import OutputError, RecordNotFoundError

_PRINTED = {"label", "scalar", "text", "json"}
"""Kinds of field that are shown as text; the others are bytes of a file."""


def get_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    record_id: Annotated[str, typer.Argument(metavar="ID", help="The record's id.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there, exactly as stored.")
    ] = None,
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which field; default the first that holds a file.")
    ] = None,
) -> int:
    """Write one field of one record, its checksum checked; numbers and text are printed, files as stored."""
    with shardkit.Store(out) as store:
        name = _choose(store, field)
        column = list(store.contract.fields).index(name)
        row = _find(store, record_id)
        payload = store.payload(row, column)
        store.check(row, column, payload)
        spec, data = store.contract.fields[name], bytes(payload)
    if output is not None:
        _write(output, data)
    elif spec.kind in _PRINTED:
        value = spec.decode(
            data
        )  # also of JSON, which is printed as stored: a crafted one may not even be text
        print(data.decode("utf-8") if spec.kind == "json" else value)
    elif sys.stdout is not None and sys.stdout.isatty():
        raise typer.BadParameter(f"{name!r} is binary, and this is a terminal: give -o FILE")
    else:
        with open(1, "wb", closefd=False) as stdout:
            stdout.write(data)
    return 0


def _choose(store: "shardkit.Store", field: str | None) -> str:
    fields = store.contract.fields
    if field is None:
        return next((name for name, spec in fields.items() if spec.takes_file), next(iter(fields)))
    if field not in fields:
        raise typer.BadParameter(f"the data set has no field {field!r}; it has {', '.join(fields)}")
    return field


def _find(store: "shardkit.Store", record_id: str) -> int:
    """Return the row of an id; of one that was rejected, or deleted since, say so."""
    try:
        return store.row_of(record_id)
    except RecordNotFoundError as error:
        for rejection in store.rejected():
            if rejection.get("id") == record_id:
                why = f"{rejection.get('reason')}: {rejection.get('sentence')}"
                raise RecordNotFoundError(f"{error}: it is listed as left out ({why})") from error
        raise


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
