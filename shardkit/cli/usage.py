"""Wrong use of a command: a setting that the function behind it refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from shardkit.errors import ShardkitError


@contextmanager
def wrong_use() -> Iterator[None]:
    """Turn a refused setting into typer's own error, with its exit status; errors of ours stay what they are.

    Raises:
        typer.BadParameter: A setting is not allowed.
    """
    try:
        yield
    except ShardkitError:  # some of which are ValueErrors as well
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
