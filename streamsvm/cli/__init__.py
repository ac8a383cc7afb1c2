"""The command line: one thin file per command, all work elsewhere."""

from streamsvm.cli.app import main as main
