"""The weakest support projected on the others (Wang, Crammer and Vucetic 2012, section 4.2)."""

from __future__ import annotations

import numba as nb
import numpy as np

from streamsvm.solvers.budget.state import SUPPORTS
from streamsvm.solvers.budget.values import add_scaled, add_to, dot, kernel_values, scale


@nb.njit(nogil=True, forceinline=True)
def project_on_others(s, m, first, p, is_rbf):
    """Gives the others the coefficients that come closest to support p: K beta = k_p, by conjugate gradients. A ridge
    of 1e-4 of the mean diagonal keeps beta small where supports nearly coincide, and rounding out of it."""
    born, A, U, n = s.born, s.A, s.U, s.counts[SUPPORTS]
    K, row, k_p = np.empty((n, n)), np.empty(n, np.float32), np.zeros(n)
    for j in range(n):
        kernel_values(s.values[j, :n], is_rbf, row)
        for q in range(n):
            if born[j] >= born[q]:
                K[j, q] = K[q, j] = row[q]
    K_pp, ridge = K[p, p], 0.0
    for j in range(n):
        ridge += 1e-4 * K[j, j] / n
    for j in range(n):
        k_p[j] = K[p, j] if j != p else 0.0
        K[p, j], K[j, p] = 0.0, 0.0
        K[j, j] += ridge
    beta, residual, direction = np.zeros(n), k_p.copy(), k_p.copy()
    square = dot(residual, residual)
    goal = 1e-12 * square
    for _ in range(4 * n):
        image = _times(K, direction)
        curvature = dot(direction, image)
        if square <= goal or curvature <= 0:
            break
        add_scaled(beta, square / curvature, direction)
        add_scaled(residual, -square / curvature, image)
        before, square = square, dot(residual, residual)
        scale(direction, square / before)
        add_scaled(direction, 1.0, residual)
    squared = dot(beta, _times(K, beta)) - ridge * dot(beta, beta)
    lost = dot(A[p], A[p]) * (K_pp - 2 * dot(beta, k_p) + squared)
    beta[p] = -1  # which removes p
    a, u = A[p].copy(), U[p].copy()
    for j in range(n):
        part = np.zeros(len(a))
        add_scaled(part, beta[j], a)
        add_to(m.F, part, m.W[j], first, is_rbf, 1.0)
        add_scaled(A[j], beta[j], a)
        add_scaled(U[j], beta[j], u)
    return max(lost, 0.0)


@nb.njit(nogil=True, fastmath=True)
def _times(K, x):
    out = np.zeros(len(x))
    for i in range(len(x)):
        total = 0.0
        for j in range(len(x)):
            total += K[i, j] * x[j]
        out[i] = total
    return out
