"""What the deployment recipes share: their command line, and `streamsvm` on the cluster that they made."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from bench import CONFIGS, STREAMSVM


def arguments(
    doc: str | None, config: str, add: Callable[[argparse.ArgumentParser], Any] = lambda parser: None
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The command line, and what its configuration file holds; `add` adds a recipe's own options."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIGS / config, metavar="FILE.yaml")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of streamsvm, with its options")
    add(parser)
    args = parser.parse_args()
    return args, yaml.safe_load(args.config.read_text())


def streamsvm(command: list[str], scheduler: str) -> int:
    """`streamsvm COMMAND ... --scheduler ADDRESS`; its exit status."""
    return subprocess.call([*STREAMSVM, *command, "--scheduler", scheduler])
