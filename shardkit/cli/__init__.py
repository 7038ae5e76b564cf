"""The command line: parses, calls one function, prints. Results go to stdout, everything else to stderr."""

from shardkit.cli.app import main

__all__ = ["main"]
