"""Flags of configuration options. The options own texts, values and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from streamsvm.cli.options import CLUSTER, RUN, option
from streamsvm.config import Options, field_values, option_field, option_names, option_values
from streamsvm.errors import ConfigError
from streamsvm.options.layers import Layer
from streamsvm.storage.text import cut_quoted, human_bytes, name_of, number_or_text, split_quoted

OBJECTIVES = "f1|balanced_accuracy|precision=P|recall=R"  # what a threshold is chosen for
COSTS = "TRUE>PREDICTED=COST[,...]"
_OPTIONS: dict[str, str] = {}  # by the name of a command's parameter


def flag(name: str, option: str, group: str, **more: Any) -> Any:
    """The flag of a configuration option. The configuration validates its value, so that errors are worded once."""
    _OPTIONS[_member(name)] = option
    return _flag(name, option_field(option), rich_help_panel=group, **more)


def section_flag(section: type[Options], name: str, **more: Any) -> Any:
    """The flag, or pair such as --dense/--sparse, of the option with its name in a section that is not a fit's."""
    return _flag(name, section.model_fields[_member(name.partition("/")[0])], **more)


def section_layers(section: type[Options], flags: dict[str, Any]) -> list[Layer]:
    """A layer for each flag of a section that was given (is not None)."""
    return [
        (f"--{name.replace('_', '-')}", {name: flags[name]})
        for name in section.model_fields
        if flags.get(name) is not None
    ]


def _member(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _flag(name: str, field: FieldInfo, **more: Any) -> Any:
    values = field_values(field)
    text = str(field.description).replace("`", "")
    if values and "metavar" not in more:
        text += f"; one of {', '.join(values)}"
    if field.default not in (None, (), {}) and not isinstance(field.default, bool):
        is_size = field.json_schema_extra == {"format": "size"}
        text += f" (default {human_bytes(field.default).replace('.0 ', '') if is_size else field.default})"
    if field.annotation not in (bool, bool | None):
        more.setdefault("metavar", name.lstrip("-").upper() if values else "N")
        more.setdefault("parser", str if values else number_or_text)
    return typer.Option(name, help=text, autocompletion=completes(values), **more)


def completes(values: tuple[str, ...]) -> Callable[..., list[str]] | None:
    """The shell completion of these values."""
    return (lambda incomplete: [value for value in values if value.startswith(incomplete)]) if values else None


def complete_set(incomplete: str) -> list[str]:
    """Options that `--set` may name, and their values if they are listed."""
    given, equals, _ = incomplete.partition("=")
    names = list(option_names())
    if equals and given in names:
        return [f"{given}={value}" for value in option_values(given)]
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def flag_layers(flags: dict[str, Any]) -> list[Layer]:
    """A layer for each of a command's flags that was given (is not None)."""
    layers: list[Layer] = []
    for name, configured in _OPTIONS.items():
        if flags.get(name) is not None:
            group, _, member = configured.rpartition(".")
            value = {member: flags[name]}
            layers.append((f"--{name.replace('_', '-')}", {group: value} if group else value))
    return layers


def class_weights(text: str) -> Any:
    """`balanced`, or a table parsed from text such as 1=2.0,2=1. Raises ConfigError for a label that is named twice."""
    if "=" not in text:
        return text
    pairs = [cut_quoted(pair, "=") for pair in split_quoted(text)]
    weights = {name_of(label): number_or_text(weight) for label, weight in pairs}
    if len(weights) < len(pairs):
        raise ConfigError(f"--class-weight: found {text!r}, expected each label once")
    return weights


SetOption = Annotated[
    list[str] | None,
    option(
        "--set",
        "Set any option by name; overrides flags and file.",
        "NAME=VALUE",
        RUN,
        autocompletion=complete_set,
    ),
]
MemoryLimit = Annotated[Any, flag("--memory-limit", "memory_limit", RUN, metavar="SIZE", parser=str)]
WorkersFlag = Annotated[Any, flag("--workers", "workers", RUN)]
SchedulerFlag = Annotated[Any, flag("--scheduler", "scheduler", CLUSTER, metavar="tcp://HOST:PORT", parser=str)]
WaitFlag = Annotated[Any, flag("--wait-for-scheduler", "wait_for_scheduler", CLUSTER, metavar="60s|10m|2h", parser=str)]
