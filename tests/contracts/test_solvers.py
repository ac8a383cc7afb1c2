"""What every solver of the bias-free dual keeps to, on every layout. A new solver is one more line in SOLVERS."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import reference
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.samples import MemorySamples
from streamsvm.graph import Engine
from streamsvm.groups import MemoryGroups
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF, Matern
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.kernels.laplacian import Laplacian
from streamsvm.problems import DualQP, KernelDual, StreamedDual
from streamsvm.solvers import base, blockws

TOL = 1e-3
N = 240


def small_blocks(problem: DualQP, alpha: np.ndarray | None) -> np.ndarray:
    solver = blockws.BlockSolver(TOL, 32)
    return base.run(solver, problem, solver.init(problem, alpha), stop=solver.is_solved).alpha


SOLVERS: dict[str, Callable[[DualQP, np.ndarray | None], np.ndarray]] = {
    "block working sets": lambda problem, alpha: blockws.solve(problem, alpha, tol=TOL).alpha,
    "small blocks": small_blocks,
}
LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_array}
KERNELS = {
    "rbf": RBF(2.0),
    "laplacian": Laplacian(0.5),
    "matern": Matern(1.5, 0.5),
    "poly": Poly(0.5, 2, 1.0),
    "linear": Linear(),
}


@cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, 5)) < 0.6, rng.normal(size=(N, 5)), 0).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=N) > 0.5, 1.0, -1.0)
    return X, y, rng.choice([0.0, 0.5, 4.0], N, p=[0.1, 0.5, 0.4])


def in_memory(kernel: Kernel, rows: Rows) -> DualQP:
    return KernelDual(kernel, rows, *data()[1:])


def streamed(kernel: Kernel, rows: Rows) -> DualQP:
    groups = MemoryGroups(MemorySamples(rows), np.arange(N) % 5, 5)
    return StreamedDual(kernel, groups, np.arange(N), *data()[1:], Engine(2))


PROBLEMS = {"in memory": in_memory, "streamed": streamed}


@cache
def twin(kernel: str) -> tuple[np.ndarray, np.ndarray]:
    X, y, upper = data()
    Q = y[:, None] * reference.kernel_matrix(KERNELS[kernel], X, X) * y
    return Q, reference.solve_dual(Q, upper)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_optimal_by_certificate_and_by_twin(name, problem, layout, kernel, warm):
    X, _, upper = data()
    Q, best = twin(kernel)
    start = np.where(np.arange(N) % 2, best, 0.0) if warm else None
    alpha = SOLVERS[name](PROBLEMS[problem](KERNELS[kernel], Rows(LAYOUTS[layout](X))), start)
    assert np.all((alpha >= 0) & (alpha <= upper))
    assert reference.kkt_violation(Q, alpha, upper) <= 1.1 * TOL
    assert reference.dual_objective(Q, alpha) == pytest.approx(reference.dual_objective(Q, best), rel=1e-4)
