"""What every fit is: a plan, and a solution that is certified; made of data that is ready, in a place to work."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.errors import ClusterError, ConfigError
from streamsvm.events import Events, Warned
from streamsvm.models import files
from streamsvm.models.base import Header
from streamsvm.models.calibration import Calibration
from streamsvm.models.kernel import KernelModel
from streamsvm.options.search import BALANCED
from streamsvm.parallel.engine import Engine, several
from streamsvm.runs.checkpoints import ROWS, Checkpoints
from streamsvm.runs.phases import Phases
from streamsvm.storage.atomic import storage_errors
from streamsvm.tasks.base import Targets
from streamsvm.tasks.pairs import vote
from streamsvm.tasks.scores import Judge
from streamsvm.training.drafts import Draft
from streamsvm.training.expected import Expected, of_model
from streamsvm.training.growth import Growth
from streamsvm.training.prepare import Prepared
from streamsvm.training.weights import balanced_weights

REMOVED_TOGETHER = 200  # files, by a task
END_S = 1.0  # to write a model, and to end
LATE = "the time budget ended it; give more"
Report = dict[str, Any]  # what `fit --json` prints


class Learned(files.Model, Protocol):
    """A model as fits make it."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def header(self) -> Header: ...

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...


@dataclass(frozen=True)
class Context:
    """What a fit works with: who computes, what is kept to go on from, who is told, and where the time went.

    until: time.time() at which it has to end; None: when it is done.
    """

    engine: Engine
    checkpoints: Checkpoints
    events: Events
    phase: Phases
    until: float | None = None

    @cached_property
    def scratch(self) -> Path:
        """A folder for files that the fit needs while it runs, in the run directory where there is one."""
        return Path(tempfile.mkdtemp(prefix="streamsvm-scratch-", dir=self.checkpoints.run_dir))

    @property
    def folder(self) -> Path:
        """For what there is of each row, until the model is there: in the run directory, where there is one."""
        run_dir = self.checkpoints.run_dir
        if run_dir is None:
            return self.scratch
        with storage_errors(str(run_dir)):
            (run_dir / ROWS).mkdir(exist_ok=True)
        return run_dir / ROWS

    def left(self) -> float:
        """Seconds until it has to end; infinite where nobody said."""
        return math.inf if self.until is None else self.until - time.time()

    def clear(self) -> None:
        """Has tasks remove the fit's files, which are many and large where there are many rows."""
        run_dir = self.checkpoints.run_dir
        own = [self.scratch] if "scratch" in self.__dict__ else []
        own += [run_dir / ROWS] if run_dir is not None else []
        files = [str(path) for folder in own for path in folder.rglob("*") if path.is_file()]
        with suppress(ClusterError):  # what is left goes with its folder
            for _ in self.engine.map(_remove, several(files, REMOVED_TOGETHER)):
                pass

    def close(self) -> None:
        """Ends what computed, and removes scratch files."""
        self.engine.close()
        if "scratch" in self.__dict__:
            shutil.rmtree(self.scratch, ignore_errors=True)


def _remove(files: Sequence[str]) -> None:
    for file in files:
        Path(file).unlink(missing_ok=True)


@dataclass(frozen=True)
class Solution:
    """What a solver came to: a model that lacks its certificate alone, and what is known of it.

    exact: the problem was neither divided nor approximated. converged: None of a solver that makes passes; where it is
    False, advice says what to do. facts: of this solver, for its report. decided (h, pairs): of the rows that were kept
    out, where the model cannot be asked as its arrays are in a file. late: time was up before it was done.
    """

    model: Learned
    objective: float
    gap: float | None
    n_support: int
    exact: bool
    converged: bool | None
    advice: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    decided: np.ndarray | None = None
    late: bool = False


class Fit(ABC):
    """One fit of prepared data. Making one plans its memory, and reads nothing. Raises MemoryLimitError."""

    growth: ClassVar[Growth] = Growth()
    has_bias: ClassVar[bool] = False  # its duals keep y'a = 0
    has_budget: ClassVar[bool] = (
        False  # of support vectors or features: dense rows are told no better than sparse ones
    )

    def __init__(self, prepared: Prepared, context: Context) -> None:
        self.prepared, self.context = prepared, context
        self.store, self.config, self.task = prepared.store, prepared.config, prepared.task
        self.scaling, self.kernel, self.classes = prepared.scaling, prepared.kernel, prepared.classes
        self.engine, self.checkpoints = context.engine, context.checkpoints
        self.events, self.phase = context.events, context.phase

    @property
    def targets(self) -> Targets:
        """Of all rows, in memory, as are `codes` and `upper`: `prepared.answers` reads those of some."""
        return self.prepared.targets

    @property
    def codes(self) -> np.ndarray:
        return self.prepared.targets.codes

    @property
    def upper(self) -> np.ndarray:
        return self.prepared.upper

    @property
    def scratch(self) -> Path:
        return self.context.scratch

    @property
    def until(self) -> float | None:
        """time.time() from which on problems end as they are, so that the model is there in time."""
        return None if self.context.until is None else self.context.until - END_S

    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """What the fit would do; nothing is trained."""

    @abstractmethod
    def solve(self, draft: Draft) -> Solution:
        """Trains. draft: takes those arrays of a large model that come part by part."""

    def ended(self) -> None:  # noqa: B027  most keep nothing
        """After the model is where it belongs: lets go of what a run that was killed would have gone on from."""

    def certified(self, solution: Solution, calibration: Calibration | None = None) -> tuple[Learned, Report]:
        """The model with what is known of it, and the report. Warns where the solver ended before it converged."""
        if solution.late or solution.converged is False:
            advice = LATE if solution.late else solution.advice
            self.events(Warned(f"not converged: {advice}", about="convergence"))
        model = with_certificate(self.prepared, solution, calibration)
        return model, self._report(solution, model.header.certificate or {})

    def _report(self, solution: Solution, certificate: Mapping[str, Any]) -> Report:
        """What every solver tells, and a solver's own facts."""
        return {
            "solver": self.config.solver,
            "n": self.store.n,
            "d": self.store.d,
            "n_support": solution.n_support,
            "objective": solution.objective,
            "gap": solution.gap,
            "exact": solution.exact,
            "converged": solution.converged,
            "gamma": self.kernel.to_attrs().get("gamma"),
            **({"metric": dict(self.prepared.learned)} if self.prepared.learned else {}),
            **({"expected": certificate["expected"]} if "expected" in certificate else {}),
            **solution.facts,
            **self.engine.facts(),
        }

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        """Whether a search may decide n rows in pairs of classes, each without its fold, as one problem: by `folds`, or
        with the duals of all folds side by side, where solving them is all that a fit does."""
        return False

    def folds(self, Cs: Sequence[float], fold_of: np.ndarray, count: int) -> np.ndarray:
        """Decision values (n, len(Cs), columns) of each row without those of its fold, fold_of (n,) of `count`."""
        raise ConfigError(f"solver {self.config.solver} does not share its work among folds")

    def judge(self) -> Judge:
        """A model without support vectors: it knows what the decision values of `folds`, or of pairs, mean."""
        none, no_rows = np.empty(0), Rows(np.empty((0, self.scaling.width), np.float32))
        header = Header(self.kernel, self.scaling, self.classes, self.config.positive)
        return KernelModel(header, no_rows, none, none, none, none, self.breaks_ties)

    @property
    def breaks_ties(self) -> bool:
        """Whether equal votes of pairs are decided by confidence, see KernelModel."""
        return True


def with_certificate(
    prepared: Prepared, solution: Solution, calibration: Calibration | None = None
) -> Learned:
    """The model with what is known of it."""
    certificate: dict[str, Any] = {
        "objective": solution.objective,
        "gap": solution.gap,
        "tol": prepared.config.tol,
        "exact": solution.exact,
        "converged": solution.converged,
    }
    if prepared.asked is not None:
        certificate["asked"] = prepared.asked
    expected = _expected(prepared, solution)
    if expected is not None:
        certificate["expected"] = expected.facts()
    header = replace(solution.model.header, certificate=certificate, calibration=calibration)
    return replace(solution.model, header=header)


def _expected(prepared: Prepared, solution: Solution) -> Expected | None:
    """What new rows will score: by those that were kept out, else as the search says."""
    kept, classes = prepared.kept_out, prepared.classes
    if kept is None:
        return prepared.expected
    if prepared.task.has_classes:
        decided = solution.decided
        codes = (
            solution.model.codes_of(*solution.model.answers(kept.rows))
            if decided is None
            else vote(decided, len(classes)).argmax(axis=1)
        )
        losses = (codes != kept.codes).astype(np.float64)
        if prepared.config.search.scoring == BALANCED:
            losses *= balanced_weights(kept.codes, classes)
        return of_model(prepared.scoring, losses)
    t = kept.y.astype(np.float64)
    errors = (solution.model.answers(kept.rows)[0] - t) ** 2
    return of_model(prepared.scoring, errors / max(float(t.var()), np.finfo(np.float64).tiny))


class PathFit(Fit):
    """A fit that shares its work among several values of C."""

    @abstractmethod
    def path(self, Cs: Sequence[float]) -> list[Solution]:
        """A solution for each C; what was shared is among the facts of every one."""

    def solve(self, draft: Draft) -> Solution:
        return self.path([self.config.C])[0]
