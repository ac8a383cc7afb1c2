"""Flags of configuration options, which own their texts, values and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from streamsvm.cli.options import CLUSTER, RUN
from streamsvm.config import Layer, option_field, option_names, option_values
from streamsvm.human import number_or_text

_OPTIONS: dict[str, str] = {}  # by the name of a command's parameter


def flag(name: str, option: str, group: str, **more: Any) -> Any:
    """The flag of a configuration option. The configuration judges its value, so that errors are worded once."""
    _OPTIONS[name.lstrip("-").replace("-", "_")] = option
    field = option_field(option)
    values = option_values(option)
    text = str(field.description)
    if values and "metavar" not in more:
        text += f"; one of {', '.join(values)}"
    if field.default is not None and field.default is not False and field.default != ():
        text += f" (default {field.default})"
    if field.annotation is not bool:
        more.setdefault("metavar", name.lstrip("-").upper() if values else "N")
        more.setdefault("parser", str if values else number_or_text)
    return typer.Option(name, help=text, rich_help_panel=group, autocompletion=completes(values), **more)


def completes(values: tuple[str, ...]) -> Callable[..., list[str]] | None:
    """What completes a value in the shell, of these."""
    return (
        (lambda incomplete: [value for value in values if value.startswith(incomplete)]) if values else None
    )


def complete_set(incomplete: str) -> list[str]:
    """Options that `--set` may name, and values where one lists them."""
    name, equals, _ = incomplete.partition("=")
    names = list(option_names())
    if equals and name in names:
        return [f"{name}={value}" for value in option_values(name)]
    return [f"{option}=" for option in names if option.startswith(incomplete)]


def flag_layers(flags: dict[str, Any]) -> list[Layer]:
    """What these flags of a command say, by name; None: not given."""
    layers: list[Layer] = []
    for name, option in _OPTIONS.items():
        if flags.get(name) is not None:
            group, _, member = option.rpartition(".")
            value = {member: flags[name]}
            layers.append((f"--{name.replace('_', '-')}", {group: value} if group else value))
    return layers


def class_weights(text: str) -> Any:
    """`balanced`, or the table that 1=2.0,2=1 means."""
    if "=" not in text:
        return text
    pairs = [pair.rpartition("=") for pair in text.split(",")]
    return {label.strip(): number_or_text(weight) for label, _, weight in pairs}


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any option by name, over flags and file.",
        metavar="NAME=VALUE",
        autocompletion=complete_set,
        rich_help_panel=RUN,
    ),
]
MemoryLimit = Annotated[Any, flag("--memory-limit", "memory_limit", RUN, metavar="SIZE", parser=str)]
WorkersFlag = Annotated[Any, flag("--workers", "workers", CLUSTER)]
SchedulerFlag = Annotated[
    Any, flag("--scheduler", "scheduler", CLUSTER, metavar="tcp://HOST:PORT", parser=str)
]
