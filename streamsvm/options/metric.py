"""The options of a metric that is learned from the data before a fit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import eq, ne
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from streamsvm.options.base import Options, Rule, Whole
from streamsvm.solvers.catalogue import SOLVERS

Searched = Literal["kernel", "C", "gamma"]


class MetricConfig(Options):
    """What each column counts for, learned from gradients on a sample (Radhakrishnan et al. 2024)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *(
            Rule(f"metric.{name}", "a fit with a metric", "metric.kind", partial(ne, "none"))
            for name in ("iterations", "sample", "search")
        ),
        Rule("metric.rank", "a full metric", "metric.kind", partial(eq, "full")),
    )

    kind: Annotated[
        Literal["none", "diagonal", "full"],
        Field(description="A weight for each column, or directions; learned from a sample"),
    ] = "none"
    iterations: Annotated[Whole, Field(ge=1, description="Most times that the metric is learned anew")] = 12
    sample: Annotated[Whole, Field(ge=100, description="Rows that it is learned from, a fifth held out")] = (
        20_000
    )
    rank: Annotated[Whole, Field(ge=1, description="Most directions of a full one")] = 64
    search: Annotated[
        tuple[Searched, ...] | None,
        Field(description="What is chosen along with it: kernel, C, gamma; else those that are not given"),
    ] = None


def searched(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of a configuration, with what is searched along with its metric: what they do not give.

    A solver on a budget keeps its C and kernel, as those that suit exact fits may not suit it.
    """
    values, metric, kernel = dict(values), values.get("metric"), values.get("kernel", {})
    if (
        not isinstance(metric, Mapping)
        or metric.get("kind", "none") == "none"
        or metric.get("search") is not None
    ):
        return values
    row = SOLVERS.get(str(values.get("solver", "dcsvm")))
    names = row.searches if row else ()
    given = {"C": "C" in values, "kernel": "name" in kernel, "gamma": "gamma" in kernel}
    return values | {"metric": {**metric, "search": tuple(name for name in names if not given[name])}}
