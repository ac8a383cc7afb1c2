"""Additive logistic regression, one row at a time: a function of each column, with several step sizes at once.

Minimises the log loss of p = softmax(f(z)), for two classes of f beside 0, with

    f_c(z) = b_c + sum_j (w_cj z_j + h_cj(z_j)),

h piecewise linear on grids of 5, 17 and 65 knots in -3..3: what an additive kernel can learn (Maji, Berg and Malik
2013), at a cost that knows no support vectors. Each coefficient has a step of its own, rate / sqrt(sum of its squared
gradients) (AdaGrad: Duchi, Hazan and Singer 2011). An entry that is 0 moves nothing.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from streamsvm.storage.arrays import InArrays

TRACKS = (
    (0.1, False),
    (0.1, True),
    (0.5, True),
)  # step size, and whether columns are curved; straight ones first
GRIDS = (5, 17, 65)  # knots
KNOTS = sum(GRIDS)
END = 3.0  # of the grids
LARGEST = 5.0  # entry that w meets
DAMPING = 1e-2  # of the steps: no first gradient is trusted
MOST_CURVED = 128  # columns, the first ones

RATES = np.array([rate for rate, _ in TRACKS])
CURVED = sum(is_curved for _, is_curved in TRACKS)


class AdditiveLearner(InArrays):
    """The coefficients of all tracks; it learns in place. Learning from a restored state is bitwise the same.

    W (tracks, 1 + d, columns) of constants and columns, V (curved tracks, knots of all columns, columns); G and Q, sums
    of their squared gradients.
    """

    ARRAYS = ("W", "G", "V", "Q")

    def __init__(self, d: int, columns: int) -> None:
        self.W = np.zeros((len(TRACKS), 1 + d, columns))
        self.V = np.zeros((CURVED, KNOTS * min(d, MOST_CURVED), columns))
        self.G, self.Q = np.zeros_like(self.W), np.zeros_like(self.V)

    def decide(self, Z: np.ndarray) -> np.ndarray:
        """(tracks, m, columns) f of rows Z (m, d) float32."""
        D = np.empty((len(TRACKS), len(Z), self.W.shape[2]))
        decide(Z, self.W, self.V, D)
        return D

    def learn(self, Z: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step for each row, in order; `decide` of each before its step. weight (m,): of each row's loss."""
        D = np.empty((len(TRACKS), len(Z), self.W.shape[2]))
        learn(Z, (self.W, self.G, self.V, self.Q), codes, weight, D)
        return D

    def room(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For one row: its knots, their shares, and f (tracks, columns)."""
        size = 2 * self.V.shape[1]
        return np.empty(size, np.int64), np.empty(size), np.empty((len(TRACKS), self.W.shape[2]))

    def widen(self, d: int) -> None:
        """Room for d columns."""
        more = 1 + d - self.W.shape[1]
        curved = KNOTS * min(d, MOST_CURVED) - self.V.shape[1]
        self.W, self.G = (np.pad(array, ((0, 0), (0, more), (0, 0))) for array in (self.W, self.G))
        self.V, self.Q = (np.pad(array, ((0, 0), (0, curved), (0, 0))) for array in (self.V, self.Q))

    def add_column(self) -> None:
        """One more class; the third one turns the single column into one for each class."""
        single = self.W.shape[2] == 1
        for name in self.ARRAYS:
            array = getattr(self, name)
            if single:
                array = np.concatenate([-array / 2, array / 2] if name in "WV" else [array, array], axis=2)
            setattr(self, name, np.pad(array, ((0, 0), (0, 0), (0, 1))))


@nb.njit(nogil=True, fastmath=True)
def decide_row(z, W, V, at, share, f):
    """Fills f (tracks, columns), and which knots the row is between, with their shares; how many they are."""
    n = _knots(z, V.shape[1], at, share)
    f[:] = W[:, 0]
    for j in range(len(z)):
        if z[j] != 0:
            x = min(max(z[j], -LARGEST), LARGEST)
            for t in range(len(W)):
                for c in range(f.shape[1]):
                    f[t, c] += W[t, 1 + j, c] * x
    for t in range(len(V)):
        for q in range(n):
            for c in range(f.shape[1]):
                f[len(W) - len(V) + t, c] += V[t, at[q], c] * share[q]
    return n


@nb.njit(nogil=True, fastmath=True)
def _knots(z, size, at, share):
    n = 0
    for j in range(min(len(z), size // KNOTS)):
        if z[j] == 0:
            continue
        unit, start = (min(max(z[j], -END), END) + END) / (2 * END), j * KNOTS
        for knots in GRIDS:
            place = unit * (knots - 1)
            low = min(int(place), knots - 2)
            at[n], at[n + 1] = start + low, start + low + 1
            share[n], share[n + 1] = 1 - (place - low), place - low
            n += 2
            start += knots
    return n


@nb.njit(nogil=True, cache=True, fastmath=True)
def decide(Z, W, V, D):
    at, share = np.empty(2 * V.shape[1], np.int64), np.empty(2 * V.shape[1])
    f = np.empty((len(W), W.shape[2]))
    for i in range(len(Z)):
        decide_row(Z[i], W, V, at, share, f)
        D[:, i] = f


@nb.njit(nogil=True, cache=True, fastmath=True)
def learn(Z, coefficients, codes, weight, D):
    W, V = coefficients[0], coefficients[2]
    at, share = np.empty(2 * V.shape[1], np.int64), np.empty(2 * V.shape[1])
    f = np.empty((len(W), W.shape[2]))
    for i in range(len(Z)):
        n = decide_row(Z[i], W, V, at, share, f)
        D[:, i] = f
        learn_row(Z[i], coefficients, codes[i], weight[i], at[:n], share[:n], f)


@nb.njit(nogil=True, fastmath=True)
def learn_row(z, coefficients, code, weight, at, share, f):
    """The step of a row that `decide_row` has decided. coefficients: W, G, V and Q."""
    W, G, V, Q = coefficients
    tracks, columns = f.shape
    first = tracks - len(V)
    g = np.empty(columns)
    for t in range(tracks):
        _gradient(f[t], code, weight, g)
        for c in range(columns):
            W[t, 0, c] -= _step(G, t, 0, c, g[c], RATES[t])
        for j in range(len(z)):
            if z[j] != 0:
                x = min(max(z[j], -LARGEST), LARGEST)
                for c in range(columns):
                    W[t, 1 + j, c] -= _step(G, t, 1 + j, c, g[c] * x, RATES[t])
        if t >= first:
            for q in range(len(at)):
                for c in range(columns):
                    V[t - first, at[q], c] -= _step(Q, t - first, at[q], c, g[c] * share[q], RATES[t])


@nb.njit(nogil=True, fastmath=True)
def _gradient(f, code, weight, g):
    """Of the weighted log loss, by f (columns,)."""
    if len(f) == 1:
        g[0] = weight * (1 / (1 + np.exp(-min(max(f[0], -500.0), 500.0))) - code)
        return
    top, total = f.max(), 0.0
    for c in range(len(f)):
        g[c] = np.exp(f[c] - top)
        total += g[c]
    for c in range(len(f)):
        g[c] = weight * (g[c] / total - (1.0 if c == code else 0.0))


@nb.njit(nogil=True, fastmath=True)
def _step(sums, t, r, c, gradient, rate):
    sums[t, r, c] += gradient * gradient
    return rate * gradient / np.sqrt(sums[t, r, c] + DAMPING)
