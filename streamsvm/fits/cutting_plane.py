"""Linear problems over a store: classes against the rest, numbers, ranks, or pairs within queries. By cutting planes,
whose passes read each row once, or by dual coordinate descent over rows in memory or over blocks of them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.config import FitConfig
from streamsvm.data.cache import PASS_BYTES, CachedSamples, Columns
from streamsvm.data.rows import Rows
from streamsvm.data.samples import MappedSamples, Samples, gather, read_blocks
from streamsvm.errors import DataError
from streamsvm.events import Step
from streamsvm.fits.base import CostGrowth, Fit, FitContext, Measurements, Solution
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.prepare import TrainingData, first_rows
from streamsvm.fits.targets import TargetSource
from streamsvm.kernels.nystroem import Nystroem
from streamsvm.models import LinearModel
from streamsvm.parallel.machine import allowed_bytes, fits_memory, process_bytes, require_memory
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.linear_blocks import BlocksDual
from streamsvm.problems.linear_dual import RowsDual
from streamsvm.problems.pair_risk import PairRisk
from streamsvm.problems.passes import LinearRisk, Passes
from streamsvm.problems.row_risk import (
    RHO,
    HingeRisk,
    LogisticRisk,
    LossTerms,
    MarginTerms,
    MultilabelTerms,
    OneVsRestTerms,
    RowRisk,
    SupportRisk,
    TubeTerms,
)
from streamsvm.progress import Convergence
from streamsvm.solvers.cutting_plane import MOST_IDLE, BundleState, CuttingPlane, Planes
from streamsvm.solvers.dual_descent import BlockDescent, DualDescent, DualState
from streamsvm.solvers.loop import run
from streamsvm.storage.text import JsonObject

LANDMARKS = 3  # random stream of the landmarks
SPARSE = 0.15  # share of entries that are not 0, up to which dual descent is chosen
DUAL_SHARE = 0.5  # of the memory limit, which dual descent may take where it is not asked for
MOST_BLOCKS = 64  # whose sizes add up to all rows: smaller ones would take many passes
BLOCK_SHARE = 4  # a block is a quarter of the memory limit, or the half of that, and so on
WINDOWS = 16  # of a block: rows that are read together
COPIES = 6  # of a window, as it is read
WEIGHTS = 5  # of each column: the last and the best w, before and after a step, and the model's
TYPICAL_PASSES = 60
LEAST_STEPS = 2  # the first step takes the plane at 0, and stays there
AROUND_0 = (
    "the rows lie all around 0: no linear function describes them, and every row counts as inside; use a kernel with "
    "cutting_plane.landmarks, or a scale that does not centre"
)
LEAST_IDLE = 10  # see `CuttingPlane`; if memory is short
MOST_MORE = 300  # more planes of a column than those that were idle for a while, if there is memory


@dataclass(frozen=True)
class StoppingRule:
    """The measure that a fit takes below a limit, and the option that sets the limit."""

    option: str
    measure: str
    limit: float


@dataclass(frozen=True)
class _RowColumns(SizedInBytes):
    target_source: TargetSource
    pieces: LossTerms

    @property
    def row_bytes(self) -> int:
        return self.pieces.row_bytes + 8

    def read(self, start: int, stop: int) -> Columns:
        dual_data = self.target_source.read(start, stop)
        return *self.pieces.row_columns(dual_data.targets), dual_data.upper


class _Growth(CostGrowth):
    """Workers send nothing per row; for pairs the scores of each pass, and they receive slopes every second time."""

    def network_bytes(self, seen: Measurements) -> float:
        return seen.rows_read * 8 if seen.compares_rows else 0.0

    def own_fit_s(self, n: int, config: FitConfig, pass_s: float, value_s: float) -> float:
        features = config.cutting_plane.landmarks or 0
        return min(TYPICAL_PASSES, config.cutting_plane.passes) * (pass_s + n * features * value_s)


class CuttingPlaneFit(Fit):
    """min over w of 1/2 |w|^2 + C times the loss, by a bundle of planes for each column (Joachims 2006; Franc and
    Sonnenburg 2009). The same passes feed all bundles. Or, `is_dual`, by dual coordinate descent (Hsieh et al. 2008),
    with `block_bytes` over blocks of that size (Yu et al. 2010), else over all rows, in memory."""

    growth = _Growth(1.5, ("planes",))
    has_budget = True

    def __init__(self, prepared: TrainingData, context: FitContext) -> None:
        super().__init__(prepared, context)
        config = prepared.config
        self.options = config.cutting_plane
        self.require_no_choice_of_nu()
        self.calibration = self.odds(self.options.loss)
        self.columns = self.task.columns(len(self.classes))
        self.samples = prepared.samples
        self.limit_bytes = allowed_bytes(config.memory_limit)
        self.is_dual = self.options.method == "dual"  # of "auto" it is known when the rows are read
        self.block_bytes = 0
        self.options.require_task(self.task)  # which may follow from the rows
        plane_bytes = 4 * (1 + self._length) * self.columns
        self.most_idle = int(np.clip(self.limit_bytes // 8 // plane_bytes, LEAST_IDLE, MOST_IDLE))
        self.bytes = self._bytes(plane_bytes)
        left_bytes = self.limit_bytes - process_bytes() - sum(self.bytes.values())
        more_planes = int(np.clip(left_bytes // 4 // plane_bytes, 0, MOST_MORE))  # half of it, as planes are copied
        self.most_planes = self.most_idle + 3 + more_planes
        self.bytes["plane_bytes"] += 2 * more_planes * plane_bytes
        self.planes_bytes = self.bytes
        fits = fits_memory(config.memory_limit, sum(self.bytes.values()))
        if self.is_dual or (self._may_be_dual and not fits):
            self.block_bytes = self._block_bytes()
            self.bytes = self._needed_bytes(self.block_bytes)
        self._require_memory()

    def _require_memory(self) -> None:
        require_memory(self.config.memory_limit, sum(self.bytes.values()), f"{self.columns} linear problems")

    def plan(self) -> JsonObject:
        """The memory, and the bytes that a pass reads."""
        facts = {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}
        rows = {"held_bytes": self._cache_bytes(), "pass_bytes": int(self._row_bytes * self.store.n)}
        return self.bytes | rows | facts

    @property
    def _may_be_dual(self) -> bool:
        """Whether `auto` takes dual descent if the rows are sparse. A cluster or other threads choose alike, and have
        the same model: the memory is that of all columns side by side. But beyond memory, where the workers of a
        cluster share the passes of planes, and blocks would follow one another in this process."""
        if self.options.method != "auto" or self.options.no_dual(self.task):
            return False
        if self._fits_share(None):
            return True
        return self._fits_share(0) and 0 < (size := self._block_bytes()) and self._fits(self._needed_bytes(size))

    def _fits_share(self, block_bytes: int | None) -> bool:
        needed = self._dual_bytes(self.columns, block_bytes)
        return sum(needed.values()) <= DUAL_SHARE * self.limit_bytes and self._fits(needed)

    def _fits(self, needed: dict[str, int]) -> bool:
        return fits_memory(self.limit_bytes, sum(needed.values()))

    def _block_bytes(self) -> int:
        """The size of blocks: the largest that fits of a few, as the memory of the process is not the same in each run;
        if none does, the smallest. 0 if all rows fit, or workers have the rows."""
        is_whole = self._fits(self._needed_bytes(0)) if self.options.method == "dual" else self._fits_share(None)
        if is_whole or not self.engine.is_local:
            return 0
        least = int(self.samples.nbytes / MOST_BLOCKS) + 1
        size = self.limit_bytes // BLOCK_SHARE
        while size > least and not self._fits(self._needed_bytes(size)):
            size //= 2
        return max(size, least)

    def _needed_bytes(self, block_bytes: int) -> dict[str, int]:
        """Of dual descent, over blocks of this size unless it is 0: whose size does not depend on threads."""
        if block_bytes:
            return self._dual_bytes(self.columns, block_bytes)
        return self._dual_bytes(self.engine.threads)

    def _choose(self, *, was_dual: bool | None, block_bytes: int | None = None) -> None:
        """Takes dual descent or planes: as the run began, as given, or as the first rows and the memory suggest."""
        if was_dual is not None:
            self.is_dual = was_dual
        elif self._may_be_dual:
            self.is_dual = self._share_of_entries <= SPARSE
        self.block_bytes = 0
        if self.is_dual:
            self.block_bytes = self._block_bytes()
            if block_bytes is not None and self._fits(self._needed_bytes(block_bytes)) and self.engine.is_local:
                self.block_bytes = block_bytes
        needed = self._needed_bytes(self.block_bytes) if self.is_dual else self.planes_bytes
        if needed != self.bytes:
            self.bytes = needed
            self._require_memory()

    @cached_property
    def _share_of_entries(self) -> float:
        """Of the entries of the first rows those that are not 0, however they are stored."""
        rows = self.scaling.apply(first_rows(self.store))
        entries = rows.csr.count_nonzero() if rows.is_sparse else np.count_nonzero(rows.X)
        return float(entries / max(len(rows) * rows.d, 1))

    def _dual_bytes(self, tasks: int, block_bytes: int | None = None) -> dict[str, int]:
        """Of the rows, twice, as they are read, or of a block and of those that stay from it; of the variables before
        and after a step, of the vectors of so many tasks, and of all w. All of this process, on a cluster, too."""
        n, pieces = self.store.n, 2 if self.task.loss == "epsilon" else 1
        tasks, weights = min(tasks, self.columns), self.columns * WEIGHTS
        together, rows_bytes = n, int(2 * self.samples.nbytes)
        if block_bytes is not None:
            together = min(n, int(n * block_bytes / self.samples.nbytes))
            weights += 2 * (self.columns + tasks)
            rows_bytes = block_bytes + block_bytes // 2 + COPIES * self._window_bytes(block_bytes)
        return {
            "rows_bytes": rows_bytes,
            "vector_bytes": n * (24 * self.columns * pieces + self._pieces.row_bytes + 16),
            "task_bytes": tasks * together * (24 * pieces + 24),
            "weight_bytes": 8 * (1 + self._length) * weights,
        }

    def _window_bytes(self, block_bytes: int) -> int:
        """Of rows that are read together, at least a chunk."""
        return max(min(PASS_BYTES, block_bytes // WINDOWS), self._chunk_bytes)

    @property
    def _chunk_bytes(self) -> int:
        return int(self.store.nbytes / self.store.n * self.store.chunk_rows)

    def solve(self, draft: ModelDraft) -> Solution:
        saved = self.checkpoints.load()
        if saved is None:
            self._choose(was_dual=None)
        else:
            self._choose(was_dual="point" in saved, block_bytes=int(saved.get("block_bytes", 0)))
        features = self._features()
        with self.phase("planes"):
            passes = self._dual() if self.is_dual else self._passes(features)
            risk: Any = self._risk(passes) if isinstance(passes, Passes) else passes
            state = self._solve(risk, passes, saved)
            n_passes, late, is_flat = passes.count, not self._stop(state, passes), False
            if isinstance(state, DualState):
                n_support = state.n_support
            elif isinstance(risk, SupportRisk):
                is_flat = _with_best_threshold(state, risk)
                n_support = risk.support(state.points[0], [])
            else:
                n_support = risk.support(*state.points)
        objective, gap = state.objective, state.gap
        if isinstance(risk, SupportRisk):
            objective, gap = max(0.0, -state.bound), max(0.0, gap)  # of the dual, as LIBSVM reports it
        facts: JsonObject = {"task": self.config.task, "steps": state.steps, "passes": n_passes, "planes": state.planes}
        facts |= self._end(state, n_passes, late=late)
        facts |= self.task.facts(self.targets) if self.task.compares_rows else {}
        return Solution(
            self._linear_model(state, features, passes.bias),
            objective,
            gap,
            n_support,
            exact=features is None,
            converged=self._solver.done(state) and not is_flat,
            advice=AROUND_0 if is_flat else self._advice(state, n_passes),
            facts=facts,
            late=late,
        )

    def _end(self, state: BundleState | DualState, passes: int, *, late: bool) -> JsonObject:
        """What ended the fit, and the largest value of any column for each of the two stopping rules."""
        if self._solver.done(state):
            stopped_by = self._rule.option
        elif late:
            stopped_by = "time"
        else:
            stopped_by = "passes" if passes >= self.options.passes else "rounding"
        facts: JsonObject = {"stopped_by": stopped_by, "relative_gap": state.largest_relative_gap}
        if self.options.epsilon is not None:
            facts["epsilon"] = self.options.epsilon
        if self.task.loss != "support" and math.isfinite(state.largest_excess):
            facts["slack"] = state.largest_excess
        return facts

    def _linear_model(self, state: BundleState | DualState, features: Nystroem | None, bias: float) -> LinearModel:
        header = self.prepared.header(calibration=self.calibration)
        W, products = state.points
        coef, intercept = (W[:-1], bias * W[-1]) if bias else (W, np.zeros(self.columns))
        units = self.prepared.no_targets.units
        coef, intercept = units.scale * coef, units.labels(intercept)
        task = self.task.name
        thresholds = np.empty(0)
        if self.task.compares_rows:
            thresholds = self.task.thresholds(products[0], self.targets, self.upper)
        if features is None:
            return LinearModel(header, coef, intercept, task, thresholds)
        coef = features.coefficients(coef)
        return LinearModel(header, coef, intercept, task, thresholds, features.landmarks)

    def _advice(self, state: BundleState | DualState, passes: int) -> str:
        rule, what = self._rule, "steps" if self.is_dual else "float32 planes"
        if self._solver.has_ended(state):
            return (
                f"{what} no longer improved the gap after {passes} passes, and the {rule.measure} is above "
                f"{rule.option} ({rule.limit:g}); scale the features, or take a smaller C or a larger {rule.option}"
            )
        return (
            f"stopped after {passes} passes, before the {rule.measure} was below {rule.option} ({rule.limit:g}); allow "
            "more passes, or scale the features"
        )

    @property
    def _rule(self) -> StoppingRule:
        epsilon = self.options.epsilon
        return (
            StoppingRule("tol", "gap", self.config.tol)
            if epsilon is None
            else StoppingRule("epsilon", "slack", epsilon)
        )

    @property
    def _solver(self) -> Any:  # of the states that it makes itself
        options = self.options
        if self.is_dual:
            solver = BlockDescent if self.block_bytes else DualDescent
            return solver(self.config.tol, options.epsilon, self.config.seed)
        planes: Planes = "plain" if options.method == "plain" else "ocas"
        return CuttingPlane(self.config.tol, planes, self.most_idle, self.most_planes, options.epsilon)

    def _dual(self) -> RowsDual | BlocksDual:
        blocks = self.samples.blocks()
        if self.block_bytes:
            blocks = self.store.blocks(max(1, int(self._window_bytes(self.block_bytes) / self._row_bytes)))
        samples = MappedSamples(self.samples, blocks, _as_csr if self._share_of_entries <= SPARSE else None)
        terms, dual_data = self._pieces, self.prepared.target_source.read(0, self.store.n)
        losses = terms, terms.row_columns(dual_data.targets), dual_data.upper, self.options.bias, self.engine.local
        if not self.block_bytes:
            return RowsDual(read_blocks(samples, blocks), *losses)
        cached = CachedSamples(samples, 0, self._cache_folder, block_bytes=1)
        return BlocksDual(cached, *losses, self.block_bytes, self.events)

    def _solve(
        self, risk: Any, passes: Passes | RowsDual | BlocksDual, saved: Mapping[str, np.ndarray] | None
    ) -> BundleState | DualState:
        state, solver = None, self._solver
        if saved is not None:
            kind = DualState if self.is_dual else BundleState
            state, passes.count = kind.from_arrays(saved), int(saved["passes"])
        last = time.perf_counter()
        rule = self._rule
        approach = Convergence(rule.limit)

        def on_step(state: BundleState | DualState) -> None:
            nonlocal last
            now = time.perf_counter()
            gap = state.relative_gap
            rows_s = self.store.n / (now - last)
            value = gap if rule.measure == "gap" else state.largest_excess
            passes.note, last = {rule.measure: value, "rows_s": rows_s}, now
            self.events(Step(state.steps, passes.count, state.objective, state.bound, state.planes, gap, rows_s))
            done = approach(value) if not self._stop(state, passes) else 1.0
            self.events.progress("planes", done, 1, step=state.steps, **{rule.measure: value})
            self.checkpoints.offer(
                lambda: {"passes": passes.count, "block_bytes": self.block_bytes, **state.to_arrays()},
                last=self._stop(state, passes),
            )

        def stop(state: BundleState | DualState) -> bool:
            return self._stop(state, passes)

        return run(solver, risk, state, stop=stop, on_step=on_step, until=self.until, least=LEAST_STEPS)

    def _stop(self, state: BundleState | DualState, passes: Passes | RowsDual | BlocksDual) -> bool:
        return self._solver.has_ended(state) or passes.count >= self.options.passes

    def _risk(self, passes: Passes) -> LinearRisk:
        if not self.task.compares_rows:
            nu = self.prepared.no_targets.nu
            return SupportRisk(passes, nu) if nu is not None else self._row_risk(passes, self._pieces)
        groups = self.targets.groups
        assert groups is not None
        risk = PairRisk(passes, self.codes, groups, self.upper / self.config.C, self.config.C)
        if risk.total == 0:
            raise DataError(f"{self.store.url or 'the data'}: no query has rows of two grades; there are no pairs")
        return risk

    @property
    def _row_risk(self) -> type[RowRisk]:
        return HingeRisk if self.calibration is None else LogisticRisk

    @property
    def _pieces(self) -> LossTerms:
        """The terms of the losses of single rows."""
        if self.task.loss == "support":
            return MarginTerms()
        if self.task.loss == "epsilon":
            return TubeTerms(self.config.epsilon)
        common = self.prepared.no_targets
        if common.sets is None:
            return OneVsRestTerms(len(self.classes))
        return MultilabelTerms(common.sets, common.factors)

    def _features(self) -> Nystroem | None:
        if self.options.landmarks is None:
            return None
        with self.phase("landmarks"):
            rng = np.random.default_rng([self.config.seed, LANDMARKS])
            ids = rng.choice(self.store.n, min(self.options.landmarks, self.store.n), replace=False)
            return Nystroem.of(self.kernel, gather(self.samples, np.sort(ids), self.engine))

    def _passes(self, features: Nystroem | None) -> Passes:
        samples: Samples = self.samples
        if features is not None:
            blocks = self.store.blocks(max(1, int(PASS_BYTES / self._row_bytes)))
            samples = MappedSamples(samples, blocks, features, features.M.shape[1])
        held_bytes = self._cache_bytes() if self.engine.is_local else sys.maxsize
        if self.task.compares_rows:  # pairs do not see a bias, and their codes are of all rows
            return Passes(CachedSamples(samples, held_bytes, self._cache_folder), self.engine, events=self.events)
        cached = CachedSamples(
            samples, held_bytes, self._cache_folder, _RowColumns(self.prepared.target_source, self._pieces)
        )
        is_one_class = self.prepared.no_targets.nu is not None
        return Passes(cached, self.engine, RHO if is_one_class else self.options.bias, self.events)

    def _cache_folder(self) -> Path:
        assert isinstance(self.scratch, Path)  # as it computes by itself
        return self.scratch

    @property
    def _length(self) -> int:
        """The number of features of a row as passes read it."""
        landmarks = self.options.landmarks
        return self.scaling.width if landmarks is None else min(landmarks, self.store.n)

    @property
    def _row_bytes(self) -> float:
        return self.samples.nbytes / self.store.n if self.options.landmarks is None else 4.0 * self._length

    def _bytes(self, plane_bytes: int) -> dict[str, int]:
        """The memory besides rows: planes, the sums of a pass, and blocks of tasks; for pairs, vectors of all rows."""
        sums_bytes = 8 * self.columns * (self._length + math.prod(self._row_risk.line_shape))
        return {
            "vector_bytes": self.store.n * 134 if self.task.compares_rows else self.prepared.target_source.nbytes,
            "plane_bytes": plane_bytes * (2 * self.most_idle + 6) + sums_bytes * (4 * self.engine.threads + 3),
            "task_bytes": int(self.engine.threads * 4 * max(PASS_BYTES, self._chunk_bytes)),
        }

    def _cache_bytes(self) -> int:
        used = process_bytes() + sum(self.bytes.values())
        return max(0, int(0.9 * self.limit_bytes) - used)


def _as_csr(rows: Rows) -> Rows:
    return Rows(sparse.csr_array(rows.X))


def _with_best_threshold(state: BundleState, risk: SupportRisk) -> bool:
    """Gives the w of one class its best threshold; whether it is 0. The common part of planes is a dual point."""
    [bundle] = state.columns
    is_flat = abs(bundle.objective) <= bundle.least
    w = np.zeros(risk.d)
    if not is_flat:
        w = np.append(bundle.w[:-1], risk.threshold(bundle.w[:-1]))
    [view] = risk.at(np.arange(1), w[:, None], w[:, None], [risk.start()])
    bundle.w, bundle.objective = w, bundle.cost(w) + view.value
    return bool(is_flat)
