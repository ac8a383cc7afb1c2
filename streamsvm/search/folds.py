"""How points are scored on folds: by a fit for each (`one_by_one`), or all folds as one problem (`all_along_C`).

Points that differ only in C share a problem in which held-out rows of a fold have the upper bound C_i = 0. dcsvm
(exact) and alfpgm: all folds in parallel over the same kernel values, each C from the solution of the one before.
admm-hss: one factorisation for all C and folds. Scaling, gamma = 'scale' and balanced weights are those of all rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.folds import Folds
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.fits.base import Fit
from streamsvm.fits.prepare import with_task
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import allowed_bytes, process_bytes
from streamsvm.parallel.prefetch import ahead, as_they_come
from streamsvm.predict import assess, evaluate
from streamsvm.problems.dual import CachedGram, KernelColumns
from streamsvm.solvers.blockws import BlockSolver
from streamsvm.solvers.catalogue import fit_class
from streamsvm.solvers.lockstep import BLOCK, WHOLE, Lockstep, LockstepState
from streamsvm.solvers.loop import is_late
from streamsvm.storage.text import JsonObject
from streamsvm.tasks import task_for
from streamsvm.tasks.base import Subproblem
from streamsvm.tasks.pairs import joined
from streamsvm.train import Run, planned_fit, progress_of, train_in_memory, without_probabilities

COLUMN_BYTES = 100  # of a row in one fold: temporaries of a round
STATE_BYTES = 16  # of a row in one fold: the state of each problem that it is in


def can_share(store: Store, config: FitConfig, folds: int) -> bool:
    """Whether the folds of this configuration can be one problem. A metric is not shared: each fold learns its own."""
    if config.metric.kind != "none":
        return False
    if config.workers or config.scheduler:
        return False
    fit, task = fit_class(config.solver), task_for(with_task(config, store))
    return fit.shares_folds(store.n, config) and (
        decides_folds(fit) or (task.has_classes and _fit_at_a_time(store, config, folds) >= 1)
    )


def decides_folds(fit: type[Fit]) -> bool:
    """Whether a fit decides all folds by itself; else their duals are solved in parallel here."""
    return fit.folds is not Fit.folds


def _fit_at_a_time(store: Store, config: FitConfig, folds: int) -> int:
    """The number of groups whose rows, vectors and kernel values fit in memory together."""
    task = task_for(config)
    k = 2 if config.positive else len(task.classes_of(store.classes.values))
    columns = task.coefficients(k)
    rows_bytes = (2 + columns) * store.nbytes * (1 if store.is_sparse else 4 / store.dtype.itemsize)
    vector_bytes = store.n * folds * (COLUMN_BYTES + STATE_BYTES * columns)
    gram_bytes = 4 * min(store.n, WHOLE) ** 2
    free = allowed_bytes(config.memory_limit) - process_bytes()
    return max(0, int(free / (rows_bytes + vector_bytes + gram_bytes)))


def all_along_C(
    store: Store, folds: Folds, groups: list[list[FoldFit]], score: Score, events: Events, until: float | None = None
) -> Iterator[Outcome | Failure]:
    """`along_C` of each group. With few rows, one group per thread, as a round leaves a part to one thread."""
    groups = sorted(groups, key=_gamma_of, reverse=True)  # what takes longest begins first
    config = groups[0][0].config
    slots = min(len(groups), slots_of(store, config), max(1, _fit_at_a_time(store, config, folds.count)))
    if slots > 1:
        one = {"threads": 1}
        groups = [[replace(job, config=job.config.model_copy(update=one)) for job in group] for group in groups]
    with Engine(1).serial_blas():
        yield from as_they_come([partial(along_C, store, folds, g, score, events, until) for g in groups], slots)


def _gamma_of(group: list[FoldFit]) -> float:
    """gamma, by which groups are ordered: narrow kernels have the most support vectors."""
    gamma = group[0].config.kernel.gamma
    return gamma if isinstance(gamma, float) else 0.0


def along_C(
    store: Store, folds: Folds, jobs: list[FoldFit], score: Score, events: Events, until: float | None = None
) -> Iterator[Outcome | Failure]:
    """The outcomes of jobs whose points differ only in C, on all folds; C rises. until: time.time() after which no more
    start. If a fit fails, so do those of larger C."""
    if is_late(until):
        return
    jobs, done = sorted(jobs, key=lambda job: job.config.C), set[int]()
    share, Cs = jobs[0].share, {job.point: job.config.C for job in jobs}
    ids = np.flatnonzero(folds.joins < share)
    shared_store, fold_of = store.subset(ids) if len(ids) < store.n else store, folds.of[ids]
    began = time.perf_counter()
    try:
        config, run = with_task(jobs[0].config, shared_store), Run(progress_of(events))
        with planned_fit(shared_store, config, run) as fit, fit.engine.serial_blas():
            judge, decide = fit.judge(), _factorised if decides_folds(type(fit)) else _solved
            for point, decisions, converged in decide(fit, Cs, fold_of, folds.count):
                seconds, began = (time.perf_counter() - began) / folds.count, time.perf_counter()
                for job in (job for job in jobs if job.point == point):
                    held_out = np.flatnonzero(fold_of == job.fold)
                    blocks = [(0, len(held_out), (decisions[held_out], None))]
                    evaluation = assess(judge, shared_store.subset(held_out), blocks)
                    outcome = Outcome(point, job.fold, score(evaluation), seconds, bool(converged[job.fold]))
                    done.add(point)
                    yield outcome
                if is_late(until):
                    return
    except ConfigError as error:  # for example values beyond float32
        yield from (Failure(point, error) for point in Cs.keys() - done)


# A point, decision values (n,) or (n, k) of held-out rows, and whether the fit without each fold reached tol (folds,)
Decided = Iterator[tuple[int, np.ndarray, np.ndarray]]


def _factorised(fit: Fit, Cs: dict[int, float], fold_of: np.ndarray, folds: int) -> Decided:
    decisions, converged = fit.folds(list(Cs.values()), fold_of, folds)
    for number, point in enumerate(Cs):
        decided = decisions[:, number]
        yield point, decided[:, 0] if decided.shape[1] == 1 else decided, converged[number]


def _solved(fit: Fit, Cs: dict[int, float], fold_of: np.ndarray, folds: int) -> Decided:
    k, rows = len(fit.classes), fit.prepared.samples.load().rows
    weights = np.where(fold_of == np.arange(folds)[:, None], 0.0, fit.upper / fit.config.C)
    solver = Lockstep(BlockSolver(fit.config.tol, BLOCK, fit.has_bias), fit.engine.threads)
    gram = CachedGram(BLOCK)
    parts = [_FoldsProblem(fit, rows, part, weights, gram) for part in fit.task.subproblems(fit.targets, single=True)]
    for point, C in Cs.items():
        decisions = np.stack([part.decisions(solver, C, fold_of) for part in parts], axis=1)
        converged = np.all([part.converged(solver) for part in parts], axis=0)
        yield point, joined(decisions, k, pairwise=fit.task.in_pairs), converged


class _FoldsProblem:
    """A subproblem on every fold, solved from the solution for the C before. weights: (folds, n)."""

    def __init__(self, fit: Fit, rows: Rows, part: Subproblem, weights: np.ndarray, gram: CachedGram) -> None:
        self._rows, self._kernel = rows, fit.kernel
        self._members, self._others = part.ids, np.delete(np.arange(len(rows)), part.ids)
        self._weights = part.bounds(weights)
        members_rows = rows.take(self._members) if len(self._others) else rows
        self._problem = KernelColumns(
            fit.kernel, members_rows, part.y, self._weights, fit.engine.threads, part.linear, gram
        )
        self._state: LockstepState | None = None

    def converged(self, solver: Lockstep) -> np.ndarray:
        assert self._state is not None
        return np.array([solver.solver.is_solved(column) for column in self._state.columns])

    def decisions(self, solver: Lockstep, C: float, fold_of: np.ndarray) -> np.ndarray:
        """(n,) decision values of each row by the fit without the rows of its fold."""
        problem, members, others = self._problem, self._members, self._others
        problem.upper = C * self._weights
        start = solver.again(problem, self._state) if self._state else solver.init(problem)
        self._state = state = solver.solve(problem, start)
        bias = np.array([column.bias for column in state.columns])
        decisions = bias[fold_of]
        Qa = np.stack([column.gradient for column in state.columns]) - problem.linear
        decisions[members] += problem.y * Qa[fold_of[members], np.arange(len(members))]
        if len(others):  # no rows of this problem
            support = np.flatnonzero(state.alpha.any(axis=0))
            coef = (state.alpha * problem.y)[:, support].T
            values = self._kernel.apply(self._rows.take(others), problem.rows.take(support), coef, problem.threads)
            decisions[others] += values[np.arange(len(others)), fold_of[others]]
        return decisions


SMALL = 0.05  # share of the memory limit that rows may take if several fits run in parallel


@dataclass(frozen=True)
class FoldFit:
    """A fit of a point of the grid, by its number, on a fold of this share of all rows."""

    point: int
    fold: int
    share: float
    config: FitConfig


@dataclass(frozen=True)
class Outcome:
    """The score of a point on a fold's held-out rows, its seconds, and whether its fit reached its tol, if any."""

    point: int
    fold: int
    score: float
    seconds: float
    converged: bool = True


@dataclass(frozen=True)
class Failure:
    """The error that the fit of a point raised."""

    point: int
    error: ConfigError


Score = Callable[[JsonObject], float]  # of a result of `predict.evaluate`


def one_by_one(
    store: Store, folds: Folds, jobs: list[FoldFit], score: Score, events: Events
) -> Iterator[Outcome | Failure]:
    """The outcomes of all jobs; small ones run in parallel, each on one thread."""
    with _cluster(jobs[0].config, events) as scheduler:
        slots = 1 if scheduler else slots_of(store, jobs[0].config)
        work = partial(_outcome, store, folds, score, scheduler, slots)
        with Engine(1).serial_blas():
            yield from ahead(work, jobs, slots)


def _outcome(
    store: Store, folds: Folds, score: Score, scheduler: str | None, slots: int, job: FoldFit
) -> Outcome | Failure:
    began = time.perf_counter()
    train, held_out = (store.subset(ids) for ids in folds.members(job.fold, job.share))
    config = without_probabilities(job.config).model_copy(update={"scheduler": scheduler, "workers": None})
    threads = config.threads or Engine().threads
    if slots > 1:
        config = config.model_copy(update={"threads": 1, "cache_size": config.cache_size // slots})
    try:
        model, report = train_in_memory(train, config, ignore)
        evaluation = evaluate(model, held_out, engine=Engine(threads // slots), events=ignore)
    except ConfigError as error:  # for example values beyond float32
        return Failure(job.point, error)
    seconds, converged = time.perf_counter() - began, report["converged"] is not False
    return Outcome(job.point, job.fold, score(evaluation), seconds, converged)


@contextmanager
def _cluster(config: FitConfig, events: Events) -> Iterator[str | None]:
    """The address of the scheduler of all fits, if any: workers are started once."""
    if config.workers is None:
        yield config.scheduler
        return
    from streamsvm.parallel.cluster import open_cluster

    with closing(open_cluster(None, config.workers, config.memory_limit, events)) as engine:
        yield engine.address


def slots_of(store: Store, config: FitConfig) -> int:
    """The number of fits at a time: one for each thread if rows take little of the memory."""
    are_small = 4 * store.nbytes < SMALL * allowed_bytes(config.memory_limit)
    return config.threads or Engine().threads if are_small else 1
