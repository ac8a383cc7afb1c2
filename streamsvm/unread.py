"""Options that nothing reads where they are given: said, before something else is trained than was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter, contains, eq, ne
from typing import Any, NamedTuple

from streamsvm.config import FitConfig, KernelConfig, Layer, Resolved, option_field, option_names
from streamsvm.errors import ConfigError
from streamsvm.kernels.table import kernel_row, readers
from streamsvm.tasks import task_names, task_of


class Rule(NamedTuple):
    """Who reads an option (its dotted name), and the other option that decides it."""

    option: str
    readers: str
    decider: str
    reads: Callable[[Any], bool]  # of the decider's value


def _kernels(parameter: str) -> str:
    *names, last = readers(parameter)
    return f"kernels {', '.join(names)} and {last}" if names else f"kernel {last}"


def _reads(parameter: str, name: str) -> bool:
    return parameter in kernel_row(name).parameters


SECTIONS = {
    "dcsvm": "dcsvm",
    "bsgd": "bsgd",
    "cutting_plane": "cutting-plane",
    "hss": "admm-hss",
    "alfpgm": "alfpgm",
}
RULES = (
    *(
        Rule(option, f"solver {solver}", "solver", partial(eq, solver))
        for section, solver in SECTIONS.items()
        for option in option_names()
        if option.startswith(f"{section}.")
    ),
    *(
        Rule(f"kernel.{parameter}", _kernels(parameter), "kernel.name", partial(_reads, parameter))
        for parameter in KernelConfig.model_fields
        if parameter != "name"
    ),
    Rule("tol", "solvers that end at a tolerance, all but bsgd,", "solver", partial(ne, "bsgd")),
    Rule("cache_size", "solvers dcsvm and alfpgm", "solver", partial(contains, ("dcsvm", "alfpgm"))),
    Rule("dcsvm.early_level", "early prediction", "dcsvm.early", bool),
    Rule("dcsvm.combine", "early prediction", "dcsvm.early", bool),
    Rule("dcsvm.neighbours", "early prediction", "dcsvm.early", bool),
    Rule("dcsvm.refine", "an exact fit", "dcsvm.early", lambda early: not early),
    Rule("C", "bsgd without a lambda of its own", "bsgd.lam", lambda lam: lam is None),
    Rule("bsgd.rounds", "several partitions", "bsgd.partitions", lambda partitions: partitions > 1),
    Rule("alfpgm.mu", "subproblem fpg", "alfpgm.subproblem", partial(eq, "fpg")),
    Rule("probability.folds", "a fit with probabilities", "probability.method", bool),
)


def unread(config: FitConfig) -> Iterator[Rule]:
    """The rules of options that this configuration does not read."""
    return (rule for rule in (*RULES, *_of_tasks()) if not rule.reads(attrgetter(rule.decider)(config)))


def _of_tasks() -> Iterator[Rule]:
    """What a task alone reads, of the tasks that there are."""
    for name in task_names():
        for option in task_of(name).options:
            yield Rule(option, f"task {name}", "task", partial(eq, name))


def require_read(layers: list[Layer], *configs: FitConfig) -> list[set[str]]:
    """The options that each of these configurations does not read.

    Raises ConfigError for one that the layers which make them give, and none of them reads.
    """
    rules = [list(unread(config)) for config in configs]
    idle = [{rule.option for rule in own} for own in rules]
    for rule in rules[0]:
        origin = _origin(rule.option, layers)
        if origin and all(rule.option in own for own in idle):
            value = attrgetter(rule.decider)(configs[0])
            raise ConfigError(
                f"{origin}: {rule.option} is read by {rule.readers} only, found {rule.decider} {_text(value)}; "
                f"leave it out, or change {rule.decider}"
            )
    return idle


def _origin(option: str, layers: list[Layer]) -> str | None:
    """The last layer that gives this option; a model gives what is not a default."""
    for origin, values in reversed(layers):
        given: Any = values
        for name in option.split("."):
            given = given.get(name) if isinstance(given, dict) else None
        default = isinstance(values, Resolved) and given == option_field(option).default
        if given is not None and not default:
            return origin
    return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | None) else str(value)
