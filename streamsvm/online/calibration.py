"""Probabilities of a learner in a stream: a softmax over decision values, learned along with it."""

from __future__ import annotations

import numpy as np

from streamsvm.models.calibration import LARGEST_EXPONENT, Calibration, with_decisions
from streamsvm.online.kinds import State
from streamsvm.private.numba import njit, njit_inner

WIDE = 16  # classes up to which each one's probability sees all decisions: its cost grows with their cube
FORGET = 0.999  # of the curvature, an event: about 1,000 events count
FORGET_SCALE = 0.99
LARGEST_DECISION = 10.0  # in units of their size: the huge ones of first steps would freeze the curvature
OWN_CURVATURE, OTHER_CURVATURE = (3.0, 1.0)  # inverse curvature at first: of a class's own slope, and of all else
LONGEST = 1.0  # change of a coefficient by one event


class OnlineCalibration:
    """p = softmax(z), z_c = W_c'(f / s, 1), by Newton steps on the log loss of decisions f before their events.

    s, the running size of f, follows it down: steps of 1 / (lambda t) make decisions of thousands at first and of 1 in
    the end. For two classes z = (0, W'(u, 1)) with u = f / s bent to u / sqrt(1 + u^2): if labels are noise, no
    decision, however large, is sure. For up to 16 each z_c reads all decisions, as in matrix scaling (Guo, Pleiss, Sun
    and Weinberger 2017), for more its own. Each class has its own curvature matrix, which forgets (recursive least
    squares with a forgetting factor, Ljung and Soderstrom 1983), so that neither the first steps nor an older world are
    remembered for long. Memory is constant.

    Labels follow decisions: if other classes would be more probable than the class that wins by f, they share evenly
    with it. So probabilities never contradict the label, and labels do not wait until probabilities are learned."""

    def __init__(self) -> None:
        self.W = np.empty((0, 2))  # (columns, q), the last one a constant
        self.P = np.empty((0, 2, 2))  # inverse curvatures
        self.running = np.zeros(2)  # mean square of decisions, and the weight it stands for

    def __call__(self, decisions: np.ndarray, class_weight: np.ndarray | None = None) -> np.ndarray:
        """(m, classes) probabilities of decisions (m, columns). class_weight (classes,): if classes have weights,
        labels follow decisions, and probabilities do not: they are those of the events as they are."""
        self._grow(decisions.shape[1])
        p = np.empty((len(decisions), max(2, decisions.shape[1])))
        _predict(self.W, self.running, decisions, p)
        return with_decisions(p, decisions) if class_weight is None else p

    def learn_one(self, decisions: np.ndarray, code: int) -> None:
        """The same for one event with decisions (columns,)."""
        self.learn(decisions[None], np.array([code]))

    def learn(self, decisions: np.ndarray, codes: np.ndarray) -> None:
        """Decisions (m, columns) of events before they were learned, in order, and their classes (m,)."""
        self._grow(decisions.shape[1])
        _learn(self.W, self.P, self.running, decisions, codes)

    def calibration(self, columns: int, class_weight: np.ndarray | None = None) -> Calibration:
        """The same probabilities as a calibration of a model."""
        self._grow(columns)
        size = np.full((columns, 1), _size(self.running))
        points, bounds = np.hstack([self.W, size]), np.arange(columns + 1)
        return Calibration("stream", points, bounds, by_decisions=class_weight is not None)

    def to_state(self) -> dict[str, object]:
        lower = np.tril_indices(self.P.shape[1])  # the rest is their mirror image
        return {"W": self.W.tolist(), "P": self.P[:, *lower].tolist(), "running": self.running.tolist()}

    @classmethod
    def from_state(cls, state: State | None) -> OnlineCalibration:
        """None, for models without one: it starts from scratch."""
        new = cls()
        if state and state["W"]:
            new.W, new.running = np.array(state["W"]), np.array(state["running"])
            columns, q = new.W.shape
            row, column = np.tril_indices(q)
            new.P = np.empty((columns, q, q))
            new.P[:, row, column] = new.P[:, column, row] = state["P"]
        return new

    def _grow(self, columns: int) -> None:
        """Makes room for so many columns: old ones keep their coefficients, new ones begin with the mean slope."""
        if len(self.W) == columns:
            return
        before, n_before = (self.W, self.P), len(self.W)
        slopes, offsets = self._slopes_and_offsets()
        more = columns - len(slopes)
        slope = float(np.mean(slopes)) if len(slopes) else 1.0
        q = columns + 1 if 2 < columns <= WIDE else 2
        own_column = np.arange(columns) if q > 2 else np.zeros(columns, int)
        self.W, self.P = np.zeros((columns, q)), np.zeros((columns, q, q))
        self.W[range(columns), own_column] = np.append(slopes, [slope] * more)
        self.W[:, -1] = np.append(offsets, [0.0] * more)
        self.P[:, range(q), range(q)] = OTHER_CURVATURE
        self.P[range(columns), own_column, own_column] = OWN_CURVATURE
        if n_before > 1 and (before[0].shape[1] > 2) == (q > 2):
            old = np.array([*range(before[0].shape[1] - 1), q - 1])
            self.W[:n_before, old] = before[0]
            self.P[:n_before, old[:, None], old] = before[1]

    def _slopes_and_offsets(self) -> tuple[np.ndarray, np.ndarray]:
        """Slope of its own decision, and offset, of each class; two classes share them by halves."""
        if len(self.W) == 1:
            [[slope, offset]] = self.W / 2
            return np.array([slope, slope]), np.array([-offset, offset])
        wide = self.W.shape[1] > 2
        return np.diagonal(self.W) if wide else self.W[:, 0], self.W[:, -1]


class LogOdds:
    """Probabilities of a logistic loss, whose decisions are logarithms of odds: nothing more is learned."""

    def __call__(self, decisions: np.ndarray, class_weight: np.ndarray | None = None) -> np.ndarray:
        """(m, classes), without the weights (classes,) with which the odds were learned."""
        p = np.empty((len(decisions), max(2, decisions.shape[1])))
        _of_odds(decisions, p)
        if class_weight is None:
            return p
        p /= class_weight
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def learn_one(self, decisions: np.ndarray, code: int) -> None: ...

    def learn(self, decisions: np.ndarray, codes: np.ndarray) -> None: ...

    def calibration(self, columns: int, class_weight: np.ndarray | None = None) -> Calibration:
        return Calibration.logistic(columns, class_weight)

    def to_state(self) -> None: ...


@njit(cache=True)
def _of_odds(decisions, p):  # as `Calibration.logistic` says
    columns = decisions.shape[1]
    first = p.shape[1] - columns
    for i in range(len(p)):
        total = 0.0
        for c in range(columns):
            f = min(max(decisions[i, c], -LARGEST_EXPONENT), LARGEST_EXPONENT)
            p[i, first + c] = 1 / (1 + np.exp(-f))
            total += p[i, first + c]
        if first:
            p[i, 0] = 1 - total
        else:
            p[i] /= total


@njit(cache=True)
def _size(running):
    return np.sqrt(running[0] / running[1]) if running[0] > 0 else 1.0


@njit_inner()
def _bent(u, columns):
    return u / np.sqrt(1 + u * u) if columns == 1 else u


@njit(cache=True)
def _predict(W, running, decisions, p):  # as the Calibration says, without its arrays
    columns, size = len(W), _size(running)
    u, z = np.empty(columns), np.empty(columns)
    for i in range(len(decisions)):
        for c in range(columns):
            u[c] = _bent(decisions[i, c] / size, columns)
        total, top = _scores(W, u, z)
        if columns == 1:
            p[i, 0] = np.exp(max(-top, -LARGEST_EXPONENT)) / total
            p[i, 1] = np.exp(max(z[0] - top, -LARGEST_EXPONENT)) / total
        else:
            for c in range(columns):
                p[i, c] = np.exp(max(z[c] - top, -LARGEST_EXPONENT)) / total


@njit(cache=True)
def _learn(W, P, running, decisions, codes):
    columns, q = W.shape
    u, z, x, g = np.empty(columns), np.empty(columns), np.empty(q), np.empty(q)
    x[q - 1] = 1
    for i in range(len(decisions)):
        size, square = _size(running), 0.0
        for c in range(columns):
            f = decisions[i, c]
            u[c] = min(max(_bent(f / size, columns), -LARGEST_DECISION), LARGEST_DECISION)
            square += f * f / columns
        if not np.isfinite(square):  # nothing to learn from, and NaN would stay for ever
            continue
        total, top = _scores(W, u, z)
        for c in range(columns):
            p = np.exp(z[c] - top) / total
            is_class = codes[i] == (1 if columns == 1 else c)
            for r in range(q - 1):
                x[r] = u[r] if q > 2 else u[c]
            _step(W[c], P[c], x, g, p, p - (1.0 if is_class else 0.0))
        running[0] = FORGET_SCALE * running[0] + (1 - FORGET_SCALE) * square
        running[1] = FORGET_SCALE * running[1] + (1 - FORGET_SCALE)


@njit_inner()
def _scores(W, u, z):  # fills z. Returns sum of exp(z - top), and top, the largest. One column: with a 0
    columns, q = W.shape
    single = columns == 1
    top = 0.0 if single else -np.inf
    for c in range(columns):
        z[c] = W[c, q - 1]
        if q == 2:
            z[c] += W[c, 0] * u[c]
        else:
            for r in range(columns):
                z[c] += W[c, r] * u[r]
        top = max(top, z[c])
    total = np.exp(-top) if single else 0.0
    for c in range(columns):
        total += np.exp(z[c] - top)
    return total, top


@njit_inner()
def _step(w, P, x, g, p, error):
    """One Newton step of a class's coefficients w on input x, and its curvature after it. P stays symmetric by
    construction: forgetting would let the rounding of two halves grow apart without end. It forgets only while its
    diagonal stays below 1 in the mean, so that directions that do not occur stay tame."""
    q, curvature, inside, trace = len(w), p * (1 - p), 0.0, 0.0
    for a in range(q):
        g[a] = 0.0
        for b in range(q):
            g[a] += P[a, b] * x[b]
        inside += x[a] * g[a]
        trace += P[a, a]
    keep = FORGET if trace < FORGET * q else 1.0
    share = curvature / (keep + curvature * inside)
    for a in range(q):
        step = error * g[a] * (1 - share * inside) / keep
        w[a] -= min(max(step, -LONGEST), LONGEST)
        for b in range(a + 1):
            P[a, b] = (P[a, b] - share * g[a] * g[b]) / keep
            P[b, a] = P[a, b]
