"""The configuration of `fit` if options are left out: they are chosen from the data, if possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamsvm.config import FitConfig, build_config
from streamsvm.errors import ConfigError
from streamsvm.kernels.table import kernel_row
from streamsvm.options.layers import Layer, Resolved, merged
from streamsvm.options.search import left_out
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, solver_row, takers
from streamsvm.tasks import default_task, is_searched
from streamsvm.unread import require_read


def completed(layers: list[Layer], *, searches: bool = True) -> FitConfig:
    """The configuration of these layers, with a search for what they leave out.

    A model gives all of its options, and a table [search] defines itself what is chosen. Raises ConfigError, also for
    options that nothing reads.
    """
    layers = [*layers, *_solver(merged(*layers))]
    values = merged(*layers)
    given = any(isinstance(own, Resolved) for _, own in layers) or "options" in (values.get("search") or {})
    if searches and not given:
        layers = [*layers, ("what is left out", _search(values, build_config(*layers)))]
    config = build_config(*layers)
    if not searches:
        _require_no_budget(values, config)
    require_read(layers, config)
    return config


def _require_no_budget(values: Mapping[str, Any], config: FitConfig) -> None:
    """Raises ConfigError for options that only a search reads; a requested metric implies a search."""
    names = [f"search.{name}" for name in values.get("search") or {} if name != "options"]
    if names and not config.search.chosen:
        raise ConfigError(
            f"--no-search excludes {', '.join(names)}, which only a search reads: leave one of them out"
        )


def _solver(values: Mapping[str, Any]) -> list[Layer]:
    """A solver that supports the task, if a task is named and no solver is."""
    takes = takers(str(values.get("task", "classify")))
    if "solver" in values or not takes or DEFAULT_SOLVER in takes:
        return []
    needs = dict(need.split("=") for need in solver_row(takes[0]).needs)
    kernel = {"kernel": {"name": needs["kernel.name"]}} if "kernel.name" in needs else {}
    return [("what is left out", {"solver": takes[0]} | ({} if "kernel" in values else kernel))]


def _search(values: Mapping[str, Any], config: FitConfig) -> dict[str, Any]:
    """The table [search] of what can be chosen for a configuration; and of a metric, where one may be learned."""
    task = config.task or default_task(config.solver, has_queries=False)
    names = left_out(values) if is_searched(task) and config.nu is None else ()
    if kernel_row(config.kernel.name).is_linear and "kernel" not in names:
        names = tuple(name for name in names if name not in ("metric", "gamma"))
    metric = {"metric": {"kind": "diagonal"}} if "metric" in names else {}
    return {"search": {"options": names}} | metric
