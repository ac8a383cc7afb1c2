"""The base of all fits: a plan and a certified solution, from prepared data, in a context to work in.

Its `growth` has the solver's answers for extrapolating the cost of small fits to large ones.
"""

from __future__ import annotations

import math
import os
import secrets
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.errors import ClusterError, ConfigError
from streamsvm.events import Events, HeldOut
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.prepare import TrainingData
from streamsvm.judging.expected import Decider, ExpectedScore, losses_of, of_model, of_threshold, with_row_costs
from streamsvm.judging.log_loss import D2_LOG_LOSS
from streamsvm.judging.thresholds import (
    FoldDecisions,
    ThresholdReport,
    choose_thresholds,
    unmet,
    with_costs,
    with_threshold,
)
from streamsvm.metrics import constant_pinball_loss, pinball_losses, shown
from streamsvm.models import ExpansionModel, KernelModel, files
from streamsvm.models.base import Header
from streamsvm.models.calibration import Calibration
from streamsvm.models.intervals import Intervals
from streamsvm.options.probability import ThresholdObjective, are_odds
from streamsvm.parallel.devices import device_facts
from streamsvm.parallel.engine import Engine, several
from streamsvm.problems.subproblems import coefficients_of
from streamsvm.runs.checkpoints import ROWS, SCRATCH, Checkpoints
from streamsvm.runs.phases import Phases
from streamsvm.solvers.catalogue import section_of
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.paths import Place, URLPath, remove_tree
from streamsvm.tasks.base import LabelScale, Targets
from streamsvm.tasks.scores import DecisionRule
from streamsvm.tasks.weights import class_factors

REMOVED_TOGETHER = 200  # files of a folder, by a task: their names go with it
END_S = 1.0  # to write a model, and to end
LEAST_ROWS = 500  # of a small fit that stands for a large one
LATE = "the time budget ended the fit, so the model may score less than expected; give more time"
Report = dict[str, Any]  # what `fit --json` prints


class FittedModel(files.Model, Decider, Protocol):
    """A model that a fit makes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def header(self) -> Header: ...


@dataclass
class FitContext:
    """What a fit works with: who computes, what is saved to resume from, who receives events, and the time spent.
    until: time.time() at which it must end; None: no limit."""

    engine: Engine
    checkpoints: Checkpoints
    events: Events
    phase: Phases
    until: float | None = None
    _is_again: bool = False

    @cached_property
    def scratch(self) -> Place:
        """A folder for files that the fit needs while it runs, in the run directory if there is one. If this process
        computes by itself, they are on a disk of this machine, not far away."""
        run_dir = self.checkpoints.run_dir
        if isinstance(run_dir, URLPath) and not self.engine.is_local:
            return run_dir / f"{SCRATCH}{secrets.token_hex(8)}"
        return Path(tempfile.mkdtemp(prefix=SCRATCH, dir=run_dir if isinstance(run_dir, Path) else None))

    @property
    def folder(self) -> Place:
        """For the data of each row, until the model exists: in the run directory, if there is one."""
        run_dir = self.checkpoints.run_dir
        if run_dir is None:
            return self.scratch
        with storage_errors(str(run_dir)):
            (run_dir / ROWS).mkdir(exist_ok=True)
        return run_dir / ROWS

    def left(self) -> float:
        """Seconds until it must end; infinite without a limit."""
        return math.inf if self.until is None else self.until - time.time()

    def allow(self, seconds: float) -> None:
        """Leaves it at least so long from here on."""
        if self.until is not None:
            self.until = max(self.until, time.time() + seconds)

    def begin_again(self, name: str) -> None:
        """Checkpoints and files for another fit of the same run; those of the last one are wanted no more."""
        if self.checkpoints.run_dir is not None:
            remove_tree(self.folder)
        self.checkpoints = self.checkpoints.inside(name)
        self._is_again = True

    def clear(self) -> None:
        """Has tasks remove the fit's files, which are many and large for many rows."""
        run_dir = self.checkpoints.run_dir
        folders = [self.scratch] if "scratch" in self.__dict__ else []
        folders += [run_dir / ROWS] if run_dir is not None else []
        for remote in (folder for folder in folders if isinstance(folder, URLPath)):
            remove_tree(remote)  # a thousand objects by a request
        walks = (place for folder in folders if isinstance(folder, Path) for place in os.walk(folder))
        files = [(where, some) for where, _, names in walks for some in several(names, REMOVED_TOGETHER)]
        with suppress(ClusterError):  # what is left goes with its folder
            for _ in self.engine.map(_remove, files):
                pass

    def close(self) -> None:
        """Stops the engine, and removes scratch files."""
        self.engine.close()
        if self._is_again and self.checkpoints.run_dir is not None:
            remove_tree(self.folder)
        if "scratch" in self.__dict__:
            remove_tree(self.scratch)


def _remove(files: tuple[str, Sequence[str]]) -> None:
    folder, names = files
    for name in names:
        Path(folder, name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Solution:
    """The result of a solver: a model without its certificate, and what is known of it.

    exact: the problem was neither divided nor approximated. converged: None for a solver that makes passes; if False,
    advice says what to do. violation: of the optimality conditions, for a solver whose tol bounds it. facts: of this
    solver, for its report. held_out_decisions (h, pairs): decision values of the held-out rows, if the model cannot
    compute them because its arrays are in a file; search_decisions (p, pairs): those of the rows of a search.
    late: time was up before it was done.
    """

    model: FittedModel
    objective: float
    gap: float | None
    n_support: int
    exact: bool
    converged: bool | None
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    held_out_decisions: np.ndarray | None = None
    search_decisions: np.ndarray | None = None
    late: bool = False
    violation: float | None = None


@dataclass(frozen=True)
class Measurements:
    """What small fits say of a fit of n rows: counts are extrapolated.

    columns: coefficients of a row. row_bytes: of a row in scratch files. base_bytes: memory of a process before it
    fits. is_divided: whether partitions alone are solved. is_held: whether the rows stay in memory. is_spread: whether
    workers share more than reading, on_workers: whether there are any. compares_rows: whether the task does.
    """

    n: int
    d: int
    columns: int
    row_bytes: float
    base_bytes: int
    n_support: float
    rows_read: float
    rows_of_rounds: float
    is_divided: bool
    is_held: bool
    is_spread: bool
    on_workers: bool
    compares_rows: bool


@dataclass(frozen=True)
class CostGrowth:
    """steepest: largest power of n. spread: phases that the workers of a cluster share, next to `scale`."""

    steepest: float = 2.5
    spread: tuple[str, ...] = ()

    def is_spread(self, config: FitConfig, problems: int) -> bool:
        """Whether workers share more than reading."""
        return True

    def network_bytes(self, seen: Measurements) -> float:
        """Bytes between the leading process and the workers: by default the rows, once, as float32."""
        return seen.n * 4.0 * seen.d

    def least_bytes(self, seen: Measurements) -> int:
        """Of memory, that no limit makes smaller; what else grows with the rows is in the plan."""
        return seen.base_bytes

    def regroups(self, seen: Measurements) -> bool:
        """Whether rows are written once more, in this solver's order, which small fits do without."""
        return False

    def scratch_bytes(self, seen: Measurements) -> int:
        """Of files with all rows, in this solver's order."""
        return int(seen.row_bytes * seen.n) if self.regroups(seen) else 0

    def rows_of_pilot(self, n: int, config: FitConfig) -> int:
        """Minimum rows of a small fit that stands for one of n rows."""
        return LEAST_ROWS

    def smaller(self, config: FitConfig, n: int, m: int) -> FitConfig:
        """The configuration for m rows instead of n, with the same division."""
        return config

    def own_fit_s(self, n: int, config: FitConfig, pass_s: float, value_s: float) -> float | None:
        """Seconds of a fit, from those of a pass and of a kernel value; None if trials show how long it takes."""
        return None

    def part_rows(self, n: int, config: FitConfig) -> int:
        """Rows of a partition on average, of n rows; all unless a fit solves partitions alone."""
        return n

    def divided(self, n: int, config: FitConfig) -> int | None:
        """Rows beyond which there are more partitions, not larger ones; None unless a fit solves partitions alone."""
        return None


class Fit(ABC):
    """One fit of prepared data. Creating one plans its memory and reads nothing. Raises MemoryLimitError."""

    growth: ClassVar[CostGrowth] = CostGrowth()
    has_budget: ClassVar[bool] = False  # of support vectors or features: dense rows are no better than sparse ones

    @property
    def has_bias(self) -> bool:
        """Whether its duals keep y'a = 0."""
        return False

    def __init__(self, prepared: TrainingData, context: FitContext) -> None:
        self.prepared, self.context = prepared, context
        self.store, self.config, self.task = prepared.store, prepared.config, prepared.task
        self.scaling, self.kernel, self.classes = prepared.scaling, prepared.kernel, prepared.classes
        self.engine, self.checkpoints = context.engine, context.checkpoints
        self.events, self.phase = context.events, context.phase

    @property
    def targets(self) -> Targets:
        """Of all rows, in memory, as are `codes` and `upper`: `prepared.target_source` reads those of some."""
        return self.prepared.targets

    @property
    def codes(self) -> np.ndarray:
        return self.prepared.targets.codes

    @property
    def upper(self) -> np.ndarray:
        return self.prepared.upper

    @property
    def scratch(self) -> Place:
        return self.context.scratch

    @property
    def until(self) -> float | None:
        """time.time() from which on problems end as they are, so that the model is ready in time."""
        return None if self.context.until is None else self.context.until - END_S

    def require_no_choice_of_nu(self) -> None:
        """Raises ConfigError for nu of a classification or regression, if the solver supports one class only."""
        if self.config.nu is not None and self.task.has_choice_of_nu:
            raise ConfigError(
                f"nu is {self.config.nu:g}, which solver {self.config.solver} supports for one class only; leave it out"
            )

    def odds(self, loss: str) -> Calibration | None:
        """Probabilities of decisions that are logarithms of odds, as with a logistic loss; None for another loss.
        Raises ConfigError if the task has none."""
        if not are_odds(loss):
            return None
        if not self.task.has_probabilities:
            raise ConfigError(
                f"{section_of(self.config.solver)}.loss is {loss!r}, which is for classes; "
                f"found task {self.task.name!r}"
            )
        weight = None
        if (class_weight := self.config.class_weight) is not None:
            weight = self.prepared.no_targets.factors
            if not self.task.in_sets:
                weight = class_factors(self.prepared.class_rows, self.classes, class_weight)
        return Calibration.logistic(self.task.columns(len(self.classes)), weight)

    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """What the fit would do; nothing is trained."""

    @abstractmethod
    def solve(self, draft: ModelDraft) -> Solution:
        """Trains. draft: takes those arrays of a large model that come partition by partition."""

    def ended(self) -> None:  # noqa: B027  most keep nothing
        """Called once the model is in its place: deletes what an interrupted run would have resumed from."""

    def certified(self, solution: Solution, by_folds: FoldDecisions | None = None) -> tuple[FittedModel, Report]:
        """The model with what is known of it, and the report. Warns if the solver ended before it converged, and of a
        threshold that is not what was asked for. by_folds: what the rows of folds gave."""
        if solution.late or solution.converged is False:
            advice = LATE if solution.late else solution.advice
            self.events.warn(f"not converged: {advice}", about="convergence")
        if self.prepared.all_rows is not None:
            rows, n = self.store.n, self.prepared.all_rows.store.n
            self.events.warn(f"the time left was enough to learn from {rows:,} of {n:,} rows")
        solution = _with_held_out_answers(self.prepared, solution)
        model = with_certificate(self.prepared, solution, by_folds)
        certificate = model.header.certificate or {}
        if (message := unmet(certificate.get("threshold"))) is not None:
            self.events.warn(message)
        if (event := _of_held_out(self.prepared, solution, model.header.intervals)) is not None:
            self.events(event)
        return model, self._report(solution, model.header)

    def _report(self, solution: Solution, header: Header) -> Report:
        units, certificate = self.prepared.no_targets.units, header.certificate or {}
        return {
            "solver": self.config.solver,
            "n": self.store.n,
            "d": self.store.d,
            "n_support": solution.n_support,
            "objective": solution.objective,
            "gap": solution.gap,
            "exact": solution.exact,
            "converged": solution.converged,
            **_violation(solution),
            **({"target_units": asdict(units)} if units != LabelScale() else {}),
            "gamma": self.kernel.to_attrs().get("gamma"),
            **({"metric": dict(self.prepared.choices)} if self.prepared.choices else {}),
            **{name: certificate[name] for name in ("threshold", "expected") if name in certificate},
            **({"interval": header.intervals.facts()} if header.intervals is not None else {}),
            **solution.facts,
            **self.engine.facts(),
            **device_facts(),
        }

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        """Whether a search may decide n rows, each without its fold, as one problem: by `folds`, or for pairs of
        classes with the duals of all folds in parallel, if solving them is all that a fit does."""
        return False

    def folds(self, Cs: Sequence[float], fold_of: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Decision values (n, len(Cs), columns) of each row without those of its fold, fold_of (n,) of `count`; and
        which of these solutions converged, (len(Cs), count)."""
        raise ConfigError(f"solver {self.config.solver} does not share its work among folds")

    def judge(self) -> DecisionRule:
        """A model without support vectors: it interprets the decision values of `folds`, or of pairs."""
        none, no_rows = np.empty(0), Rows(np.empty((0, self.scaling.width), np.float32))
        of_quantile = {"quantile": self.config.quantile}
        header = Header(self.kernel, self.scaling, self.classes, self.config.positive, of_quantile)
        if self.task.in_pairs:
            return KernelModel(header, no_rows, none, none, none, none, self.breaks_ties)
        return ExpansionModel(header, no_rows, none, none, none, self.task.name)

    @property
    def breaks_ties(self) -> bool:
        """Whether equal votes of pairs are decided by confidence, see KernelModel."""
        return True


def with_certificate(prepared: TrainingData, solution: Solution, by_folds: FoldDecisions | None = None) -> FittedModel:
    """The model with what is known of it, and of its decisions on held-out rows, or else of folds."""
    solution = _with_held_out_answers(prepared, solution)
    certificate: dict[str, Any] = {
        "objective": solution.objective,
        "gap": solution.gap,
        "tol": prepared.config.tol,
        "exact": solution.exact,
        "converged": solution.converged,
        **_violation(solution),
    }
    if prepared.requested is not None:
        certificate["asked"] = prepared.requested
    by_folds = by_folds or FoldDecisions()
    header = solution.model.header
    header = replace(
        header,
        certificate=certificate,
        calibration=by_folds.calibration or header.calibration,
        intervals=_intervals(prepared, solution),
    )
    header = with_costs(header, prepared.config.probability.costs, prepared.task)
    model = replace(solution.model, header=header)
    f, proba = _answers(prepared, model, solution.held_out_decisions)
    threshold = by_folds.threshold if f is None else _threshold(prepared, f)
    if threshold is not None:
        header = with_threshold(header, threshold)
        model = replace(model, header=header)
    answers = None if f is None else (f, proba)
    expected = _expected(prepared, model, answers, solution.held_out_decisions, by_folds)
    if expected is not None:
        certificate = (header.certificate or {}) | {"expected": expected.facts()}
        model = replace(model, header=replace(header, certificate=certificate))
    return model


def _violation(solution: Solution) -> dict[str, float]:
    return {} if solution.violation is None else {"violation": solution.violation}


def _answers(
    prepared: TrainingData, model: FittedModel, decided: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    held_out = prepared.held_out
    if held_out is None or not prepared.task.has_classes:
        return None, None
    return model.answers(held_out.rows) if decided is None else model.answers_from(decided, held_out.rows)


def _threshold(prepared: TrainingData, f: np.ndarray) -> ThresholdReport | None:
    """The threshold chosen on the held-out rows, if one is requested; f: their decision values."""
    objective, held_out = prepared.config.probability.threshold, prepared.held_out
    if objective is None or held_out is None:
        return None
    weight = (prepared.whole_store or prepared.store).weights_at(held_out.ids)
    f = f.reshape(len(f), -1)
    return choose_thresholds(ThresholdObjective.of(objective), held_out.codes, f, weight, prepared.config.seed)


def _with_held_out_answers(prepared: TrainingData, solution: Solution) -> Solution:
    """The solution with a regression's answers to the held-out rows, unless the solver has given them already."""
    held_out = prepared.held_out
    if held_out is None or not prepared.task.has_intervals or solution.held_out_decisions is not None:
        return solution
    return replace(solution, held_out_decisions=solution.model.answers(held_out.rows)[0][:, None])


def _intervals(prepared: TrainingData, solution: Solution) -> Intervals | None:
    level, held_out = prepared.config.interval, prepared.held_out
    if level is None:
        return None
    assert held_out is not None  # an interval needs such rows, and their decisions
    assert solution.held_out_decisions is not None
    return Intervals.of(level, held_out.y, solution.held_out_decisions[:, 0])


def _of_held_out(prepared: TrainingData, solution: Solution, intervals: Intervals | None) -> HeldOut | None:
    """Points for a report: some of a regression's held-out rows."""
    held_out, decided = prepared.held_out, solution.held_out_decisions
    if held_out is None or decided is None or not prepared.task.has_intervals:
        return None
    levels = (None, None) if intervals is None else (intervals.level, intervals.half_width())
    return HeldOut(len(held_out.y), shown(held_out.y, decided[:, 0]), *levels)


def _expected(
    prepared: TrainingData,
    model: FittedModel,
    answers: tuple[np.ndarray, np.ndarray | None] | None,
    decided: np.ndarray | None,
    by_folds: FoldDecisions,
) -> ExpectedScore | None:
    """The score to expect of the model on new rows, at its threshold or by its costs: from the held-out rows (answers:
    their decision values and probabilities), else from folds that decide as the model, else from a search."""
    held_out, scoring = prepared.held_out, prepared.scoring
    if held_out is None and prepared.expected is None:
        return None
    threshold = (model.header.certificate or {}).get("threshold")
    if threshold is not None and (expected := of_threshold(scoring, threshold, folds=held_out is None)) is not None:
        return expected  # which its choice on these rows has made no better
    decides_otherwise = threshold is not None or model.header.costs is not None
    if held_out is None and not decides_otherwise and scoring != D2_LOG_LOSS:
        return prepared.expected
    if held_out is None:
        answers = by_folds.answers_by(model)
        if answers is None:  # a search knows neither threshold nor costs
            return None if decides_otherwise else prepared.expected
    if answers is not None:
        rows = held_out or by_folds.rows
        assert rows is not None
        losses = losses_of(scoring, model, answers, rows.codes)
        expected = of_model(scoring, losses, folds=held_out is None)
        return with_row_costs(expected, model.header.costs, answers[1], rows.codes)
    assert held_out is not None
    t = held_out.y.astype(np.float64)
    assert decided is not None  # what has no classes is a regression here
    errors, spread = (decided[:, 0] - t) ** 2, float(t.var())
    if (quantile := prepared.config.quantile) is not None:
        errors = pinball_losses(t, decided[:, 0], quantile)
        spread = constant_pinball_loss(t, quantile)
    return of_model(scoring, errors / max(spread, np.finfo(np.float64).tiny))


class PathFit(Fit):
    """A fit that shares its work among several values of C."""

    @abstractmethod
    def path(self, Cs: Sequence[float]) -> list[Solution]:
        """A solution for each C; shared work is among the facts of each."""

    def solve(self, draft: ModelDraft) -> Solution:
        return self.path([self.config.C])[0]


def model_of_duals(
    fit: Fit, alpha: np.ndarray, intercept: np.ndarray, take: Callable[[np.ndarray], Rows], *, break_ties: bool = True
) -> KernelModel | ExpansionModel:
    """The model, without a certificate, of the variables alpha (n, columns) of all subproblems of a fit's task.
    intercept: of each subproblem. take: rows by number. break_ties: of pairs of classes, see KernelModel."""
    header, original = fit.prepared.header(), fit.prepared.original_ids
    if fit.task.in_pairs:
        support = np.flatnonzero(alpha.any(axis=1))
        return KernelModel(
            header, take(support), alpha[support], fit.codes[support], original(support), intercept, break_ties
        )
    coef = coefficients_of(fit.task, fit.targets, alpha)
    support = np.flatnonzero(coef.any(axis=1))
    intercept = fit.prepared.no_targets.units.labels(intercept)
    return ExpansionModel(header, take(support), coef[support], intercept, original(support), fit.task.name)
