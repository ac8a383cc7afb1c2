"""What estimators leave to be chosen from the data: parameters that are "search", and others along with a metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator

from streamsvm.config import FitConfig
from streamsvm.errors import ConfigError
from streamsvm.kernels.base import as_arguments
from streamsvm.kernels.table import kernel_row
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, section_of, solver_row
from streamsvm.tasks import is_searched
from streamsvm.tasks.pairs import MANY

SEARCH = "search"
SEARCHED_KIND = "diagonal"  # of a metric that is "search"
WITH_METRIC = ("kernel", "C", "gamma")  # chosen with a metric that is learned, where they are at their defaults
MULTI_CLASS = {"ovo": "pairs", "ovr": "rest"}  # a parameter's values, and those of the option
OPTIONS = {"kernel": ("kernel", "name"), "gamma": ("kernel", "gamma"), "metric": ("metric", "kind")}


def searched_parameters(estimator: BaseEstimator) -> tuple[str, ...]:
    """The parameters that are "search"."""
    parameters = estimator.get_params(deep=False).items()
    return tuple(name for name, value in parameters if isinstance(value, str) and value == SEARCH)


def with_search(estimator: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of a configuration, with a search for what is to be chosen, instead of its values.

    Raises ConfigError where it cannot be chosen.
    """
    names, solver = searched_parameters(estimator), values["solver"]
    for name in names:
        _require(estimator, name, values)
    kind = SEARCHED_KIND if "metric" in names else estimator.metric
    metric = {"kind": kind} | (estimator.metric_params or {})
    if kind != "none" and "metric" not in names and metric.get("factor") is None:
        names += tuple(_left_with_metric(estimator, solver))
    fixed = dict(values)
    for section, member in (_option(name, solver) for name in names if name != "metric"):
        if section is None:
            fixed.pop(member, None)
        else:
            fixed[section] = {other: value for other, value in fixed[section].items() if other != member}
    return fixed | {"metric": metric, "search": {"options": names} | (estimator.search_params or {})}


def chosen_parameters(model: Any) -> dict[str, Any]:
    """What a search chose for a model, under the names of parameters; of a kernel also its `kernel_params`."""
    config, kernel = model.header.config, as_arguments(model.header.kernel)
    options = config["search"]["options"]
    # of a solver that was chosen, too, the options are those of the solver that began
    solver = DEFAULT_SOLVER if "solver" in options else config["solver"]
    places = {name: _option(name, solver) for name in options}
    values = {name: (config[section] if section else config)[member] for name, (section, member) in places.items()}
    values |= {name: value for name, value in kernel.items() if name in values}
    multiclass, has_choice = values.pop("multiclass", None), len(model.header.classes) >= MANY
    if multiclass is not None and has_choice and "multiclass" in solver_row(config["solver"]).reads:
        values["multi_class"] = next(name for name, way in MULTI_CLASS.items() if way == multiclass)
    kernel_params = kernel["kernel_params"] if "kernel" in values else None
    return values | ({"kernel_params": kernel_params} if kernel_params else {})


def _left_with_metric(estimator: Any, solver: str) -> list[str]:
    """Parameters at their defaults. With a gamma that is a number, which is of one kernel, the kernel stays."""
    defaults, names = type(estimator)().get_params(deep=False), solver_row(solver).searches
    has_number_gamma = isinstance(estimator.gamma, float | int)
    left = [name for name in WITH_METRIC if name in names and not (name == "kernel" and has_number_gamma)]
    given = {name: getattr(estimator, name) for name in left}
    return [name for name in left if type(given[name]) is type(defaults[name]) and given[name] == defaults[name]]


def _require(estimator: Any, name: str, values: Mapping[str, Any]) -> None:
    """Raises ConfigError where this parameter cannot be chosen."""
    fault, task = f"{type(estimator).__name__}: {name} is {SEARCH!r}", values.get("task", "classify")
    solver, kernel = values["solver"], values["kernel"]["name"]
    if not is_searched(task):
        raise ConfigError(f"{fault}, but nothing is chosen for task {task}; give a value")
    searchable = [name for name in solver_row(solver).searches if name in estimator.get_params(deep=False)]
    if name not in searchable:
        names = ", ".join(searchable)
        raise ConfigError(f"{fault}, but solver {solver} has only these chosen: {names}; give a value")
    if kernel != SEARCH and kernel_row(kernel).whole:
        raise ConfigError(f"{fault}, which needs rows of features; found kernel {kernel}, give a value")
    if name == "kernel" and isinstance(estimator.gamma, float | int):
        raise ConfigError(
            f"{fault}, and gamma {estimator.gamma}, which is of one kernel; expected gamma 'search', 'scale' or 'auto'"
        )


def _option(name: str, solver: str) -> tuple[str | None, str]:
    """The option of a parameter: the section of the configuration, if it is in one, and its name there."""
    return OPTIONS.get(name, (None if name in FitConfig.model_fields else section_of(solver), name))
