"""What every solver keeps to; and what those of the bias-free dual do on every layout."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import reference
from contracts.solvers import CASES, KERNEL, TOL, Case, N, data
from pairwise import pairwise
from scipy import sparse

from streamsvm.data.regroup import PartitionsInMemory
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import Laplacian, Matern
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import DualQP, KernelDual
from streamsvm.problems.streamed import StreamedDual
from streamsvm.solvers import blockws, loop

MOST_STEPS = 3000


def saved(state: Any) -> dict[str, np.ndarray]:
    """A state as a checkpoint's file has it."""
    file = io.BytesIO()
    arrays = state.to_state() if hasattr(state, "to_state") else state.to_arrays()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as found:
        return dict(found)


def require_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def solved(case: Case, on_step: Callable[[Any], None]) -> Any:
    """By the one loop."""
    steps = 0

    def counted(state: Any) -> None:
        nonlocal steps
        steps += 1
        assert steps < MOST_STEPS
        on_step(state)

    return loop.run(case.solver, case.problem(), stop=case.is_solved, on_step=counted)


@cache
def states(name: str) -> list[dict[str, np.ndarray]]:
    """Those of a run that nothing disturbs, after every step."""
    found: list[dict[str, np.ndarray]] = []
    solved(CASES[name], lambda state: found.append(saved(state)))
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow  # as many solves as steps
def test_every_step_goes_on_from_a_saved_state_as_if_nothing_had_been(name):
    """To the last bit, by a solver and a problem that know of nothing before."""
    case, expected = CASES[name], states(name)
    assert len(expected) > 2
    for before, after in zip(expected[:-1], expected[1:], strict=True):
        state = case.restore(before)
        require_same(saved(state), before)
        require_same(saved(case.solver.step(case.problem(), state)), after)
    assert case.is_solved(case.restore(expected[-1]))


@pytest.mark.parametrize("name", CASES)
def test_the_end_has_its_certificate(name):
    CASES[name].check(solved(CASES[name], lambda state: None))


@pytest.mark.parametrize("name", CASES)
def test_two_runs_are_one(name):
    again: list[dict[str, np.ndarray]] = []
    solved(CASES[name], lambda state: again.append(saved(state)))
    for one, other in zip(again, states(name), strict=True):
        require_same(one, other)


def small_blocks(problem: DualQP, alpha: np.ndarray | None) -> np.ndarray:
    solver = blockws.BlockSolver(TOL, 32)
    return loop.run(solver, problem, solver.init(problem, alpha), stop=solver.is_solved).alpha


SOLVERS: dict[str, Callable[[DualQP, np.ndarray | None], np.ndarray]] = {
    "block working sets": lambda problem, alpha: blockws.solve(problem, alpha, tol=TOL).alpha,
    "small blocks": small_blocks,
}
LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_array}
KERNELS = {
    "rbf": KERNEL,
    "laplacian": Laplacian(0.5),
    "matern": Matern(1.5, 0.5),
    "poly": Poly(0.5, 2, 1.0),
    "linear": Linear(),
}


def in_memory(kernel: Kernel, rows: Rows) -> DualQP:
    return KernelDual(kernel, rows, *data()[1:])


def streamed(kernel: Kernel, rows: Rows) -> DualQP:
    groups = PartitionsInMemory(SamplesInMemory(rows), np.arange(N) % 5, 5)
    return StreamedDual(kernel, groups, np.arange(N), *data()[1:], Engine(2))


PROBLEMS = {"in memory": in_memory, "streamed": streamed}


@cache
def twin(kernel: str) -> tuple[np.ndarray, np.ndarray]:
    X, y, upper = data()
    Q = y[:, None] * reference.kernel_matrix(KERNELS[kernel], X, X) * y
    return Q, reference.solve_dual(Q, upper)


@pytest.mark.parametrize(
    ("kernel", "name", "problem", "layout", "start"),
    pairwise(KERNELS, SOLVERS, PROBLEMS, LAYOUTS, ("cold", "warm")),
)
def test_optimal_by_certificate_and_by_twin(kernel, name, problem, layout, start):
    X, _, upper = data()
    Q, best = twin(kernel)
    first = np.where(np.arange(N) % 2, best, 0.0) if start == "warm" else None
    alpha = SOLVERS[name](PROBLEMS[problem](KERNELS[kernel], Rows(LAYOUTS[layout](X))), first)
    assert np.all((alpha >= 0) & (alpha <= upper))
    assert reference.kkt_violation(Q, alpha, upper) <= 1.1 * TOL
    assert reference.dual_objective(Q, alpha) == pytest.approx(reference.dual_objective(Q, best), rel=1e-4)
