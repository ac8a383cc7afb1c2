"""Probabilities, and the threshold or costs by which decision values become labels.

The objective of a threshold is text, for example `f1` or `precision=0.9`. So are the costs of errors,
`yes>no=5,no>yes=1`: each a true label, the label predicted instead, and a cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from streamsvm.options.base import Options, Whole
from streamsvm.options.search import LOG_LOSS
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, section_of
from streamsvm.storage.text import cut_quoted, name_of, split_quoted
from streamsvm.tasks import task_names, task_of

Calibrator = Literal["sigmoid", "isotonic"]


class ProbabilityConfig(Options):
    """Probabilities (see `calibration`) and a threshold (see `judging.thresholds`), from decision values of rows that
    the model was not trained on."""

    method: Annotated[Calibrator | None, Field(description="Calibrate probabilities (default: no probabilities)")] = (
        None
    )
    folds: Annotated[Whole, Field(ge=2, description="Number of folds; each is predicted by a fit on the others")] = 5
    threshold: Annotated[
        ThresholdText,
        Field(
            description="Choose the threshold of two classes, or of each of several labels a row, on holdout rows or "
            "folds, for f1, f1_micro (of all labels together), balanced_accuracy, "
            "precision=0.9 (the largest recall at this precision) or recall=0.9 (default: threshold 0)"
        ),
    ] = None

    costs: Annotated[
        CostsText,
        Field(
            description="Costs of errors, for example yes>no=5,no>yes=2 (yes>no: no is predicted, yes is true); "
            "others cost 1. The label with the least expected cost is predicted, by probabilities (sigmoid if no "
            "method is given). Of several labels a row: yes>rest=5 (yes is missed), rest>yes=2 (it is false)"
        ),
    ] = None

    @model_validator(mode="after")
    def _one_decides(self) -> ProbabilityConfig:
        if self.costs is not None and self.threshold is not None:
            raise ValueError("threshold and costs both decide between labels; leave one out")
        return self

    @property
    def is_requested(self) -> bool:
        return self.method is not None or self.threshold is not None

    def __str__(self) -> str:
        return self.method or "none"


def are_odds(loss: str | None) -> bool:
    """Whether decisions learned with this loss are logarithms of odds, and so give probabilities directly."""
    return loss == "logistic"


def with_method(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The nested values of a configuration; costs and a search by log loss without a method of probabilities take
    sigmoids, unless the decisions are odds."""
    probability, search, task = values.get("probability", {}), values.get("search"), values.get("task")
    by_log_loss = isinstance(search, Mapping) and search.get("scoring") == LOG_LOSS
    by_log_loss = by_log_loss and (task not in task_names() or task_of(str(task)).has_probabilities)
    if not isinstance(probability, Mapping) or "method" in probability:
        return values
    if probability.get("costs") is None and not by_log_loss:
        return values
    section = values.get(section_of(str(values.get("solver", DEFAULT_SOLVER))))  # which nobody has checked yet
    if isinstance(section, Mapping) and are_odds(section.get("loss")):
        return values
    return {**values, "probability": {**probability, "method": "sigmoid"}}


MICRO = "f1_micro"  # of all predictions of several labels together
ALONE = ("f1", "balanced_accuracy", MICRO)  # scores to maximise
WITH_LEAST = {"precision": "recall", "recall": "precision"}  # scores to reach, and those to maximise then
EXPECTED = (
    "expected f1, balanced_accuracy, precision=NUMBER or recall=NUMBER with a number above 0 and at most 1, or "
    "f1_micro for several labels a row"
)


class ThresholdObjective(NamedTuple):
    """What a threshold is chosen for. score: of the second class, or of both; MICRO: of all labels. least: what the
    score has to reach while the other one of WITH_LEAST is maximised; None: the score itself is maximised."""

    score: str
    least: float | None = None

    @classmethod
    def of(cls, text: str) -> ThresholdObjective:
        """Raises ValueError."""
        name, equals, number = (part.strip() for part in text.partition("="))
        if name in ALONE and not equals:
            return cls(name)
        try:
            least = float(number)
        except ValueError:
            raise ValueError(EXPECTED) from None
        if name not in WITH_LEAST or not 0 < least <= 1:
            raise ValueError(EXPECTED)
        return cls(name, least)

    def __str__(self) -> str:
        return self.score if self.least is None else f"{self.score}={self.least!r}"


def _checked(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(EXPECTED)
    return str(ThresholdObjective.of(value))


ThresholdText = Annotated[str | None, BeforeValidator(_checked)]


Costs = dict[str, dict[str, float]]  # true label, predicted label, cost
EXPECTED_COSTS = "expected TRUE>PREDICTED=COST[,...], two labels and a number of at least 0, for example yes>no=5"


def _checked_costs(value: object) -> Costs | None:
    """The costs, from text or from tables of labels. In tables, labels may have any characters."""
    if value is None:
        return None
    if not isinstance(value, str | Mapping) or not value:
        raise ValueError(EXPECTED_COSTS)
    costs: Costs = {}
    for true, predicted, cost in _of_text(value) if isinstance(value, str) else _of_tables(value):
        if not (true and predicted and true != predicted and math.isfinite(cost) and cost >= 0):
            raise ValueError(EXPECTED_COSTS)
        if predicted in costs.setdefault(true, {}):
            raise ValueError(f"{true}>{predicted} is named twice, expected each pair of labels once")
        costs[true][predicted] = cost
    return costs


def _of_text(text: str) -> Iterator[tuple[str, str, float]]:
    for item in split_quoted(text):
        pair, cost = cut_quoted(item, "=")
        true, *predicted = split_quoted(pair, ">")
        yield name_of(true), name_of(">".join(predicted)), _number(cost)


def _of_tables(tables: Mapping[object, object]) -> Iterator[tuple[str, str, float]]:
    for true, row in tables.items():
        if not isinstance(row, Mapping):
            raise ValueError(EXPECTED_COSTS)
        yield from ((str(true), str(predicted), _number(cost)) for predicted, cost in row.items())


def _number(cost: Any) -> float:
    try:
        return float(cost)
    except (TypeError, ValueError):
        raise ValueError(EXPECTED_COSTS) from None


CostsText = Annotated[Costs | None, BeforeValidator(_checked_costs)]
