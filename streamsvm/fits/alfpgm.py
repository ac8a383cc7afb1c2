"""ALFPGM over a store: LIBSVM's problem of each pair of classes, or epsilon regression, with rows in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.data.samples import StoreSamples
from streamsvm.data.store import Store
from streamsvm.events import Events
from streamsvm.fits.base import Fit
from streamsvm.memory import require_memory
from streamsvm.models import ExpansionModel, KernelModel
from streamsvm.problems import DualQP, KernelDual, RegressionDual
from streamsvm.solvers import blockws
from streamsvm.solvers.alfpgm import ALFPGM, ALFPGMState
from streamsvm.solvers.base import run
from streamsvm.solvers.pairs import Targets, n_pairs, pairs

SAVE_SECONDS = 30.0
ROW_BYTES = 300  # solver vectors of one row

MakeDual = Callable[[int, int], DualQP]  # from threads and cache bytes


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

    def __init__(self, store: Store, config: FitConfig, events: Events, checkpoints: Checkpoints) -> None:
        super().__init__(store, config, events, checkpoints)
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

        def dual(pair: Any) -> MakeDual:
            def make(threads: int, cache_bytes: int) -> KernelDual:
                part = rows if len(pair.ids) == len(rows) else rows.take(pair.ids)
                upper = self.upper[pair.ids]
                return KernelDual(self.kernel, part, pair.y, upper, threads, cache_bytes=cache_bytes)

            return make

        alpha = np.zeros((len(rows), len(self.classes) - 1))
        solved, facts = self._solved([dual(pair) for pair in problems], [len(pair.ids) for pair in problems])
        for pair, found in zip(problems, solved, strict=True):
            alpha[pair.ids, pair.columns] = found
        support = np.flatnonzero(alpha.any(axis=1))
        certificate, report = self._told(facts, len(support))
        intercept = np.array([f.intercept for f in facts])
        header, kept = self.header(certificate), rows.take(support)
        return KernelModel(
            header,
            kept,
            alpha[support],
            self.codes[support],
            support,
            intercept,
            self.config.alfpgm.break_ties,
        ), report

    def _regressed(self, rows: Rows) -> tuple[ExpansionModel, dict[str, Any]]:
        n, target = len(rows), self.store.y.astype(np.float64)

        def make(threads: int, cache_bytes: int) -> RegressionDual:
            half = KernelDual(self.kernel, rows, np.ones(n), self.upper, threads, cache_bytes=cache_bytes)
            return RegressionDual(half, target, self.config.alfpgm.epsilon)

        [alpha], facts = self._solved([make], [2 * n])
        coef = alpha[:n] - alpha[n:]
        support = np.flatnonzero(coef)
        certificate, report = self._told(facts, len(support))
        intercept = np.array([f.intercept for f in facts])
        header = self.header(certificate)
        return ExpansionModel(
            header, rows.take(support), coef[support, None], intercept, support, "regress"
        ), report

    def _told(self, facts: list[Facts], n_support: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The certificate, and the report."""
        worst = max(f.violation for f in facts)
        converged = worst <= self.config.tol
        if not converged:
            message = (
                f"stopped after max_iter={self.config.alfpgm.max_iter} rounds with violation {worst:.2g}"
            )
            self.events("warning", message=f"{message}, tol is {self.config.tol:g}")
        certificate = {
            "objective": sum(f.objective for f in facts),
            "gap": sum(f.gap for f in facts),
            "tol": self.config.tol,
            "exact": True,
        }
        rounds = [f.rounds for f in facts]
        return certificate, self.report(
            certificate, n_support, rounds=rounds, violation=worst, converged=converged
        )

    def _solved(
        self, duals: Sequence[MakeDual], sizes: Sequence[int]
    ) -> tuple[list[np.ndarray], list[Facts]]:
        """Coefficients and facts of all problems, those of a checkpoint first."""
        alphas, facts = [], []
        saved = self.checkpoints.load() or {"alpha": np.empty(0), "facts": np.empty((0, 5))}
        done = len(saved["facts"])
        alphas += np.split(saved["alpha"], np.cumsum(sizes[:done]))[:done]
        facts += [Facts(b, f, gap, int(rounds), v) for b, f, gap, rounds, v in saved["facts"].tolist()]
        running = {name[8:]: value for name, value in saved.items() if name.startswith("running_")}
        saved_at = time.perf_counter()

        def keep(state: ALFPGMState | None = None) -> None:
            nonlocal saved_at
            if time.perf_counter() - saved_at > SAVE_SECONDS:
                saved_at = time.perf_counter()
                now = {
                    f"running_{name}": value for name, value in (state.to_arrays() if state else {}).items()
                }
                table = np.array([astuple(f) for f in facts]).reshape(-1, 5)
                self.checkpoints.save(alpha=np.concatenate([*alphas, np.empty(0)]), facts=table, **now)

        with self.phase("solve"), self.engine.serial_blas():
            for alpha, found in self._solutions(duals[done:], running, keep):
                alphas.append(alpha)
                facts.append(found)
                keep()
        return alphas, facts

    def _solutions(
        self, duals: Sequence[MakeDual], running: dict[str, np.ndarray], keep: Callable[..., None]
    ) -> Iterator[tuple[np.ndarray, Facts]]:
        """Few problems one after the other, each on all threads; many side by side."""
        cache_bytes, threads = self.config.cache_size, self.engine.threads
        if len(duals) >= 4 * threads and not running:

            def solve(make: MakeDual) -> tuple[np.ndarray, Facts]:
                return self._solve(make(1, cache_bytes // threads), None, lambda state: None)

            yield from self.engine.map(solve, duals, phase="pairs", events=self.events, window=16 * threads)
            return
        for number, make in enumerate(duals):

            def on_step(state: ALFPGMState, number: int = number) -> None:
                facts = {"round": state.rounds, "violation": state.violation}
                self.events("round", phase="solve", **facts)
                self.events.progress("solve", number, len(duals), **facts)
                keep(state)

            start = ALFPGMState.from_arrays(running) if running else None
            running = {}
            yield self._solve(make(threads, cache_bytes), start, on_step)
        self.events.progress("solve", len(duals), len(duals))

    def _solve(
        self, dual: DualQP, start: ALFPGMState | None, on_step: Callable[[Any], None]
    ) -> tuple[np.ndarray, Facts]:
        most = self.config.alfpgm.max_iter or np.inf

        def stop(state: Any) -> bool:
            return self.solver.is_solved(state) or state.rounds >= most

        state = run(self.solver, dual, start, stop=stop, on_step=on_step)
        state = self.solver.unshrunk(dual, state)
        objective, gap = blockws.objective(dual, state), blockws.duality_gap(dual, state)
        return state.alpha, Facts(state.bias, objective, gap, state.rounds, state.violation)
