"""The help of a command: its options by group, one below the other, as wide as the terminal."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from streamsvm.storage.paths import was_url

OTHERS = "Options"  # those without a group
MOST_NAMES = 3  # option names get at most 1 / MOST_NAMES of the width
KINDS = {"<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<float range>": "NUMBER", "<path>": "PATH"}


class Command(TyperCommand):
    """A command whose help has a section for each group, and whose switches explain that they take no value.

    Options that take local files only refuse URLs.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Required options by name, then arguments."""
        options = [p for p in self.params if p.param_type_name == "option" and p.required]
        arguments = [p for p in self.params if p.param_type_name == "argument"]
        return [*(f"{p.opts[0]} {_value(p, ctx)}" for p in options), "[OPTIONS]", *map(_argument, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            other = "Arguments" if param.param_type_name == "argument" else OTHERS
            group = getattr(param, "rich_help_panel", None) or other
            if record := param.get_help_record(ctx):
                sections.setdefault(group, []).append((_name(param, record[0], ctx), record[1]))
        for group, rows in sections.items():
            with formatter.section(group):
                formatter.write_dl(rows, col_max=min(30, formatter.width // MOST_NAMES))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        switches = {name for p in self.params if getattr(p, "is_flag", False) for name in p.opts}
        for name, value in pairwise(args):
            if name in switches and value.lower() in ("true", "false"):
                what = "give it alone" if value.lower() == "true" else "leave it out"
                ctx.fail(f"{name} is a switch, found {name} {value}; {what}")
        rest = super().parse_args(ctx, args)
        for param in self.params:
            given = ctx.params.get(param.name)
            if isinstance(given, Path) and was_url(given):
                own = param.opts[0] if param.param_type_name == "option" else param.metavar
                ctx.fail(f"{own}: found a URL, expected a local path; copy the file to or from this machine")
        return rest


def _name(param: Any, shown: str, ctx: Any) -> str:
    """The first column of a parameter, in words that people use for types."""
    if param.param_type_name == "argument":
        return _argument(param)
    kind = param.display_type_rich(ctx)
    return shown.replace(kind, _value(param, ctx)) if kind else shown


def _argument(param: Any) -> str:
    return f"{param.metavar}{'' if param.nargs == 1 else '...'}"


def _value(param: Any, ctx: Any) -> str:
    """The placeholder of an option's value: a word, or the list of values."""
    kind = param.display_type_rich(ctx) or ""
    return KINDS.get(kind, kind.strip("<>"))
