"""The costs of errors as text: `yes>no=5,no>yes=1`, each a true label, the label predicted instead, and a cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from streamsvm.storage.quoted import cut, name_of, split

Costs = dict[str, dict[str, float]]  # true label, predicted label, cost
EXPECTED = "expected TRUE>PREDICTED=COST[,...], two labels and a number of at least 0, for example yes>no=5"


def _checked(value: object) -> Costs | None:
    """The costs, from text or from tables of labels. In tables, labels may have any characters."""
    if value is None:
        return None
    if not isinstance(value, str | Mapping) or not value:
        raise ValueError(EXPECTED)
    costs: Costs = {}
    for true, predicted, cost in _of_text(value) if isinstance(value, str) else _of_tables(value):
        if not (true and predicted and true != predicted and math.isfinite(cost) and cost >= 0):
            raise ValueError(EXPECTED)
        if predicted in costs.setdefault(true, {}):
            raise ValueError(f"{true}>{predicted} is named twice, expected each pair of labels once")
        costs[true][predicted] = cost
    return costs


def _of_text(text: str) -> Iterator[tuple[str, str, float]]:
    for item in split(text):
        pair, cost = cut(item, "=")
        true, *predicted = split(pair, ">")
        yield name_of(true), name_of(">".join(predicted)), _number(cost)


def _of_tables(tables: Mapping[object, object]) -> Iterator[tuple[str, str, float]]:
    for true, row in tables.items():
        if not isinstance(row, Mapping):
            raise ValueError(EXPECTED)
        yield from ((str(true), str(predicted), _number(cost)) for predicted, cost in row.items())


def _number(cost: Any) -> float:
    try:
        return float(cost)
    except (TypeError, ValueError):
        raise ValueError(EXPECTED) from None


CostsText = Annotated[Costs | None, BeforeValidator(_checked)]
