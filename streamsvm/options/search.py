"""The options that are chosen from the data before a fit, the budget of that search, and a metric, learned or given."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import eq, ne
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from streamsvm.options.base import Count, Options, ReadRule, Real, Whole
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, SOLVERS, section_of
from streamsvm.storage.text import parse_time

Chosen = Literal["solver", "early", "scale", "kernel", "metric", "C", "gamma", "class_weight", "multiclass"]
# why fits of a search are dropped:
FAILED = "values of their kernels are beyond float32, or they do not converge"
BALANCED = "balanced_accuracy"  # with this score, class weights may help
LOG_LOSS = "log_loss"  # with this one, the model has probabilities
MOST_MEMBERS = 9  # of an ensemble: a search tries hardly more models that differ
LEAST_BUDGET_S = 5.0  # for Python, the store and one small fit


def parse_seconds(value: object) -> float:
    """A time budget in seconds (see `parse_time`). Raises ValueError."""
    seconds = parse_time(value)
    if seconds < LEAST_BUDGET_S:
        raise ValueError(f"expected at least {LEAST_BUDGET_S:.0f} s, which loading and one small fit take")
    return seconds


class SearchConfig(Options):
    """Options chosen from the data, by fits on a sample that are compared on held-out rows."""

    rules: ClassVar[tuple[ReadRule, ...]] = tuple(
        ReadRule(f"search.{name}", "a fit that chooses options", "search.options", bool)
        for name in ("time_budget", "trials", "sample", "scoring", "ensemble")
    )
    parameters: ClassVar[Mapping[str, str]] = {
        name: f"search_params[{name!r}]" for name in ("trials", "sample", "scoring")
    }

    options: Annotated[
        tuple[Chosen, ...] | None,
        Field(description="Options to choose (default: with a metric, kernel, C and gamma if not given)"),
    ] = None
    time_budget: Annotated[
        Annotated[float, BeforeValidator(parse_seconds)] | None,
        Field(
            description="Seconds for the whole command (default: no limit; the search takes about 10 at most, "
            "or as long as the fit up to 30)"
        ),
    ] = None
    trials: Annotated[Count, Field(description="Maximum number of search steps")] = None
    scoring: Annotated[
        Literal["accuracy", "balanced_accuracy", "log_loss"] | None,
        Field(
            description="Score of held-out rows for classes; balanced_accuracy is the mean recall of all classes, "
            "log_loss that of probabilities"
        ),
    ] = None
    sample: Annotated[Whole, Field(ge=100, description="Rows to search on, a fifth of them held out")] = 20_000
    ensemble: Annotated[
        Annotated[Whole, Field(ge=1, le=MOST_MEMBERS)] | None,
        Field(
            description="Models of the search to combine, for example 3 (default: 3 if a time budget allows it, else 1)"
        ),
    ] = None

    @property
    def has_ensemble(self) -> bool:
        """Whether the options ask for one, whatever time it takes."""
        return self.ensemble is not None and self.ensemble > 1

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        """The options to choose; none before they are settled."""
        return self.options or ()


def searched(values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested values of a configuration, completed with the options to choose: with a metric, those that are not
    given. A solver on a budget keeps its C and kernel, because those that suit exact fits may not suit it."""
    search, metric = values.get("search") or {}, values.get("metric") or {}
    if not isinstance(search, Mapping) or not isinstance(metric, Mapping):
        return dict(values)
    learns = metric.get("kind", "none") != "none" and metric.get("factor") is None
    names = search.get("options")
    if names is None:
        names = [name for name in left_out(values) if name in ("kernel", "C", "gamma")] if learns else []
    with_metric = {"metric"} if learns else set()
    if isinstance(names, list | tuple):
        names = (*(name for name in names if name not in with_metric), *with_metric)
    return {**values, "search": {**search, "options": names}}


def left_out(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that can be chosen for the solver of nested values, and that these do not give. A given gamma also
    settles the kernel."""
    kernel, metric, search = (values.get(name) or {} for name in ("kernel", "metric", "search"))
    row = SOLVERS.get(str(values.get("solver", DEFAULT_SOLVER)))
    section = values.get(section_of(DEFAULT_SOLVER)) or {}
    given = {
        "solver": "solver" in values or bool(section),
        "early": "early" in section or values.get("must_export") == "libsvm",  # LIBSVM has no partitions
        "scale": "scale" in values,
        "kernel": "name" in kernel or "gamma" in kernel,
        "metric": "kind" in metric,
        "C": "C" in values,
        "gamma": "gamma" in kernel,
        "class_weight": "class_weight" in values or search.get("scoring") != BALANCED,
        "multiclass": "multiclass" in values,
    }
    return tuple(name for name in (row.searches if row else ()) if not given[name])


Factor = tuple[Real, ...] | tuple[tuple[Real, ...], ...]
MetricKind = Literal["none", "diagonal", "full"]


class MetricConfig(Options):
    """Weights of the columns, learned from gradients on a sample (Radhakrishnan et al. 2024)."""

    rules: ClassVar[tuple[ReadRule, ...]] = (
        *(
            ReadRule(f"metric.{name}", "a fit with a metric", "metric.kind", partial(ne, "none"))
            for name in ("iterations", "factor")
        ),
        ReadRule("metric.rank", "a full metric", "metric.kind", partial(eq, "full")),
    )

    kind: Annotated[
        MetricKind, Field(description="Learned feature weights (one for each column, or a full matrix, from a sample)")
    ] = "none"
    iterations: Annotated[Whole, Field(ge=1, description="Maximum number of updates of the metric")] = 12
    rank: Annotated[Whole, Field(ge=1, description="Maximum rank of a full metric")] = 64
    factor: Annotated[
        Factor | None,
        Field(description="Use this metric instead of learning one: weights of scaled columns, or rows of L"),
    ] = None

    @model_validator(mode="after")
    def _kind_and_factor_agree(self) -> MetricConfig:
        if self.factor is None or self.kind == "none":
            return self
        if not self.factor:
            raise ValueError("factor is empty, expected a weight for each column, or a row of L for each")
        is_full = isinstance(self.factor[0], tuple)
        if is_full != (self.kind == "full"):
            raise ValueError(f"kind is {self.kind!r}, found a factor of {'rows' if is_full else 'weights'}")
        if is_full and len({len(row) for row in self.factor}) > 1:  # type: ignore[arg-type]
            raise ValueError("factor has rows of different lengths")
        return self

    @property
    def is_learned(self) -> bool:
        return self.kind != "none" and self.factor is None
