"""``shardkit info``."""

from pathlib import Path
from typing import Annotated, Any

import typer

import shardkit
from shardkit.cli.output import print_json, printable, show_bytes

_CLASSES_SHOWN = 20


def info_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The data set.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Say what a data set holds: records, fields, shards, labels. Checks sizes and headers only."""
    facts = shardkit.describe(out)
    if json:
        print_json(facts)
    else:
        _print(out, facts)
    return 0


def _print(out: Path, facts: dict[str, Any]) -> None:
    backends = ", ".join(f"{count} {name}" for name, count in facts["backends"].items())
    print(f"{out}: {facts['records']:,} records; shards: {backends or 'none'}")
    print(f"  data set   {facts['dataset_id']}, generation {facts['generation']}")
    print(f"  size       {show_bytes(facts['bytes'])}, index {show_bytes(facts['index_bytes'])}")
    print(f"  left out   {facts['rejected']:,} rejected or deleted")
    for name, table in facts["contract"]["fields"].items():
        settings = [f"{key} = {value}" for key, value in facts["settings"][name].items()]
        print(f"  field      {name}: {printable(', '.join([table['type'], *settings]))}")
    for name, counts in facts["labels"].items():
        for label, count in list(counts.items())[:_CLASSES_SHOWN]:
            print(f"  {name:<10} {printable(label)}: {count:,}")
        if len(counts) > _CLASSES_SHOWN:
            print(f"  {name:<10} and {len(counts) - _CLASSES_SHOWN:,} more")
