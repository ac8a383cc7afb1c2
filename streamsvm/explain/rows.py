"""Rows of a store, one by one: the model's answer, what would change it and what it rests on; as records and files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.layout import Names, columns_in_attrs
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import moments_of
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import AnyDecision, Decision, answered, decisions
from streamsvm.explain.importances import column_names, sampled
from streamsvm.explain.shapley import require_shapley, shapley_values
from streamsvm.explain.slices import number_text
from streamsvm.kernels.distance import sq_distances
from streamsvm.models.base import Model
from streamsvm.predict import rows_at
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.text import jsonable
from streamsvm.tasks.pairs import classes_of_pairs
from streamsvm.texts.documented import described

NEAR_WHOLE = 1e-3  # of true and false, which scaling has rounded


@dataclass(frozen=True)
class SupportVector:
    """One of those of a row x.

    id: the training row that it was, if the model knows. label: the class that its coefficients are for, that of
    the training row if it was one; None if they are for none. contribution: coef K(x, s). distance: in scaled
    features. values: (d,) raw, NaN in columns that a metric leaves out; None under a full one.
    """

    id: int | None
    label: object
    coef: float
    kernel: float
    contribution: float
    distance: float
    values: np.ndarray | None


@dataclass(frozen=True)
class RowExplanation:
    """A row and its decision.

    decision: g(x) of `Decision`. answer: the label, of a task without labels the value. for_class: the class that a
    decision above 0 is for; None if there are no classes. values, gradient (d,): raw features, and derivatives
    of g by them. effect (d,): gradient times the column's standard deviation, what one of these would add.
    shapley (d,), base: with g(x) = base + sum of shapley, where asked for; shapley_error (d,): standard errors of
    sampled ones. weightiest, nearest: support vectors.
    """

    row: int
    answer: object
    decision: float
    for_class: object
    values: np.ndarray
    gradient: np.ndarray
    effect: np.ndarray
    weightiest: list[SupportVector]
    nearest: list[SupportVector]
    shapley: np.ndarray | None = None
    base: float | None = None
    shapley_error: np.ndarray | None = None

    def order(self) -> np.ndarray:
        """(d,) columns, those that count most here first: by Shapley values where there are any, else by effect."""
        return np.argsort(-np.abs(self.effect if self.shapley is None else self.shapley), kind="stable")


def deviations(rows: Rows) -> np.ndarray:
    """(d,) standard deviations of columns."""
    moments = moments_of(rows)
    return np.sqrt(moments.m2 / moments.n)


@described
def explain_rows(
    model: Model,
    store: Store,
    ids: np.ndarray,
    deviation: np.ndarray,
    *,
    shapley: bool = False,
    support: int = 3,
    label: str | None = None,
) -> list[RowExplanation]:
    """Explains the decisions on some rows of a store.

    Parameters
    ----------
    ids : ndarray of shape (m,)
        Row numbers, from 0 to n - 1.
    deviation : ndarray of shape (d,)
        Standard deviation of each column, see `deviations`.
    shapley : bool
        Add Shapley values.
    support : int
        Number of support vectors of each sort. 0: none, as for linear models.
    label : str or None
        The label whose decision is explained, of a model whose rows have several.

    Returns
    -------
    list of RowExplanation
        The explanations, in the order of `ids`.

    Raises
    ------
    ModelError, DataError
    """
    raw = rows_at(model, store, ids)
    answers, codes = answered(model, raw, label)
    explained: dict[int, RowExplanation] = {}
    for places, decision in decisions(model, raw, codes):
        if shapley:
            require_shapley(decision)
        some = raw.take(places)
        scaled = decision.scaled(some)
        g, gradient = decision.values(scaled), decision.gradients(some)
        for i, place in enumerate(places.tolist()):
            row = some.take(slice(i, i + 1))
            near = support_vectors(model, decision, row, support) if decision.of_rows and support else ([], [])
            explained[place] = RowExplanation(
                int(ids[place]),
                answers[place].item(),
                float(g[i]),
                _class(model, decision, int(codes[place])),
                raw.take(slice(place, place + 1)).dense()[0].astype(np.float64),
                gradient[i],
                gradient[i] * deviation,
                *near,
                *(shapley_values(decision, scaled.take(slice(i, i + 1))) if shapley else ()),
            )
    return [explained[place] for place in range(len(ids))]


def _class(model: Model, decision: AnyDecision, code: int) -> object:
    """The class that a decision above 0 is for; None if there are none."""
    if decision.label is not None:
        return decision.label
    if not model.learned.speaks_for_classes:
        return None
    return model.classes[1 if decision.is_single else code].item()


def require_support(decision: AnyDecision) -> None:
    """Raises ModelError for weights, which correspond to no rows."""
    if not decision.of_rows:
        raise ModelError(
            "the model is linear: it keeps a weight for each column, which the gradient is, and no support vectors"
        )


def support_vectors(
    model: Model, decision: AnyDecision, row: Rows, n: int
) -> tuple[list[SupportVector], list[SupportVector]]:
    """(the n with the largest |coef K(x, s)|, the n nearest ones) of one raw row. Raises ModelError."""
    require_support(decision)
    weightiest: list[SupportVector] = []
    nearest: list[SupportVector] = []
    for kernel_sum, scaled in decision.sums_at(row):
        if not kernel_sum.of_rows:  # a linear member of an ensemble
            continue
        kernel = kernel_sum.kernel.exact(scaled, kernel_sum.support)[0]
        distance = np.sqrt(np.abs(sq_distances(scaled, kernel_sum.support)[0]))  # abs: of -0.0
        heaviest = np.argsort(-np.abs(kernel_sum.coef * kernel), kind="stable")[:n].tolist()
        closest = np.argsort(distance, kind="stable")[:n].tolist()
        weightiest += [_support_vector(model, kernel_sum, j, kernel[j], distance[j]) for j in heaviest]
        nearest += [_support_vector(model, kernel_sum, j, kernel[j], distance[j]) for j in closest]
    weightiest.sort(key=lambda vector: -abs(vector.contribution))
    nearest.sort(key=lambda vector: vector.distance)
    return weightiest[:n], nearest[:n]


def _support_vector(model: Model, decision: Decision, j: int, kernel: float, distance: float) -> SupportVector:
    raw = decision.scaling.undone(decision.support.take(slice(j, j + 1)))
    row_id = None if decision.ids is None else int(decision.ids[j])
    coef, contribution = float(decision.coef[j]), float(decision.coef[j] * kernel)
    values, label = None if raw is None else raw[0], _label(model, decision, j)
    return SupportVector(row_id, label, coef, float(kernel), contribution, float(distance), values)


def _label(model: Model, decision: Decision, j: int) -> object:
    """The class that the coefficients of support row j are for; None if there is no such class."""
    coef = decision.columns[j]
    if decision.label is not None:
        return decision.label if decision.coef[j] > 0 else None
    if not model.learned.speaks_for_classes:
        return None
    if len(coef) > 1 and not model.is_pairwise:  # against the rest: above 0 in the column of its own class alone
        code = int(np.argmax(coef))
        return model.classes[code].item() if coef[code] > 0 else None
    pair = int(np.argmax(np.abs(coef)))  # in all pairs that it is in, it speaks for the same class
    first, second = classes_of_pairs(len(model.classes))
    return model.classes[(second if coef[pair] > 0 else first)[pair]].item()


def rows_tables(
    model: Model, store: Store, ids: list[int], *, shapley: bool, support: int, label: str | None = None
) -> list[dict[str, Any]]:
    """Each row with its features, those that count most there first, and its support vectors. If text columns were
    encoded, also by column of the table. See `explain_rows`."""
    deviation, names = deviations(sampled(model, store)), column_names(model)
    explained = explain_rows(model, store, np.array(ids), deviation, shapley=shapley, support=support, label=label)
    columns = table_columns(model, names)
    return [_row(row, names, columns) for row in explained]


@dataclass(frozen=True)
class TableColumn:
    """A column of the table that a model learned from. encoded: the names of its columns in the model, which are at
    `place` there. kind: number, bool, time or text."""

    name: str
    encoded: Names
    place: slice
    kind: str

    def value(self, values: np.ndarray) -> float | str | None:
        """What a row (d,) has in this column: a number, true or false, a time, or the values or slots of a text. None
        if it has none, and in columns that a metric leaves out."""
        of_column = values[self.place]
        if self.encoded == (self.name,):
            return self._of_number(float(of_column[0]))
        present = np.flatnonzero(np.abs(of_column) > 0.5).tolist()
        return ", ".join(self.text_of(i) for i in present) or None

    def _of_number(self, value: float) -> float | str | None:
        if np.isnan(value):
            return None
        if self.kind == "time":
            return number_text(self.kind, value)
        if self.kind == "bool" and abs(value - round(value)) < NEAR_WHOLE:  # else a mean, of rows or of what is missing
            return number_text(self.kind, round(value))
        return value

    def text_of(self, i: int) -> str:
        """The value or slot that an encoded column is of."""
        return self.encoded[i].removeprefix(f"{self.name}=")


def table_columns(model: Model, names: Names) -> list[TableColumn]:
    """The columns of the table, if they read better than those of the model (names): some are encoded as several, or
    not numbers. Empty if not, or if the model has other columns, too."""
    columns = {} if model.layout is None else columns_in_attrs(model.layout.attrs)
    if tuple(chain.from_iterable(columns.values())) != names:
        return []
    assert model.layout is not None
    kinds = [str(column.get("kind", "number")) for column in model.layout.attrs["columns"]]
    ends = np.cumsum([len(encoded) for encoded in columns.values()]).tolist()
    if ends[-1] == len(ends) and set(kinds) == {"number"}:
        return []
    return [
        TableColumn(name, encoded, slice(end - len(encoded), end), kind)
        for (name, encoded), end, kind in zip(columns.items(), ends, kinds, strict=True)
    ]


def _row(row: RowExplanation, names: Names, columns: list[TableColumn]) -> dict[str, Any]:
    by_column = {"columns": _by_column(row, columns)} if columns else {}
    return {
        "row": row.row,
        "answer": row.answer,
        "decision": row.decision,
        "for_class": row.for_class,
        "shapley_base": row.base,
        **by_column,
        "features": [_feature(row, names, f) for f in row.order().tolist() if f < len(names)],
        "support_by_weight": [_vector(vector, names, columns) for vector in row.weightiest],
        "support_by_distance": [_vector(vector, names, columns) for vector in row.nearest],
    }


def _feature(row: RowExplanation, names: Names, f: int) -> dict[str, Any]:
    numbers: dict[str, np.ndarray | None] = {"value": row.values, "gradient": row.gradient, "effect": row.effect}
    numbers |= {"shapley": row.shapley, "shapley_error": row.shapley_error}
    return {"feature": names[f]} | {name: None if x is None else float(x[f]) for name, x in numbers.items()}


def _by_column(row: RowExplanation, columns: list[TableColumn]) -> list[dict[str, Any]]:
    """Each column of the table with its value, the largest effect of its encoded columns, and the sum of their Shapley
    values, which add up; those that count most first."""
    records = []
    for column in columns:
        effect = row.effect[column.place]
        largest = int(np.argmax(np.abs(effect)))
        records.append(
            {
                "column": column.name,
                "value": column.value(row.values),
                "effect": float(effect[largest]),
                "effect_of": column.text_of(largest) if len(effect) > 1 else None,
                "shapley": None if row.shapley is None else float(row.shapley[column.place].sum()),
            }
        )
    weight = "effect" if row.shapley is None else "shapley"
    return sorted(records, key=lambda record: -abs(record[weight]))


def _vector(vector: SupportVector, names: Names, columns: list[TableColumn]) -> dict[str, Any]:
    """Its raw values by name, None in columns that a metric leaves out."""
    facts = {"training_row" if name == "id" else name: value for name, value in vars(vector).items()}
    if vector.values is not None:
        shown = (None if np.isnan(value) else value for value in vector.values[: len(names)].tolist())
        facts["values"] = dict(zip(names, shown, strict=True))
        if columns:
            facts["columns"] = {column.name: column.value(vector.values) for column in columns}
    return facts


def write(result: dict[str, Any], out: Path) -> None:
    """A result with importances, and rows where there are any, as .json, or as .csv a line for each row and feature.

    Without rows .csv has a line for each column. Whole or not at all. Raises StorageError.
    """
    with whole_file(out) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        if out.suffix == ".json":
            text.write(json.dumps(jsonable(result)) + "\n")
            return
        records = list(_lines(result))
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def _lines(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "rows" not in result:
        yield from result["importances"]
    for row in result.get("rows", []):
        of_row = {name: row[name] for name in ("row", "answer", "decision")}
        yield from ({**of_row, **feature} for feature in row["features"])
