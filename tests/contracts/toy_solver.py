"""A solver from outside the package: an algorithm, a fit, a section of options, an estimator and a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from scipy.linalg import block_diag

from streamsvm.data.samples import SamplesInStore
from streamsvm.estimators.base import StoreClassifier
from streamsvm.fits.base import Fit, Solution, model_of_duals
from streamsvm.fits.drafts import ModelDraft
from streamsvm.options.base import SolverOptions, Whole
from streamsvm.solvers.catalogue import SolverRow, register
from streamsvm.solvers.loop import run

STRETCH = 20  # steps that make one of the loop


@dataclass(frozen=True)
class Problem:
    """min 1/2 a'Qa - e'a over 0 <= a <= upper."""

    Q: np.ndarray
    upper: np.ndarray

    @cached_property
    def length(self) -> float:
        """Of a step: one over the largest eigenvalue."""
        return 1 / float(np.linalg.eigvalsh(self.Q)[-1])

    def gradient(self, alpha: np.ndarray) -> np.ndarray:
        return self.Q @ alpha - 1

    def objective(self, alpha: np.ndarray) -> float:
        return float(alpha @ (self.gradient(alpha) - 1)) / 2

    def gap(self, alpha: np.ndarray) -> float:
        g = self.gradient(alpha)
        return float(alpha @ g + self.upper @ np.maximum(-g, 0))

    def violation(self, alpha: np.ndarray) -> float:
        moved = np.clip(alpha - self.gradient(alpha), 0, self.upper)
        return float(np.abs(moved - alpha).max())


@dataclass(frozen=True)
class State:
    """ahead: where the next gradient is taken, with momentum t."""

    alpha: np.ndarray
    ahead: np.ndarray
    t: float = 1.0
    steps: int = 0


class Accelerated:
    """Projected gradient steps with momentum, begun anew where they turn back (Beck and Teboulle 2009)."""

    def init(self, problem: Problem) -> State:
        return State(np.zeros_like(problem.upper), np.zeros_like(problem.upper))

    def step(self, problem: Problem, state: State) -> State:
        alpha, ahead, t = state.alpha, state.ahead, float(state.t)
        for _ in range(STRETCH):
            new = np.clip(ahead - problem.length * problem.gradient(ahead), 0, problem.upper)
            t = 1.0 if (ahead - new) @ (new - alpha) > 0 else t
            t, before = (1 + (1 + 4 * t * t) ** 0.5) / 2, t
            alpha, ahead = new, new + (before - 1) / t * (new - alpha)
        return State(alpha, ahead, t, int(state.steps) + STRETCH)


class ToyConfig(SolverOptions):
    """Accelerated projected gradients, the matrix of all subproblems in memory."""

    steps: Annotated[Whole, Field(ge=1, description="Most steps")] = 20_000


class ToyFit(Fit):
    def plan(self) -> dict[str, Any]:
        return {"n": self.store.n, "d": self.store.d, "matrix_bytes": 8 * self.store.n**2}

    def solve(self, draft: ModelDraft) -> Solution:
        rows = SamplesInStore(self.store, self.scaling).load().rows
        parts, steps = list(self.task.subproblems(self.targets)), self.config.solver_options.steps
        own = [rows.take(part.ids) for part in parts]
        Q = [p.y[:, None] * self.kernel.exact(x, x) * p.y for p, x in zip(parts, own, strict=True)]
        problem = Problem(block_diag(*Q), np.concatenate([self.upper[part.ids] for part in parts]))

        def stop(state: State) -> bool:
            return problem.violation(state.alpha) <= self.config.tol or state.steps >= steps

        def on_step(state: State) -> None:
            self.events.progress("descend", state.steps, steps)
            self.checkpoints.offer(lambda: vars(state), last=stop(state))

        saved = self.checkpoints.load()
        with self.phase("descend"), self.engine.serial_blas():
            state = run(Accelerated(), problem, saved and State(**saved), stop=stop, on_step=on_step)
        alpha = np.zeros((len(rows), self.task.coefficients(len(self.classes))))
        ends = np.cumsum([len(part.ids) for part in parts])[:-1]
        for part, solved in zip(parts, np.split(state.alpha, ends), strict=True):
            alpha[part.places] = solved
        model = model_of_duals(self, alpha, np.zeros(len(parts)), rows.take)
        values = problem.objective(state.alpha), problem.gap(state.alpha), model.n_support
        is_solved = problem.violation(state.alpha) <= self.config.tol
        return Solution(model, *values, exact=True, converged=is_solved, advice="allow more steps")


class ToySVC(StoreClassifier):
    _solver = "toy-descent"
    degree, coef0, kernel_params, class_weight = 3, 0.0, None, None
    scale, memory_limit = "none", None

    def __init__(
        self,
        C: float = 1.0,
        kernel: str = "rbf",
        gamma: Any = 0.5,
        steps: int = 20_000,
        probability: bool = False,
        threshold: str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.C, self.kernel, self.gamma, self.steps = C, kernel, gamma, steps
        self.probability, self.threshold, self.random_state = probability, threshold, random_state
        self.n_jobs, self.verbose = n_jobs, verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> ToySVC:
        return super().fit(X, y, sample_weight)


HERE = [f"{__name__}:{made.__name__}" for made in (ToyFit, ToyConfig, ToySVC)]
register("toy-descent", SolverRow(*HERE[:2], (HERE[2],)))
