"""The step of each loss: how far a row pulls the function towards its target."""

from __future__ import annotations

import numpy as np

from streamsvm.private.numba import njit_inner

HINGE, EPSILON, SUPPORT, LOGISTIC = range(4)
LOSSES = {"hinge": HINGE, "epsilon": EPSILON, "support": SUPPORT, "logistic": LOGISTIC}
LEAST_PULL = 0.5  # of the logistic loss, see `pull`

VALUED = ("epsilon", "support")  # losses of values, not classes: rows without a loss are right


def values(loss: str, Y: np.ndarray, f: np.ndarray, epsilon: float) -> np.ndarray:
    """The losses of decisions f against targets Y, of one shape. Of "support" without the term -nu rho."""
    if loss == "epsilon":
        return np.maximum(np.abs(Y - f) - epsilon, 0)
    if loss == "logistic":
        return np.abs(Y) * np.logaddexp(0, -np.sign(Y) * f)
    return np.maximum((np.abs(Y) if loss == "hinge" else 0.0) - Y * f, 0)


def right(loss: str, Y: np.ndarray, f: np.ndarray, losses: np.ndarray, *, in_sets: bool = False) -> np.ndarray:
    """(m,) whether decisions f (m, columns) are right about Y; of numbers and of one class: without a loss. in_sets:
    about all columns; else about the largest."""
    if loss in VALUED:
        return losses.sum(axis=1) <= 0
    if Y.shape[1] > 1 and not in_sets:
        return np.argmax(f, axis=1) == np.argmax(Y, axis=1)
    return ((f > 0) == (Y > 0)).all(axis=1)


@njit_inner(forceinline=True)
def pull(loss, y, f, epsilon, reach, chance):
    """The step of a row with target y and decision f, in units of its weight and of the step size: in [-1, 1].

    |y| is a factor on the loss of classes: hinge max(0, |y| - yf), logistic |y| log(1 + exp(-sign(y) f)). support
    max(0, rho - f'), f = f' - rho. epsilon max(0, |y - f| - epsilon): the step ends where the loss does, which takes
    reach times the error, see `steps`. logistic pulls every row: so that not all become supports, a small pull is
    LEAST_PULL or nothing, by a chance in [0, 1), and right on average."""
    if loss == EPSILON:
        beyond = abs(y - f) - epsilon
        return np.sign(y - f) * min(beyond * reach, 1.0) if beyond > 0 else 0.0
    if loss == SUPPORT:
        return 1.0 if f < 0 else 0.0
    if loss == LOGISTIC:
        size = 1 / (1 + np.exp(min(np.sign(y) * f, 500.0)))
        return y * (max(size, LEAST_PULL) if chance * LEAST_PULL < size else 0.0)
    return y if y * f < abs(y) else 0.0


@njit_inner(forceinline=True)
def chance_of(step):
    """A number in [0, 1) that depends on the step alone (the finaliser of splitmix64, Steele, Lea and Flood 2014)."""
    z = np.uint64(step + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0
