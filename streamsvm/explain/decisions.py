"""The decision function of a row: one sum of kernel values over support rows, its values and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.data.rows import Rows, concat
from streamsvm.data.running import LARGEST
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.models import EnsembleModel, ExpertsModel
from streamsvm.models.base import Model
from streamsvm.models.learner import BudgetLearner
from streamsvm.models.pooled import ExpertPool
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.solvers.additive import TRACKS
from streamsvm.tasks.pairs import classes_of_pairs
from streamsvm.texts.documented import described

STEP = 1e-4  # of decision values, for central differences of what they are combined to
TILE_ENTRIES = 1 << 21  # of kernel values and of gradients, float64: 16 MiB


@dataclass(frozen=True)
class Decision:
    """g(x) = sum_j coef_j K(x', s_j) + intercept, x' the row under this scaling: the model's, or that of a partition.

    If there is one column of decision values (two classes, ranks, values), g is that column, positive for the second of
    two classes. Else g belongs to one class: for classes against the rest it is that class's column, for pairs of
    classes the sum over the pairs that contain the class, each positive for it. label: the one that it is about, by its
    own support rows, if rows have several.
    """

    kernel: Kernel
    scaling: Scaling
    support: Rows  # (s, d) scaled
    coef: np.ndarray  # (s,)
    intercept: float
    columns: np.ndarray  # (s, columns) the coefficients that coef is made of
    ids: np.ndarray | None  # (s,) rows of the training store
    of_rows: bool  # whether support rows are rows of data
    label: object = None

    @property
    def is_single(self) -> bool:
        """Whether there is one column of decision values."""
        return self.columns.shape[1] == 1

    def scaled(self, rows: Rows) -> Rows:
        """Raw rows as it sees them."""
        return self.scaling.apply(rows)

    def sums_at(self, row: Rows) -> list[tuple[Decision, Rows]]:
        """The sums behind it at one raw row, each with the row as it sees it: itself."""
        return [(self, self.scaled(row))]

    def values(self, rows: Rows) -> np.ndarray:
        """(m,) float64 g of scaled rows."""
        out = np.full(len(rows), self.intercept)
        for at, some in self._tiles(len(rows)):
            out[at] += self.kernel.exact(rows.take(at), self.support.take(some)) @ self.coef[some]
        return out

    def gradients(self, rows: Rows) -> np.ndarray:
        """(m, d) float64 derivatives of g by raw features, at raw rows."""
        return self.scaling.pull_back(self.scaled_gradients(self.scaled(rows)), rows)

    def scaled_gradients(self, scaled: Rows) -> np.ndarray:
        """(m, d) float64 derivatives of g by the columns of scaled rows."""
        out = np.zeros((len(scaled), scaled.d))
        for at, some in self._tiles(len(scaled)):
            out[at] += self.kernel.gradient(scaled.take(at), self.support.take(some), self.coef[some])
        return out

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


@dataclass(frozen=True)
class PooledDecision:
    """g(x) = the logarithm of a pool's odds, of the second of two classes, or of one class against the rest."""

    model: ExpertsModel
    code: int  # of the class
    of_rows: bool = True
    label: object = None

    @property
    def scaling(self) -> Scaling:
        return self.model.header.scaling

    @property
    def is_single(self) -> bool:
        return self.model.columns == 1

    def scaled(self, rows: Rows) -> Rows:
        """Raw rows as experts see them."""
        return Rows(self.model.bounded(self.scaling.apply(rows)))

    def values(self, rows: Rows) -> np.ndarray:
        """(m,) g of scaled rows."""
        return self._pooled.decide_scaled(rows.dense())[:, self.code]

    def gradients(self, rows: Rows) -> np.ndarray:
        """(m, d) float64 derivatives of g by raw features, at raw rows, by the chain rule."""
        Z = self.scaled(rows).dense()
        slopes = self._slopes(Z)
        out = self._pooled.additive.gradients(Z, slopes[: len(TRACKS)])
        for i, learner in enumerate(self._pooled.kernels, len(TRACKS)):
            for c, weights in enumerate(np.eye(self.model.columns)):
                gradient = self._sum(learner, weights).scaled_gradients(Rows(Z))
                out += slopes[i, :, c, None] * gradient
        return self.scaling.pull_back(out * (np.abs(Z) < LARGEST), rows)

    def sums_at(self, row: Rows) -> list[tuple[Decision, Rows]]:
        """The kernel expansions, each to first order: times the derivatives of g by what it says about the raw row."""
        scaled = self.scaled(row)
        slopes = self._slopes(scaled.dense())[len(TRACKS) :, 0]
        sums = [self._sum(learner, weights) for learner, weights in zip(self._pooled.kernels, slopes, strict=True)]
        return [(one, scaled) for one in sums]

    @property
    def _pooled(self) -> ExpertPool:
        return self.model.as_pooled()

    def _slopes(self, Z: np.ndarray) -> np.ndarray:
        pooled = self._pooled
        return pooled.pool.slopes(pooled.each(Z), len(TRACKS), self.code)

    def _sum(self, learner: BudgetLearner, weights: np.ndarray) -> Decision:
        """The columns of a kernel expansion with these weights (columns,), without their intercepts."""
        columns, _ = learner.coefficients()
        of = learner.kernel, self.scaling, learner.supports()
        return Decision(*of, columns @ weights, 0.0, columns, None, self.of_rows)


@dataclass(frozen=True)
class EnsembleDecision:
    """g(x) = the log-odds of an ensemble, of the second of two classes, or of one class against the rest."""

    model: EnsembleModel
    code: int  # of the class
    of_rows: bool = True
    label: object = None

    @property
    def is_single(self) -> bool:
        return len(self.model.classes) == 2

    def scaled(self, rows: Rows) -> Rows:
        """Raw rows: each member scales them itself."""
        return rows

    def values(self, rows: Rows) -> np.ndarray:
        """(m,) g of raw rows."""
        return self._of_class(self.model.binary_decisions(rows))

    def gradients(self, rows: Rows) -> np.ndarray:
        """(m, d) float64 derivatives of g by raw features, at raw rows, by the chain rule."""
        out = np.zeros((len(rows), self.model.d))
        for i in range(len(rows)):
            row = rows.take(slice(i, i + 1))
            for decision, _ in self.sums_at(row):
                out[i] += decision.gradients(row)[0]
        return out

    def sums_at(self, row: Rows) -> list[tuple[Decision, Rows]]:
        """The sums of the members, each to first order: times the derivatives of g by what it says about the row."""
        sums = [_sum_at(member, row) for member in self.model.members]
        decided = [member.binary_decisions(row) for member in self.model.members]
        out = []
        for number, expansion in enumerate(sums):
            coef = expansion.coef.astype(np.float64)
            slopes = self._slopes(decided, number, row)
            of = expansion.kernel, expansion.scaling, expansion.support
            decision = Decision(*of, coef @ slopes, 0.0, coef, expansion.ids, expansion.of_rows)
            out.append((decision, decision.scaled(row)))
        return out

    def _slopes(self, decided: list[np.ndarray], number: int, row: Rows) -> np.ndarray:
        """(problems,) derivatives of g by the decision values of a member's problems, at one row."""
        size = decided[number].shape[1]
        h = STEP * max(1.0, float(np.abs(decided[number]).max()))
        ends = []
        for step in (h, -h):
            moved = [np.repeat(values, size, axis=0) for values in decided]
            moved[number] = moved[number] + step * np.eye(size)
            ends.append(self._of_class(self.model.combine(moved, row.take(np.zeros(size, np.intp)))))
        return (ends[0] - ends[1]) / (2 * h)

    def _of_class(self, decisions: np.ndarray) -> np.ndarray:
        return decisions[:, 0 if self.is_single else self.code]


def _sum_at(model: Model, row: Rows) -> Expansion:
    """The sum of kernel values that decides one raw row."""
    routes = model.as_routes()
    if routes is None:
        return model.as_expansion()
    return _together(routes, routes.partition.nearest(routes.scaling.apply(row), routes.neighbours)[0].tolist())


AnyDecision = Decision | PooledDecision | EnsembleDecision


@described
def gradients(model: Model, rows: Rows, label: str | None = None) -> np.ndarray:
    """Derivatives of the decision function by the raw features, see `Decision`.

    For two classes it is the decision value, for several the function of the class that is predicted. For rows of
    several labels it is that of one of them.

    Parameters
    ----------
    rows : Rows of shape (m, d)
        Rows to explain, unscaled.
    label : str or None
        The label whose decision is explained, of a model whose rows have several.

    Returns
    -------
    ndarray of shape (m, d)
        float64, in decision values per unit of the feature.

    Raises
    ------
    ModelError
    """
    out = np.empty((len(rows), model.d))
    for at, decision in decisions(model, rows, answered(model, rows, label)[1]):
        out[at] = decision.gradients(rows.take(at))
    return out


def answered(model: Model, rows: Rows, label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The model's answers to raw rows, (m,), and the codes (m,) of their classes; 0 if there is one column.

    label: the one to explain where rows have several; all codes are its own. Raises ModelError.
    """
    label_code = code_of(model, label)
    decision, proba = model.answers(rows)
    if label_code is None and decision.ndim == 2:
        codes = model.codes_of(decision, proba)
    else:
        codes = np.full(len(rows), label_code or 0, np.intp)
    return model.labels(decision, proba), codes


def code_of(model: Model, label: str | None) -> int | None:
    """The place of the label to explain in a model's classes; None if rows have one label. Raises ModelError."""
    if not model.learned.in_sets:
        if label is not None:
            raise ModelError(
                f"label is {label}: found a model of task {model.task}, whose rows have one answer; leave it out"
            )
        return None
    labels = model.classes.tolist()
    if label is None or str(label) not in labels:
        given = "no label" if label is None else f"label {label}"
        raise ModelError(
            f"the model is of task {model.task}, and one label's decision is explained at a time: found {given}, "
            f"expected one of {', '.join(labels[:30])}"
        )
    return labels.index(str(label))


def decisions(model: Model, rows: Rows, codes: np.ndarray) -> Iterator[tuple[np.ndarray, AnyDecision]]:
    """(positions of raw rows, their decision function), once for each class, or for each class and partition."""
    require_features(model)
    if isinstance(model, ExpertsModel | EnsembleModel):
        for code in np.unique(codes):
            at, of = np.flatnonzero(codes == code), int(code)
            yield at, PooledDecision(model, of) if isinstance(model, ExpertsModel) else EnsembleDecision(model, of)
        return
    routes = model.as_routes()
    if routes is None:
        expansion = model.as_expansion()
        for code in np.unique(codes):
            yield np.flatnonzero(codes == code), _of_class(model, expansion, int(code))
        return
    parts = routes.partition.nearest(routes.scaling.apply(rows), routes.neighbours)
    groups, group = np.unique(np.column_stack([codes, np.sort(parts, axis=1)]), axis=0, return_inverse=True)
    for number, (code, *nearest) in enumerate(groups.tolist()):
        yield np.flatnonzero(group.ravel() == number), _of_class(model, _together(routes, nearest), code)


def _together(routes: PartitionRouting, parts: list[int]) -> Expansion:
    """The mean over some partitions as one sum; several have no separate metrics."""
    if len(parts) == 1:
        return routes.expansion(parts[0])
    sums = [routes.part(p) for p in parts]
    support, coef = concat([rows for rows, _ in sums]), np.concatenate([coef for _, coef in sums])
    share = 1.0 / len(parts)
    intercept = routes.intercept[parts].mean(axis=0)
    return Expansion(routes.kernel, routes.scaling, support, coef * share, intercept)


def _of_class(model: Model, sums: Expansion, code: int) -> Decision:
    signs = _signs(model, code, sums.coef.shape[1])
    columns = sums.coef.astype(np.float64)
    intercept = float(np.asarray(sums.intercept, np.float64) @ signs)
    support, ids, label = sums.support, sums.ids, None
    if model.learned.in_sets:
        label, used = model.classes[code].item(), np.flatnonzero(columns @ signs)
        support, columns, ids = support.take(used), columns[used], None if ids is None else ids[used]
    coef = columns @ signs
    return Decision(sums.kernel, sums.scaling, support, coef, intercept, columns, ids, sums.of_rows, label)


def _signs(model: Model, code: int, columns: int) -> np.ndarray:
    """(columns,) +1 if a decision value is for a class, -1 if it is against it, else 0."""
    if columns == 1:
        return np.ones(1)
    if not model.is_pairwise:
        return (np.arange(columns) == code).astype(np.float64)
    first, second = classes_of_pairs(len(model.classes))
    return (second == code).astype(np.float64) - (first == code)


def require_features(model: Model) -> None:
    """Raises ModelError if rows are kernel values, not features."""
    if model.header.kernel.row.whole:
        raise ModelError(
            f"the kernel is {model.header.kernel.name}: a row is its kernel values with the training rows and has no "
            "features to explain; fit with a kernel by name"
        )
