"""What a search tries: the points of a `[tune]` table (`search_of`), or, for a fit, the options that are left out
(`completed`), which are chosen from the data if the task and solver allow it.

All points share the options that the grid does not name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from streamsvm.config import FitConfig, build_config, option_names, suggest, validated
from streamsvm.errors import ConfigError
from streamsvm.kernels.table import kernel_row
from streamsvm.options.base import Count, Options, Whole
from streamsvm.options.layers import Layer, Resolved, merged
from streamsvm.options.search import left_out, parse_seconds
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, renamed_option, solver_row, takers
from streamsvm.tasks import default_task, is_searched, task_names, task_options
from streamsvm.unread import require_read

Point = dict[str, Any]  # values by dotted option name


class Range(Options):
    """`points` values from `low` to `high`, each the same factor above the one before."""

    low: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    high: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    points: Annotated[Whole, Field(ge=2)]

    def values(self) -> list[float]:
        factor = self.high / self.low
        return [float(f"{self.low * factor ** (i / (self.points - 1)):.12g}") for i in range(self.points)]


def _grid(table: Any) -> Any:
    """Values by dotted option name; names may be dotted or nested."""
    if not isinstance(table, Mapping) or not table:
        raise ValueError("expected a table of option = list of values, or {low, high, points}")
    return dict(_entries(table, ""))


def _entries(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    names = list(option_names())
    for key, entry in table.items():
        name = renamed_option(f"{prefix}{key}")
        is_range = isinstance(entry, Mapping) and "low" in entry
        if isinstance(entry, Mapping) and not is_range:
            yield from _entries(entry, f"{name}.")
            continue
        if name not in names:
            raise ValueError(f"{name}: unknown option{suggest(name, names)}")
        values = validated(Range, (name, entry)).values() if is_range else entry
        if not isinstance(values, list) or not values:
            raise ValueError(f"{name}: found {values!r}, expected a list of values, or {{low, high, points}}")
        yield name, values


class TuneConfig(Options):
    """Cross-validated search over options."""

    grid: Annotated[
        dict[str, list[Any]],
        BeforeValidator(_grid),
        Field(description="Options and their values: lists, or {low, high, points}, a geometric range"),
    ]
    folds: Annotated[Whole, Field(ge=2, description="Number of folds, each held out once")] = 5
    scoring: Annotated[
        Literal[
            "accuracy",
            "balanced_accuracy",
            "f1_macro",
            "f1_micro",
            "f1_samples",
            "neg_hamming_loss",
            "roc_auc",
            "r2",
            "neg_mean_absolute_error",
            "neg_mean_squared_error",
            "neg_root_mean_squared_error",
            "neg_pinball_loss",
            "d2_pinball",
            "ndcg",
        ]
        | None,
        Field(description="Score to compare, larger is better; default: the task's"),
    ] = None
    search: Annotated[
        Literal["grid", "halving"], Field(description="grid: all rows for each point; halving: few rows first")
    ] = "grid"
    factor: Annotated[Whole, Field(ge=2, description="Halving: factor of fewer points and more rows in each round")] = 3
    smallest_rows: Annotated[
        Count, Field(description="Halving: rows of the first round; default: so that the last has all")
    ] = None
    rows: Annotated[Count, Field(description="Random rows to compare points on; default: all, at most 2,000,000")] = (
        None
    )
    time_budget: Annotated[
        Annotated[float, BeforeValidator(parse_seconds)] | None,
        Field(description="Seconds after which no further point is scored; default: no limit"),
    ] = None
    share: Annotated[
        bool, Field(description="Solve folds as one problem, if rows fit in memory and the solver can")
    ] = True


def search_of(layers: list[Layer]) -> tuple[TuneConfig, list[tuple[Point, FitConfig]]]:
    """The search options, and every point with its configuration, from layers of which one has a table [tune]. Raises
    ConfigError."""
    tables = [(f"{origin}: tune", values["tune"]) for origin, values in layers if "tune" in values]
    budgets = [(origin, search) for origin, values in layers if (search := values.get("search"))]
    base = [(origin, {k: v for k, v in values.items() if k not in ("tune", "search")}) for origin, values in layers]
    options = validated(TuneConfig, *tables, *budgets)
    return options, points(options, *base)


def points(options: TuneConfig, *base: Layer) -> list[tuple[Point, FitConfig]]:
    """Every combination of the grid's values with its configuration, once for those that differ only in unread options.
    An option that a point does not read is None in it. Raises ConfigError for one that no point reads."""
    combined = [dict(zip(options.grid, values, strict=True)) for values in product(*options.grid.values())]
    configs = [build_config(*base, *_layers(point)) for point in combined]
    idle = require_read([*base, *(layer for point in combined for layer in _layers(point))], *configs)
    distinct: dict[str, tuple[Point, FitConfig]] = {}
    for config, unread in zip(configs, idle, strict=True):
        point = {name: None if name in unread else attrgetter(name)(config) for name in options.grid}
        distinct.setdefault(repr(point), (point, config))
    return list(distinct.values())


def _layers(point: Point) -> Iterator[Layer]:
    for name, value in point.items():
        group, _, member = name.rpartition(".")
        yield "tune.grid", {group: {member: value}} if group else {member: value}


def completed(layers: list[Layer], *, searches: bool = True) -> FitConfig:
    """The configuration of these layers, with a search for what they leave out. A model gives all of its options, and a
    table [search] names itself what is chosen. Raises ConfigError, also for options that nothing reads."""
    layers = [*layers, *_solver(merged(*layers))]
    values = merged(*layers)
    is_given = any(isinstance(layer_values, Resolved) for _, layer_values in layers) or "options" in (
        values.get("search") or {}
    )
    if searches and not is_given:
        layers = [*layers, ("what is left out", _search(values, build_config(*layers)))]
    config = build_config(*layers)
    if not searches:
        names = [f"search.{name}" for name in values.get("search") or {} if name != "options"]
        if names and not config.search.chosen:  # a requested metric implies a search
            what = f"--no-search excludes {', '.join(names)}, which only a search reads"
            raise ConfigError(f"{what}: leave one of them out")
    require_read(layers, config)
    return config


def _solver(values: Mapping[str, Any]) -> list[Layer]:
    """A solver that supports the task, if a task is named and no solver is."""
    takes = takers(str(values.get("task", "classify")))
    if "solver" in values or not takes or DEFAULT_SOLVER in takes:
        return []
    needs = dict(need.split("=") for need in solver_row(takes[0]).needs)
    kernel = {"kernel": {"name": needs["kernel.name"]}} if "kernel.name" in needs else {}
    return [("what is left out", {"solver": takes[0]} | ({} if "kernel" in values else kernel))]


def _search(values: Mapping[str, Any], config: FitConfig) -> dict[str, Any]:
    """The table [search] of what can be chosen for a configuration, and a metric if one may be learned."""
    task = config.task or default_task(config.solver, has_queries=False)
    names = left_out(values) if is_searched(task) and config.nu is None else ()
    of_others = {name for other in task_names() for name in task_options(other)}.difference(task_options(task))
    names = tuple(name for name in names if name not in of_others)
    if kernel_row(config.kernel.name).is_linear and "kernel" not in names:
        names = tuple(name for name in names if name not in ("metric", "gamma"))
    metric = {"metric": {"kind": "diagonal"}} if "metric" in names else {}
    return {"search": {"options": names}} | metric
