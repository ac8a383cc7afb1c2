"""What every fit prepares: labels, scaling, the kernel with its gamma as a number, weights."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamsvm.calibration import Calibration
from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.check import require_finite
from streamsvm.data.labels import label_texts
from streamsvm.data.moments import Moments, merge, moments_of, variance
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling, from_moments, require_zeros_kept
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.fits.advice import advice
from streamsvm.fits.growth import Growth
from streamsvm.graph import Engine
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.kernels.options import kernel_of, needs_variance
from streamsvm.models import Header, KernelModel
from streamsvm.persist import save_model
from streamsvm.phases import Phases
from streamsvm.tasks import default_task, task_of
from streamsvm.tasks.scores import Judge

FIRST_ROWS = 1000  # that tell of the features' ranges
MOST_VALUE = 1e30  # of a kernel: float32 ends at 3e38, and sums of values times coefficients must not


class Fit(ABC):
    """One fit, from targets to model. classes (k,), codes (n,) positions in them, upper (n,) C times weights.

    It closes the engine that it was given. calibration: goes into the model, where it is set.
    """

    calibration: Calibration | None = None
    growth: ClassVar[Growth] = Growth()
    has_bias: ClassVar[bool] = False  # its duals keep y'a = 0

    def __init__(
        self, store: Store, config: FitConfig, engine: Engine, events: Events, checkpoints: Checkpoints
    ) -> None:
        self.store, self.config, self.engine = store, config, engine
        self.events, self.checkpoints = events, checkpoints
        self.phase = Phases()
        self.task = task_of(config.task or default_task(config.solver, has_queries=False))
        self.targets = self.task.targets(store, config)
        self.classes, self.codes = self.targets.classes, self.targets.codes
        self.scaling, self.kernel = self._prepare()
        self.upper = self._upper(self.codes)

    def to_file(self, path: Path) -> dict[str, Any]:
        """Trains, writes the model, returns the report."""
        model, report = self.model()
        with self.phase("save"):
            save_model(model, path)
        return report | self.phase.report()

    @abstractmethod
    def model(self) -> tuple[Any, dict[str, Any]]:
        """Trains and returns the model itself, and the report."""

    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """What the fit would do; nothing is trained."""

    def path(self, Cs: Sequence[float]) -> list[tuple[Any, dict[str, Any]]]:
        """A model and a report for each C, of a solver that shares its work among them."""
        raise ConfigError(
            f"solver {self.config.solver} makes a model of one C at a time, found {len(Cs)} values"
        )

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
        none, no_rows = np.empty(0), Rows(np.empty((0, self.store.d), np.float32))
        header = Header(self.kernel, self.scaling, self.classes, self.config.positive)
        return KernelModel(header, no_rows, none, none, none, none, self.breaks_ties)

    @property
    def breaks_ties(self) -> bool:
        """Whether equal votes of pairs are decided by confidence, see KernelModel."""
        return True

    @cached_property
    def scratch(self) -> Path:
        """A folder for files that the fit needs while it runs, in the run directory where there is one."""
        return Path(tempfile.mkdtemp(prefix="streamsvm-scratch-", dir=self.checkpoints.run_dir))

    def close(self) -> None:
        """Removes scratch files, and ends what computed."""
        self.engine.close()
        if "scratch" in self.__dict__:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _prepare(self) -> tuple[Scaling, Kernel]:
        """The scaling, and the kernel with its gamma as a number."""
        options, scaling = self.config.kernel, Scaling.none(self.store.d)
        stats = None
        with self.phase("scale"):
            if self.config.scale != "none" or needs_variance(options):
                if self.store.is_sparse:
                    require_zeros_kept(self.config.scale)
                store = self.engine.share(self.store)
                _, stats = self.engine.map_reduce(
                    _moments, merge, self.store.blocks(), shared=(store,), phase="scale", events=self.events
                )
            if stats is not None and self.config.scale != "none":
                scaling = from_moments(self.config.scale, stats)
            spread = None if stats is None else variance(stats, scaling.offset, scaling.scale)
            kernel = kernel_of(options, self.store.d, spread)
            first = self.store.read(0, min(self.store.n, FIRST_ROWS))
            require_finite(self.store, first, 0)
            if isinstance(kernel, Stationary):
                scaling = _centred(scaling, kernel, first)
                if message := advice(kernel, scaling, first, self.store.feature_names):
                    self.events.advise(message)
            else:
                _require_range(scaling, kernel, first)
        return scaling, kernel

    def _upper(self, codes: np.ndarray) -> np.ndarray:
        """C times class and sample weights, (n,)."""
        weights = self.config.class_weight, self.store.sample_weight
        return self.config.C * row_weights(codes, self.classes, *weights)

    def certificate(
        self, objective: float, gap: float | None, *, exact: bool, converged: bool | None, advice: str = ""
    ) -> dict[str, Any]:
        """What is known of a solution. Warns, with the advice, where the solver ended before it converged.

        exact: the problem was neither divided nor approximated. converged: None of a solver that makes passes.
        """
        if converged is False:
            self.events("warning", message=f"not converged: {advice}", about="convergence")
        return {
            "objective": objective,
            "gap": gap,
            "tol": self.config.tol,
            "exact": exact,
            "converged": converged,
        }

    def header(self, certificate: dict[str, Any]) -> Header:
        return Header(
            self.kernel,
            self.scaling,
            self.classes,
            self.config.positive,
            self.config.model_dump(mode="json"),
            self.store.fingerprint(),
            certificate,
            self.calibration,
            self.store.feature_names,
        )

    def report(self, certificate: dict[str, Any], n_support: int, **facts: Any) -> dict[str, Any]:
        """What `fit --json` prints of every solver, and a solver's own facts."""
        return {
            "solver": self.config.solver,
            "n": self.store.n,
            "d": self.store.d,
            "n_support": n_support,
            "objective": certificate["objective"],
            "gap": certificate["gap"],
            "converged": certificate["converged"],
            "gamma": self.kernel.to_attrs().get("gamma"),
            **facts,
            **self.engine.facts(),
            **self.phase.report(),
        }


def _centred(scaling: Scaling, kernel: Kernel, first: Rows) -> Scaling:
    """A shift to the origin where unscaled rows have squared norms so large that float32 would cancel."""
    if scaling.kind != "none" or first.is_sparse:
        return scaling
    rows = first.astype(np.float64)
    mean = rows.dense().mean(axis=0)
    before, after = rows.sq_norms.max(), Rows(rows.dense() - mean).sq_norms.max()
    cancels = kernel.rounding(before) > 1e-3 and after < before / 4
    return replace(scaling, kind="centre", offset=mean) if cancels else scaling


def _require_range(scaling: Scaling, kernel: Kernel, first: Rows) -> None:
    """Kernel values have to fit float32, as far as the first rows tell. Raises ConfigError."""
    with np.errstate(over="ignore"):
        most = float(kernel.diag(scaling.apply(first)).max())
    if not most < MOST_VALUE:
        raise ConfigError(
            f"values of the {kernel.name} kernel reach {most:.0e}, expected at most {MOST_VALUE:.0e}: scale the "
            "features, or take a smaller gamma or degree"
        )


def row_weights(
    codes: np.ndarray, classes: np.ndarray, class_weight: Any, sample_weight: np.ndarray | None
) -> np.ndarray:
    """(n,) class times sample weights of rows with these codes. Raises ConfigError for a class that is not there."""
    factors = np.ones(max(1, len(classes)))  # without classes all codes are 0
    if class_weight == "balanced":
        counts = np.bincount(codes, minlength=len(classes))
        factors = len(codes) / (len(classes) * np.maximum(counts, 1))
    elif class_weight:
        texts = label_texts(classes).tolist()
        unknown = [label for label in class_weight if label not in texts]
        if unknown:
            raise ConfigError(f"class_weight names {unknown[0]!r}; the classes are {', '.join(texts[:30])}")
        factors = np.array([class_weight.get(text, 1.0) for text in texts])
    return factors[codes] if sample_weight is None else factors[codes] * sample_weight


def _moments(store: Store, block: tuple[int, int]) -> tuple[None, Moments]:
    rows = store.read(*block)
    require_finite(store, rows, block[0])
    return None, moments_of(rows)
