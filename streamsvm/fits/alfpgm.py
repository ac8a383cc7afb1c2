"""ALFPGM over a store: LIBSVM's problem of each pair of classes, or epsilon regression, with rows in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np

from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.data.samples import StoreSamples
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.events import Events, Rounds
from streamsvm.fits.base import Fit
from streamsvm.graph import Engine
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.inner import Precomputed
from streamsvm.memory import require_memory
from streamsvm.models import ExpansionModel, KernelModel
from streamsvm.problems import DualQP, KernelDual, MatrixDual, RegressionDual
from streamsvm.sizes import Weighed
from streamsvm.solvers import blockws
from streamsvm.solvers.alfpgm import ALFPGM, ALFPGMState
from streamsvm.solvers.base import run
from streamsvm.solvers.pairs import Targets, n_pairs, pairs

ROW_BYTES = 300  # solver vectors of one row

MakeDual = Callable[[Rows, int, int], DualQP]  # from all rows, threads and cache bytes


@dataclass(frozen=True)
class Facts:
    """How one problem ended."""

    intercept: float
    objective: float
    gap: float
    rounds: int
    violation: float


class ALFPGMFit(Fit):
    """One problem for each pair of classes; with task regress one in all."""

    def __init__(
        self, store: Store, config: FitConfig, engine: Engine, events: Events, checkpoints: Checkpoints
    ) -> None:
        super().__init__(store, config, engine, events, checkpoints)
        if isinstance(self.kernel, Precomputed) and store.n != store.d:
            raise DataError(
                f"{store.url or 'X'} is {store.n} x {store.d}; expected a square matrix, the kernel values of all "
                "training rows with each other"
            )
        options = config.alfpgm
        self.solver = ALFPGM(
            config.tol,
            4 * options.pairs,
            subproblem=options.subproblem,
            mu=options.mu,
            candidates=options.min_alpha_check,
            least_uses=options.min_alpha_opt,
            most_uses=options.max_alpha_opt,
            settled=options.delta_alpha,
            shrinking=options.shrinking,
        )
        self.samples = StoreSamples(store, self.scaling)
        self.bytes = {
            "rows_bytes": int(3 * self.samples.nbytes),  # all, a pair's, and its active ones
            "vector_bytes": store.n * ROW_BYTES,
            "cache_bytes": config.cache_size,
        }
        what = "the rows in memory, which solver alfpgm needs and dcsvm does not"
        require_memory(config.memory_limit, sum(self.bytes.values()), what)

    def plan(self) -> dict[str, Any]:
        """Memory, and how many problems."""
        facts = {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}
        return self.bytes | facts | {"problems": max(1, n_pairs(len(self.classes)))}

    def model(self) -> tuple[KernelModel | ExpansionModel, dict[str, Any]]:
        with self.phase("read"):
            rows = self.samples.load().rows
        return self._regressed(rows) if self.config.task == "regress" else self._classified(rows)

    def _classified(self, rows: Rows) -> tuple[KernelModel, dict[str, Any]]:
        targets = Targets(self.codes, self.upper, len(self.classes), np.zeros(len(rows), np.int32))
        problems = list(pairs(targets, single=False))
        alpha = np.zeros((len(rows), len(self.classes) - 1))
        duals = [_PairDual(self.kernel, pair.ids, pair.y, self.upper[pair.ids]) for pair in problems]
        solved, facts = self._solved(rows, duals, [len(pair.ids) for pair in problems])
        for pair, found in zip(problems, solved, strict=True):
            alpha[pair.ids, pair.columns] = found
        support = np.flatnonzero(alpha.any(axis=1))
        certificate, report = self._told(facts, len(support))
        model = KernelModel(
            self.header(certificate),
            self.kernel.support(rows, support),
            alpha[support],
            self.codes[support],
            support,
            np.array([f.intercept for f in facts]),
            self.config.alfpgm.break_ties,
        )
        return model, report

    def _regressed(self, rows: Rows) -> tuple[ExpansionModel, dict[str, Any]]:
        n, target = len(rows), self.store.y.astype(np.float64)
        dual = _TargetDual(self.kernel, self.upper, target, self.config.alfpgm.epsilon)
        [alpha], facts = self._solved(rows, [dual], [2 * n])
        coef = alpha[:n] - alpha[n:]
        support = np.flatnonzero(coef)
        certificate, report = self._told(facts, len(support))
        intercept, header = np.array([facts[0].intercept]), self.header(certificate)
        model = ExpansionModel(
            header, self.kernel.support(rows, support), coef[support, None], intercept, support, "regress"
        )
        return model, report

    def _told(self, facts: list[Facts], n_support: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The certificate, and the report."""
        worst = max(f.violation for f in facts)
        rounds, tol = [f.rounds for f in facts], self.config.tol
        certificate = self.certificate(
            sum(f.objective for f in facts),
            sum(f.gap for f in facts),
            exact=True,
            converged=worst <= tol,
            advice=f"stopped after {max(rounds)} rounds at a violation of {worst:.2g}, tol is {tol:g}; give a larger "
            "max_iter, or scale the features",
        )
        return certificate, self.report(certificate, n_support, rounds=rounds, violation=worst)

    def _solved(
        self, rows: Rows, duals: Sequence[MakeDual], sizes: Sequence[int]
    ) -> tuple[list[np.ndarray], list[Facts]]:
        """Coefficients and facts of all problems, those of a checkpoint first."""
        alphas, facts = [], []
        saved = self.checkpoints.load() or {"alpha": np.empty(0), "facts": np.empty((0, 5))}
        done = len(saved["facts"])
        alphas += np.split(saved["alpha"], np.cumsum(sizes[:done]))[:done]
        facts += [Facts(b, f, gap, int(rounds), v) for b, f, gap, rounds, v in saved["facts"].tolist()]
        running = {name[8:]: value for name, value in saved.items() if name.startswith("running_")}

        def so_far(state: ALFPGMState | None = None) -> dict[str, Any]:
            now = {f"running_{name}": value for name, value in (state.to_arrays() if state else {}).items()}
            table = np.array([astuple(f) for f in facts]).reshape(-1, 5)
            return {"alpha": np.concatenate([*alphas, np.empty(0)]), "facts": table} | now

        def keep(state: ALFPGMState | None = None) -> None:
            self.checkpoints.offer(partial(so_far, state), last=len(facts) == len(duals))

        with self.phase("solve"), self.engine.serial_blas():
            for alpha, found in self._solutions(rows, duals[done:], running, keep):
                alphas.append(alpha)
                facts.append(found)
                keep()
        return alphas, facts

    def _solutions(
        self,
        rows: Rows,
        duals: Sequence[MakeDual],
        running: dict[str, np.ndarray],
        keep: Callable[..., None],
    ) -> Iterator[tuple[np.ndarray, Facts]]:
        """Few problems one after the other in this process, each on all threads; many side by side."""
        cache_bytes, slots = self.config.cache_size, self.engine.slots
        solve = partial(_solve, self.solver, self.config.alfpgm.max_iter or math.inf)
        if len(duals) >= 4 * slots and not running:
            alone = partial(solve, 1, cache_bytes // self.engine.worker_memory()[1])
            shared = (self.engine.share(rows),)
            yield from self.engine.map(
                alone, duals, shared=shared, window=16 * slots, phase="pairs", events=self.events
            )
            return
        rounds = Rounds(self.events, "solve", len(duals), self.config.tol)
        for number, dual in enumerate(duals):

            def on_step(state: ALFPGMState, problem: DualQP, number: int = number) -> None:
                active = len(state.alpha) if state.active is None else len(state.active)
                sizes = {"working_set": len(state.block), "active": active}
                rounds(number, blockws.facts(problem, state) | sizes)
                keep(state)

            start = ALFPGMState.from_arrays(running) if running else None
            running = {}
            yield solve(self.engine.threads, cache_bytes, rows, dual, start, on_step)
        rounds.end()


@dataclass(frozen=True)
class _PairDual(Weighed):
    """The problem of two classes, over some of the rows."""

    kernel: Kernel
    ids: np.ndarray
    y: np.ndarray
    upper: np.ndarray

    def __call__(self, rows: Rows, threads: int, cache_bytes: int) -> DualQP:
        part = rows if len(self.ids) == len(rows) else rows.take(self.ids)
        if isinstance(self.kernel, Precomputed):
            return MatrixDual(part.dense()[:, self.ids], self.y, self.upper, threads)
        return KernelDual(self.kernel, part, self.y, self.upper, threads, cache_bytes=cache_bytes)


@dataclass(frozen=True)
class _TargetDual(Weighed):
    """The problem of a regression."""

    kernel: Kernel
    upper: np.ndarray
    target: np.ndarray
    epsilon: float

    def __call__(self, rows: Rows, threads: int, cache_bytes: int) -> RegressionDual:
        all_rows, ones = np.arange(len(rows)), np.ones(len(rows))
        half = _PairDual(self.kernel, all_rows, ones, self.upper)(rows, threads, cache_bytes)
        return RegressionDual(half, self.target, self.epsilon)


def _solve(
    solver: ALFPGM,
    most_rounds: float,
    threads: int,
    cache_bytes: int,
    rows: Rows,
    make: MakeDual,
    start: ALFPGMState | None = None,
    on_step: Callable[[Any, DualQP], None] = lambda state, problem: None,
) -> tuple[np.ndarray, Facts]:
    dual = make(rows, threads, cache_bytes)

    def stop(state: Any) -> bool:
        return solver.is_solved(state) or state.rounds >= most_rounds

    def told(state: Any) -> None:
        on_step(state, dual)

    state = solver.unshrunk(dual, run(solver, dual, start, stop=stop, on_step=told))
    objective, gap = blockws.objective(dual, state), blockws.duality_gap(dual, state)
    return state.alpha, Facts(state.bias, objective, gap, state.rounds, state.violation)
