"""The solvers that Hsieh, Si and Dhillon 2014 compare with, where no package has them, for `fit_worker.py`.

lasvm       Bordes, Ertekin, Weston and Bottou 2005: one pass, each row processed, then a reprocess; finished to tol
cascade     Graf et al. 2005: random subsets, whose support vectors alone go up a tree; after the first round
llsvm       Nystroem features (Zhang et al. 2012 take centres of k-means, scikit-learn random rows) and LIBLINEAR
fastfood    random Fourier features by Walsh-Hadamard transforms (Le, Sarlos and Smola 2013) and LIBLINEAR
ltpu        kernel values to centres of k-means (Moody and Darken 1989) and LIBLINEAR
llsvm_sgd, fastfood_sgd    the same features, and stochastic gradient descent instead

All have a Gaussian kernel exp(-gamma |x - z|^2), and labels of -1 and +1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

if TYPE_CHECKING:
    from streamsvm.data.rows import Rows
    from streamsvm.kernels.base import Kernel

Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray], tuple[Predict, dict[str, Any]]]
SEEDS = 5  # rows of each class that LaSVM begins with
MOST_SWEEPS = 100  # of LIBLINEAR
CHILDREN = 4
EXPANSION_ROWS = 1024


def lasvm(options: dict[str, Any]) -> Fit:
    C, gamma, tol = options["C"], options["gamma"], options.get("tol", 1e-3)

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        X = np.ascontiguousarray(X, np.float32)
        order = np.random.default_rng(0).permutation(len(y))
        seeds = np.concatenate([order[y[order] == label][:SEEDS] for label in (-1, 1)])
        order = np.concatenate([seeds, order[~np.isin(order, seeds)]])
        ids, alpha, bias = _lasvm(X, y.astype(np.float64), order, len(seeds), C, gamma, tol)
        support = X[ids]
        return lambda rows: np.where(_expansion(rows, support, alpha, gamma) + bias > 0, 1, -1), {"n_support": len(ids)}

    return fit


def _expansion(rows: np.ndarray, support: np.ndarray, alpha: np.ndarray, gamma: float) -> np.ndarray:
    cuts = range(0, len(rows), EXPANSION_ROWS)
    return np.concatenate([rbf_kernel(rows[i : i + EXPANSION_ROWS], support, gamma=gamma) @ alpha for i in cuts])


@njit(cache=True, fastmath=True)
def _kernel_row(X: np.ndarray, ids: np.ndarray, m: int, i: int, gamma: float, out: np.ndarray) -> None:
    for s in range(m):
        squared = np.float32(0)
        for j in range(X.shape[1]):
            squared += (X[i, j] - X[ids[s], j]) ** 2
        out[s] = np.exp(-gamma * squared)


@njit(cache=True)
def _extreme(g: np.ndarray, alpha: np.ndarray, low: np.ndarray, high: np.ndarray, m: int) -> tuple[int, int]:
    """Of the expansion, the largest gradient that may rise and the smallest that may fall: places, or -1."""
    i = j = -1
    for s in range(m):
        if alpha[s] < high[s] and (i < 0 or g[s] > g[i]):
            i = s
        if alpha[s] > low[s] and (j < 0 or g[s] < g[j]):
            j = s
    return i, j


@njit(cache=True)
def _lasvm(
    X: np.ndarray, y: np.ndarray, order: np.ndarray, n_seeds: int, C: float, gamma: float, tol: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Support rows, their signed coefficients, and the bias."""
    n = len(order)
    ids, alpha, g, low, high = np.empty(n, np.int64), np.zeros(n), np.empty(n), np.empty(n), np.empty(n)
    spaces = np.empty(n), np.empty(n)
    m = 0
    for step, k in enumerate(order):  # process: the row joins, and moves with the one that it violates most with
        ids[m], alpha[m], g[m] = k, 0.0, y[k]
        low[m], high[m] = min(0.0, C * y[k]), max(0.0, C * y[k])
        _kernel_row(X, ids, m, k, gamma, spaces[0])
        g[m] -= alpha[:m] @ spaces[0][:m]
        m += 1
        if step < n_seeds:
            continue
        i, j = _extreme(g, alpha, low, high, m)
        i, j = (m - 1, j) if y[k] > 0 else (i, m - 1)
        _move(X, ids, alpha, g, low, high, m, i, j, gamma, tol, spaces)
        i, j = _extreme(g, alpha, low, high, m)  # reprocess
        _move(X, ids, alpha, g, low, high, m, i, j, gamma, tol, spaces)
        m = _without_idle(ids, alpha, g, low, high, m)
    i, j = _extreme(g, alpha, low, high, m)
    while _move(X, ids, alpha, g, low, high, m, i, j, gamma, tol, spaces):  # finishing
        m = _without_idle(ids, alpha, g, low, high, m)
        i, j = _extreme(g, alpha, low, high, m)
    bias = 0.5 * (g[i] + g[j]) if i >= 0 and j >= 0 else 0.0
    support = alpha[:m] != 0
    return ids[:m][support], alpha[:m][support], bias


@njit(cache=True)
def _without_idle(ids: np.ndarray, alpha: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray, m: int) -> int:
    """How many rows are left when those without a coefficient that would not move leave."""
    i, j = _extreme(g, alpha, low, high, m)
    if i < 0 or j < 0:
        return m
    top, bottom, kept = g[i], g[j], 0
    for s in range(m):
        is_idle = g[s] >= top if high[s] == 0.0 else g[s] <= bottom
        if alpha[s] != 0.0 or not is_idle:
            ids[kept], alpha[kept], g[kept], low[kept], high[kept] = ids[s], alpha[s], g[s], low[s], high[s]
            kept += 1
    return kept


@njit(cache=True)
def _move(
    X: np.ndarray,
    ids: np.ndarray,
    alpha: np.ndarray,
    g: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    m: int,
    i: int,
    j: int,
    gamma: float,
    tol: float,
    spaces: tuple[np.ndarray, np.ndarray],
) -> bool:
    """Steps along a pair that violates by more than tol, to its minimum or to a bound; whether there is one."""
    if i < 0 or j < 0 or alpha[i] >= high[i] or alpha[j] <= low[j] or g[i] - g[j] <= tol:
        return False
    row_i, row_j = spaces
    _kernel_row(X, ids, m, ids[i], gamma, row_i)
    _kernel_row(X, ids, m, ids[j], gamma, row_j)
    curvature = max(2.0 - 2.0 * row_i[j], 1e-12)
    step = min((g[i] - g[j]) / curvature, high[i] - alpha[i], alpha[j] - low[j])
    alpha[i] += step
    alpha[j] -= step
    for s in range(m):
        g[s] -= step * (row_i[s] - row_j[s])
    return True


def cascade(options: dict[str, Any]) -> Fit:
    from streamsvm.data.rows import Rows
    from streamsvm.kernels.distance import RBF

    C, gamma, levels = options["C"], options["gamma"], options["levels"]

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        *_, (_, alpha) = cascaded(Rows(X), y.astype(float), RBF(gamma), C, levels)
        ids = np.flatnonzero(alpha)
        support, signed = X[ids], alpha[ids] * y[ids]
        return lambda rows: np.where(_expansion(rows, support, signed, gamma) > 0, 1, -1), {"n_support": len(ids)}

    return fit


def cascaded(
    rows: Rows, y: np.ndarray, kernel: Kernel, C: float, levels: int, seed: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Each level, from CHILDREN^levels random subsets to the whole, and its coefficients (n,): of support vectors of
    the level below alone, without a bias."""
    from streamsvm.problems.dual import KernelDual
    from streamsvm.solvers import blockws

    parts = np.random.default_rng(seed).integers(0, CHILDREN**levels, len(y))
    alpha = np.zeros(len(y))
    left = np.arange(len(y))
    for level in range(levels, -1, -1):
        found = np.zeros(len(y))
        for part in np.unique(parts[left]):
            ids = left[parts[left] == part]
            dual = KernelDual(kernel, rows.take(ids), y[ids], np.full(len(ids), C))
            found[ids] = blockws.solve(dual, alpha[ids], tol=1e-3).alpha
        alpha, left, parts = found, np.flatnonzero(found), parts // CHILDREN
        yield level, alpha


class FastFood(BaseEstimator, TransformerMixin):
    """sqrt(2 / q) cos(V x + b) of q features, V by blocks of S H G P H B / (sigma sqrt(d)), d a power of two: H
    Walsh-Hadamard, B signs, P a permutation, G Gaussian, S lengths of Gaussian vectors; gamma = 1 / (2 sigma^2)."""

    def __init__(self, gamma: float = 1.0, n_components: int = 100, random_state: int = 0) -> None:
        self.gamma, self.n_components, self.random_state = gamma, n_components, random_state

    def fit(self, X: np.ndarray, y: object = None) -> FastFood:
        rng = np.random.default_rng(self.random_state)
        self.width_ = 1 << max(1, (X.shape[1] - 1).bit_length())
        blocks, d = -(-self.n_components // self.width_), self.width_
        self.signs_ = rng.choice([-1.0, 1.0], (blocks, d)).astype(np.float32)
        self.orders_ = np.argsort(rng.random((blocks, d)), axis=1)
        self.gauss_ = rng.standard_normal((blocks, d)).astype(np.float32)
        lengths = np.sqrt(rng.chisquare(d, (blocks, d))) / np.linalg.norm(self.gauss_, axis=1, keepdims=True)
        self.scales_ = (lengths * np.sqrt(2 * self.gamma / d)).astype(np.float32)
        self.offsets_ = rng.uniform(0, 2 * np.pi, blocks * d).astype(np.float32)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        padded = np.zeros((len(X), self.width_), np.float32)
        padded[:, : X.shape[1]] = X
        each = zip(self.signs_, self.orders_, self.gauss_, self.scales_, strict=True)
        blocks = [hadamard(hadamard(padded * b)[:, p] * g) * s for b, p, g, s in each]
        q = self.n_components
        return np.sqrt(np.float32(2 / q)) * np.cos(np.hstack(blocks)[:, :q] + self.offsets_[:q])


def hadamard(X: np.ndarray) -> np.ndarray:
    """X H, without a factor: (n, d), d a power of two."""
    n, d = X.shape
    h = 1
    while h < d:
        pairs = X.reshape(n, d // (2 * h), 2, h)
        X = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(n, d)
        h *= 2
    return X


class Centres(BaseEstimator, TransformerMixin):
    """Kernel values to the centres of k-means."""

    def __init__(self, gamma: float = 1.0, n_components: int = 100) -> None:
        self.gamma, self.n_components = gamma, n_components

    def fit(self, X: np.ndarray, y: object = None) -> Centres:
        k = min(self.n_components, len(X))
        self.centres_ = MiniBatchKMeans(k, random_state=0, n_init=1).fit(X).cluster_centers_
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return rbf_kernel(X, self.centres_, gamma=self.gamma)


def _linear(features: Any, C: float, *, descends: bool = False, dual: bool = True) -> Fit:
    """These features, and a linear SVM: by LIBLINEAR, coordinate descent of the dual or Newton steps of the primal, or
    by stochastic gradient descent."""

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        if descends:
            linear: Any = SGDClassifier(alpha=1 / (C * len(y)), random_state=0)
        else:
            linear = LinearSVC(C=C, dual=dual, max_iter=MOST_SWEEPS, random_state=0)
        model = make_pipeline(features, linear).fit(X, y)
        return model.predict, {"n_support": None}

    return fit


def llsvm(options: dict[str, Any], *, descends: bool = False) -> Fit:
    features = Nystroem(gamma=options["gamma"], n_components=options["features"], random_state=0)
    return _linear(features, options["C"], descends=descends)


def fastfood(options: dict[str, Any], *, descends: bool = False) -> Fit:
    return _linear(FastFood(options["gamma"], options["features"]), options["C"], descends=descends)


def ltpu(options: dict[str, Any]) -> Fit:
    # its features are so alike that coordinate descent would take thousands of sweeps
    return _linear(Centres(options["gamma"], options["features"]), options["C"], dual=False)


def llsvm_sgd(options: dict[str, Any]) -> Fit:
    return llsvm(options, descends=True)


def fastfood_sgd(options: dict[str, Any]) -> Fit:
    return fastfood(options, descends=True)
