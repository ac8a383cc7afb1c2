"""Slow, obvious twins of what streamsvm computes: float64, whole matrices, the formulas as they are printed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import gamma, kv


def dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)


def kernel_matrix(kernel, A, B) -> np.ndarray:
    """K (m, q) float64 of streamsvm's Kernel between the rows of A and B, dense or CSR."""
    return FORMULAS[kernel.name](kernel, dense(A), dense(B))


def matern(kernel, A, B) -> np.ndarray:
    """2^(1-nu) / Gamma(nu) s^nu K_nu(s), s = sqrt(2 nu) gamma |a-b| (Rasmussen and Williams 2006, (4.14))."""
    s = np.maximum(np.sqrt(2 * kernel.nu) * kernel.gamma * cdist(A, B), 1e-9)  # K_nu has a pole at 0
    return 2 ** (1 - kernel.nu) / gamma(kernel.nu) * s**kernel.nu * kv(kernel.nu, s)


FORMULAS = {
    "rbf": lambda kernel, A, B: np.exp(-kernel.gamma * cdist(A, B, "sqeuclidean")),
    "laplacian": lambda kernel, A, B: np.exp(-kernel.gamma * cdist(A, B, "cityblock")),
    "matern": matern,
    "cauchy": lambda kernel, A, B: 1 / (1 + kernel.gamma * cdist(A, B, "sqeuclidean")),
    "poly": lambda kernel, A, B: (kernel.gamma * A @ B.T + kernel.coef0) ** kernel.degree,
    "sigmoid": lambda kernel, A, B: np.tanh(kernel.gamma * A @ B.T + kernel.coef0),
    "linear": lambda kernel, A, B: A @ B.T,
    "precomputed": lambda kernel, A, B: A @ B.T,
}


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


def levels(Q, a, upper, y) -> tuple[float, float]:
    """LIBSVM's m and M: the largest -y g of rows whose y a may rise, the least of those whose y a may fall."""
    f = -y * (Q @ a - 1)
    rises = np.where(y > 0, a < upper, a > 0)
    falls = np.where(y > 0, a > 0, a < upper)
    return f[rises].max(initial=-np.inf), f[falls].min(initial=np.inf)


def solve_dual_with_bias(Q, upper, y, tol=1e-7, max_steps=500_000) -> tuple[np.ndarray, float]:
    """The a in [0, upper] with y'a = 0 that minimises 1/2 a'Qa - e'a, and its b: SMO until m - M <= tol.

    The pair that violates most moves to its minimum (Keerthi et al. 2001).
    """
    a, f = np.zeros(len(y)), y.copy()
    for _ in range(max_steps):
        rises = np.where(y > 0, a < upper, a > 0)
        falls = np.where(y > 0, a > 0, a < upper)
        if not rises.any() or not falls.any():
            return a, 0.0
        i, j = np.argmax(np.where(rises, f, -np.inf)), np.argmin(np.where(falls, f, np.inf))
        if f[i] - f[j] <= tol:
            return a, (f[i] + f[j]) / 2
        curvature = max(Q[i, i] + Q[j, j] - 2 * y[i] * y[j] * Q[i, j], 1e-12)
        room_i = upper[i] - a[i] if y[i] > 0 else a[i]
        room_j = a[j] if y[j] > 0 else upper[j] - a[j]
        t = min((f[i] - f[j]) / curvature, room_i, room_j)
        before = a[[i, j]]
        a[i], a[j] = a[i] + t * y[i], a[j] - t * y[j]
        for k, room in ((i, room_i), (j, room_j)):
            if t == room:
                a[k] = 0.0 if a[k] < upper[k] / 2 else upper[k]
        f -= y * (Q[:, [i, j]] @ (a[[i, j]] - before))
    raise AssertionError(f"the twin did not converge: m - M = {f[i] - f[j]:.1e}")


def solve_one_class(K, upper, nu, tol=1e-7, max_steps=500_000) -> tuple[np.ndarray, float]:
    """The a in [0, upper] with sum a = nu sum upper that minimises 1/2 a'Ka, and its rho: SMO until m - M <= tol."""
    room = np.maximum(nu * upper.sum() - (np.cumsum(upper) - upper), 0)
    a = np.minimum(upper, room)
    for _ in range(max_steps):
        f = K @ a
        rises, falls = a < upper, a > 0
        if not rises.any():
            return a, f.max()
        i, j = np.argmin(np.where(rises, f, np.inf)), np.argmax(np.where(falls, f, -np.inf))
        if f[j] - f[i] <= tol * max(1.0, f[i]):
            return a, (f[i] + f[j]) / 2
        t = min((f[j] - f[i]) / max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12), upper[i] - a[i], a[j])
        a[i], a[j] = a[i] + t, a[j] - t
    raise AssertionError(f"the twin did not converge: m - M = {f[j] - f[i]:.1e}")


def solve_in_signs(Q, p, upper, y, total, tol=1e-7, max_steps=500_000) -> np.ndarray:
    """The a in [0, upper] that minimises 1/2 a'Qa + p'a where those of each sign of y add up to `total`.

    Of the sign whose gradients are furthest apart the pair that violates most moves to its minimum.
    """
    a = np.zeros(len(y))
    for sign in (1.0, -1.0):
        own = np.flatnonzero(y == sign)
        a[own] = np.clip(total - (np.cumsum(upper[own]) - upper[own]), 0, upper[own])
    g = Q @ a + p
    for _ in range(max_steps):
        pairs = []
        for sign in (1.0, -1.0):
            i = np.argmin(np.where((y == sign) & (a < upper), g, np.inf))
            j = np.argmax(np.where((y == sign) & (a > 0), g, -np.inf))
            pairs.append((g[j] - g[i] if a[i] < upper[i] and a[j] > 0 else 0.0, i, j))
        worst, i, j = max(pairs)
        if worst <= tol:
            return a
        t = min(worst / max(Q[i, i] + Q[j, j] - 2 * Q[i, j], 1e-12), upper[i] - a[i], a[j])
        a[i], a[j] = (upper[i] if t == upper[i] - a[i] else a[i] + t), (0.0 if t == a[j] else a[j] - t)
        g += t * (Q[i] - Q[j])
    raise AssertionError(f"the twin did not converge: {worst:.1e}")


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


def merge_weight(m, kappa) -> float:
    """h of z = h p + (1-h) q that keeps most of m phi(p) + (1-m) phi(q): the best of a grid, then golden section."""
    kept = lambda h: m * kappa ** ((1 - h) ** 2) + (1 - m) * kappa ** (h**2)  # noqa: E731
    grid = np.linspace(0, 1, 201)
    best = grid[np.argmax(kept(grid))]
    low, high = max(best - 0.005, 0), min(best + 0.005, 1)
    golden = (5**0.5 - 1) / 2
    while high - low > 1e-12:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (left, high) if kept(left) < kept(right) else (low, right)
    return (low + high) / 2


class BSGD:
    """Budgeted SGD on vectors, step by step: coefficients as they are, kernels anew for every row."""

    def __init__(self, kernel, columns, lam, budget, merge, strategy, *, bias=False, merge_all=False):
        self.kernel, self.lam, self.budget, self.merge, self.strategy = kernel, lam, budget, merge, strategy
        self.S, self.A, self.mean = np.empty((0, 0)), np.zeros((0, columns)), np.zeros((0, columns))
        self.b, self.mean_b, self.use_bias = np.zeros(columns), np.zeros(columns), bias
        self.t, self.lost = 0, 0.0
        self.epsilon, self.nu, self.first, self.loss = 0.0, 0.0, 0.0, "hinge"
        self.used = np.zeros(0, int)  # of the strategy "lru"
        self.merge_all = merge_all

    def learn(self, x, y, weight=1.0) -> np.ndarray:
        """Decision values (columns,) before the step."""
        x = x.astype(np.float64)
        K = kernel_matrix(self.kernel, self.S, x[None])[:, 0] if len(self.S) else np.zeros(0)
        f = K @ self.A + self.b
        if len(K) and self.strategy == "lru":
            self.used[K.max() - K <= 1e-4 * abs(K.max())] = self.t
        self.t += 1
        t = self.t + self.first
        eta, shrink = 1 / (self.lam * t), 1 - 1 / t
        self.A = self.A * shrink
        if self.loss == "support":  # b = -rho, not regularised
            step = eta * weight * ((f < 0) | (self.t == 1))
            self.b = np.minimum(self.b + step - eta * weight * self.nu, 0)
        else:
            step = getattr(self, f"_{self.loss}")(x, y, f, eta * weight)
            self.b = self.b * shrink + step * self.use_bias
        if step.any():
            self.S = np.vstack([self.S, x]) if len(self.S) else x[None]
            self.A, self.mean = np.vstack([self.A, step]), np.vstack([self.mean, 0 * step])
            self.used = np.append(self.used, self.t - 1)
            if len(self.S) > self.budget:
                self._maintain()
        share = 2 * t / (self.t * (self.t + 1 + 2 * self.first))
        self.mean = self.mean + (self.A - self.mean) * share
        self.mean_b = self.mean_b + (self.b - self.mean_b) * share
        return f

    def _hinge(self, x, y, f, eta) -> np.ndarray:
        return np.where(y * f < 1, y * eta, 0)

    def _logistic(self, x, y, f, eta) -> np.ndarray:
        """Steps below a half of eta are that or nothing, by a number that belongs to the step (splitmix64)."""
        z, most = self.t * 0x9E3779B97F4A7C15, 1 << 64
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            z %= most
            z = (z ^ (z >> shift)) * factor
        chance = (z % most >> 11) / 2**53
        size = 1 / (1 + np.exp(y * f))
        return y * eta * np.where(size >= 0.5, size, 0.5 * (0.5 * chance < size))

    def _epsilon(self, x, y, f, eta) -> np.ndarray:
        """The step that ends where the loss does: f moves by step times K(x, x), and 1 of a bias."""
        own = kernel_matrix(self.kernel, x[None], x[None])[0, 0] + self.use_bias
        return np.clip(y - f - np.clip(y - f, -self.epsilon, self.epsilon), -eta * own, eta * own) / own

    def _maintain(self) -> None:
        K = kernel_matrix(self.kernel, self.S, self.S)
        before = np.trace(self.A.T @ K @ self.A)
        sizes = np.linalg.norm(self.A, axis=1)
        sizes_of = {"forget": np.arange(len(sizes)), "lru": self.used}  # they are in order of age
        p = int(np.argmin(sizes_of.get(self.strategy, sizes)))
        rest = np.delete(np.arange(len(sizes)), p)
        if self.strategy in ("sequence", "gradient"):
            bearable = np.inf if self.merge_all else np.sort(sizes)[1] ** 2
            ids, S, A, mean = self._merged([p, *self._partners(K, sizes, p)], bearable)
            rest = np.setdiff1d(np.arange(len(sizes)), ids)
        else:
            S, A, mean, self.used = self.S[rest], self.A[rest], self.mean[rest], self.used[rest]
            if self.strategy == "project":
                ridge = 1e-4 * np.trace(K) / len(K) * np.eye(len(rest))
                beta = np.linalg.solve(K[np.ix_(rest, rest)] + ridge, K[rest, p])[:, None]
                A, mean = A + beta * self.A[p], mean + beta * self.mean[p]
        if self.strategy in ("sequence", "gradient"):
            S = np.vstack([self.S[rest], S])  # in order of age: the oldest of equals goes first
            A, mean = np.vstack([self.A[rest], A]), np.vstack([self.mean[rest], mean])
        cross = kernel_matrix(self.kernel, self.S, S)
        after = np.trace(A.T @ kernel_matrix(self.kernel, S, S) @ A)
        self.lost += before + after - 2 * np.trace(self.A.T @ cross @ A)
        self.S, self.A, self.mean = S, A, mean

    def _partners(self, K, sizes, p) -> list[int]:
        lost = {}
        for j in range(len(sizes)):
            if j != p and self.A[p] @ self.A[j] > 1e-9 * sizes[p] * sizes[j]:
                h = merge_weight(sizes[p] / (sizes[p] + sizes[j]), K[p, j])
                z = self.A[p] * K[p, j] ** ((1 - h) ** 2) + self.A[j] * K[p, j] ** (h**2)
                lost[j] = sizes[p] ** 2 + sizes[j] ** 2 + 2 * K[p, j] * self.A[p] @ self.A[j] - z @ z
        return sorted(lost, key=lost.__getitem__)[: self.merge - 1]

    def _merged(self, ids, bearable) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
        z, a, used = self.S[ids[0]], self.A[ids[0]], ids[:1]
        for q in ids[1:]:
            s, other = self.S[q], self.A[q]
            kappa = kernel_matrix(self.kernel, z[None], s[None])[0, 0]
            h = merge_weight(np.linalg.norm(a) / (np.linalg.norm(a) + np.linalg.norm(other)), kappa)
            both = a * kappa ** ((1 - h) ** 2) + other * kappa ** (h**2)
            if len(used) > 1 and a @ a + other @ other + 2 * kappa * a @ other - both @ both > bearable:
                break
            z, a, used = h * z + (1 - h) * s, both, [*used, q]
        S, A = self.S[used], self.A[used]
        if self.strategy == "gradient":
            kept = lambda z: -np.sum((kernel_matrix(self.kernel, z[None], S) @ A) ** 2)  # noqa: E731
            weights = np.maximum(A @ A.sum(axis=0), 0)
            z = minimize(kept, weights @ S / weights.sum(), tol=1e-14).x
        k = kernel_matrix(self.kernel, z[None], S)
        return used, z[None], k @ A, k @ self.mean[used]


def hinge_risk(X, Y, upper, w) -> tuple[float, np.ndarray]:
    """sum_i upper_i max(0, 1 - y_i w'x_i) of one column of signs Y (n,), and a subgradient."""
    margin = 1 - Y * (X @ w)
    return float(upper @ np.maximum(margin, 0)), -X.T @ (upper * Y * (margin > 0))


def epsilon_risk(X, t, upper, epsilon, w) -> tuple[float, np.ndarray]:
    """sum_i upper_i max(0, |t_i - w'x_i| - epsilon), and a slope."""
    off = X @ w - t
    value = float(upper @ np.maximum(0, np.abs(off) - epsilon))
    return value, X.T @ (upper * (np.sign(off) * (np.abs(off) > epsilon)))


def one_class_primal(X, weight, nu, w, rho) -> float:
    """1/2 |w|^2 - rho nu sum weight + sum_i weight_i max(0, rho - w'x_i)."""
    return 0.5 * w @ w - rho * nu * weight.sum() + float(weight @ np.maximum(0, rho - X @ w))


def pairs_of(ranks, groups) -> np.ndarray:
    """(n, n) bool: row i above row j in one group."""
    return (ranks[:, None] > ranks) & (groups[:, None] == groups)


def pair_risk(X, ranks, groups, weight, C, w) -> tuple[float, np.ndarray]:
    """C sum(v) times the weighted mean over pairs of max(0, 1 - w'(x_i - x_j)), and a subgradient."""
    f = X @ w
    W = np.outer(weight, weight) * pairs_of(ranks, groups)
    margin = 1 - (f[:, None] - f)
    active = W * (margin > 0)
    scale = C * weight.sum() / W.sum()
    return scale * float(np.sum(W * np.maximum(margin, 0))), scale * X.T @ (active.sum(0) - active.sum(1))


def linear_svm(D, upper) -> float:
    """The least of 1/2 |w|^2 + sum_i upper_i max(0, 1 - d_i'w), by its dual: rows D (n, d) carry their signs."""
    Q = D @ D.T
    return -dual_objective(Q, solve_dual(Q + 1e-12 * np.eye(len(Q)), upper))


def most_violated_by_rows(X, y, w) -> tuple[np.ndarray, float]:
    """a and b of the constraint a'w >= b - xi of OP2 that is violated most at w (Joachims 2006, algorithm 1, lines 5 to
    7). y (n,): -1 and +1."""
    c = y * (X @ w) < 1
    return (c * y) @ X / len(y), float(np.mean(c))


def most_violated_by_pairs(X, ranks, w) -> tuple[np.ndarray, float]:
    """The same of OP5, without listing pairs: lines 5 to 23 of algorithm 2 as they are printed. ranks: 1 to R."""
    f = X @ w
    order = np.argsort(-f, kind="stable")
    f, y, n = f[order], ranks[order], len(ranks)
    above, below = np.zeros(n), np.zeros(n)  # c+ and c-
    for r in range(2, ranks.max() + 1):
        n_r, i, j, a, b = np.count_nonzero(y == r), 0, 0, 0, 0
        while i < n:
            if y[i] == r:
                while j < n and f[i] - f[j] < 1:
                    if y[j] < r:
                        b += 1
                        below[j] += n_r - a
                    j += 1
                a += 1
                above[i] += b
            i += 1
    m = np.count_nonzero(ranks[:, None] > ranks)
    return (above - below) @ X[order] / m, float(above.sum() + below.sum()) / (2 * m)


def cutting_planes(most_violated, d, C, epsilon) -> tuple[np.ndarray, float, float, int]:
    """Algorithms 1 and 2 of Joachims 2006, in the paper's C: w, its slack xi, the slack that all constraints need, and
    the number of iterations."""
    A, b = np.empty((0, d)), np.empty(0)
    while True:
        w = A.T @ _multipliers(A @ A.T, b, C)
        xi = max(0.0, float(np.max(b - A @ w, initial=0.0)))
        a, offset = most_violated(w)
        A, b = np.vstack([A, a]), np.append(b, offset)
        if offset - a @ w <= xi + epsilon:
            return w, xi, float(offset - a @ w), len(b)


def _multipliers(H, b, C) -> np.ndarray:
    """argmax of b'a - 1/2 a'Ha over a >= 0, sum a <= C, by steps of two variables; the first one stands for the
    constraint xi >= 0."""
    H, b = np.pad(H, (1, 0)), np.append(0.0, b)
    a = np.where(np.arange(len(b)) == 0, C, 0.0)
    while True:
        g = H @ a - b
        up, down = int(np.argmin(g)), int(np.argmax(np.where(a > 0, g, -np.inf)))
        if g[down] - g[up] <= 1e-9:
            return a[1:]
        curvature = max(H[up, up] + H[down, down] - 2 * H[up, down], 1e-300)
        step = min(a[down], (g[down] - g[up]) / curvature)
        a[up], a[down] = a[up] + step, a[down] - step
