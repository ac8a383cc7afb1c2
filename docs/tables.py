"""Reference pages made from the code: the help of every command, and every option with its range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import annotated_types
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from streamsvm.cli.app import COMMANDS, app
from streamsvm.config import FitConfig, groups
from streamsvm.ingest.options import IngestOptions
from streamsvm.kernels.table import KERNELS, kernel_names
from streamsvm.options.base import Options
from streamsvm.search.options import TuneConfig
from streamsvm.solvers.catalogue import SOLVERS, section_of
from streamsvm.storage.text import human_bytes
from streamsvm.tasks import task_names, task_of

WORDS = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "string": "text"}
WORDS |= {"array": "list", "object": "table", "size": "size, as `2GiB`"}
LIMITS = {
    annotated_types.Ge: "at least {.ge}",
    annotated_types.Gt: "above {.gt}",
    annotated_types.Le: "at most {.le}",
    annotated_types.Lt: "below {.lt}",
}


def command_sections() -> str:
    """A section for each command, with what `--help-all` prints."""
    runner = CliRunner()
    helps = {name: runner.invoke(app, [name, "--help-all"], prog_name="streamsvm").output for name in COMMANDS}
    return "\n".join(f"## {name}\n\n```text\n{text.strip()}\n```\n" for name, text in helps.items())


def option_tables() -> str:
    """A table for each group of options: name, what it may be, its default, what it says."""
    lines = ["## All solvers\n", *_table(FitConfig, "")]
    for name, group in {**groups(), "tune": TuneConfig}.items():
        lines += [f"## {name}\n", f"{group.__doc__}\n", *_table(group, f"{name}.")]
    lines += ["## ingest\n", f"{IngestOptions.__doc__}\n", *_table(IngestOptions, "")]
    return "\n".join(lines)


def kernel_table() -> str:
    """A row for each kernel: its formula, its parameters, who takes it."""
    takers = ", ".join(f"`{name}`" for name, row in SOLVERS.items() if row.takes_indefinite)
    lines = ["| kernel | k(a, b) | parameters | solvers |\n|---|---|---|---|"]
    for name in kernel_names():
        row = KERNELS[name]
        parameters = ", ".join(f"`{parameter}`" for parameter in row.parameters)
        solvers = "all" if row.definite else takers
        lines.append(f"| `{name}` | {_cell(row.formula)} | {parameters} | {solvers} |")
    return "\n".join(lines)


def solver_table() -> str:
    """A row for each solver: its section of options, its tasks, kernels and estimators."""
    lines = ["| solver | options | tasks | kernels | estimators |\n|---|---|---|---|---|"]
    for name, row in SOLVERS.items():
        tasks = ", ".join(task for task in task_names() if task_of(task).goes_with(name))
        kernels = "all" if row.takes_indefinite else "all that are definite"
        made = ", ".join(f"`{place.partition(':')[2]}`" for place in row.estimators)
        lines.append(f"| `{name}` | `{section_of(name)}` | {tasks} | {kernels} | {made} |")
    return "\n".join(lines)


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Options)


def _table(group: type[Options], prefix: str) -> Iterator[str]:
    schema = group.model_json_schema()["properties"]
    yield "| option | values | default | meaning |\n|---|---|---|---|"
    for name, field in group.model_fields.items():
        if not _is_group(field):
            values = ", ".join([_values(schema[name]), *dict.fromkeys(_limits(field))])
            default = _default(field, schema[name].get("format") == "size")
            yield f"| `{prefix}{name}` | {values} | {default} | {_cell(field.description or '')} |"
    yield ""


def _default(field: FieldInfo, is_size: bool) -> str:
    if field.is_required() or field.default in (None, ()):
        return ""
    if is_size:
        return f"`{human_bytes(field.default).replace('.0 ', '')}`"
    is_flag = isinstance(field.default, bool)
    return f"`{str(field.default).lower() if is_flag else field.default}`"


def _values(schema: dict[str, Any]) -> str:
    """What a value may be, in words."""
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_values, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    return WORDS.get(schema.get("format", schema.get("type", "")), "")


def _limits(field: Any) -> Iterator[str]:
    """Limits of the field, also those of the members of a union."""
    metadata = getattr(field, "metadata", None) or getattr(field, "__metadata__", ())
    for limit in metadata:
        if isinstance(limit, FieldInfo):
            yield from _limits(limit)
        elif type(limit) in LIMITS:
            yield LIMITS[type(limit)].format(limit)
    for member in get_args(getattr(field, "annotation", None) or field):
        yield from _limits(member)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
