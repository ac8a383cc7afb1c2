"""Additive logistic regression, one row at a time: a function of each column, with several step sizes at once.

Minimises the log loss of p = softmax(f(z)), for two classes of f and 0, with

    f_c(z) = b_c + sum_j (w_cj z_j + h_cj(z_j)),

h piecewise linear on grids of 5, 17 and 65 knots in -3..3: what an additive kernel can learn (Maji, Berg and Malik
2013), at a cost that does not depend on support vectors. Each coefficient has its own step, rate / sqrt(sum of its
squared gradients) (AdaGrad: Duchi, Hazan and Singer 2011). An entry that is 0 moves nothing.

All is float32: a step's root and quotient are most of the cost of a row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.private.numba import borrowed, njit, njit_inner
from streamsvm.storage.arrays import InArrays, arrays_of

TRACKS = ((0.1, False), (0.1, True), (0.5, True))  # step size, and whether columns are curved; straight ones first
GRIDS = (5, 17, 65)  # knots
KNOTS = sum(GRIDS)
END = 3.0  # of the grids
LARGEST = 5.0  # entry that the linear part sees: larger ones are clipped
DAMPING = 1e-2  # of the steps: no first gradient is trusted
MOST_CURVED = 128  # columns, the first ones

RATES = np.array([rate for rate, _ in TRACKS], np.float32)
CURVED = sum(is_curved for _, is_curved in TRACKS)


class AdditiveRow(NamedTuple):
    """Intermediate values of a row, filled by `decide_row` for `learn_row`; compiled code takes it as a plain tuple."""

    x: np.ndarray  # (1 + d,) a constant, and the entries
    at: np.ndarray  # knots that its entries are next to: rows of V
    share: np.ndarray  # of each, how near
    n_near: np.ndarray  # (1,) how many knots that are
    f: np.ndarray  # (tracks, columns)
    slope: np.ndarray  # (columns,) of the loss, by f


class AdditiveLearner(InArrays):
    """The coefficients of all tracks; it learns in place. Learning from a restored state is bitwise the same. W
    (tracks, 1 + d, columns) of constants and columns, V (curved tracks, knots of all columns, columns); G and Q, sums
    of their squared gradients."""

    ARRAYS = ("W", "G", "V", "Q")

    def __init__(self, d: int, columns: int) -> None:
        self.W = np.zeros((len(TRACKS), 1 + d, columns), np.float32)
        self.V = np.zeros((CURVED, KNOTS * min(d, MOST_CURVED), columns), np.float32)
        self.G, self.Q = np.zeros_like(self.W), np.zeros_like(self.V)

    def decide(self, Z: np.ndarray) -> np.ndarray:
        """(tracks, m, columns) f of rows Z (m, d) float32."""
        D = np.empty((len(TRACKS), len(Z), self.W.shape[2]))
        decide(Z, arrays_of(self), self.row(), D)
        return D

    def learn(self, Z: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step for each row, in order; `decide` of each before its step. weight (m,): of each row's loss."""
        D = np.empty((len(TRACKS), len(Z), self.W.shape[2]))
        learn(Z, arrays_of(self), self.row(), codes, weight, D)
        return D

    def curves(self) -> np.ndarray:
        """(tracks, curved columns, GRIDS[-1], columns) float64 h at the knots of the finest grid, which has those of
        the others: it is linear between these. Entries that are 0 add nothing instead."""
        ends = np.cumsum((0, *GRIDS))
        V = self.V.reshape(CURVED, -1, KNOTS, self.V.shape[2]).astype(np.float64)
        H = np.zeros((len(TRACKS), V.shape[1], GRIDS[-1], V.shape[3]))
        for start, stop in zip(ends, ends[1:], strict=False):
            to_finest = hats(np.linspace(0, 1, GRIDS[-1]), stop - start)
            H[len(TRACKS) - CURVED :] += np.einsum("gk,tjkc->tjgc", to_finest, V[:, :, start:stop])
        return H

    def gradients(self, Z: np.ndarray, S: np.ndarray) -> np.ndarray:
        """(m, d) derivatives by Z (m, d) of sum_tc S_tic f_tc, S (tracks, m, columns)."""
        out = np.einsum("tmc,tjc->mj", S, self.W[:, 1:].astype(np.float64)) * (np.abs(Z) < LARGEST)
        rises = np.diff(self.curves(), axis=2) * (GRIDS[-1] - 1) / (2 * END)
        for j in range(rises.shape[1]):
            place = (np.clip(Z[:, j], -END, END) + END) / (2 * END) * (GRIDS[-1] - 1)
            at = np.minimum(place.astype(np.intp), GRIDS[-1] - 2)
            is_curved = (Z[:, j] != 0) & (np.abs(Z[:, j]) < END)
            out[:, j] += is_curved * np.einsum("tmc,tmc->m", S, rises[:, j, at])
        return out

    def row(self) -> tuple[np.ndarray, ...]:
        """Space for an `AdditiveRow`."""
        _, width, columns = self.W.shape
        near = 2 * len(GRIDS) * (self.V.shape[1] // KNOTS)
        x, f, slope = np.ones(width, np.float32), np.empty((len(TRACKS), columns)), np.empty(columns)
        at, share, n_near = np.empty(near, np.int64), np.empty(near, np.float32), np.zeros(1, np.int64)
        return tuple(AdditiveRow(x, at, share, n_near, f, slope))

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


def hats(unit: np.ndarray, knots: int) -> np.ndarray:
    """(m, knots) how near numbers (m,) in 0..1 are to each of so many knots: 1 at it, 0 from the next ones on."""
    return np.maximum(1 - np.abs(unit[:, None] * (knots - 1) - np.arange(knots)), 0)


@njit_inner(fastmath=True, error_model="numpy")
def decide_row(z, coefficients, row):
    """The decisions row.f of the tracks for z (d,) float32. coefficients: W, G, V and Q."""
    W, _, V, _ = coefficients
    r, largest = AdditiveRow(*row), np.float32(LARGEST)
    for j in range(len(z)):
        r.x[1 + j] = min(max(z[j], -largest), largest)
    n = r.n_near[0] = _knots(z, V.shape[1], r.at, r.share)
    for t in range(len(W)):
        _add_products(W[t], r.x, r.f[t])
    for t in range(len(V)):
        _add_values(V[t], r.at[:n], r.share, r.f[len(W) - len(V) + t])


@njit_inner(fastmath=True, error_model="numpy")
def _add_products(W, x, f):  # f = W'x
    if len(f) == 1:
        w, total = W.ravel(), np.float32(0)
        for j in range(len(x)):
            total += w[j] * x[j]
        f[0] = total
        return
    f[:] = 0
    for j in range(len(x)):
        w = W[j]
        for c in range(len(f)):
            f[c] += w[c] * x[j]


@njit_inner(fastmath=True, error_model="numpy")
def _add_values(V, at, share, f):
    if len(f) == 1:
        v, total = V.ravel(), np.float32(0)
        for q in range(len(at)):
            total += v[at[q]] * share[q]
        f[0] += total
        return
    for q in range(len(at)):
        for c in range(len(f)):
            f[c] += V[at[q], c] * share[q]


@njit_inner(fastmath=True, error_model="numpy")
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


@njit_inner()
def _write(f, out):  # a loop: assigning a whole array takes numba two seconds more to compile
    for t in range(len(f)):
        for c in range(f.shape[1]):
            out[t, c] = f[t, c]


@njit(cache=True, fastmath=True, error_model="numpy")
def decide(Z, coefficients, row, D):
    for i in range(len(Z)):
        decide_row(Z[i], coefficients, row)
        _write(AdditiveRow(*row).f, D[:, i])


@njit(cache=True, fastmath=True, error_model="numpy")
def learn(Z, coefficients, row, codes, weight, D):
    Z, coefficients, row, D = borrowed(Z), borrowed(coefficients), borrowed(row), borrowed(D)
    for i in range(len(Z)):
        decide_row(Z[i], coefficients, row)
        _write(AdditiveRow(*row).f, D[:, i])
        learn_row(coefficients, row, codes[i], weight[i])


@njit_inner(fastmath=True, error_model="numpy")
def learn_row(coefficients, row, code, weight):
    """The step of a row after `decide_row`."""
    W, G, V, Q = coefficients
    r = AdditiveRow(*row)
    n, first = r.n_near[0], len(W) - len(V)
    for t in range(len(W)):
        _slope(r.f[t], code, weight, r.slope)
        _step(W[t], G[t], r.x, r.slope, RATES[t])
        if t >= first:
            _step_at(r.at[:n], V[t - first], Q[t - first], r.share, r.slope, RATES[t])


@njit_inner(fastmath=True, error_model="numpy")
def _slope(f, code, weight, g):
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


@njit_inner(fastmath=True, error_model="numpy")
def _step(W, sums, x, slope, rate):
    """One step of coefficients W (m, columns), whose gradient is x slope'."""
    damping = np.float32(DAMPING)
    if len(slope) == 1:  # one loop, which is vectorised
        w, squares, factor = W.ravel(), sums.ravel(), np.float32(slope[0])
        for i in range(len(x)):
            g = x[i] * factor
            squares[i] += g * g
            w[i] -= rate * g / np.sqrt(squares[i] + damping)
        return
    for i in range(len(x)):
        for c in range(len(slope)):
            g = x[i] * np.float32(slope[c])
            sums[i, c] += g * g
            W[i, c] -= rate * g / np.sqrt(sums[i, c] + damping)


@njit_inner(fastmath=True, error_model="numpy")
def _step_at(at, V, sums, share, slope, rate):
    """The same for rows `at` of V."""
    damping = np.float32(DAMPING)
    if len(slope) == 1:
        v, squares, factor = V.ravel(), sums.ravel(), np.float32(slope[0])
        for i in range(len(at)):
            g = share[i] * factor
            squares[at[i]] += g * g
            v[at[i]] -= rate * g / np.sqrt(squares[at[i]] + damping)
        return
    for i in range(len(at)):
        q = at[i]
        for c in range(len(slope)):
            g = share[i] * np.float32(slope[c])
            sums[q, c] += g * g
            V[q, c] -= rate * g / np.sqrt(sums[q, c] + damping)
