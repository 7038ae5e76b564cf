"""``python -m shardkit``: the same as the ``shardkit`` command."""

from shardkit.cli.app import main

main()
