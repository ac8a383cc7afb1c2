"""Finds given options that nothing would read, so that a fit does not silently ignore them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter, contains, eq, is_, ne, not_
from typing import Any

from streamsvm.config import FitConfig, KernelConfig, groups, option_field
from streamsvm.errors import ConfigError
from streamsvm.kernels import table
from streamsvm.options.base import ReadRule
from streamsvm.options.layers import Layer, Resolved
from streamsvm.options.search import MetricConfig, SearchConfig
from streamsvm.solvers import catalogue
from streamsvm.tasks import default_task, task_names, task_options, task_unread


def rules() -> Iterator[ReadRule]:
    """The rules of all solvers, kernels and tasks: which fits read which option."""
    for name in catalogue.solver_names():
        section = catalogue.section_of(name)
        for member in groups()[section].model_fields:
            yield ReadRule(f"{section}.{member}", f"solver {name}", "solver", partial(eq, name))
        yield from catalogue.options_class(name).rules
    for option in catalogue.OF_SOME:
        names = catalogue.readers(option)
        yield ReadRule(option, _listed("solver", names), "solver", partial(contains, names))
    for parameter in KernelConfig.model_fields:
        if parameter != "name":
            names = table.readers(parameter)
            yield ReadRule(f"kernel.{parameter}", _listed("kernel", names), "kernel.name", partial(contains, names))
    for option in dict.fromkeys(option for name in task_names() for option in task_options(name)):
        names = [name for name in task_names() if option in task_options(name)]
        default = [None] if default_task(catalogue.DEFAULT_SOLVER, has_queries=False) in names else []
        yield ReadRule(option, _listed("task", names), "task", partial(contains, [*default, *names]))
    for option in dict.fromkeys(option for name in task_names() for option in task_unread(name)):
        others = [name for name in task_names() if option not in task_unread(name)]
        yield ReadRule(option, _listed("task", others), "task", partial(contains, [None, *others]))
    yield ReadRule("epsilon", "a regression without nu", "nu", partial(is_, None))
    yield ReadRule("epsilon", "a regression without quantile", "quantile", partial(is_, None))
    yield ReadRule("device_memory", "a fit on a device", "device", partial(ne, "cpu"))
    yield ReadRule(
        "probability.folds",
        "a fit with probabilities or a threshold",
        "probability",
        attrgetter("is_requested"),
    )
    yield ReadRule("mark_gaps", "a fit that fills missing values", "gaps", partial(ne, "refuse"))
    yield ReadRule("wait_for_scheduler", "a fit on a cluster that has one", "scheduler", bool)
    yield from MetricConfig.rules
    yield from SearchConfig.rules


def _listed(what: str, names: list[str]) -> str:
    *first, last = names
    return f"{what}s {', '.join(first)} and {last}" if first else f"{what} {last}"


def unread(config: FitConfig) -> Iterator[ReadRule]:
    """The rules of options that this configuration does not read."""
    yield from (rule for rule in rules() if not rule.reads(attrgetter(rule.decider)(config)))
    if config.probability.is_requested and not config.n_folds:
        readers = "a fit with probabilities, or with a threshold without holdout,"
        yield ReadRule("probability.folds", readers, "holdout", not_)


def require_read(layers: list[Layer], *configs: FitConfig) -> list[set[str]]:
    """The options that each of these configurations does not read.

    Raises ConfigError for an option that the layers give and that none of the configurations reads.
    """
    unread_of = [list(unread(config)) for config in configs]
    unread_options = [{rule.option for rule in unread_rules} for unread_rules in unread_of]
    for rule in unread_of[0]:
        origin = _origin(rule.option, layers)
        if origin and all(rule.option in unread_rules for unread_rules in unread_options):
            value = attrgetter(rule.decider)(configs[0])
            raise ConfigError(
                f"{origin}: {rule.option} is read by {rule.readers} only, found {rule.decider} {_text(value)}; "
                f"leave it out, or change {rule.decider}"
            )
    return unread_options


def _origin(option: str, layers: list[Layer]) -> str | None:
    """The last layer that gives this option. A model gives the options that differ from their defaults."""
    for origin, values in reversed(layers):
        given: Any = catalogue.renamed(values)
        for name in option.split("."):
            given = given.get(name) if isinstance(given, dict) else None
        default = isinstance(values, Resolved) and given == option_field(option).default
        if given is not None and not default:
            return origin
    return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | None) else str(value)
