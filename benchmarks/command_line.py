"""What every benchmark does around its measurement: settings from the command line, a folder to work in, the report."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from machine import machine_facts, machine_line

Settings = TypeVar("Settings")


def run_benchmark(
    question: str, defaults: Settings, measure: Callable[[Settings, Path], Mapping[str, Any]]
) -> None:
    """Do what every benchmark does: read the command line, say what is asked and where, measure, save.

    Args:
        question: The docstring of the benchmark, whose first line is the question.
        defaults: A dataclass of its settings; see `read_arguments`.
        measure: Is given the settings and a new folder to work in, prints tables, and returns the report.
    """
    settings, folder, json_file = read_arguments(question, defaults)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        facts = machine_facts(Path(name))
        print(question.split("\n", 1)[0])
        print(machine_line(facts))
        report = measure(settings, Path(name))
    shown = asdict(settings)  # type: ignore[call-overload]  # any dataclass will do
    save_json(json_file, {"benchmark": Path(sys.argv[0]).stem, "machine": facts, "settings": shown, **report})


def read_arguments(question: str, defaults: Settings) -> tuple[Settings, Path | None, Path | None]:
    """Return settings, folder to work in and file for the results, as the command line says.

    Args:
        question: The docstring of the benchmark; its first line tells what it answers.
        defaults: A dataclass; each field is an option: a whole number, a text, or a tuple of texts, whose option may
            be given more than once.
    """
    parser = argparse.ArgumentParser(description=question.split("\n", 1)[0])
    values = asdict(defaults)  # type: ignore[call-overload]  # any dataclass will do
    for key, value in values.items():
        if isinstance(value, tuple):
            parser.add_argument(f"--{key}", action="append", default=[], help="may be given more than once")
        else:
            parser.add_argument(f"--{key}", type=type(value), default=value, help=f"default {value!r}")
    parser.add_argument("--folder", type=Path, help="where to make the data (default: the temporary folder)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = vars(parser.parse_args())
    given = {key: arguments[key] for key in values}
    settings = type(defaults)(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    )
    return settings, arguments["folder"], arguments["json"]


def save_json(path: Path | None, report: Mapping[str, Any]) -> None:
    """Write `report` to `path`, if there is one."""
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n")
