"""What each loss asks of a step: how far a row pulls the function towards its target."""

from __future__ import annotations

import numba as nb
import numpy as np

HINGE, EPSILON, SUPPORT = range(3)
LOSSES = {"hinge": HINGE, "epsilon": EPSILON, "support": SUPPORT}

VALUED = ("epsilon", "support")  # losses that judge values: rows without one are right


def values(loss: str, Y: np.ndarray, f: np.ndarray, epsilon: float) -> np.ndarray:
    """The losses of decisions f against targets Y, of one shape. Of "support" without the term -nu rho."""
    if loss == "epsilon":
        return np.maximum(np.abs(Y - f) - epsilon, 0)
    return np.maximum((loss == "hinge") - Y * f, 0)


def right(loss: str, Y: np.ndarray, f: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """(m,) whether decisions f (m, columns) are right about Y; of numbers and of one class: without a loss."""
    if loss in VALUED:
        return losses.sum(axis=1) <= 0
    if Y.shape[1] > 1:
        return np.argmax(f, axis=1) == np.argmax(Y, axis=1)
    return (f[:, 0] > 0) == (Y[:, 0] > 0)


@nb.njit(nogil=True, forceinline=True)
def pull(loss, y, f, epsilon, reach):
    """The step of a row with target y and decision f, in units of its weight and of the step size: in [-1, 1].

    hinge max(0, 1 - yf); support max(0, rho - f'), f = f' - rho. epsilon max(0, |y - f| -
    epsilon): the step ends where the loss does, which takes reach times the error, see `steps`.
    """
    if loss == EPSILON:
        beyond = abs(y - f) - epsilon
        return np.sign(y - f) * min(beyond * reach, 1.0) if beyond > 0 else 0.0
    if loss == SUPPORT:
        return 1.0 if f < 0 else 0.0
    return y if y * f < 1 else 0.0
