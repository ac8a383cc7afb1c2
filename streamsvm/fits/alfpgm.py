"""ALFPGM over a store: LIBSVM's problem of each pair of classes, or epsilon regression.

Rows are in memory if they fit; else the products are computed by tasks, which keep or read the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.regroup import NeighbourPartitions, RowPartitions
from streamsvm.data.rows import Rows
from streamsvm.data.samples import gather
from streamsvm.errors import DataError
from streamsvm.events import Phase
from streamsvm.fits.base import CostGrowth, Fit, FitContext, Solution, model_of_duals
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.prepare import TrainingData, unreached
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.inner import Precomputed
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import MiB, fits_memory, require_memory
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import evenly
from streamsvm.problems.dual import DualQP, KernelDual, MatrixDual, dual_of
from streamsvm.problems.streamed import NEAR_BYTES, StreamedDual
from streamsvm.progress import Rounds
from streamsvm.solvers import blockws
from streamsvm.solvers.alfpgm import ALFPGM, ALFPGMState
from streamsvm.solvers.loop import is_late, run
from streamsvm.tasks.base import Subproblem

ROW_BYTES = 300  # solver vectors of one row
PART_BYTES = 8 * MiB  # of rows that a task reads, keeps and multiplies, if not all are in memory
TASK_COPIES = 3  # of a partition's rows in a task
BLOCK_COPIES = 6  # of the rows of a working set and its candidates
VALUE_BYTES = 12  # of a working set's matrix: float32, and float64 of `fpg`
HASTY_ROWS = 500  # of a problem that starts when time is up
OnStep = Callable[[Any, DualQP], None]


@dataclass(frozen=True)
class Outcome:
    """The certificate of one problem. late: time was up before it was solved."""

    intercept: float
    objective: float
    gap: float
    rounds: int
    violation: float
    late: bool


FACTS = len(fields(Outcome))


def solver_of(config: FitConfig) -> ALFPGM:
    """The solver that a configuration describes."""
    options = config.alfpgm
    return ALFPGM(
        config.tol,
        4 * options.pairs,
        subproblem=options.subproblem,
        mu=options.mu,
        candidates=options.candidates,
        least_uses=options.min_alpha_opt,
        most_uses=options.max_alpha_opt,
        settled=options.delta_alpha,
        shrinking=options.shrinking,
        as_published=options.method == "paper",
    )


class _Growth(CostGrowth):
    def is_spread(self, config: FitConfig, problems: int) -> bool:
        return problems > 1


class ALFPGMFit(Fit):
    """min over a of 1/2 a'Qa + linear'a, 0 <= a <= C, y'a = 0, of each subproblem of the task, in parallel or one after
    the other (Aregbesola and Griva 2022)."""

    growth = _Growth(spread=("solve",))

    def __init__(self, prepared: TrainingData, context: FitContext) -> None:
        super().__init__(prepared, context)
        store, config = prepared.store, prepared.config
        if isinstance(self.kernel, Precomputed) and store.n != store.d:
            raise DataError(
                f"{store.url or 'X'} is {store.n} x {store.d}; expected a square matrix, the kernel values of all "
                "training rows with each other"
            )
        self.solver = solver_of(config)
        self.samples = prepared.samples
        self.bytes = {
            "rows_bytes": int(3 * self.samples.nbytes),  # all, a pair's, and its active ones
            "vector_bytes": store.n * ROW_BYTES,
            "cache_bytes": config.cache_size,
        }
        is_precomputed = isinstance(self.kernel, Precomputed)
        streamed = self.bytes | {"rows_bytes": self._task_bytes(), "cache_bytes": 0}
        smaller = sum(self.bytes.values()) <= sum(streamed.values())
        self.in_memory = is_precomputed or smaller or fits_memory(config.memory_limit, sum(self.bytes.values()))
        if not self.in_memory:
            self.bytes = streamed
        what = "the kernel matrix in memory" if is_precomputed else "solver alfpgm, which holds vectors of all rows"
        require_memory(config.memory_limit, sum(self.bytes.values()), what)

    def _task_bytes(self) -> int:
        """Bytes of the partitions that tasks of this process read, and of a working set with its candidates."""
        options, row = self.config.alfpgm, self.samples.nbytes / self.store.n
        block, candidates = 4 * options.pairs, options.candidates or self.store.n
        part = max(PART_BYTES, row * max(stop - start for start, stop in self.samples.blocks()))
        parts = self.engine.threads * TASK_COPIES * part if self.engine.is_local else NEAR_BYTES
        values = VALUE_BYTES * block**2 + 4 * options.pairs * candidates
        return int(parts + values + BLOCK_COPIES * (block + candidates) * row)

    @property
    def has_bias(self) -> bool:
        return True

    @property
    def _most_rounds(self) -> float:
        return self.config.alfpgm.max_iter or math.inf

    def plan(self) -> dict[str, Any]:
        """The memory, and the number of problems."""
        facts = {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}
        problems = self.task.n_subproblems(len(self.classes))
        return self.bytes | facts | {"in_memory": self.in_memory, "problems": problems}

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        return config.alfpgm.max_iter is None

    @property
    def breaks_ties(self) -> bool:
        return self.config.alfpgm.break_ties or not self.task.in_pairs

    def solve(self, draft: ModelDraft) -> Solution:
        if self.in_memory:
            with self.phase("read"):
                rows = self.samples.load().rows
            source: _Source = _InMemory(rows, self.engine.threads, self.config.cache_size)
            take = partial(self.kernel.support, rows)
        else:
            source = _Streamed(NeighbourPartitions(self.samples, PART_BYTES), self.engine)
            take = partial(gather, self.samples, engine=self.engine)
        parts = list(self.task.subproblems(self.targets, single=True))
        solved, facts = self._solved(source, parts)
        alpha = np.zeros((self.store.n, self.task.coefficients(len(self.classes))))
        for part, variables in zip(parts, solved, strict=True):
            alpha[part.places] = variables
        intercept = np.array([f.intercept for f in facts])
        model = model_of_duals(self, alpha, intercept, take, break_ties=self.breaks_ties)
        worst, late = max(f.violation for f in facts), any(f.late for f in facts)
        rounds, tol = [f.rounds for f in facts], self.config.tol
        return Solution(
            model,
            sum(f.objective for f in facts),
            sum(f.gap for f in facts),
            model.n_support,
            exact=True,
            converged=worst <= tol and not late,
            violation=worst,
            advice=unreached(worst, tol)
            if max(rounds) < self._most_rounds
            else f"stopped after {max(rounds)} rounds at a violation of {worst:.2g}, tol is {tol:g}; give a larger "
            "max_iter, or scale the features",
            facts={"rounds": rounds},
            late=late,
        )

    def _solved(self, source: _Source, parts: list[Subproblem]) -> tuple[list[np.ndarray], list[Outcome]]:
        """The variables and outcomes of all subproblems, those of a checkpoint first."""
        alphas, facts = [], []
        duals = [_Dual(self.kernel, part, part.bounds(self.upper)) for part in parts]
        sizes = [len(part.y) for part in parts]
        saved = self.checkpoints.load() or {"alpha": np.empty(0), "facts": np.empty((0, FACTS))}
        done = len(saved["facts"])
        started = np.split(saved["alpha"], np.cumsum(sizes[:done]))[:done]
        if self.checkpoints.has_other_tol and (unsolved := saved["facts"][:, 4] > self.config.tol).any():
            done = int(np.argmax(unsolved))
            for number in range(done, len(started)):
                duals[number] = replace(duals[number], begin=started[number])
            saved = {"facts": saved["facts"][:done]}
        alphas += started[:done]
        facts += [Outcome(b, f, gap, int(r), v, bool(late)) for b, f, gap, r, v, late in saved["facts"].tolist()]
        running = {name[8:]: value for name, value in saved.items() if name.startswith("running_")}

        def so_far(state: ALFPGMState | None = None) -> dict[str, Any]:
            now = {f"running_{name}": value for name, value in (state.to_arrays() if state else {}).items()}
            table = np.array([astuple(f) for f in facts]).reshape(-1, FACTS)
            return {"alpha": np.concatenate([*alphas, np.empty(0)]), "facts": table} | now

        def keep(state: ALFPGMState | None = None) -> None:
            self.checkpoints.offer(partial(so_far, state), last=len(facts) == len(duals))

        with self.phase("solve"), self.engine.serial_blas():
            for alpha, outcome in self._solutions(source, duals[done:], running, keep):
                alphas.append(alpha)
                facts.append(outcome)
                keep()
        return alphas, facts

    def _solutions(
        self, source: _Source, duals: Sequence[_Dual], running: dict[str, np.ndarray], keep: Callable[..., None]
    ) -> Iterator[tuple[np.ndarray, Outcome]]:
        """Few problems are solved one after the other, each on all threads; many in parallel, if rows are in memory."""
        slots = self.engine.slots
        solve = _SubproblemSolver(self.solver, self._most_rounds, self.until)
        if isinstance(source, _InMemory) and len(duals) >= 4 * slots and not running:
            alone = partial(_solve_alone, solve, source.cache_bytes // self.engine.worker_memory()[1])
            shared = (self.engine.share(source.rows),)
            yield from self.engine.map(
                alone, duals, shared=shared, window=16 * slots, phase="pairs", events=self.events
            )
            return
        rounds = Rounds(self.events, Phase.SOLVE, len(duals), self.config.tol)
        for number, dual in enumerate(duals):

            def on_step(state: ALFPGMState, problem: DualQP, number: int = number) -> None:
                active = len(state.alpha) if state.active is None else len(state.active)
                sizes = {"working_set": len(state.block), "active": active}
                rounds(number, blockws.facts(problem, state) | sizes)
                keep(state)

            start = ALFPGMState.from_arrays(running) if running else None
            running = {}
            yield solve(source, dual, start, on_step)
        rounds.end()


@dataclass(frozen=True)
class _Dual(SizedInBytes):
    """A subproblem and the bounds (m,) of its rows, which may be some of all. begin: variables to start from."""

    kernel: Kernel
    part: Subproblem
    upper: np.ndarray
    begin: np.ndarray | None = None

    def few(self, most: int) -> np.ndarray:
        """At most so many of its rows, half of each label."""
        is_first = self.part.y[: len(self.part.ids)] > 0
        sides = [side for side in map(np.flatnonzero, (is_first, ~is_first)) if len(side)]
        places = [evenly(len(side), most // 2) for side in sides]
        return np.sort(np.concatenate([side[chosen] for side, chosen in zip(sides, places, strict=True)]))

    def take(self, rows: np.ndarray) -> _Dual:
        return _Dual(self.kernel, self.part.take(rows), self.upper[rows])


@dataclass(frozen=True)
class _InMemory:
    rows: Rows
    threads: int
    cache_bytes: int

    def __call__(self, dual: _Dual) -> DualQP:
        ids, upper, threads = dual.part.ids, dual.upper, self.threads
        rows = self.rows if len(ids) == len(self.rows) else self.rows.take(ids)

        def of_rows(y: np.ndarray) -> KernelDual | MatrixDual:
            if isinstance(dual.kernel, Precomputed):
                return MatrixDual(rows.dense()[:, ids], y, upper, threads)
            return KernelDual(dual.kernel, rows, y, upper, threads, cache_bytes=self.cache_bytes)

        return dual_of(dual.part, of_rows)


@dataclass(frozen=True)
class _Streamed:
    groups: RowPartitions
    engine: Engine

    def __call__(self, dual: _Dual) -> DualQP:
        ids, upper = dual.part.ids, dual.upper
        return dual_of(dual.part, lambda y: StreamedDual(dual.kernel, self.groups, ids, y, upper, self.engine))


_Source = _InMemory | _Streamed


@dataclass(frozen=True)
class _SubproblemSolver:
    """Solves a problem; if time is up before it starts, from few of its rows."""

    solver: ALFPGM
    most_rounds: float
    until: float | None

    def __call__(
        self,
        source: _Source,
        dual: _Dual,
        start: ALFPGMState | None = None,
        on_step: OnStep = lambda state, problem: None,
    ) -> tuple[np.ndarray, Outcome]:
        """The variables and outcome of a problem; start: the state that another run has reached."""
        if start is not None or not is_late(self.until):
            problem = source(dual)
            if start is None and dual.begin is not None:
                start = self.solver.init(problem, dual.begin)
            return self._solved(problem, start, on_step)
        few = dual.few(HASTY_ROWS)
        variables, facts = self._solved(source(dual.take(few)), None, on_step)
        alpha = np.zeros(len(dual.part.y))
        alpha[dual.part.variables(few)] = variables
        return alpha, replace(facts, late=len(few) < len(dual.part.ids) or facts.late)

    def _solved(self, dual: DualQP, start: ALFPGMState | None, on_step: OnStep) -> tuple[np.ndarray, Outcome]:
        def stop(state: Any) -> bool:
            return self.solver.has_ended(state, self.most_rounds)

        def on_state(state: Any) -> None:
            on_step(state, dual)

        state: Any = run(self.solver, dual, start, stop=stop, on_step=on_state, until=self.until)
        late, state = not stop(state), self.solver.unshrunk(dual, state)
        return state.alpha, Outcome(state.bias, *blockws.certificate(dual, state), state.rounds, state.violation, late)


def _solve_alone(solve: _SubproblemSolver, cache_bytes: int, rows: Rows, dual: _Dual) -> tuple[np.ndarray, Outcome]:
    return solve(_InMemory(rows, 1, cache_bytes), dual)
