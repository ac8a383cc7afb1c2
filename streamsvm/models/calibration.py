"""Probabilities from decision values: a map for each binary problem, combined if there are more than two classes.

The map is Platt's sigmoid (1999), fitted as by Lin, Lin and Weng (2007), or an isotonic one (Zadrozny and Elkan 2002).
A learner of streams has its own map (see `online.calibration`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.arrays import Arrays, State
from streamsvm.tasks import task_names, task_of
from streamsvm.tasks.pairs import classes_of_pairs, n_columns, n_pairs

COUPLING_BYTES = 8 << 20  # of the linear systems that are solved at once
EDGE = 4e-16  # by which the winner's probability is larger than an equal one
LARGEST_EXPONENT = 500.0  # probabilities stay above 0, and have a sum to be divided by


@dataclass(frozen=True)
class Calibration(SizedInBytes):
    """One map from decision value to probability for each binary problem of a model.

    points (s, 2) float64: of a sigmoid (slope, offset), one row; of an isotonic map (decision value, probability),
    between which it is linear and beyond which it is constant. bounds (problems + 1,): where each map's rows begin.
    stream: one map of all problems, see `OnlineCalibration`; a row for each: coefficients of its own decision or of
    all, an offset, and the size of decisions that they are measured by. by_part (partitions, problems, 2): in a model
    of partitions, the sigmoids of the partition that a row falls into, which replace those of all rows.

    Probabilities are those of the rows as they are, whatever weights classes had in the fit. by_decisions: classes had
    some, so labels follow decision values, not the largest probability. class_weight (k,): of three or more classes,
    what is taken out of log-odds that were learned with it."""

    method: str  # "sigmoid", "isotonic" or "stream"
    points: np.ndarray
    bounds: np.ndarray
    by_part: np.ndarray | None = None
    by_decisions: bool = False
    class_weight: np.ndarray | None = None

    @classmethod
    def of(cls, method: str, maps: list[np.ndarray]) -> Calibration:
        return cls(method, np.concatenate(maps), np.cumsum([0, *map(len, maps)], dtype=np.int64))

    @classmethod
    def logistic(cls, problems: int, class_weight: np.ndarray | None = None) -> Calibration:
        """Of decisions that are logarithms of odds themselves, see `are_odds`. class_weight: of the classes (k,) in the
        fit, or of rows without and with each label (2, k). The odds of two sides are as many times too large as their
        weights differ."""
        if class_weight is None:
            return cls.of("sigmoid", [np.array([[1.0, 0.0]])] * problems)
        if class_weight.ndim == 1 and len(class_weight) > 2:
            return replace(cls.logistic(problems), by_decisions=True, class_weight=class_weight)
        offsets = np.log(class_weight[0] / class_weight[1]).reshape(-1)
        maps = [np.array([[1.0, offset]]) for offset in offsets.tolist()]
        return replace(cls.of("sigmoid", maps), by_decisions=True)

    def probabilities(
        self, decisions: np.ndarray, n_classes: int, *, pairwise: bool, parts: np.ndarray | None = None
    ) -> np.ndarray:
        """(m, n_classes), whose sum is 1, from the decision values (m, problems) of each pair or class, of rows of
        these partitions (m,). Raises ModelError."""
        if self.method == "stream":
            return self._of_stream(self._checked(decisions))
        p = self.of_problems(decisions, parts)
        if self.class_weight is not None:
            p = p / self.class_weight
        return coupled(p, n_classes) if pairwise and n_classes > 2 else against_rest(p)

    def of_problems(self, decisions: np.ndarray, parts: np.ndarray | None = None) -> np.ndarray:
        """(m, problems) of each by itself; as `probabilities`."""
        decisions = self._checked(decisions)
        if self.by_part is not None and parts is not None:
            slopes, offsets = np.moveaxis(self.by_part[parts], -1, 0)
            return sigmoid(slopes * decisions + offsets)
        maps = zip(decisions.T, self.bounds, self.bounds[1:], strict=False)
        return np.column_stack([self._map(f, self.points[start:stop]) for f, start, stop in maps])

    def _checked(self, decisions: np.ndarray) -> np.ndarray:
        if decisions.shape[1] != len(self.bounds) - 1:
            raise ModelError(
                f"the calibration has {len(self.bounds) - 1} maps, the model {decisions.shape[1]} problems: damaged"
            )
        return decisions.astype(np.float64)

    def _map(self, f: np.ndarray, points: np.ndarray) -> np.ndarray:
        if self.method == "isotonic":
            return np.interp(f, points[:, 0], points[:, 1])
        [(slope, offset)] = points
        return sigmoid(slope * f + offset)

    def _of_stream(self, f: np.ndarray) -> np.ndarray:
        slopes, offsets, size = self.points[:, :-2], self.points[:, -2], self.points[0, -1]
        u = f / size
        if u.shape[1] == 1:
            p = against_rest(sigmoid(slopes[0, 0] * u / np.sqrt(1 + u * u) + offsets))
            return p if self.by_decisions else with_decisions(p, f)
        z = (u * slopes[:, 0] if slopes.shape[1] == 1 else u @ slopes.T) + offsets
        p = np.exp(np.maximum(z - z.max(axis=1, keepdims=True), -LARGEST_EXPONENT))
        p /= p.sum(axis=1, keepdims=True)
        return p if self.by_decisions else with_decisions(p, f)

    def to_state(self) -> State:
        arrays = {"calibration_points": self.points, "calibration_bounds": self.bounds}
        if self.by_part is not None:
            arrays["calibration_by_part"] = self.by_part
        if self.class_weight is not None:
            arrays["calibration_class_weight"] = self.class_weight
        attrs = {"calibration": self.method}
        return arrays, attrs | ({"calibration_labels": "decisions"} if self.by_decisions else {})

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Mapping[str, Any]) -> Calibration | None:
        """None if a model has none. Raises ValueError for arrays that `to_state` cannot have written."""
        method = attrs.get("calibration")
        if method is None:
            return None
        points, bounds = (np.asarray(arrays[f"calibration_{name}"]) for name in ("points", "bounds"))
        sizes, y = np.diff(bounds), points[:, 1]
        whole = bounds.dtype == np.int64 and bounds[0] == 0 and bounds[-1] == len(points)
        one_each, inside = bool(np.all(sizes == 1)), bool(np.all((y > 0) & (y < 1)))
        columns = (3, len(points) + 2) if method == "stream" else (2,)
        of_stream = one_each and bool(np.all(points[:, -1] > 0))
        fits = {"sigmoid": one_each, "isotonic": inside, "stream": of_stream}[method]
        fits = fits and points.shape[1] in columns and bool(np.isfinite(points).all())
        if not (whole and np.all(sizes > 0) and fits and points.dtype == np.float64):
            raise ValueError("the maps of the calibration are incomplete")
        calibration = cls(method, points, bounds, by_decisions=attrs.get("calibration_labels") == "decisions")
        if "calibration_class_weight" in arrays:
            weight = np.asarray(arrays["calibration_class_weight"])
            if weight.shape != (len(points),) or not np.all((weight > 0) & np.isfinite(weight)):
                raise ValueError("the class weights of the calibration are incomplete")
            calibration = replace(calibration, class_weight=weight)
        if "calibration_by_part" not in arrays:
            return calibration
        by_part = np.asarray(arrays["calibration_by_part"])
        shape = (len(by_part), len(points), 2)
        if method != "sigmoid" or by_part.shape != shape or not np.isfinite(by_part).all():
            raise ValueError("the maps of the calibration's partitions are incomplete")
        return replace(calibration, by_part=by_part)


def require_classes(task: str | None, what: str = "probabilities go") -> None:
    """Raises ConfigError for a task that has no probabilities, and so no threshold to choose."""
    if task is not None and not task_of(task).has_probabilities:
        able = " or ".join(name for name in task_names() if task_of(name).has_probabilities)
        raise ConfigError(f"{what} only with task {able}, found task {task!r}")


def sigmoid(u: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-u)), between exp(-500) and 1."""
    return 1.0 / (1.0 + np.exp(-np.clip(u, -LARGEST_EXPONENT, LARGEST_EXPONENT)))


def against_rest(p: np.ndarray) -> np.ndarray:
    """(m, k) from the probabilities (m, k) of each class against the rest, or (m, 1) of the second of two."""
    return np.hstack([1 - p, p]) if p.shape[1] == 1 else p / p.sum(axis=1, keepdims=True)


def with_decisions(p: np.ndarray, f: np.ndarray) -> np.ndarray:
    """p (m, k), changed so that none is above the class that wins by decision values f (m, columns). Those that were
    above it share evenly with it, as in a fit under that constraint."""
    winners = (f[:, 0] > 0).astype(np.intp) if f.shape[1] == 1 else np.argmax(f, axis=1)
    for row in np.flatnonzero(np.argmax(p, axis=1) != winners):
        p_row, winner = p[row], int(winners[row])
        shared = [winner]
        for c in np.argsort(-p_row, kind="stable").tolist():
            if p_row[c] < p_row[shared].mean():
                break
            if c != winner:
                shared.append(c)
        p_row[shared] = p_row[shared].mean()
        p_row[winner] *= 1 + EDGE
    return p


def coupled(p: np.ndarray, k: int) -> np.ndarray:
    """(m, k) from the probabilities (m, n_pairs) of j among i and j, for each pair i < j. Minimises sum_i sum_{j != i}
    (r_ji p_i - r_ij p_j)^2 over sum p = 1, r_ij that of i among i and j: the second method of Wu, Lin and Weng (2004),
    whose solution is never negative."""
    rows = max(1, COUPLING_BYTES // (8 * (k + 1) ** 2))
    return np.concatenate([_coupled(p[i : i + rows], k) for i in range(0, max(len(p), 1), rows)])


def _coupled(p: np.ndarray, k: int) -> np.ndarray:
    first, second = classes_of_pairs(k)
    r = np.zeros((len(p), k, k))
    r[:, second, first], r[:, first, second] = p, 1 - p
    system = np.ones((len(p), k + 1, k + 1))
    system[:, :k, :k] = -r.transpose(0, 2, 1) * r
    system[:, range(k), range(k)] = np.square(r).sum(axis=1)
    system[:, k, k] = 0
    right = np.zeros((len(p), k + 1, 1))
    right[:, k] = 1
    solution = np.maximum(np.linalg.solve(system, right)[:, :k, 0], 0)
    return solution / solution.sum(axis=1, keepdims=True)


def own_problems(decisions: np.ndarray, codes: np.ndarray, k: int, *, pairwise: bool) -> np.ndarray:
    """The decision values (n, problems) that calibration reads: for pairs, the k - 1 of a row's own class. They are
    laid out like coefficients, see `tasks.pairs`; codes (n,) in 0..k-1."""
    if not pairwise or k == 2:
        return decisions
    pair = np.zeros((k, k), np.intp)
    pair[classes_of_pairs(k)] = np.arange(n_pairs(k))
    table = (pair + pair.T)[~np.eye(k, dtype=bool)].reshape(k, k - 1)
    return np.take_along_axis(decisions, table[codes], axis=1)


def calibrate(
    decisions: np.ndarray, codes: np.ndarray, k: int, *, method: str, pairwise: bool, weight: np.ndarray | None = None
) -> Calibration:
    """The maps fitted to decision values of rows that the model behind them was not trained on. decisions: (n, own
    problems), see `own_problems`; codes (n,) in 0..k-1, or (n, k) bool, which labels a row has; weight (n,), of which
    the mean counts as one row. Raises DataError if a class has no rows."""
    weight = np.ones(len(codes)) if weight is None else weight
    problems = binary_problems(decisions, codes, weight, k, pairwise=pairwise)
    return Calibration.of(method, [FITS[method](f, targets(positive, w), w) for _, f, positive, w in problems])


def binary_problems(
    decisions: np.ndarray, codes: np.ndarray, weight: np.ndarray, k: int, *, pairwise: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of each binary problem that have a weight, their decision values, whether they are of the positive class,
    and their weights, of which the mean of all rows is 1. As `calibrate`."""
    used = np.flatnonzero(weight)
    decisions, codes, weight = decisions[used].astype(np.float64), codes[used], weight[used]
    present = int(codes.any(axis=0).sum()) if codes.ndim == 2 else len(np.unique(codes))
    if present < k:
        raise DataError(
            f"probabilities need rows of all {k} {'labels' if codes.ndim == 2 else 'classes'}, found {present}"
        )
    weight = weight / weight.mean()
    if codes.ndim == 2:
        yield from ((used, f, has, weight) for f, has in zip(decisions.T, codes.T, strict=True))
    elif pairwise and k > 2:
        for i, j in combinations(range(k), 2):
            first, second = np.flatnonzero(codes == i), np.flatnonzero(codes == j)
            ids, f = np.concatenate([first, second]), [decisions[first, j - 1], decisions[second, i]]
            yield used[ids], np.concatenate(f), np.arange(len(ids)) >= len(first), weight[ids]
    else:
        for column in range(n_columns(k)):
            yield used, decisions[:, column], codes == (1 if k == 2 else column), weight


def targets(positive: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(n,) Platt's targets: (n+ + 1) / (n+ + 2) for positive rows and 1 / (n- + 2) for others, by summed weights."""
    n_positive = float(weight[positive].sum())
    n_negative = float(weight.sum()) - n_positive
    return np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))


def fit_sigmoid(f: np.ndarray, t: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(1, 2) slope and offset of the p = sigmoid(slope f + offset) nearest to targets t, (n,) in (0, 1) like f and w.
    Minimises -sum_i w_i (t_i log p_i + (1 - t_i) log(1 - p_i)) by Newton's method with backtracking (Lin, Lin and Weng
    2007, algorithm 1), on decision values scaled to at most 1."""
    scale = float(np.abs(f).max()) or 1.0
    Z = np.column_stack([f / scale, np.ones(len(f))])
    total = weight.sum()
    rate = float(weight @ t / total)
    x = np.array([0.0, np.log(rate / (1 - rate))])  # slope and offset

    def loss(x: np.ndarray) -> float:
        u = Z @ x
        return float(weight @ (np.logaddexp(0, u) - t * u))

    value = loss(x)
    for _ in range(100):
        p = sigmoid(Z @ x)
        gradient = Z.T @ (weight * (p - t))
        if np.abs(gradient).max() <= 1e-10 * total:
            break
        H = Z.T @ (Z * (weight * p * (1 - p))[:, None]) + 1e-12 * total * np.eye(2)
        step, size = -np.linalg.solve(H, gradient), 1.0
        while (lower := loss(x + size * step)) > value + 1e-4 * size * (gradient @ step) and size > 1e-10:
            size /= 2
        if lower >= value:  # as low as rounding lets it be
            break
        x, value = x + size * step, lower
    return np.array([[x[0] / scale, x[1]]])


def fit_isotonic(f: np.ndarray, t: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(s, 2) points of the rising function of f that is nearest to t in weighted squares."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression().fit(f, t, sample_weight=weight)
    return np.column_stack([fitted.X_thresholds_, fitted.y_thresholds_])


FITS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "sigmoid": fit_sigmoid,
    "isotonic": fit_isotonic,
}
