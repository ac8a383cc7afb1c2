"""The decision function of a row: one sum of kernel values over support rows, its values and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.models.base import Model
from streamsvm.models.shapes import Expansion, Routes
from streamsvm.tasks.pairs import classes_of_pairs
from streamsvm.texts.documented import described

TILE_ENTRIES = 1 << 21  # of kernel values and of gradients, float64: 16 MiB


@dataclass(frozen=True)
class Decision:
    """g(x) = sum_j coef_j K(x', s_j) + intercept, x' the row under this scaling: the model's, or that of a partition.

    If there is one column of decision values (two classes, ranks, values), g is that column, positive for the second of
    two classes. Else g belongs to one class: for classes against the rest it is that class's column, for pairs of
    classes the sum over the pairs that contain the class, each positive for it.
    """

    kernel: Kernel
    scaling: Scaling
    support: Rows  # (s, d) scaled
    coef: np.ndarray  # (s,)
    intercept: float
    columns: np.ndarray  # (s, columns) the coefficients that coef is made of
    ids: np.ndarray | None  # (s,) rows of the training store
    of_rows: bool  # whether support rows are rows of data

    def values(self, rows: Rows) -> np.ndarray:
        """(m,) float64 g of scaled rows."""
        out = np.full(len(rows), self.intercept)
        for here, there in self._tiles(len(rows)):
            out[here] += self.kernel.exact(rows.take(here), self.support.take(there)) @ self.coef[there]
        return out

    def gradients(self, rows: Rows) -> np.ndarray:
        """(m, d) float64 derivatives of g by raw features, at raw rows."""
        scaled = self.scaling.apply(rows)
        out = np.zeros((len(scaled), scaled.d))
        for here, there in self._tiles(len(rows)):
            out[here] += self.kernel.gradient(scaled.take(here), self.support.take(there), self.coef[there])
        return self.scaling.pull_back(out, rows)

    def _tiles(self, m: int) -> Iterator[tuple[slice, slice]]:
        """Rows and support rows by tiles that take TILE_ENTRIES.

        Not those of `Kernel.apply` and `Kernel.gradients`, which are float32: Shapley values and contributions are
        float64, and add up to these values.
        """
        step = max(1, min(4096, TILE_ENTRIES // max(1, self.support.d)))
        height = max(1, TILE_ENTRIES // step)
        for start in range(0, m, height):
            for first in range(0, len(self.support), step):
                yield slice(start, start + height), slice(first, first + step)


@described
def gradients(model: Model, rows: Rows) -> np.ndarray:
    """Derivatives of the decision function by the raw features, see `Decision`.

    For two classes it is the decision value, for several the function of the class that is predicted.

    Parameters
    ----------
    rows : Rows of shape (m, d)
        Rows to explain, unscaled.

    Returns
    -------
    ndarray of shape (m, d)
        float64, in decision values per unit of the feature.

    Raises
    ------
    ModelError
    """
    out = np.empty((len(rows), model.d))
    for here, decision in decisions(model, rows, answered(model, rows)[1]):
        out[here] = decision.gradients(rows.take(here))
    return out


def answered(model: Model, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The model's answers to raw rows, (m,), and the codes (m,) of their classes; 0 if there is one column."""
    decision, proba = model.answers(rows)
    several = decision.ndim == 2
    codes = model.codes_of(decision, proba) if several else np.zeros(len(rows), np.intp)
    return model.labels(decision, proba), codes


def decisions(model: Model, rows: Rows, codes: np.ndarray) -> Iterator[tuple[np.ndarray, Decision]]:
    """(positions of raw rows, their decision function), once for each class, or for each class and partition."""
    require_features(model)
    routes = model.as_routes()
    if routes is None:
        expansion = model.as_expansion()
        for code in np.unique(codes):
            yield np.flatnonzero(codes == code), _of_class(model, expansion, int(code))
        return
    parts = routes.partition.nearest(routes.scaling.apply(rows), routes.neighbours)
    groups, group = np.unique(np.column_stack([codes, np.sort(parts, axis=1)]), axis=0, return_inverse=True)
    for number, (code, *asked) in enumerate(groups.tolist()):
        yield np.flatnonzero(group.ravel() == number), _of_class(model, _together(routes, asked), code)


def _together(routes: Routes, asked: list[int]) -> Expansion:
    """The mean over some partitions as one sum; several have no separate metrics."""
    if len(asked) == 1:
        return routes.expansion(asked[0])
    parts = [routes.part(p) for p in asked]
    support, coef = concat([rows for rows, _ in parts]), np.concatenate([coef for _, coef in parts])
    share = 1.0 / len(asked)
    intercept = routes.intercept[asked].mean(axis=0)
    return Expansion(routes.kernel, routes.scaling, support, coef * share, intercept)


def _of_class(model: Model, sums: Expansion, code: int) -> Decision:
    speaks = _speaking(model, code, sums.coef.shape[1])
    columns = sums.coef.astype(np.float64)
    intercept = float(np.asarray(sums.intercept, np.float64) @ speaks)
    of = sums.kernel, sums.scaling, sums.support
    return Decision(*of, columns @ speaks, intercept, columns, sums.ids, sums.of_rows)


def _speaking(model: Model, code: int, columns: int) -> np.ndarray:
    """(columns,) +1 if a decision value is for a class, -1 if it is against it, else 0."""
    if columns == 1:
        return np.ones(1)
    if not model.is_pairwise:
        return (np.arange(columns) == code).astype(np.float64)
    first, second = classes_of_pairs(len(model.classes))
    return (second == code).astype(np.float64) - (first == code)


def require_features(model: Model) -> None:
    """Raises ModelError if rows are kernel values, not features, or have several answers."""
    if model.learned.in_sets:
        raise ModelError(
            f"the model is of task {model.task}, whose rows have several labels; one decision at a time is explained: "
            "fit each label alone"
        )
    if model.header.kernel.row.whole:
        raise ModelError(
            f"the kernel is {model.header.kernel.name}: a row is its kernel values with the training rows and has no "
            "features to explain; fit with a kernel by name"
        )
