"""Models with fewer support vectors, which predict nearly as well in less time.

The sum of a partition, f(x) = sum_j a_j K(x_j, x), becomes g(x) = sum_{j in S} b_j K(x_j, x), S some of its support
vectors and b the minimum of

    sum_i (f(z_i) - g(z_i))^2 + RIDGE |f - g|_H^2

over rows z_i of the partition and its support vectors. S grows by the vector that lowers this most, which is orthogonal
least squares (Chen, Cowan and Grant 1991). On rows that took no part in this, the sizes of all S then minimise

    rows with another label + lambda * kernel values

for the least lambda that meets the budget. Other rows judge the result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from streamsvm.data.rows import Rows, concat, rows_state
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.events import Events, heard
from streamsvm.kernels.kmeans import Partition, by_their_part
from streamsvm.models.base import Model
from streamsvm.models.expansion import ExpansionModel, KernelModel
from streamsvm.models.local import LocalBudgetModel, LocalModel
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.strips import evenly
from streamsvm.predict import most_rows, rows_at
from streamsvm.tasks.pairs import classes_of_pairs, compact_coefficients
from streamsvm.tasks.scores import codes_of_labels
from streamsvm.texts.documented import described

LEAST_ROWS = 100
SAMPLE = 200_000  # rows: a quarter for the fits, half for the sizes, a quarter for the judgement
FITTED = 2000  # rows of a partition that a fit takes, besides its support vectors
CANDIDATES = 4096  # support vectors of a partition: those with the largest terms at the rows of the fit
MOST_SUPPORT = 1024  # of a partition, but for those that it had
RIDGE = 0.1
JITTER = 1e-9  # of the diagonal of normal equations: less is rounding
SHARES = 2.0 ** -np.arange(0.5, 5, 0.25)  # of a partition's support vectors
LAMBDAS = 2.0 ** np.arange(-30.0, 10.0, 0.25)  # points for a kernel value of each row
LESS = 0.9  # of the kernel values of one choice are those of the next one, at most
BEST, TAKEN = 32, 8  # candidates, and how many of them are taken before others are
REPEATS = 2


class Sums(Protocol):
    """A model as a sum of kernel values in each partition of scaled rows."""

    model: Model
    partition: Partition
    weights: np.ndarray | None  # see PartitionRouting
    intercept: np.ndarray  # (partitions, columns)
    neighbours: int  # partitions that decide for a row

    def of(self, p: int, rows: Rows) -> np.ndarray:
        """(m, columns) the sums of a partition, without the intercept."""

    def terms(self, p: int) -> Terms: ...

    def model_of(self, terms: Sequence[Terms]) -> Model:
        """The model with other terms in its partitions."""


class Terms(NamedTuple):
    """Terms of a partition's sum: support vectors (s, width), coefficients (s, columns), their codes (s,) in a model of
    pairs, and their numbers in the partition."""

    support: Rows
    coef: np.ndarray
    codes: np.ndarray
    ids: np.ndarray

    def take(self, ids: np.ndarray, coef: np.ndarray) -> Terms:
        """Some of them, with other coefficients."""
        return Terms(self.support.take(ids), coef, self.codes[ids], self.ids[ids])


class PartSums:
    """The sums of a model that has partitions."""

    def __init__(self, model: Model, routes: PartitionRouting) -> None:
        self.model, self._routes = model, routes
        self.partition, self.neighbours = routes.partition, routes.neighbours
        self.weights, self.intercept = routes.weights, routes.intercept

    def of(self, p: int, rows: Rows) -> np.ndarray:
        support, coef = self._routes.part(p)
        return self._routes.kernel.apply(_weighed(self, p, rows), _weighed(self, p, support), coef)

    def terms(self, p: int) -> Terms:
        support, coef = self._routes.part(p)
        codes = np.zeros(len(coef), np.int32)
        if isinstance(self.model, LocalModel):
            codes = np.asarray(self.model.arrays["codes"][slice(*self._routes.bounds[p : p + 2].tolist())])
        return Terms(support, coef, codes, np.arange(len(coef)))

    def model_of(self, terms: Sequence[Terms]) -> Model:
        model = self.model
        codes, coef = (np.concatenate([getattr(part, name) for part in terms]) for name in ("codes", "coef"))
        support = concat([part.support for part in terms])
        alpha = compact_coefficients(coef, codes, len(model.classes)) if model.is_pairwise else coef
        bounds = np.cumsum([0, *(len(part.coef) for part in terms)], dtype=np.int64)
        arrays = rows_state("support", support) | {"alpha": alpha, "codes": codes}
        if isinstance(model, LocalModel):
            return replace(model, bounds=bounds, arrays=arrays)
        assert isinstance(model, LocalBudgetModel)
        return replace(model, bounds=bounds, support=support, coef=coef)


class OneSum:
    """The one sum of a model."""

    weights: np.ndarray | None = None
    neighbours = 1
    partition = Partition((), ())

    def __init__(self, model: Model, expansion: Expansion) -> None:
        self.model, self._expansion = model, expansion
        self._kernel = expansion.kernel.for_sums(expansion.support, expansion.coef)
        self.intercept = expansion.intercept[None]

    def of(self, p: int, rows: Rows) -> np.ndarray:
        return self._kernel.apply(rows, self._expansion.support, self._expansion.coef)

    def terms(self, p: int) -> Terms:
        support, coef, compact = self._expansion.support, self._expansion.coef, self._expansion.compact
        codes = np.zeros(len(coef), np.int32) if compact is None else compact.codes
        return Terms(support, coef, codes, np.arange(len(coef)))

    def model_of(self, terms: Sequence[Terms]) -> Model:
        (part,) = terms
        ids = np.full(len(part.ids), -1) if self._expansion.ids is None else self._expansion.ids[part.ids]
        if isinstance(self.model, KernelModel):
            alpha = compact_coefficients(part.coef, part.codes, len(self.model.classes))
            return replace(self.model, support=part.support, alpha=alpha, codes=part.codes, ids=ids)
        intercept = self._expansion.intercept
        return ExpansionModel(self.model.header, part.support, part.coef, intercept, ids, self.model.task)


def _weighed(sums: Sums, p: int, rows: Rows) -> Rows:
    return rows if sums.weights is None else rows.times(sums.weights[p])


def _sums_of(model: Model) -> Sums:
    """Raises ModelError."""
    if model.as_pooled() is not None:
        raise ModelError("the model pools experts, so no sum over support vectors decides: it cannot be thinned")
    if (routes := model.as_routes()) is not None:
        return PartSums(model, routes)
    expansion = model.as_expansion()
    if not expansion.of_rows or len(model.thresholds):
        raise ModelError("the model has weights of columns, or thresholds, and no support vectors to leave out")
    return OneSum(model, expansion)


@dataclass(frozen=True)
class Sample:
    """Rows that fit, that choose, or that judge, raw and scaled."""

    raw: Rows
    scaled: Rows
    codes: np.ndarray | None  # (n,) of their labels, by which losses are those of accuracy

    def take(self, ids: np.ndarray) -> Sample:
        codes = None if self.codes is None else self.codes[ids]
        return Sample(self.raw.take(ids), self.scaled.take(ids), codes)


class Size(NamedTuple):
    """A fit by the first so many support vectors of a partition, and of the rows that choose the sums of what
    `_changes` says: changes choose, as they are fewer support vectors' alone, and losses are mostly chance."""

    coef: np.ndarray  # (m, columns)
    changes: float
    loss: float


@dataclass(frozen=True)
class PartFit:
    """What a partition may become: the first terms in the order in which fits take them. n: rows that choose."""

    terms: Terms
    sizes: list[Size]  # the largest first
    n: int

    def of(self, size: int) -> Terms:
        coef = self.sizes[size].coef
        return self.terms.take(np.arange(len(coef)), coef)


@described
def thinned(
    model: Model,
    store: Store,
    rows_per_s: float,
    tolerance: float = 0.2,
    *,
    by_labels: bool = True,
    engine: Engine,
    events: Events = heard,
) -> tuple[Model, dict[str, Any]]:
    """Leaves out support vectors of a model until it predicts as many rows a second as asked.

    Parameters
    ----------
    store : Store
        Rows such as the model will predict, not those that it was trained on.
    rows_per_s : float
        Rows a second to predict by all threads of the engine, start and writing not counted.
    tolerance : float
        Points of accuracy that may be lost. Without labels: of rows that may get another label, which is a bound of
        that. Of tasks without classes: of the variance of the values.
    by_labels : bool
        Use the labels of the store, if it has any.
    engine : Engine
        Threads or a cluster that compute, from `parallel.open.open_engine`.

    Returns
    -------
    tuple
        The model, and a report: `rows_per_s` and `support_vectors`, of it and before, and the `points` that it loses
        with their standard error, on rows of the store by which nothing was fitted. The report is also in the model's
        certificate.

    Raises
    ------
    ConfigError, ModelError, DataError

    Notes
    -----
    A model that is fast enough is returned as it is. If the tolerance does not allow the rate, the model is the fastest
    within the tolerance, and a warning says so.
    """
    if not (rows_per_s > 0 and tolerance >= 0):
        raise ConfigError(
            f"found a budget of {rows_per_s:g} rows a second and a tolerance of {tolerance:g} points, expected a "
            "budget above 0 and a tolerance of 0 or more"
        )
    if store.n < LEAST_ROWS:
        raise DataError(f"{store.url or 'the store'} has {store.n} rows, expected {LEAST_ROWS} or more to thin by")
    fit, choose, judge = _samples(model, store, by_labels)
    sums = _sums_of(model)
    before = _rate(model, judge.raw, engine)
    best, rate, points, error = model, before, 0.0, 0.0
    if before < rows_per_s:
        fits = _part_fits(sums, fit, choose, engine, events)
        f, spread = model.binary_decisions(judge.raw), _spread(model, judge)
        for sizes in _choices(fits, _spread(model, choose), tolerance):
            candidate = sums.model_of([fit.of(size) for fit, size in zip(fits, sizes, strict=True)])
            lost, lost_error = _points(model, judge, f, candidate.binary_decisions(judge.raw), spread)
            if lost > tolerance:
                break
            if (faster := _rate(candidate, judge.raw, engine)) > rate:
                best, rate, points, error = candidate, faster, lost, lost_error
            if rate >= rows_per_s:
                break
        if rate < rows_per_s:
            events.warn(
                f"the model predicts {rate:,.0f} rows a second, not {rows_per_s:,.0f}: with fewer support vectors it "
                f"would lose more than {tolerance:g} points; a larger tolerance allows more"
            )
    report = {
        "rows_per_s": round(rate),
        "rows_per_s_before": round(before),
        "support_vectors": _n_support(best),
        "support_vectors_before": _n_support(model),
        "points": points,
        "points_error": error,
        "points_of": "accuracy" if judge.codes is not None else "rows" if model.learned.has_labels else "variance",
        "tolerance": tolerance,
    }
    certificate = (model.header.certificate or {}) | {"thinned": report}
    return replace(best, header=replace(model.header, certificate=certificate)), report


def _samples(model: Model, store: Store, by_labels: bool) -> Iterator[Sample]:
    """Three of random rows: a quarter, a half and a quarter of SAMPLE rows at most."""
    rng = np.random.default_rng(0)
    ids = np.sort(rng.choice(store.n, min(store.n, SAMPLE), replace=False))
    raw = rows_at(model, store, ids)
    in_sets = model.learned.in_sets
    has_codes = by_labels and store.has_y and model.learned.has_labels and model.learned.has_classes and not in_sets
    sample = Sample(raw, model.header.scaling.apply(raw), codes_of_labels(model, store)[ids] if has_codes else None)
    order = rng.permutation(len(ids))
    return map(sample.take, np.split(order, [len(ids) // 4, 3 * len(ids) // 4]))


def _n_support(model: Model) -> int:
    routes = model.as_routes()
    return len(model.as_expansion().support) if routes is None else int(routes.bounds[-1])


def _changes(model: Model, sample: Sample, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m,) whether rows have another label by binary decisions g instead of f; and what that loses: if labels are known
    1 for a wrong one instead of a right one and -1 for the reverse, else 1. Of values both are squared differences."""
    if not model.learned.has_labels:
        squares = np.square(f - g).sum(axis=1)
        return squares, squares
    before, after = (model.codes_of(*model.answers_from(values, sample.raw)) for values in (f, g))
    changes = 1.0 * np.any((before != after).reshape(len(before), -1), axis=1)
    if sample.codes is None:
        return changes, changes
    return changes, 1.0 * (after != sample.codes) - (before != sample.codes)


def _points(model: Model, sample: Sample, f: np.ndarray, g: np.ndarray, spread: float) -> tuple[float, float]:
    """What decisions g of a sample lose to those of the model, f, and its standard error. spread: see `_spread`."""
    changes, losses = _changes(model, sample, f, g)
    each = 100 / len(losses) / spread
    return each * float(losses.sum()), each * math.sqrt(np.square(changes).sum())


def _spread(model: Model, sample: Sample) -> float:
    """What losses are relative to: 1 for labels, or the variance of the values."""
    if model.learned.has_labels:
        return 1.0
    return max(float(model.binary_decisions(sample.raw).var(axis=0).sum()), np.finfo(float).tiny)


def _part_fits(sums: Sums, fit: Sample, choose: Sample, engine: Engine, events: Events) -> list[PartFit]:
    """Of each partition. Rows of all stand in for those of a partition that has none."""
    n_parts = len(sums.intercept)
    ids = [dict(by_their_part(sums.partition.nearest(sample.scaled, sums.neighbours))) for sample in (fit, choose)]
    everywhere, none = evenly(len(fit.raw), FITTED), np.empty(0, np.intp)
    to_fit = [ids[0].get(p, everywhere) for p in range(n_parts)]
    to_choose = [ids[1].get(p, none) for p in range(n_parts)]
    shared = engine.share(sums), engine.share(fit), engine.share(choose)
    parts = engine.map(_part_fit, range(n_parts), to_fit, to_choose, shared=shared, phase="thin", events=events)
    return list(parts)


def _part_fit(sums: Sums, fit: Sample, choose: Sample, p: int, to_fit: np.ndarray, to_choose: np.ndarray) -> PartFit:
    kernel, intercept = sums.model.header.kernel, sums.intercept[p]
    rows = fit.scaled.take(to_fit[evenly(len(to_fit), FITTED)])
    terms = sums.terms(p)
    if not len(terms.coef):
        return PartFit(terms, [Size(terms.coef, 0.0, 0.0)], len(to_choose))
    if is_cut := len(terms.coef) > CANDIDATES:
        values = kernel.block(_weighed(sums, p, rows), _weighed(sums, p, terms.support))
        worth = np.square(values).sum(axis=0) * np.square(terms.coef).max(axis=1)
        most = np.sort(np.argpartition(-worth, CANDIDATES)[:CANDIDATES])
        terms = terms.take(most, terms.coef[most])
    s, columns = terms.coef.shape
    support = _weighed(sums, p, terms.support)
    float64 = kernel.in_float64()
    A, B = (float64.block(other, support) for other in (support, _weighed(sums, p, rows)))
    G = B.T @ B + A @ A + RIDGE * A
    G[np.diag_indices_from(G)] += JITTER * np.trace(G) / s
    at_support = sums.of(p, terms.support)
    targets = B.T @ sums.of(p, rows) + A @ at_support + RIDGE * at_support
    allowed = _allowed(sums.model, terms.codes, columns)
    order = _order(G, targets, allowed)
    others = choose.take(to_choose)
    f = sums.of(p, others.scaled) + intercept
    K = kernel.block(_weighed(sums, p, others.scaled), support.take(order)).astype(np.float64)

    def size(m: int) -> Size:
        b = _solved(G, targets, order[:m], allowed)
        changes, losses = _changes(sums.model, others, f, K[:, :m] @ b + intercept)
        return Size(b, float(changes.sum()), float(losses.sum()))

    sizes = [size(m) for m in _counts(s) if m <= len(order)]
    order = np.concatenate([order, np.setdiff1d(np.arange(s), order)])
    if not is_cut:  # as it is
        sizes.insert(0, Size(terms.coef[order], 0.0, 0.0))
    return PartFit(terms.take(order, terms.coef[order]), sizes, len(to_choose))


def _counts(n: int) -> list[int]:
    """Numbers of support vectors to try, the largest first, of n in order."""
    return sorted({max(1, round(share * n)) for share in SHARES}, reverse=True)


def _allowed(model: Model, codes: np.ndarray, columns: int) -> np.ndarray:
    """(s, columns) whether a support vector may have a coefficient: in pairs of classes only those of its class."""
    if not model.is_pairwise:
        return np.ones((len(codes), columns), bool)
    first, second = classes_of_pairs(len(model.classes))
    return (codes[:, None] == first) | (codes[:, None] == second)


def _order(G: np.ndarray, targets: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Support vectors by what each lowers after those before it, from rows of the Cholesky factor of G in this order.
    The next few are taken from the best candidates, whose rows one product makes."""
    most = min(MOST_SUPPORT, max(1, round(SHARES[0] * len(G))))
    diagonal, residuals = np.diag(G), np.where(allowed, targets, 0.0)
    left, factor, order = diagonal.copy(), np.empty((most, len(G))), np.empty(0, np.intp)
    while len(order) < most:
        gains = _gains(residuals, left, diagonal)
        best = np.argsort(-gains)[:BEST]
        best = best[gains[best] > 0.0]
        known = factor[: len(order)]
        rows = G[best] - known[:, best].T @ known
        for _ in range(min(TAKEN, len(best), most - len(order))):
            place = int(np.argmax(_gains(residuals[best], left[best], diagonal[best])))
            i, j = best[place], len(order)
            if left[i] <= JITTER * diagonal[i]:
                break
            factor[j] = row = rows[place] / math.sqrt(left[i])
            step = residuals[i] / math.sqrt(left[i])
            residuals -= np.where(allowed & allowed[i], row[:, None] * step, 0.0)
            rows -= row[best][:, None] * row
            left -= np.square(row)
            left[i], residuals[i] = 0.0, 0.0
            order = np.append(order, i)
        if not len(best):
            break
    return order


def _gains(residuals: np.ndarray, left: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """What each support vector lowers; 0 of those that others express."""
    is_left = left > JITTER * diagonal
    return np.where(is_left, np.square(residuals).sum(axis=1) / np.where(is_left, left, 1.0), 0.0)


def _solved(G: np.ndarray, targets: np.ndarray, ids: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """(m, columns) the coefficients of these support vectors."""
    out = np.zeros((len(ids), targets.shape[1]))
    kinds, which = np.unique(allowed[ids], axis=1, return_inverse=True)
    for number, kind in enumerate(kinds.T):
        columns, places = np.flatnonzero(which.ravel() == number), np.flatnonzero(kind)
        if len(places):
            here = ids[places]
            solved = cho_solve(cho_factor(G[np.ix_(here, here)], lower=True), targets[np.ix_(here, columns)])
            out[np.ix_(places, columns)] = solved
    return out


def _choices(fits: Sequence[PartFit], spread: float, tolerance: float) -> Iterator[list[int]]:
    """The number of a size for each partition, from the most to the fewest kernel values, while the points that the
    rows lose are within the tolerance. These rows chose the sizes, so others judge."""
    n = max(sum(fit.n for fit in fits), 1)
    # more support vectors change no more, but by chance, which would be chosen
    changes = [np.maximum.accumulate([100 * size.changes / spread for size in fit.sizes]) for fit in fits]
    values_of = [np.array([fit.n * len(size.coef) for size in fit.sizes]) for fit in fits]
    last = math.inf
    for weight in LAMBDAS:
        sizes = [int(np.argmin(change + weight * values)) for change, values in zip(changes, values_of, strict=True)]
        values = sum(values_of[p][size] for p, size in enumerate(sizes))
        losses = sum(fit.sizes[size].loss for fit, size in zip(fits, sizes, strict=True))
        if 100 * losses / spread / n > tolerance:
            return
        if values <= LESS * last:
            last = values
            yield sizes


def _rate(model: Model, rows: Rows, engine: Engine) -> float:
    """Rows a second of as many tasks as run at a time, each of a block as large as those of predictions, or larger."""
    block = rows.take(np.resize(np.arange(len(rows)), max(len(rows), most_rows(rows.d))))
    shared, items, seconds = (engine.share(model), engine.share(block)), range(engine.slots), []
    for _ in range(REPEATS):
        began = time.perf_counter()
        list(engine.map(_decide, items, shared=shared, phase="thin"))
        seconds.append(time.perf_counter() - began)
    return engine.slots * len(block) / min(seconds)


def _decide(model: Model, rows: Rows, task: int) -> None:
    model.binary_decisions(rows)
