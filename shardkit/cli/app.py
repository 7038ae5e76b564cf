"""The entry point: registers the commands, and turns every error into one line and an exit status.

Exit status: 0, all well; 1, the data falls short; 2, wrong use; 130 and 143, interrupted or terminated.
"""

import functools
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Annotated, ParamSpec

import typer

from shardkit import __version__
from shardkit.cli.bench import bench_command
from shardkit.cli.contract import infer_command
from shardkit.cli.doctor import doctor_command
from shardkit.cli.edit import compact_command, delete_command, prune_command
from shardkit.cli.get import get_command
from shardkit.cli.info import info_command
from shardkit.cli.ingest import ingest_command
from shardkit.cli.output import printable
from shardkit.cli.verify import verify_command
from shardkit.errors import ShardkitError

_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM

Parameters = ParamSpec("Parameters")


def main() -> None:
    """Run the command line on ``sys.argv`` and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it is None where the descriptor is closed
            stream.reconfigure(errors="backslashreplace")  # ids may hold anything
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        _build()()
    except OSError as error:  # of --help and --version, which answer on their own
        sys.exit(f"shardkit: the system refused: {error.strerror}")


def _build() -> typer.Typer:
    app = _group("Take raw training data in once, checked; feed PyTorch from it, every sample accounted for.")
    app.callback()(_root)
    app.command("ingest")(_answering(ingest_command))
    app.command("verify")(_answering(verify_command))
    app.command("bench")(_answering(bench_command))
    app.command("doctor")(_answering(doctor_command))
    app.command("delete")(_answering(delete_command))
    app.command("compact")(_answering(compact_command))
    app.command("prune")(_answering(prune_command))
    app.command("info")(_answering(info_command))
    app.command("get")(_answering(get_command))
    contract = _group("Contracts: what a record must be.")
    contract.callback()(_nothing)  # or a group of one command would swallow the command's name
    contract.command("infer")(_answering(infer_command))
    app.add_typer(contract, name="contract")
    return app


def _group(purpose: str) -> typer.Typer:
    return typer.Typer(
        help=purpose,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(__version__)
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
]


def _root(version: _Version = False) -> None:
    """Take raw training data in once, checked; feed PyTorch from it, every sample accounted for."""


def _nothing() -> None:
    """Contracts: what a record must be."""


def _answering(command: Callable[Parameters, int]) -> Callable[Parameters, None]:
    """Return a command that exits with the status it returns, and says an error in one line on stderr."""

    @functools.wraps(command)
    def answer(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            status = command(*arguments, **options)
            print(end="", flush=True)
        except ShardkitError as error:
            print(f"shardkit: {printable(str(error))}", file=sys.stderr)
            status = error.exit_status
        except KeyboardInterrupt as interrupt:
            kept = f"; {interrupt}" if str(interrupt) else ""
            is_terminated = isinstance(interrupt, Terminated)
            print(f"shardkit: {'terminated' if is_terminated else 'interrupted'}{kept}", file=sys.stderr)
            status = _TERMINATED if is_terminated else _INTERRUPTED
        except MemoryError:
            print("shardkit: out of memory; use fewer workers or fewer records per shard", file=sys.stderr)
            status = 1
        except OSError as error:  # of the system, or stdout: what our own files refuse is a ShardkitError
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or flushing stdout at exit fails again
            if not isinstance(error, BrokenPipeError):
                where = f"{printable(str(error.filename))}: " if error.filename else ""
                print(f"shardkit: {where}the system refused: {error.strerror}", file=sys.stderr)
            status = 1
        raise typer.Exit(status)

    return answer


class Terminated(KeyboardInterrupt):
    """SIGTERM, which is answered as Ctrl-C is: in good order."""


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Stop in good order; at the second Ctrl-C at once, which leaves what a crash leaves: nothing that counts."""
    signal.signal(signal.SIGINT, _leave)
    if sys.stderr is not None and sys.stderr.isatty():
        print("\nshardkit: stopping; press Ctrl-C again to stop at once", file=sys.stderr)
    raise KeyboardInterrupt


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)  # worker processes notice within a second
