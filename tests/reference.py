"""Slow, obvious twins of what streamsvm computes: float64, whole matrices, the formulas as they are printed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.spatial.distance import cdist


def dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)


def kernel_matrix(kernel, A, B) -> np.ndarray:
    """K (m, q) float64 of streamsvm's Kernel between the rows of A and B, dense or CSR."""
    A, B = dense(A), dense(B)
    if kernel.name == "rbf":
        return np.exp(-kernel.gamma * cdist(A, B, "sqeuclidean"))
    inner = A @ B.T
    return inner if kernel.name == "linear" else (kernel.gamma * inner + kernel.coef0) ** kernel.degree


def dual_objective(Q, a) -> float:
    """1/2 a'Qa - e'a."""
    return float(0.5 * a @ Q @ a - a.sum())


def kkt_violation(Q, a, upper) -> float:
    """The largest absolute projected gradient of the dual."""
    g = Q @ a - 1
    down = np.where(a > 0, np.maximum(g, 0), 0)
    up = np.where(a < upper, np.maximum(-g, 0), 0)
    return float(np.maximum(down, up).max())


def duality_gap(Q, a, upper) -> float:
    """1/2 |w|^2 + sum_i upper_i max(0, 1 - y_i f(x_i)), the primal, plus 1/2 a'Qa - e'a, the negative dual."""
    primal = 0.5 * a @ Q @ a + upper @ np.maximum(1 - Q @ a, 0)
    return float(primal + dual_objective(Q, a))


def solve_dual(Q, upper, tol=1e-8) -> np.ndarray:
    """The a in [0, upper] that minimises 1/2 a'Qa - e'a, to a duality gap of tol relative to the objective.

    Coordinate sweeps and projected Newton steps in turn.
    """
    a = np.zeros(len(upper))
    for _ in range(2000):
        _sweep(Q, a, upper)
        if duality_gap(Q, a, upper) <= tol * abs(dual_objective(Q, a)):
            return a
        a = _newton(Q, a, upper)
    raise AssertionError(f"the twin did not converge: gap {duality_gap(Q, a, upper):.1e}")


def _sweep(Q, a, upper) -> None:
    g = Q @ a - 1
    for i in range(len(a)):
        new = min(max(a[i] - g[i] / Q[i, i], 0.0), upper[i]) if Q[i, i] > 0 else upper[i]
        if new != a[i]:
            g += (new - a[i]) * Q[i]
            a[i] = new


def _newton(Q, a, upper) -> np.ndarray:
    """The Newton step of the free coordinates, cut to the box, halved until it improves; else a itself."""
    g = Q @ a - 1
    free = np.flatnonzero(((a > 0) | (g < 0)) & ((a < upper) | (g > 0)))
    direction = np.zeros_like(a)
    ridge = 1e-10 * np.trace(Q) / len(Q)
    direction[free] = -np.linalg.solve(Q[np.ix_(free, free)] + ridge * np.eye(len(free)), g[free])
    now = dual_objective(Q, a)
    for k in range(20):
        trial = np.clip(a + 0.5**k * direction, 0, upper)
        if dual_objective(Q, trial) < now:
            return trial
    return a


def feature_distances(K, diag, members) -> np.ndarray:
    """|phi(x) - c|^2 of each row to the mean of the sample rows `members`; K (m, sample), diag (m,) = K(x, x).

    The third term needs the sample's own kernel values: pass `members` as (positions, K of the sample).
    """
    positions, K_sample = members
    own = K_sample[np.ix_(positions, positions)].mean()
    return diag - 2 * K[:, positions].mean(axis=1) + own


def scatter(K, labels) -> float:
    """Sum over rows of the squared feature-space distance to the mean of their own cluster."""
    total = 0.0
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        total += feature_distances(K, np.diag(K), (members, K))[members].sum()
    return float(total)


def pair_decisions(K, alpha, codes, k) -> np.ndarray:
    """(m, pairs) decisions sum_j y_j a_j K(x, x_j) from compact alpha (n, k - 1) of all n training rows."""
    columns = []
    for i, j in combinations(range(k), 2):
        signed = np.where(codes == i, -alpha[:, j - 1], np.where(codes == j, alpha[:, i], 0.0))
        columns.append(K @ signed)
    return np.stack(columns, axis=1)


def early_decisions(K, y, alpha, train_parts, test_parts) -> np.ndarray:
    """Equation (11): each row is decided by the training rows of its own part alone."""
    same = test_parts[:, None] == train_parts
    return (K * same) @ (y * alpha)


def naive_decisions(K, y, alpha) -> np.ndarray:
    """Equation (10): all parts' solutions side by side, as one expansion."""
    return K @ (y * alpha)


def committee_decisions(K, K_train, diag, y, alpha, train_parts, noise) -> np.ndarray:
    """Tresp 2000: parts' expansions weighted by the inverse of their Gaussian process variance on their support."""
    total = np.zeros(len(K))
    for p in np.unique(train_parts):
        support = np.flatnonzero((train_parts == p) & (alpha > 0))
        if len(support):
            basis = K_train[np.ix_(support, support)] + noise * np.eye(len(support))
            explained = np.einsum("ij,ji->i", K[:, support], np.linalg.solve(basis, K[:, support].T))
            variance = np.maximum(diag - explained, 0) + noise
            total += K[:, support] @ (y * alpha)[support] / variance
    return total
