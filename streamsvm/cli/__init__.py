"""The command line: thin commands, all work elsewhere."""

from streamsvm.cli.app import main as main
