"""The options of a metric that is learned from the data before a fit, or given."""

from __future__ import annotations

from functools import partial
from operator import eq, ne
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from streamsvm.options.base import Options, ReadRule, Real, Whole

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
        MetricKind, Field(description="A weight for each column, or a full matrix, learned from a sample")
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
