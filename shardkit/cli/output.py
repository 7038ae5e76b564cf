"""How results are printed: JSON for programs, aligned text for people."""

import json
from collections.abc import Mapping
from typing import Any, TextIO

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, in ASCII, which every terminal and parser takes."""
    print(json.dumps(value, indent=2))


def print_counts(title: str, counts: Mapping[str, int], file: TextIO | None = None) -> None:
    """Print one line a count, with `title` in front of each, on stdout or `file`."""
    for name, count in counts.items():
        print(f"  {title:<10} {printable(name)}: {count:,}", file=file)


def printable(text: str) -> str:
    """Return `text` on one line, with control characters (of names, which may hold anything) as escapes."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def show_bytes(count: int) -> str:
    """Return a number of bytes in decimal units, such as ``"82.1 MB"``."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
