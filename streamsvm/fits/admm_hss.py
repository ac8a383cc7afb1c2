"""ADMM on a compressed kernel matrix: compress and factorise once, then solve every class and every C together.

The duals of a task become columns of ADMM, one for each decision value and each value of C (`columns_of`). They share a
compressed kernel matrix and its factorisation, which a run directory keeps (`save_factorisation`). On request the exact
block solver continues from ADMM's solution (`polished`). `ADMMHSSFit` does these steps in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, NotFoundError, StorageError
from streamsvm.events import Compressed, Events, Phase, Step
from streamsvm.fits.base import CostGrowth, Fit, FitContext, Measurements, PathFit, Solution
from streamsvm.fits.prepare import TrainingData, unreached
from streamsvm.hss.compress import HSSOptions, Tolerances, least_bytes
from streamsvm.hss.files import Factorisation, SubtreeFactorisation
from streamsvm.hss.kernel_matrix import (
    KernelMatrix,
    ShiftedKernel,
    approximate,
    estimated_errors,
    facts_of,
    require_workers,
)
from streamsvm.hss.tree import SUBTREE_ROWS, ClusterTree
from streamsvm.kernels.base import Kernel
from streamsvm.models import ExpansionModel
from streamsvm.models.files import load_factorisation, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import allowed_bytes, require_memory
from streamsvm.problems.dual import DualQP, KernelDual, dual_of
from streamsvm.progress import Rounds
from streamsvm.runs.checkpoints import without_tol
from streamsvm.solvers import blockws
from streamsvm.solvers.admm import (
    ADMM,
    ADMMColumns,
    ADMMState,
    balanced,
    certificate,
    draw_margin,
    intercept,
    paper_beta,
    without_negligible,
)
from streamsvm.solvers.catalogue import made_for
from streamsvm.solvers.loop import run
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.paths import Place
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.base import Subproblem, Targets, Task
from streamsvm.tasks.pairs import signs

BALANCE_EVERY = 10  # steps between changes of beta
BIAS_ROWS = 1000  # margin support vectors of a column, whose exact decision values give its intercept
# gap over objective: of a converged ADMM it is 1e-4 to 1e-2, and compressing adds up to a few hundredths; else it is
# from 0.1 to beyond 10
CONVERGED = 5e-2
VECTORS, TARGET_VECTORS = 11, 8  # of a column; and more, of duals with several variables a row
SHOWN_LEVELS = 7  # of the cluster tree, whose ranks are reported node by node
FEW_ROWS = 2048  # to estimate the time of compressing from
EXACT_VALUES = 1 << 22  # kernel values, at most, to certify a solution by the exact kernel
COMPRESS_SHARE, COMPRESS_POWER = 0.7, 1.1  # of the time left; power of the rows by which the time grows
INCOMPRESSIBLE = 0.9  # mean share of the largest possible ranks from which compressing does not pay
STEPS = 50  # of ADMM, for the plan


def duals(task: Task, targets: Targets) -> Iterator[Subproblem]:
    """A dual of all rows for each decision value: each class against the rest, if the task's own duals are of pairs."""
    if not task.in_pairs:
        yield from task.subproblems(targets, single=True)
        return
    ids = np.arange(len(targets.codes))
    for column, y in enumerate(signs(targets.codes, len(targets.classes)).T):
        yield Subproblem(ids, y, np.full(len(ids), column), number=column)


def columns_of(task: Task, targets: Targets, bounds: np.ndarray) -> ADMMColumns:
    """ADMM's columns of all duals, for each of the bounds (n, m), C times the weights: m times as many as duals."""
    target, rises, falls, epsilon = zip(*map(_in_coefficients, duals(task, targets)), strict=True)
    shape = len(bounds), -1
    upper = (np.stack(rises, axis=1)[:, None] * bounds[:, :, None]).reshape(shape)
    lower = (np.stack(falls, axis=1)[:, None] * -bounds[:, :, None]).reshape(shape)
    return ADMMColumns(np.tile(np.stack(target, axis=1), bounds.shape[1]), lower, upper, max(epsilon))


def _in_coefficients(dual: Subproblem) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A dual in signed coefficients: t, factors on the bounds of those above 0 and below it, and the common epsilon."""
    linear = np.broadcast_to(dual.linear, dual.y.shape)
    if dual.copies == 1:
        weight = np.ones(len(dual.y)) if dual.weight is None else dual.weight
        return -dual.y * linear, weight * (dual.y > 0), weight * (dual.y < 0), 0.0
    above, below = linear.reshape(2, -1)  # epsilon - t and epsilon + t
    rise, fall = dual.shares or (1.0, 1.0)
    ones = np.ones(len(above))
    return (below - above) / 2, rise * ones, fall * ones, float((above + below).mean() / 2)


@dataclass
class _Problem:
    """ADMM's problem: columns in tree order, and the inverse for the present beta alone."""

    columns: ADMMColumns
    matrix: KernelMatrix
    engine: Engine
    inverse: ShiftedKernel
    events: Events = field(repr=False)

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray:
        if beta != self.inverse.beta:
            self.inverse = self.matrix.shifted(beta, self.engine, self.events)
        return self.inverse.solve(V, self.engine.threads)


def save_factorisation(factorisation: Factorisation, path: Place, engine: Engine) -> None:
    """Writes a factorisation; workers write the subtrees that they hold. Raises StorageError, and ConfigError if
    workers do not see the folder."""
    tree = factorisation.matrix.tree
    if tree.cut:
        folder = _folder(path)
        with storage_errors(str(folder)):
            folder.mkdir(exist_ok=True)
        engine.require_folder(folder)
        for _ in engine.map(_write, factorisation.parts(engine), _paths(path, len(tree.roots))):
            pass
    save_model(factorisation, path)


def saved_factorisation(path: Place, key: str, engine: Engine) -> Factorisation | None:
    """The factorisation saved for the same key, if any; its subtrees are on the workers. Raises CorruptDataError."""
    with suppress(NotFoundError):
        factorisation = load_factorisation(path)
        if not isinstance(factorisation, Factorisation) or factorisation.key != key:
            return None
        if not factorisation.matrix.tree.cut:
            return factorisation
        paths = _paths(path, len(factorisation.matrix.tree.roots))
        if engine.is_local:
            return factorisation.joined([_read(path, key) for path in paths])
        engine.require_folder(_folder(path))
        return factorisation.spread(engine.hold(_read, paths, [key] * len(paths)), engine)
    return None


def _folder(path: Place) -> Place:
    return path.with_name(f"{path.stem}-subtrees")


def _paths(path: Place, count: int) -> list[Place]:
    return [_folder(path) / f"{number:05d}.zarr" for number in range(count)]


def _write(part: SubtreeFactorisation, path: Place) -> None:
    save_model(part, path)


def _read(path: Place, key: str) -> SubtreeFactorisation:
    """A subtree's factorisation. Raises NotFoundError if it belongs to another run."""
    factorisation = load_factorisation(path)
    if not isinstance(factorisation, SubtreeFactorisation) or factorisation.key != key:
        raise NotFoundError(f"{path}: belongs to another run")
    return factorisation


@dataclass(frozen=True)
class Solved:
    """Coefficients coef (n, columns), bias (columns,), and the dual objective and gap, summed over columns. converged,
    violation: of the exact solver, if it continued from ADMM; is_rounded: whether rounding kept it from improving a
    column. late: whether time ended one of them."""

    coef: np.ndarray
    bias: np.ndarray
    objective: float
    gap: float
    converged: bool | None = None
    late: bool = False
    violation: float | None = None
    is_rounded: bool = False


def polished(
    fit: Fit, rows: Rows, duals: Iterable[Subproblem], bounds: np.ndarray, start: np.ndarray, most_rounds: int
) -> tuple[Solved, JsonObject]:
    """The exact solution of each dual, with bounds (n,), from coefficients start (n, columns), and report facts."""
    coef, bias = np.empty_like(start), np.empty(start.shape[1])
    before = after = objective = 0.0
    rounds, converged, late, worst, is_rounded = 0, True, False, 0.0, False
    solver = blockws.BlockSolver(fit.config.tol, bias=True)

    def stop(state: blockws.BlockState) -> bool:
        return solver.has_ended(state, most_rounds)

    report = Rounds(fit.events, Phase.POLISH, start.shape[1], fit.config.tol)

    with fit.phase("polish"), fit.engine.serial_blas():
        for c, part in enumerate(duals):
            make_dual = partial(KernelDual, fit.kernel, rows, upper=part.bounds(bounds), threads=fit.engine.threads)
            dual = dual_of(part, make_dual)
            first = solver.init(dual, np.maximum(part.y * np.tile(start[:, c], part.copies), 0.0))

            def on_step(state: blockws.BlockState, c: int = c, dual: DualQP = dual) -> None:
                report(c, blockws.facts(dual, state))

            state = run(solver, dual, first, stop=stop, on_step=on_step, until=fit.until)
            late, is_rounded = late or not stop(state), is_rounded or state.is_rounded
            state = solver.unshrunk(dual, state)
            worst = max(worst, state.violation)
            before += blockws.duality_gap(dual, first)
            part_objective, part_gap = blockws.certificate(dual, state)
            objective, after = objective + part_objective, after + part_gap
            rounds += state.rounds
            converged = converged and solver.is_solved(state)
            coef[:, c], bias[c] = part.coefficients(state.alpha), state.bias
    report.end()
    return (
        Solved(coef, bias, objective, after, converged, late, worst, is_rounded),
        {"gap_before_polish": before, "polish_rounds": rounds},
    )


class HSSCostGrowth(CostGrowth):
    """Linear once ranks have settled, which those of small pilots have not."""

    def network_bytes(self, seen: Measurements) -> float:
        """With several subtrees, workers receive a vector of every column in each step, and send one back."""
        steps = STEPS if seen.n > SUBTREE_ROWS else 0
        return super().network_bytes(seen) + 16.0 * seen.n * seen.columns * steps

    def own_fit_s(self, n: int, config: FitConfig, pass_s: float, value_s: float) -> float:
        return pass_s  # it takes as many rows as it has time for


class ADMMHSSFit(PathFit):
    """min over a of 1/2 a'Qa - e'a, 0 <= a <= C, of each class against the rest, with Q compressed (HSS), by ADMM. One
    factorisation serves all columns (n, columns): one for each value of C and each decision value. Chavez, Liu,
    Ghysels, Li and Rebrova 2020 (the compression); Cipolla and Gondzio 2021 (ADMM with it)."""

    growth = HSSCostGrowth(1.5, ("compress", "factorise", "admm"))

    def __init__(self, prepared: TrainingData, context: FitContext) -> None:
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
        self.columns = self.task.columns(len(self.classes))
        self.samples = prepared.samples
        self.limit_bytes = allowed_bytes(config.memory_limit)
        n, tree = store.n, ClusterTree.of(store.n, options.leaf)
        self.is_spread = tree.cut > 0 and not self.engine.is_local
        self.bytes = {
            # in store order and in the tree's, and sent to the workers
            "rows_bytes": int((3 if self.is_spread else 2) * self.samples.nbytes),
            "vector_bytes": n * 8 * (VECTORS * self.columns + TARGET_VECTORS * (self.task.variables - 1)),
        }
        least = least_bytes(n, self.options)
        if self.is_spread:
            self.bytes["neighbour_bytes"] = n * 8 * options.neighbours
            require_workers(tree, self.samples.nbytes / n, self.options, self.engine)
        else:
            self.bytes["least_hss_bytes"] = least
        self.on_workers = {"least_hss_bytes_of_workers": least} if self.is_spread else {}
        require_memory(self.limit_bytes, sum(self.bytes.values()), "the compressed kernel matrix")

    def plan(self) -> JsonObject:
        """The memory, without that of the ranks, which are not known yet."""
        return self.bytes | self.on_workers | {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}

    def path(self, Cs: Sequence[float]) -> list[Solution]:
        """A solution for each C. The facts of each include those of the shared work."""
        self._require_columns(Cs, 1)
        with self.phase("read"):
            rows = self.samples.load().rows
        factorisation = self._factorised(rows)
        order, matrix = factorisation.order, factorisation.matrix
        rows = rows.take(order)
        targets, weights = self.targets.take(order), (self.upper / self.config.C)[order]
        bounds = weights[:, None] * np.asarray(Cs)
        columns = columns_of(self.task, targets, bounds)
        problem = _Problem(columns, matrix, self.engine, factorisation.inverse, self.events)
        state, z, coef, dropped, bias = self._columns_solved(rows, problem)
        with self.phase("bias"), self.engine.serial_blas():
            f = self._products(rows, matrix, z)
        facts, late = self._facts(rows, problem, state), not self._is_done(state)
        solutions = []
        for number, C in enumerate(Cs):
            columns_of_C = slice(number * self.columns, (number + 1) * self.columns)
            objective, gap = certificate(
                columns.take(columns_of_C), z[:, columns_of_C], f[:, columns_of_C], bias[columns_of_C]
            )
            solved = Solved(coef[:, columns_of_C], bias[columns_of_C], objective, gap, late=late)
            facts_of_C: JsonObject = {"C": C, "dropped_bound": float(dropped[columns_of_C].max())}
            if (most_rounds := self.config.admm_hss.polish) and not late:
                parts = duals(self.task, targets)
                solved, polish_facts = polished(self, rows, parts, bounds[:, number], z[:, columns_of_C], most_rounds)
                facts_of_C |= polish_facts
            solutions.append(self._solution(rows, order, solved, facts | facts_of_C))
        return solutions

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        return not config.admm_hss.polish

    def folds(self, Cs: Sequence[float], fold_of: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """As `Fit.folds`. All folds and Cs share a factorisation: held-out rows of a fold have bounds of 0."""
        self._require_columns(Cs, count)
        rows = self.samples.load().rows
        factorisation = self._factorised(rows)
        rows, fold_of_row = rows.take(factorisation.order), fold_of[factorisation.order]
        targets, weights = self.targets.take(factorisation.order), (self.upper / self.config.C)[factorisation.order]
        weights_by_fold = weights[:, None] * (fold_of_row[:, None] != np.arange(count))
        bounds = (weights_by_fold[:, :, None] * np.asarray(Cs)).reshape(len(rows), -1)
        columns = columns_of(self.task, targets, bounds)
        problem = _Problem(columns, factorisation.matrix, self.engine, factorisation.inverse, self.events)
        _, z, coef, _, bias = self._columns_solved(rows, problem)
        converged = self._converged(columns, z, factorisation.matrix.product(z, self.engine.threads), bias)
        coef, bias = (array.reshape(*array.shape[:-1], count, -1) for array in (coef, bias))
        sums = np.empty((len(rows), coef.shape[-1]))
        for fold in range(count):
            held_out, support = np.flatnonzero(fold_of_row == fold), np.flatnonzero(coef[:, fold].any(axis=1))
            fold_coef = coef[support, fold]
            sums[factorisation.order[held_out]] = bias[fold] + self.kernel.apply(
                rows.take(held_out), rows.take(support), fold_coef, self.engine.threads
            )
        decisions = targets.units.labels(sums).reshape(len(rows), len(Cs), self.columns)
        return decisions, converged.reshape(count, len(Cs)).T

    def _converged(self, columns: ADMMColumns, z: np.ndarray, f: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """(fits,) whether the gap of each fit, all of its columns together, is small; f = Kz."""
        converged = []
        for first in range(0, z.shape[1], self.columns):
            columns_of_fit = slice(first, first + self.columns)
            objective, gap = certificate(
                columns.take(columns_of_fit), z[:, columns_of_fit], f[:, columns_of_fit], bias[columns_of_fit]
            )
            converged.append(_relative(objective, gap) <= CONVERGED)
        return np.array(converged)

    def _require_columns(self, Cs: Sequence[float], folds: int) -> None:
        vectors = self.bytes["vector_bytes"] * (len(Cs) * folds - 1)
        require_memory(self.limit_bytes, sum(self.bytes.values()) + vectors, f"{len(Cs)} values of C")

    def _columns_solved(
        self, rows: Rows, problem: _Problem
    ) -> tuple[ADMMState, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ADMM's state; of each column feasible z (n, c), coefficients (n, c), the largest dropped one, bias (c,)."""
        with self.phase("admm"):
            state = self._solve(problem)
        with self.phase("bias"), self.engine.serial_blas():
            self.events.progress("bias", 0, self.columns)
            z = balanced(state.z)
            coef, dropped = without_negligible(z, self.kernel.diag(rows))
            bias = self._bias(rows, problem, z, coef)
            self.events.progress("bias", self.columns, self.columns)
            return state, z, coef, dropped, bias

    def _factorised(self, rows: Rows) -> Factorisation:
        """The factorisation in the run directory, or a new one, which is saved there if the disk has room."""
        path = self.checkpoints.run_dir and self.checkpoints.run_dir / "factor.zarr"
        key = json.dumps(without_tol(self.checkpoints.identity))
        if path and self.checkpoints.resume and (saved := saved_factorisation(path, key, self.engine)):
            return saved
        ids = self._in_time(rows)
        order, matrix, inverse = self._made(rows.take(ids) if len(ids) < len(rows) else rows, self.options)
        self._warn_of_ranks(matrix)
        factorisation = Factorisation(ids[order], matrix, inverse, key)
        if path:
            with self.phase("keep"):
                try:
                    save_factorisation(factorisation, path, self.engine)
                except (StorageError, ConfigError) as error:
                    self.events.warn(f"{error}: --resume would compress again")
        return factorisation

    def _in_time(self, rows: Rows) -> np.ndarray:
        """The rows that there is time to compress, estimated from a few: compression cannot be stopped."""
        n, few = len(rows), max(FEW_ROWS, len(rows) // 32)
        if self.until is None or n < 4 * few:
            return np.arange(n)
        drawn, began = np.random.default_rng([self.config.seed, 6]).permutation(n), time.time()
        self._made(rows.take(np.sort(drawn[:few])), self.options)
        left_s, took_s = COMPRESS_SHARE * (self.until - time.time()), time.time() - began
        count = min(n, int(few * max(1.0, left_s / took_s) ** (1 / COMPRESS_POWER)))
        if count < n:
            self.events.warn(f"the time left is enough to learn from {count:,} of {n:,} rows")
        return np.sort(drawn[:count])

    def _made(self, rows: Rows, options: HSSOptions) -> tuple[np.ndarray, KernelMatrix, ShiftedKernel]:
        """Order, matrix and inverse; computed again with definite bases if other ones do not give an inverse."""
        with self.phase("compress"):
            order, matrix = approximate(self.kernel, rows, options, self.engine, self.limit_bytes, self.events)
        try:
            with self.phase("factorise"):
                return order, matrix, matrix.shifted(self._beta(rows), self.engine, self.events)
        except ConfigError as error:
            if options.tolerances.definite is not None:
                raise
            self.events.warn(f"{error}; compressed again, with admm_hss.definite")
        definite = replace(options, tolerances=replace(options.tolerances, definite=True))
        return self._made(rows, definite)

    def _beta(self, rows: Rows) -> float:
        """The given beta, or the paper's times the mean diagonal, as it is for kernels with a diagonal of 1."""
        beta = self.config.admm_hss.beta
        return beta if isinstance(beta, float) else paper_beta(len(rows)) * float(self.kernel.diag(rows).mean())

    def _warn_of_ranks(self, matrix: KernelMatrix) -> None:
        if matrix.tree.depth < 3:  # too few blocks to judge by, and nothing to save
            return
        share = matrix.fullness(self.config.admm_hss.max_rank)
        if share > INCOMPRESSIBLE:
            linear = made_for("linear", self.task.name) if self.store.is_sparse else None
            other = f"{linear} with a linear kernel, or dcsvm" if linear else "dcsvm"
            self.events.warn(
                f"the kernel matrix compresses badly: ranks are {share:.0%} of the maximum; use solver {other} instead"
            )

    def _solve(self, problem: _Problem) -> ADMMState:
        options = self.config.admm_hss
        solver = ADMM(problem.inverse.beta, BALANCE_EVERY if options.beta == "balance" else 0)
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
        """(c,) intercepts by equation (7), with the exact kernel: the compressed one has a smooth error."""
        columns, seed = problem.columns, [self.config.seed, 5]  # of each, so that it does not depend on the others
        bounds = np.select([z > 0, z < 0], [columns.upper, -columns.lower], np.maximum(columns.upper, -columns.lower))
        pairs = zip(z.T, bounds.T, strict=True)
        drawn = [draw_margin(a, most, BIAS_ROWS, np.random.default_rng(seed)) for a, most in pairs]
        margin_rows, places = np.unique(np.stack(drawn), return_inverse=True)
        support = np.flatnonzero(coef.any(axis=1))
        f = self.kernel.apply(rows.take(margin_rows), rows.take(support), coef[support], self.engine.threads)
        intercepts = []
        for c, (ids, place) in enumerate(zip(drawn, places.reshape(len(drawn), -1), strict=True)):
            limits = columns.lower[ids, c], columns.upper[ids, c]
            intercepts.append(intercept(columns.target[ids, c] - f[place, c], z[ids, c], limits, columns.epsilon))
        return np.array(intercepts)

    def _products(self, rows: Rows, matrix: KernelMatrix, z: np.ndarray) -> np.ndarray:
        """Kz (n, c) for the certificate: of the kernel itself, in float64, if that is cheap; else compressed."""
        support = np.flatnonzero(z.any(axis=1))
        if len(rows) * len(support) > EXACT_VALUES:
            return matrix.product(z, self.engine.threads)
        return self.kernel.in_float64().apply(rows, rows.take(support), z[support], self.engine.threads)

    def _facts(self, rows: Rows, problem: _Problem, state: ADMMState) -> JsonObject:
        with self.phase("errors"), self.engine.serial_blas():
            errors = estimated_errors(
                self.kernel, rows, problem.matrix, problem.inverse, self.config.seed, self.engine.threads
            )
        residuals = {"primal_residual": float(state.primal.max()), "dual_residual": float(state.dual.max())}
        facts = {"beta": state.beta, "steps": state.steps} | residuals | errors | facts_of(problem.matrix)
        facts["factor_bytes"] = problem.inverse.nbytes
        tree = problem.matrix.tree
        ranks = [level.tolist() for level in problem.matrix.ranks()[:SHOWN_LEVELS]]
        shown = {name: value for name, value in facts.items() if name != "hss_ranks"}
        self.events(Compressed(tree.n, tree.depth, ranks, facts["hss_ranks"], shown))
        return facts

    def _solution(self, rows: Rows, order: np.ndarray, solved: Solved, facts: JsonObject) -> Solution:
        support_ids = np.flatnonzero(solved.coef.any(axis=1))
        relative = _relative(solved.objective, solved.gap)
        converged = relative <= CONVERGED if solved.converged is None else solved.converged
        config = self.config.model_copy(update={"C": facts["C"]}).model_dump(mode="json")
        header = replace(self.prepared.header(), config=config)
        units = self.prepared.no_targets.units
        support, coef = rows.take(support_ids), units.scale * solved.coef[support_ids]
        if isinstance(self.kernel.for_sums(support, coef), Kernel):
            coef = coef.astype(np.float32)
        ids = self.prepared.original_ids(order[support_ids])
        model = ExpansionModel(header, support, coef, units.labels(solved.bias), ids, self.task.name)
        advice = (
            f"the gap is {relative:.2g} times the objective at C = {facts['C']:g} after {facts['steps']} steps; take a "
            "smaller C or more iterations, or let the exact solver finish (polish, 1000 say)"
        )
        if solved.is_rounded and solved.violation is not None:
            advice = unreached(solved.violation, self.config.tol)
        return Solution(
            model,
            solved.objective,
            solved.gap,
            len(support_ids),
            exact=solved.converged is not None,
            converged=converged,
            advice=advice,
            facts=facts,
            late=solved.late and not converged,
            violation=solved.violation,
        )


def _relative(objective: float, gap: float) -> float:
    return gap / max(abs(objective), np.finfo(float).tiny)
