"""DC-SVM over a store: the memory plan, the solver's stages one after the other, and the model, exact or early.

How DC-SVM grows with its rows: they are divided, regrouped by partition, and a level at a time is solved.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.samples import gather
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import LevelSolved, PartsSolved, Phase, SupportCompared
from streamsvm.fits.base import LEAST_ROWS, CostGrowth, Fit, FitContext, Measurements, Solution, model_of_duals
from streamsvm.fits.divided import (
    COPIES,
    DividedProblem,
    MemoryPlan,
    clustering_gammas,
    cuts_of,
    plan_memory,
    spans_of,
    vector_bytes,
)
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.parts import EarlyPartitions, has_bias, in_plane, part_facts
from streamsvm.fits.prepare import TrainingData, unreached
from streamsvm.models import ExpansionModel, KernelModel, LocalModel
from streamsvm.problems.subproblems import over_margins
from streamsvm.progress import Rounds
from streamsvm.runs.checkpoints import PartFiles, PartLog
from streamsvm.solvers.catalogue import fit_class
from streamsvm.solvers.dcsvm import DCSVM, DCSVMState, Stage, default_levels, support_of
from streamsvm.solvers.loop import is_late, run
from streamsvm.tasks import task_for

Decisions = tuple[np.ndarray | None, np.ndarray | None]  # see `Solution`
ASIDE = "aside"  # the thread of what is wanted in the end alone


class DividedCostGrowth(CostGrowth):
    """Rows in as many partitions as all rows have: partitions of the same regions, with fewer rows."""

    def network_bytes(self, seen: Measurements) -> float:
        """The solutions of partitions and, for rounds of the top, the products of all rows. The other data of each row
        goes through files."""
        return seen.n_support * (4 * seen.d + 12 + 8 * seen.columns) + 8 * seen.rows_of_rounds

    def least_bytes(self, seen: Measurements) -> int:
        """Of an exact fit vectors of all rows, and the model's support vectors twice over: gathered, then whole."""
        if seen.is_divided:
            return seen.base_bytes
        return seen.base_bytes + vector_bytes(seen.n, seen.columns) + int(2 * seen.n_support * seen.row_bytes)

    def regroups(self, seen: Measurements) -> bool:
        """In the order of their partitions: for workers, or if memory does not hold them."""
        return seen.on_workers or not seen.is_held

    def rows_of_pilot(self, n: int, config: FitConfig) -> int:
        levels = parts_levels(n, config)
        parts_rows = LEAST_PART_ROWS[config.dcsvm.early] * config.dcsvm.children**levels
        return max(LEAST_ROWS, parts_rows if levels else 0)

    def smaller(self, config: FitConfig, n: int, m: int) -> FitConfig:
        options, levels = config.dcsvm, parts_levels(n, config)
        if levels == 0:
            return config
        part_rows = max(2, (options.part_rows or 2 * n // options.children**levels) * m // n)
        same = {"levels": levels, "part_rows": part_rows if options.early else options.part_rows}
        return config.model_copy(update={"dcsvm": options.model_copy(update=same)})

    def part_rows(self, n: int, config: FitConfig) -> int:
        options = config.dcsvm
        return n // options.children ** parts_levels(n, config) if options.early else n

    def divided(self, n: int, config: FitConfig) -> int | None:
        return n if config.dcsvm.early and parts_levels(n, config) else None


class DCSVMFit(Fit):
    """DC-SVM, exact or with early prediction."""

    growth = DividedCostGrowth(spread=("cluster", "levels", "solve", "top"))

    @property
    def has_bias(self) -> bool:
        return has_bias(self.prepared)

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        """Whether this is an exact fit without division into partitions."""
        options = config.dcsvm
        has_own_duals = options.is_squared or config.nu is not None
        return not options.early and not has_own_duals and parts_levels(n, config) == 0

    def __init__(self, prepared: TrainingData, context: FitContext) -> None:
        super().__init__(prepared, context)
        store, config, options = prepared.store, prepared.config, prepared.config.dcsvm
        if self.has_bias and options.early and options.combine != "nearest":
            raise ConfigError(
                f"dcsvm.combine is {options.combine!r}, which adds up partitions and would add up their constants, "
                "too; expected nearest, or a classification without a bias"
            )
        if options.part_metric and not self.task.has_metric:
            raise ConfigError(
                f"dcsvm.part_metric is {options.part_metric}, and task {self.task.name} learns no metric; leave it out"
            )
        if options.part_metric and store.group is not None:
            raise ConfigError(
                f"dcsvm.part_metric is {options.part_metric}, and the rows that partitions hold out do not follow "
                "the store's groups; leave it out"
            )
        self._require_nu()
        levels, early = levels_of(config, store.n)
        self.memory = self._plan_memory(parts_alone=early is not None and early >= levels)
        if self.engine.is_local:
            self.engine = self.engine.on(self.memory.threads)
        shares_bias = self.has_bias and early is None and self.task.nu(config) is None
        self.solver = DCSVM(
            config.tol, max(levels, early or 0), early, options.refine, self.until, self.has_bias, shares_bias
        )
        if options.early and early is None:
            self.events.warn(f"{store.n} rows are one partition: solved exactly, early or not")

    def _require_nu(self) -> None:
        nu = self.task.nu(self.config)
        if nu is None or not self.task.has_classes:
            return
        source = self.prepared.target_source
        weights = (source.read(*block).weights for block in self.store.blocks())
        most_nu = self.task.most_nu(np.sum(list(weights), axis=0))
        if nu > most_nu * (1 + 1e-9):
            raise DataError(
                f"nu is {nu:g}, and the classes allow at most {most_nu:.4g}, twice the share of the smaller side of "
                "a problem; give less, or weigh the classes"
            )

    def _plan_memory(self, *, parts_alone: bool) -> MemoryPlan:
        """Of this process, or of each worker of a cluster."""
        limit, threads = self.config.memory_limit, self.engine.threads
        if not self.engine.is_local:
            limit, threads = self.engine.worker_memory()
        return plan_memory(
            self.prepared.samples,
            self.task.coefficients(len(self.classes)),
            limit,
            threads,
            cache_bytes=self.config.cache_size,
            on_worker=not self.engine.is_local,
            parts_alone=parts_alone,
        )

    def solve(self, draft: ModelDraft) -> Solution:
        """An early model's partitions go into the draft as they are solved."""
        with self.engine.serial_blas():
            model: KernelModel | ExpansionModel | LocalModel
            model, state, decisions = self._exact() if self.solver.early is None else self._early(draft)
        facts: dict[str, Any] = {"levels": self.solver.levels}
        if (division := state.division) is not None:
            facts |= {
                "partition_bound": division.bound,
                "n_parts": division.n_parts,
                "max_part_rows": int(division.sizes.max()),
            }
            if gammas := clustering_gammas(self.prepared, division):
                facts["clustering_gamma"] = [gammas[0], gammas[-1]]
            if isinstance(model, LocalModel):
                facts |= part_facts(model, division.sizes) | self._tasks(model, division.level)
        if state.margin is not None and self.task.nu(self.config) is not None:
            facts |= self.task.margin_facts(state.margin)
        of_held_out, of_search = decisions
        return Solution(
            model,
            objective=state.objective,
            gap=state.gap,
            n_support=model.n_support,
            exact=self.solver.early is None,
            converged=not state.late,
            advice=unreached(state.violation, self.config.tol),
            facts=facts,
            held_out_decisions=of_held_out,
            search_decisions=of_search,
            late=state.late and is_late(self.until),
            violation=state.violation,
        )

    def _tasks(self, model: LocalModel, level: int) -> dict[str, Any]:
        """How many tasks of each kind a graph of this fit needs; of one level of partitions."""
        if level < self.solver.levels:
            return {}
        cuts = cuts_of(self.prepared, level, self.part_rows(level))
        spans = spans_of(self.prepared.samples, cuts, in_memory=self.memory.in_memory)
        counts = {"rounds": model.partition.depth, "blocks": len(spans.blocks), "files": len(spans.files)}
        return {"graph": counts | {"parts": len(model.present)}}

    def plan(self) -> dict[str, Any]:
        """Levels, partitions and memory."""
        store, levels = self.store, self.solver.levels
        rows = self.part_rows(levels) if levels else store.n
        return asdict(self.memory) | {
            "n": store.n,
            "d": store.d,
            "classes": self.classes.tolist(),
            "levels": levels,
            "early": self.config.dcsvm.early,
            "max_part_rows": min(rows, store.n),
        }

    def part_rows(self, level: int) -> int:
        """The bound on a partition's rows at a level: from memory, and twice an even share at the bottom."""
        options = self.config.dcsvm
        weighed = bool(options.part_metric) and level == self.solver.early  # one more copy of the rows
        most = self.memory.part_rows(COPIES + weighed)
        if options.part_rows is not None:
            return min(options.part_rows, most)
        share = 2 * self.store.n // options.children**level
        return min(max(share, 1024), most)

    def _early(self, draft: ModelDraft) -> tuple[LocalModel, DCSVMState, Decisions]:
        """The model of partitions, and what each row, held out or of a search, is decided by its own partition."""
        in_memory, keeps = self.memory.in_memory, self.checkpoints.run_dir is not None
        files = PartFiles(self.context.folder / "solved") if keeps or not in_memory else None
        log = PartLog(files, self.events)
        parts = EarlyPartitions(draft, self.prepared, log, None if in_memory else files)
        problem = DividedProblem(self, self.memory, self.part_rows, self.solver.early, parts)
        thread = ThreadPoolExecutor(1, ASIDE)
        fingerprint = thread.submit(self.prepared.fingerprint)  # the one look at all labels that is left here
        thread.shutdown(wait=False)
        state = self._solved(problem)
        assert state.division is not None  # of the early level
        if not in_memory:
            with self.phase("save"):
                parts.join(state.division, self.context.folder / "joined", self.engine)
        fingerprint.result()
        model = parts.model(self.prepared.header(), state.division)
        return model, state, parts.decided(model)

    def ended(self) -> None:
        if not self.memory.in_memory:
            self.context.clear()

    def _exact(self) -> tuple[KernelModel | ExpansionModel, DCSVMState, Decisions]:
        problem = DividedProblem(self, self.memory, self.part_rows)
        state = self._solved(problem)
        assert state.start is not None  # the solution
        self._compare(state, support_of(state.start))
        take = partial(gather, problem.samples, engine=self.engine)
        assert state.bias is not None
        assert state.margin is not None  # as the biases
        if self.config.nu is not None and self.task.has_classes and state.margin.min() <= 0:
            self.events.warn(
                f"nu {self.config.nu:g} leaves no margin between some classes: f is not divided by it there"
            )
        alpha, bias = over_margins(self.prepared.dual_data, state.start, state.bias, state.margin)
        return model_of_duals(self, alpha, bias, take), state, (None, None)

    def _compare(self, state: DCSVMState, support: np.ndarray) -> None:
        """Records how well each level knew the support vectors (figure 2 of the paper)."""
        for number, bits in state.level_support.items():
            support_of_level = np.unpackbits(bits, count=self.store.n)
            hits = int(np.count_nonzero(support_of_level[support]))
            precision, recall = hits / max(int(support_of_level.sum()), 1), hits / max(len(support), 1)
            self.events(SupportCompared(number, round(precision, 5), round(recall, 5)))

    def _solved(self, problem: DividedProblem) -> DCSVMState:
        """The solver's last state, resumed from a checkpoint if there is one."""
        saved = self.checkpoints.load()
        with closing(problem):
            state = self.solver.init(problem)
            if saved:
                state = DCSVMState.from_arrays(saved)
                if self.checkpoints.has_other_tol:
                    state = self.solver.again(state)
                if self.solver.early is not None or not self.solver.is_solved(state):
                    state = problem.resumed(state, saved)  # else partitions are gone, and wanted no more
            while not self.solver.is_solved(state):
                with self.phase(self._phase(state)):
                    state = self._phase_solved(problem, state, self._phase(state))
        return state

    def _phase(self, state: DCSVMState) -> Phase:
        """The name in reports of the stage that a state is at."""
        if state.stage is Stage.PARTS:
            return Phase("solve" if state.level == self.solver.early else "levels")
        return Phase.named(state.stage.value)

    def _phase_solved(self, problem: DividedProblem, state: DCSVMState, phase: Phase) -> DCSVMState:
        """The first state beyond a phase; states on the way are reported and saved."""
        rounds = Rounds(self.events, phase, problem.count, self.config.tol)
        before = state

        def on_step(state: DCSVMState) -> None:
            nonlocal before
            for number, facts in problem.rounds(state.turns) if state.turns is not None else ():
                rounds(number, facts)
            is_rough = state.thresholds is not None and not state.thresholds.are_known
            if state.stage is Stage.PARTS and state.is_level_solved and not is_rough:
                self._tell_level(problem, state)
            is_new = (state.stage, state.level) != (before.stage, before.level)
            is_useless = self.solver.is_solved(state) and self.solver.early is not None  # its files go
            before = state
            self.checkpoints.offer(lambda: state.to_arrays() | problem.to_arrays(), last=is_new and not is_useless)

        state = run(self.solver, problem, state, stop=lambda s: self._phase(s) != phase, on_step=on_step)
        if phase in (Phase.REFINE, Phase.TOP):
            rounds.end()
        return state

    def _tell_level(self, problem: DividedProblem, state: DCSVMState) -> None:
        division, solutions = state.division, state.solutions
        assert division is not None
        n_support = [part.n_support for part in solutions]
        level = LevelSolved(
            level=state.level,
            parts=division.n_parts,
            max_rows=int(division.sizes.max()),
            seconds_clustering=round(problem.clustering_s, 3),
            seconds_training=round(time.perf_counter() - problem.solving_since, 3),
            objective=state.totals()[0],
            n_support=sum(n_support),
        )
        self.events(level)
        seconds, centres = ([getattr(part, name, None) for part in solutions] for name in ("seconds", "centre"))
        places = None if any(centre is None for centre in centres) else in_plane(centres)  # type: ignore[arg-type]
        rows = division.sizes.tolist()
        self.events(PartsSolved(level=state.level, rows=rows, n_support=n_support, seconds=seconds, places=places))


def levels_of(config: FitConfig, n: int) -> tuple[int, int | None]:
    """Levels of partitions of a fit of n rows, 0 for a single partition, and the level that an early model uses."""
    options = config.dcsvm
    levels = parts_levels(n, config)
    return levels, (options.early_level or levels) if options.early and levels else None


def require_graph(config: FitConfig, n: int) -> None:
    """Raises ConfigError unless a fit of n rows is one graph: early, with one level of partitions."""
    levels, early = levels_of(config, min(n, config.rows or n))
    if fit_class(config.solver) is not DCSVMFit or not config.dcsvm.early:
        raise ConfigError("a graph needs an early fit (dcsvm.early): others decide at run time what comes next")
    if early is None:
        raise ConfigError(
            f"a graph needs rows in partitions, and {n} rows are one partition; dcsvm.levels makes more of them"
        )
    if early < levels:
        raise ConfigError(f"a graph has one level of partitions, found dcsvm.early_level {early} of {levels} levels")


LEAST_PART_ROWS = {True: 128, False: 512}  # average of a pilot's partitions, early or not


def parts_levels(n: int, config: FitConfig) -> int:
    """Levels of partitions of a fit of n rows; 0 for a single partition. The number of variables, not of rows, limits a
    partition. nu is about the share of support vectors: a small nu allows larger partitions, which take no longer then,
    and divide fewer of the clouds whose edges they describe."""
    options, task = config.dcsvm, task_for(config)
    nu = task.nu(config)
    share = 1.0 if nu is None else min(1.0, 2 * nu)
    return options.levels or default_levels(
        max(1, round(n * task.variables * share)), options.children, early=options.early
    )
