"""Experts' probabilities as one: a log-linear pool, whose weights are learned as events come.

p(y | x) is proportional to prod_e p_e(y | x)^v_e (Genest and Zidek 1986). v begins at 1 / E, and takes AdaGrad steps on
the log loss that forget: about 1,000 events count. Weights may be negative, down to -1: an expert may show where
another one is too sure.

The pool watches itself, too: its recent share of errors rises above its long-term share only if the stream has
changed, or at random (a chart of exponentially weighted means: Ross, Adams, Tasoulis and Hand 2012)."""

from __future__ import annotations

import numpy as np

from streamsvm.private.numba import borrowed, njit, njit_inner
from streamsvm.storage.arrays import InArrays

RATE = 0.1
FORGET = 0.999  # of squared gradients and of losses, an event
LEAST = -1.0  # weight
SUREST = 1e-3  # least probability that an expert is taken to say
TINY = 1e-12  # of the pool
LATE, LONG = 50, 2000  # events that count of late, and for a long time
ALARM = 3.5  # standard deviations
SOONEST = 200  # events before an alarm
LOOK = 16  # events from one look for an alarm to the next
DUEL = 0.998  # of the sum of losses by which two pools are compared, an event

ROWS, ERRORS, RECENT_ERRORS, LOSS = range(4)  # of what is watched


class Pool(InArrays):
    """v, G: weights of experts and sums of their squared gradients; losses: running sums of -log p_e; watched: ROWS
    and what follows."""

    ARRAYS = ("v", "G", "losses", "watched")

    def __init__(self, experts: int) -> None:
        self.v, self.G, self.losses = np.full(experts, 1 / experts), np.ones(experts), np.zeros(experts)
        self.watched = np.zeros(4)

    def decide(self, D: np.ndarray, shared: int) -> np.ndarray:
        """(m, columns) logarithms of the pool's odds of each class against the rest, for two classes of the second. D
        (experts, m, columns): theirs, of which the first `shared` are scores of a softmax."""
        out = np.empty(D.shape[1:])
        decide(D, shared, self.v, out)
        return out

    def learn(self, D: np.ndarray, shared: int, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step for each row, in order, up to one where it is alarmed; `decide` of each of these before its step."""
        out = np.empty(D.shape[1:])
        return out[: learn(D, shared, (self.v, self.G, self.losses, self.watched), codes, weight, out)]

    def slopes(self, D: np.ndarray, shared: int, column: int) -> np.ndarray:
        """(experts, m, columns) derivatives by D of this column of `decide`."""
        out = np.empty(D.shape)
        slopes(D, shared, self.v, column, out)
        return out

    @property
    def n(self) -> int:
        """Rows learned."""
        return int(self.watched[ROWS])

    @property
    def loss(self) -> float:
        """-log p, summed over its events, or those since `count_anew`; about the last 500 count."""
        return float(self.watched[LOSS])

    def count_anew(self) -> None:
        self.watched[LOSS] = 0

    @property
    def is_alarmed(self) -> bool:
        """Whether it has been wrong more often of late than chance explains, looked at every `LOOK` events."""
        return bool(is_alarmed(self.watched))

    def drop(self, expert: int) -> None:
        for name in ("v", "G", "losses"):
            setattr(self, name, np.delete(getattr(self, name), expert))


@njit(cache=True)
def decide(D, shared, v, out):
    L, p = np.empty((len(D), max(2, D.shape[2]))), np.empty(max(2, D.shape[2]))
    for i in range(D.shape[1]):
        decide_row(D, i, shared, v, (L, p), out[i])


@njit(cache=True)
def slopes(D, shared, v, column, out):
    columns = D.shape[2]
    L, p, up = np.empty((len(D), max(2, columns))), np.empty(max(2, columns)), np.empty(max(2, columns))
    k = 1 if columns == 1 else column  # the class
    for i in range(D.shape[1]):
        _pool(D, i, shared, v, L, p)
        for e in range(len(D)):
            for c in range(len(p)):  # of log p_k - log(1 - p_k) by log p_e
                up[c] = v[e] if c == k else -v[e] * p[c] / max(1 - p[k], TINY)
                if L[e, c] <= np.log(SUREST):
                    up[c] = 0
            _slopes_of_logs(D[e, i], e < shared, up, out[e, i])


@njit(cache=True)
def is_alarmed(watched):
    n, errors, recent = watched[ROWS], watched[ERRORS], watched[RECENT_ERRORS]
    if n < SOONEST or n % LOOK:
        return False
    spread = (errors * (1 - errors) + 1 / LONG) / (2 * LATE - 1)
    return recent - errors > ALARM * np.sqrt(spread)


@njit(cache=True)
def learn(D, shared, state, codes, weight, out):
    D, state, out = borrowed(D), borrowed(state), borrowed(out)
    pooled = np.empty((len(D), max(2, D.shape[2]))), np.empty(max(2, D.shape[2]))
    for i in range(D.shape[1]):
        decide_row(D, i, shared, state[0], pooled, out[i])
        learn_row(pooled, state, codes[i], weight[i])
        if is_alarmed(state[3]):
            return i + 1
    return D.shape[1]


@njit_inner()
def decide_row(D, i, shared, v, pooled, out):
    """Fills out (columns,) with the decision for row i, and `pooled` for `learn_row`: see `_pool`."""
    L, p = pooled
    _pool(D, i, shared, v, L, p)
    _odds(p, out)


@njit_inner()
def learn_row(pooled, state, code, weight):
    """The step of a row after `decide_row`."""
    (L, p), (v, G, losses, watched) = pooled, state
    _watch(watched, p, code)
    for e in range(len(L)):
        gradient = -L[e, code]
        losses[e] = FORGET * losses[e] + gradient
        for c in range(len(p)):
            gradient += p[c] * L[e, c]
        gradient *= weight
        G[e] = FORGET * G[e] + gradient * gradient
        v[e] = max(v[e] - RATE * gradient / np.sqrt(G[e]), LEAST)


@njit_inner()
def _watch(watched, p, code):
    watched[ROWS] += 1
    n, wrong = watched[ROWS], 0.0 if np.argmax(p) == code else 1.0
    watched[ERRORS] += (wrong - watched[ERRORS]) / min(n, LONG)
    watched[RECENT_ERRORS] += (wrong - watched[RECENT_ERRORS]) / min(n, LATE)
    watched[LOSS] = DUEL * watched[LOSS] - np.log(max(p[code], SUREST))


@njit_inner()
def _pool(D, i, shared, v, L, p):
    """Fills L (experts, classes), logarithms of each expert's probabilities for row i, and p (classes,), those of the
    pool."""
    p[:] = 0
    for e in range(len(D)):
        _logs(D[e, i], e < shared, L[e])
        for c in range(len(p)):
            p[c] += v[e] * L[e, c]
    top, total = p.max(), 0.0
    for c in range(len(p)):
        p[c] = np.exp(p[c] - top)
        total += p[c]
    for c in range(len(p)):
        p[c] /= total


@njit_inner()
def _logs(f, is_shared, out):
    """Logarithms of the probabilities that decisions f (columns,) stand for."""
    if len(f) == 1:
        rest = np.log1p(np.exp(-abs(f[0])))
        out[0], out[1] = -(max(f[0], 0.0) + rest), -(max(-f[0], 0.0) + rest)
    else:
        top, total = -np.inf, 0.0
        for c in range(len(f)):
            out[c] = f[c] if is_shared else -_log_one_plus_exp(-f[c])
            top = max(top, out[c])
        for c in range(len(f)):
            total += np.exp(out[c] - top)
        for c in range(len(f)):
            out[c] -= top + np.log(total)
    for c in range(len(out)):
        out[c] = max(out[c], np.log(SUREST))


@njit_inner()
def _slopes_of_logs(f, is_shared, up, out):
    """Derivatives by f of sum_c up_c log p_c, of what `_logs` says where it is not the least."""
    if len(f) == 1:
        p = np.exp(-_log_one_plus_exp(-f[0]))
        out[0] = up[1] * (1 - p) - up[0] * p
        return
    h = np.empty(len(f))
    for c in range(len(f)):
        h[c] = f[c] if is_shared else -_log_one_plus_exp(-f[c])
    share = np.exp(h - h.max())
    share /= share.sum()
    for c in range(len(f)):
        out[c] = up[c] - up.sum() * share[c]
        if not is_shared:
            out[c] *= 1 - np.exp(h[c])


@njit_inner()
def _log_one_plus_exp(x):
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@njit_inner()
def _odds(p, out):
    for c in range(len(out)):
        p_c = min(max(p[1 if len(out) == 1 else c], TINY), 1 - TINY)
        out[c] = np.log(p_c / (1 - p_c))
