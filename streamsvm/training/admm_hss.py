"""ADMM on a compressed kernel matrix: compress and factorise once, then every class and every C together."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.data.samples import StoreSamples
from streamsvm.errors import ConfigError, NotFoundError, StorageError
from streamsvm.events import Compressed, Events, Phase, Rounds, Step, Warned
from streamsvm.hss.compress import Tolerances
from streamsvm.hss.files import Factorisation
from streamsvm.hss.kernel_matrix import (
    HSSOptions,
    KernelMatrix,
    ShiftedKernel,
    approximate,
    estimated_errors,
    least_bytes,
)
from streamsvm.models import ExpansionModel, Header
from streamsvm.models.files import load_factorisation, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.memory import free_bytes, require_memory
from streamsvm.problems.dual import KernelDual
from streamsvm.solvers import blockws
from streamsvm.solvers.admm import ADMM, ADMMState, balanced, draw_margin, intercept, paper_beta
from streamsvm.solvers.loop import run
from streamsvm.tasks.pairs import n_columns, signs
from streamsvm.tasks.scores import Judge
from streamsvm.training.base import Context, PathFit, Solution
from streamsvm.training.growth import Growth
from streamsvm.training.prepare import Prepared

BALANCE_EVERY = 10  # steps between looks at beta
BIAS_ROWS = 1000  # of each column's margin support vectors: their exact decision values make its intercept
NEGLIGIBLE = 1e-3  # change of decision values that dropped coefficients may cause
CONVERGED = (
    2e-2  # gap over objective: where ADMM has ended in time it is 1e-4 to 1e-2, else from 0.1 to beyond 10
)
SHOWN_LEVELS = 7  # of the cluster tree, whose ranks are told node by node
FEW_ROWS = 2048
COMPRESS_SHARE, COMPRESS_POWER = 0.7, 1.1  # of the time left; of the rows, by which it grows
INCOMPRESSIBLE = 0.9  # mean share of the largest possible ranks from which compressing does not pay


@dataclass
class _Problem:
    """What ADMM sees: y and upper (n, c) in tree order; factors are made when a beta is first asked for."""

    y: np.ndarray
    upper: np.ndarray
    matrix: KernelMatrix
    engine: Engine
    inverse: ShiftedKernel
    events: Events = field(repr=False)

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray:
        if beta != self.inverse.factor.beta:
            self.inverse = self.matrix.shifted(beta, self.engine, self.events)
        return self.inverse.solve(V, self.engine.threads)


class ADMMHSSFit(PathFit):
    """One factorisation for all columns: one for two classes, else one for each class against the rest; times Cs."""

    # linear where ranks have settled, which those of small pilots have not
    growth = Growth(1.5, ("compress",), chooses_rows=True)

    def __init__(self, prepared: Prepared, context: Context) -> None:
        super().__init__(prepared, context)
        store, config = prepared.store, prepared.config
        options = config.admm_hss
        self.options = HSSOptions(
            Tolerances(options.rtol, options.atol, options.max_rank, options.definite),
            options.leaf,
            options.neighbours,
            options.landmarks,
            config.seed,
            options.storage == "float32",
        )
        self.columns = n_columns(len(self.classes))
        self.samples = StoreSamples(store, self.scaling)
        self.limit_bytes = config.memory_limit or free_bytes()
        self.bytes = {
            "rows_bytes": int(2 * self.samples.nbytes),  # in store order and in the tree's
            "vector_bytes": store.n * 8 * 10 * self.columns,
            "least_hss_bytes": least_bytes(store.n, self.options),
        }
        require_memory(self.limit_bytes, sum(self.bytes.values()), "the compressed kernel matrix")

    def plan(self) -> dict[str, Any]:
        """Memory whatever the ranks will be."""
        return self.bytes | {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}

    def path(self, Cs: Sequence[float]) -> list[Solution]:
        """A solution for each C; what was shared is among the facts of every one."""
        vectors = self.bytes["vector_bytes"] * (len(Cs) - 1)
        require_memory(self.limit_bytes, sum(self.bytes.values()) + vectors, f"{len(Cs)} values of C")
        with self.phase("read"):
            rows = self.samples.load().rows
        factorisation = self._factorised(rows)
        order, matrix = factorisation.order, factorisation.matrix
        rows = rows.take(order)
        y = np.tile(signs(self.codes[order], len(self.classes)), len(Cs))
        weights = (self.upper / self.config.C)[order]
        upper = np.repeat(weights[:, None] * np.asarray(Cs), self.columns, axis=1)
        problem = _Problem(y, upper, matrix, self.engine, factorisation.inverse, self.events)
        state, z, coef, dropped, bias = self._columns_solved(rows, problem)
        with self.phase("bias"), self.engine.serial_blas():
            f = matrix.product(y * z, self.engine.threads)
        facts, late = self._facts(rows, problem, state), not self._is_done(state)
        solutions = []
        for number, C in enumerate(Cs):
            own = slice(number * self.columns, (number + 1) * self.columns)
            solved = _Solved(coef[:, own], bias[own], *_objective(z, y, f, upper, bias, own), late=late)
            own_facts: dict[str, Any] = {"C": C, "dropped_bound": float(dropped[own].max())}
            if self.config.admm_hss.polish and not late:
                solved, more = self._polished(rows, y[:, own], upper[:, own], z[:, own], solved)
                own_facts |= more
            solutions.append(self._solution(rows, order, solved, facts | own_facts))
        return solutions

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        return not config.admm_hss.polish

    def judge(self) -> Judge:
        none, no_rows = np.empty(0), Rows(np.empty((0, self.scaling.width), np.float32))
        header = Header(self.kernel, self.scaling, self.classes, self.config.positive)
        return ExpansionModel(header, no_rows, none, none, none)

    def folds(self, Cs: Sequence[float], fold_of: np.ndarray, count: int) -> np.ndarray:
        """Decision values (n, len(Cs), columns) of each row without those of its fold, fold_of (n,) of `count`.

        All folds and values of C share one factorisation: a fold has bounds of 0 on its held-out rows.
        """
        vectors = self.bytes["vector_bytes"] * (len(Cs) * count - 1)
        require_memory(self.limit_bytes, sum(self.bytes.values()) + vectors, f"{len(Cs)} values of C")
        rows = self.samples.load().rows
        made = self._factorised(rows)
        rows, held_in = rows.take(made.order), fold_of[made.order]
        y = np.tile(signs(self.codes[made.order], len(self.classes)), count * len(Cs))
        weights = (self.upper / self.config.C)[made.order]
        trained = weights[:, None] * (held_in[:, None] != np.arange(count))
        upper = np.repeat((trained[:, :, None] * np.asarray(Cs)).reshape(len(rows), -1), self.columns, axis=1)
        problem = _Problem(y, upper, made.matrix, self.engine, made.inverse, self.events)
        *_, coef, _, bias = self._columns_solved(rows, problem)
        coef, bias = (array.reshape(*array.shape[:-1], count, -1) for array in (coef, bias))
        out = np.empty((len(rows), coef.shape[-1]))
        for fold in range(count):
            here, support = np.flatnonzero(held_in == fold), np.flatnonzero(coef[:, fold].any(axis=1))
            own = coef[support, fold]
            out[made.order[here]] = bias[fold] + self.kernel.apply(
                rows.take(here), rows.take(support), own, self.engine.threads
            )
        return out.reshape(len(rows), len(Cs), self.columns)

    def _columns_solved(
        self, rows: Rows, problem: _Problem
    ) -> tuple[ADMMState, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ADMM's state, then of each column: feasible z (n, c), coefficients (n, c), what was dropped, bias (c,)."""
        with self.phase("admm"):
            state = self._solve(problem)
        with self.phase("bias"), self.engine.serial_blas():
            self.events.progress("bias", 0, self.columns)
            z = balanced(state.z, problem.y)
            coef, dropped = _without_negligible(problem.y * z, self.kernel.diag(rows))
            bias = self._bias(rows, problem, z, coef)
            self.events.progress("bias", self.columns, self.columns)
            return state, z, coef, dropped, bias

    def _factorised(self, rows: Rows) -> Factorisation:
        """From the run directory where it is there, else made, and kept there if it has room: as states are."""
        path = self.checkpoints.run_dir and self.checkpoints.run_dir / "factor.zarr"
        key = json.dumps(self.checkpoints.identity)
        if path and self.checkpoints.resume:
            with suppress(NotFoundError):
                found: Factorisation = load_factorisation(path)
                if found.key == key:
                    return found
        ids = self._in_time(rows)
        order, matrix, inverse = self._made(rows.take(ids) if len(ids) < len(rows) else rows, self.options)
        self._warn_of_ranks(matrix)
        made = Factorisation(ids[order], matrix, inverse, key)
        if path:
            with self.phase("keep"):
                try:
                    save_model(made, path)
                except StorageError as error:
                    self.events(Warned(f"{error}: --resume would compress once more"))
        return made

    def _in_time(self, rows: Rows) -> np.ndarray:
        """Which rows there is time to compress, by what few of them take: nothing ends it once it has begun."""
        n, few = len(rows), max(FEW_ROWS, len(rows) // 32)
        if self.until is None or n < 4 * few:
            return np.arange(n)
        drawn, began = np.random.default_rng([self.config.seed, 6]).permutation(n), time.time()
        self._made(rows.take(np.sort(drawn[:few])), self.options)
        left_s, took_s = COMPRESS_SHARE * (self.until - time.time()), time.time() - began
        count = min(n, int(few * max(1.0, left_s / took_s) ** (1 / COMPRESS_POWER)))
        if count < n:
            self.events(Warned(f"the time left allows {count:,} of {n:,} rows to be learned from"))
        return np.sort(drawn[:count])

    def _made(self, rows: Rows, options: HSSOptions) -> tuple[np.ndarray, KernelMatrix, ShiftedKernel]:
        """Order, matrix and factor; once more with definite bases where others were tried and are not enough."""
        with self.phase("compress"):
            order, matrix = approximate(
                self.kernel, rows, options, self.engine, self.limit_bytes, self.events
            )
        try:
            with self.phase("factorise"):
                return order, matrix, matrix.shifted(self._beta(rows), self.engine, self.events)
        except ConfigError as error:
            if options.tolerances.definite is not None:
                raise
            self.events(Warned(f"{error}; compressed again, with admm_hss.definite"))
        definite = replace(options, tolerances=replace(options.tolerances, definite=True))
        return self._made(rows, definite)

    def _beta(self, rows: Rows) -> float:
        """The given one, or the paper's, which is for kernels with a diagonal of 1."""
        beta = self.config.admm_hss.beta
        return (
            beta if isinstance(beta, float) else paper_beta(len(rows)) * float(self.kernel.diag(rows).mean())
        )

    def _warn_of_ranks(self, matrix: KernelMatrix) -> None:
        if matrix.H.tree.depth < 3:  # too few blocks to tell, and nothing to save
            return
        share = matrix.H.fullness(self.config.admm_hss.max_rank)
        if share > INCOMPRESSIBLE:
            other = "cutting-plane with a linear kernel, or dcsvm" if self.store.is_sparse else "dcsvm"
            self.events(
                Warned(
                    f"the kernel matrix compresses badly: ranks are {share:.0%} of what they could be at most; "
                    f"take solver {other} instead"
                )
            )

    def _solve(self, problem: _Problem) -> ADMMState:
        options = self.config.admm_hss
        solver = ADMM(problem.inverse.factor.beta, BALANCE_EVERY if options.beta == "balance" else 0)
        saved = self.checkpoints.load()
        state = ADMMState.from_arrays(saved) if saved is not None else None

        def stop(state: ADMMState) -> bool:
            return self._is_done(state)

        def on_step(state: ADMMState) -> None:
            primal, dual = float(state.primal.max()), float(state.dual.max())
            self.events(Step(state.steps, primal=primal, dual=dual, beta=state.beta))
            done = options.iterations if stop(state) else state.steps
            self.events.progress("admm", done, options.iterations, primal=primal, dual=dual, beta=state.beta)
            self.checkpoints.offer(state.to_arrays, last=stop(state))

        self.events.progress("admm", state.steps if state else 0, options.iterations)
        with self.engine.serial_blas():
            return run(solver, problem, state, stop=stop, on_step=on_step, until=self.until)

    def _is_done(self, state: ADMMState) -> bool:
        options = self.config.admm_hss
        return state.steps >= options.iterations or state.residual <= options.residual

    def _bias(self, rows: Rows, problem: _Problem, z: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """(c,) equation (7) with the exact kernel: that of the compressed one is off by its smooth error."""
        seed = [self.config.seed, 5]  # of each column, so that it does not depend on the others
        columns = zip(z.T, problem.upper.T, strict=True)
        drawn = [draw_margin(a, C, BIAS_ROWS, np.random.default_rng(seed)) for a, C in columns]
        chosen, places = np.unique(np.stack(drawn), return_inverse=True)
        support = np.flatnonzero(coef.any(axis=1))
        f = self.kernel.apply(rows.take(chosen), rows.take(support), coef[support], self.engine.threads)
        return np.array(
            [
                intercept(f[place, c], *(array[ids, c] for array in (problem.y, z, problem.upper)))
                for c, (ids, place) in enumerate(zip(drawn, places.reshape(len(drawn), -1), strict=True))
            ]
        )

    def _polished(
        self, rows: Rows, y: np.ndarray, upper: np.ndarray, z: np.ndarray, solved: _Solved
    ) -> tuple[_Solved, dict[str, Any]]:
        """The exact block solver from ADMM's point, column by column."""
        coef, bias = np.empty_like(solved.coef), np.empty_like(solved.bias)
        before = after = objective = 0.0
        rounds, converged, late = 0, True, False
        solver = blockws.BlockSolver(self.config.tol, bias=True)

        def stop(state: blockws.BlockState) -> bool:
            return solver.is_solved(state) or state.rounds >= self.config.admm_hss.polish

        tell = Rounds(self.events, Phase.POLISH, y.shape[1], self.config.tol)

        with self.phase("polish"), self.engine.serial_blas():
            for c in range(y.shape[1]):
                dual = KernelDual(self.kernel, rows, y[:, c], upper[:, c], self.engine.threads)
                start = solver.init(dual, z[:, c])

                def on_step(state: blockws.BlockState, c: int = c, dual: KernelDual = dual) -> None:
                    tell(c, blockws.facts(dual, state))

                state = run(solver, dual, start, stop=stop, on_step=on_step, until=self.until)
                late = late or not stop(state)
                state = solver.unshrunk(dual, state)
                before += blockws.duality_gap(dual, start)
                after += blockws.duality_gap(dual, state)
                objective, rounds = objective + blockws.objective(dual, state), rounds + state.rounds
                converged = converged and solver.is_solved(state)
                coef[:, c], bias[c] = y[:, c] * state.alpha, state.bias
        tell.end()
        facts = {"gap_before_polish": before, "polish_rounds": rounds}
        return _Solved(coef, bias, objective, after, converged, late), facts

    def _facts(self, rows: Rows, problem: _Problem, state: ADMMState) -> dict[str, Any]:
        with self.phase("errors"), self.engine.serial_blas():
            errors = estimated_errors(
                self.kernel, rows, problem.matrix, problem.inverse, self.config.seed, self.engine.threads
            )
        residuals = {"primal_residual": float(state.primal.max()), "dual_residual": float(state.dual.max())}
        facts = {"beta": state.beta, "steps": state.steps} | residuals | errors | problem.matrix.facts()
        facts["factor_bytes"] = problem.inverse.nbytes
        H = problem.matrix.H
        ranks = [level.tolist() for level in H.ranks()[:SHOWN_LEVELS]]
        more = {name: value for name, value in facts.items() if name != "hss_ranks"}
        self.events(Compressed(H.tree.n, H.tree.depth, ranks, facts["hss_ranks"], more))
        return facts

    def _solution(self, rows: Rows, order: np.ndarray, solved: _Solved, facts: dict[str, Any]) -> Solution:
        kept = np.flatnonzero(solved.coef.any(axis=1))
        relative = solved.gap / max(abs(solved.objective), np.finfo(float).tiny)
        converged = relative <= CONVERGED if solved.converged is None else solved.converged
        config = self.config.model_copy(update={"C": facts["C"]}).model_dump(mode="json")
        header = replace(self.prepared.header(), config=config)
        coef = solved.coef[kept].astype(np.float32)
        model = ExpansionModel(header, rows.take(kept), coef, solved.bias, order[kept], self.task.name)
        return Solution(
            model,
            solved.objective,
            solved.gap,
            len(kept),
            exact=solved.converged is not None,
            converged=converged,
            advice=f"the gap is {relative:.2g} times the objective at C = {facts['C']:g} after {facts['steps']} steps; "
            "take a smaller C or more iterations, or let the exact solver finish (polish, 1000 say)",
            facts=facts,
            late=solved.late and not converged,
        )


@dataclass(frozen=True)
class _Solved:
    """coef (n, columns) y_i z_i, bias (columns,), and their dual objective and gap, summed over columns.

    converged: what the exact solver says of itself, where it went on from ADMM. late: time ended one of them.
    """

    coef: np.ndarray
    bias: np.ndarray
    objective: float
    gap: float
    converged: bool | None = None
    late: bool = False


def _objective(
    z: np.ndarray, y: np.ndarray, f: np.ndarray, upper: np.ndarray, bias: np.ndarray, own: slice
) -> tuple[float, float]:
    """Dual objective and gap of some columns, under the compressed kernel."""
    z, y, f, upper = z[:, own], y[:, own], f[:, own], upper[:, own]
    quadratic = float(np.sum(z * y * f))
    losses = float(np.sum(upper * np.maximum(0.0, 1.0 - y * (f + bias[own]))))
    return 0.5 * quadratic - float(z.sum()), quadratic - float(z.sum()) + losses


def _without_negligible(coef: np.ndarray, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients without the smallest of each column, and a bound on how that moves its decision values.

    |K(x_i, x)| is at most sqrt(K_ii) sqrt(K(x, x)): the bound is for x of the largest norm among the rows.
    """
    coef, reach = coef.copy(), np.sqrt(diagonal * diagonal.max())
    dropped = np.zeros(coef.shape[1])
    for c in range(coef.shape[1]):
        sizes = np.abs(coef[:, c]) * reach
        order = np.argsort(sizes, kind="stable")
        total = np.cumsum(sizes[order])
        count = int(np.searchsorted(total, NEGLIGIBLE, side="right"))
        coef[order[:count], c] = 0.0
        dropped[c] = total[count - 1] if count else 0.0
    return coef, dropped
