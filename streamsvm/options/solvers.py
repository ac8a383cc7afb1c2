"""The options of each solver, in the section of the configuration with its name.

A section also checks which kernels it supports, and which of its options go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import eq, is_, not_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from streamsvm.errors import ConfigError
from streamsvm.kernels.table import kernel_row, mergers
from streamsvm.options.base import Count, KernelConfig, ReadRule, Real, SolverOptions, Whole
from streamsvm.options.layers import merged

if TYPE_CHECKING:
    from streamsvm.tasks.base import Task

Clustering = Literal["kernel", "input"]
Combine = Literal["nearest", "naive", "committee"]
Strategy = Literal["sequence", "gradient", "project", "remove", "forget", "lru"]
Loss = Literal["hinge", "logistic"]
Method = Literal["auto", "ocas", "plain", "dual"]
Number = Literal["float64", "float32"]
Subproblem = Literal["pairs", "fpg"]
PairsMethod = Literal["improved", "paper"]
Shift = Literal["paper", "balance"]


class DCSVMConfig(SolverOptions):
    """Divide and conquer (Hsieh, Si and Dhillon 2014)."""

    parameters = {"bias": "fit_intercept"}
    rules = (
        ReadRule("dcsvm.early_level", "early prediction", "dcsvm.early", bool),
        ReadRule("dcsvm.combine", "early prediction", "dcsvm.early", bool),
        ReadRule("dcsvm.neighbours", "early prediction", "dcsvm.early", bool),
        ReadRule("dcsvm.part_metric", "early prediction", "dcsvm.early", bool),
        ReadRule("dcsvm.refine", "an exact fit", "dcsvm.early", not_),
    )

    early: Annotated[bool, Field(description="Stop at a level; each partition predicts its own rows")] = False
    bias: Annotated[
        bool | None,
        Field(
            description="Add a constant b to f, one per partition: y'a = 0 in the dual, as in LIBSVM "
            "(default: if the kernel is 0 at the origin, as linear is)"
        ),
    ] = None
    children: Annotated[Whole, Field(ge=2, description="Partitions that a partition is divided into")] = 4
    levels: Annotated[Count, Field(description="Levels of division (default: from n)")] = None
    early_level: Annotated[Count, Field(description="Level of early prediction (default: from n)")] = None
    sample: Annotated[Whole, Field(ge=2, description="Sample of rows that k-means clusters")] = 1000
    clustering: Annotated[Clustering, Field(description="Space in which k-means clusters")] = "input"
    part_rows: Annotated[Count, Field(description="Maximum rows of a partition (default: from the memory limit)")] = (
        None
    )
    adaptive: Annotated[bool, Field(description="Sample the rows of k-means among the support vectors")] = True
    refine: Annotated[bool, Field(description="Solve on level 1's support vectors before the top")] = True
    combine: Annotated[Combine, Field(description="How early models of partitions predict together")] = "nearest"
    neighbours: Annotated[
        Whole, Field(ge=1, description="Nearest partitions to average, with combine nearest and input clustering")
    ] = 1
    part_metric: Annotated[
        Whole, Field(ge=0, description="Refits that learn a separate metric for each partition, with early; 0 for none")
    ] = 0
    loss: Annotated[
        Literal["linear", "squared"],
        Field(description="Loss that C multiplies: errors (hinge, epsilon-insensitive), or their squares"),
    ] = "linear"

    @property
    def is_squared(self) -> bool:
        return self.loss == "squared"

    def has_bias(self, *, zero_at_origin: bool) -> bool:
        """Left to the kernel where partitions do not add up their constants."""
        if self.bias is not None:
            return self.bias
        return zero_at_origin and not (self.early and self.combine != "nearest")

    @model_validator(mode="after")
    def _levels_agree(self) -> DCSVMConfig:
        if self.levels is not None and self.early_level is not None and self.early_level > self.levels:
            raise ValueError(f"early_level is {self.early_level}, expected at most levels, {self.levels}")
        if self.neighbours > 1 and (self.combine != "nearest" or self.clustering != "input"):
            raise ValueError(f"neighbours is {self.neighbours}, which needs combine nearest and clustering input")
        if self.neighbours > 1 and self.part_metric:
            raise ValueError(
                f"part_metric is {self.part_metric} and neighbours {self.neighbours}: partitions with different "
                "metrics cannot be averaged; expected one of the two"
            )
        return self


class BSGDConfig(SolverOptions):
    """Budgeted stochastic gradient descent (Wang, Crammer and Vucetic 2012; Qaadan and Glasmachers 2018)."""

    rules = (ReadRule("C", "bsgd without its own lambda", "bsgd.lam", partial(is_, None)),)

    budget: Annotated[Whole, Field(ge=2, description="Maximum number of support vectors of each learner")] = 500
    merge: Annotated[Whole, Field(ge=2, description="Support vectors to merge into one if the budget is full")] = 3
    merge_all: Annotated[
        bool, Field(description="Always merge that many, however much it loses, instead of ending a sequence early")
    ] = False
    strategy: Annotated[
        Strategy,
        Field(
            description="How to keep the budget: merge one by one or at once, project on the others, remove, "
            "forget the oldest, or the least recently used (lru)"
        ),
    ] = "sequence"
    epochs: Annotated[Whole, Field(ge=1, description="Passes over the rows")] = 1
    lam: Annotated[
        Annotated[Real, Field(gt=0)] | None,
        Field(description="lambda, with steps 1 / (lambda t) (default: 1 / (n C), with steps bounded by the margin)"),
    ] = None
    loss: Annotated[
        Loss, Field(description="Loss for classes: hinge, or logistic, which gives probabilities without calibration")
    ] = "hinge"
    bias: Annotated[bool, Field(description="Learn an intercept too, regularised like the weights")] = False
    average: Annotated[bool, Field(description="Average all steps, weighted by t, instead of using the last")] = False
    partitions: Annotated[
        Whole, Field(ge=1, description="Regions of input space, each with its own learner; 1: one learner for all rows")
    ] = 1

    @model_validator(mode="after")
    def _merge_fits(self) -> BSGDConfig:
        if self.merge > self.budget:
            raise ValueError(f"merge is {self.merge}, expected at most the budget, {self.budget}")
        return self

    def require(self, kernel: KernelConfig) -> None:
        if not kernel_row(kernel.name).merges and self.strategy in ("sequence", "gradient"):
            raise ValueError(
                f"bsgd.strategy is {self.strategy!r}, and points merge under the {' or '.join(mergers())} kernel "
                f"only; expected 'project', 'remove', 'forget' or 'lru' with {kernel.name}"
            )


class CuttingPlaneConfig(SolverOptions):
    """Cutting planes (Joachims 2006; Franc and Sonnenburg 2009)."""

    parameters = {"passes": "max_passes", "bias": "intercept_scaling", "epsilon": "slack_tol"}
    rules = (ReadRule("tol", "a fit without cutting_plane.epsilon", "cutting_plane.epsilon", partial(is_, None)),)

    loss: Annotated[
        Loss, Field(description="Loss for classes: hinge, or logistic, which gives probabilities without calibration")
    ] = "hinge"
    method: Annotated[
        Method,
        Field(
            description="Planes near the best point of a line search (ocas) or at the last minimum (plain), or dual "
            "coordinate descent, over blocks of rows beyond memory (auto: dual for sparse rows, else ocas)"
        ),
    ] = "auto"
    bias: Annotated[
        Real, Field(ge=0, description="Value of the constant feature for the intercept; 0 for no intercept")
    ] = 1.0
    epsilon: Annotated[
        Annotated[Real, Field(gt=0)] | None,
        Field(
            description="Stop, instead of at tol, once the mean loss (of pairs, in ranking) exceeds its lower bound by "
            "at most this: the stopping rule of the paper (default: stop at tol)"
        ),
    ] = None
    passes: Annotated[Whole, Field(ge=1, description="Maximum number of passes over the rows")] = 1000
    landmarks: Annotated[Count, Field(description="Number of landmark rows that approximate a kernel (Nystroem)")] = (
        None
    )

    def require(self, kernel: KernelConfig) -> None:
        is_linear = kernel_row(kernel.name).is_linear
        if not is_linear and self.landmarks is None:
            raise ValueError(
                f"solver is 'cutting-plane', which is linear; expected kernel.name 'linear', or "
                f"cutting_plane.landmarks (for example 1000) to approximate {kernel.name}"
            )
        if is_linear and self.landmarks is not None:
            raise ValueError(
                f"cutting_plane.landmarks approximate a nonlinear kernel; found kernel.name {kernel.name!r}"
            )
        self.require_task()

    def require_task(self, task: Task | None = None) -> None:
        if self.method == "dual" and (reason := self.no_dual(task)):
            raise ConfigError(f"cutting_plane.method is 'dual', which {reason}; expected 'auto', 'ocas' or 'plain'")

    def no_dual(self, task: Task | None = None) -> str:
        """Why dual descent cannot solve what these options say, of this task if it is known. "" if it can."""
        if task is not None and (task.compares_rows or task.loss == "support"):
            return f"solves classes and numbers, not task {task.name!r}"
        if self.loss != "hinge":
            return f"has the hinge loss, not {self.loss!r}"
        return "takes rows as they are, without landmarks" if self.landmarks is not None else ""


class ADMMHSSConfig(SolverOptions):
    """ADMM on a kernel matrix compressed and factorised once (Cipolla and Gondzio 2021; Chavez et al. 2020)."""

    rtol: Annotated[Real, Field(gt=0, le=1, description="Relative error of the matrix; with atol, of a basis")] = 0.02
    atol: Annotated[
        Annotated[Real, Field(ge=0)] | None,
        Field(description="Size of entries, relative to the diagonal, at which a basis ends (default: by rtol)"),
    ] = None
    max_rank: Annotated[Whole, Field(ge=1, description="Maximum number of columns of a basis")] = 300
    definite: Annotated[
        bool | None,
        Field(
            description="Keep the matrix positive semidefinite (true), or fit bases by least squares (false) "
            "(default: chosen by landmarks)"
        ),
    ] = None
    leaf: Annotated[Whole, Field(ge=2, description="Maximum rows of a leaf of the cluster tree")] = 128
    neighbours: Annotated[Whole, Field(ge=1, description="Nearest rows of each row, whose columns are compressed")] = 32
    landmarks: Annotated[
        Whole, Field(ge=0, description="Landmark rows that represent the smooth component of the kernel; 0 for none")
    ] = 256
    storage: Annotated[Number, Field(description="Number type of matrix and factors")] = "float64"
    beta: Annotated[
        Annotated[Real, Field(gt=0)] | Shift,
        Field(description="Shift of ADMM: number, 'paper' (from the rows) or 'balance' (by residuals)"),
    ] = "paper"
    iterations: Annotated[Whole, Field(ge=1, description="Maximum number of ADMM steps")] = 50
    residual: Annotated[
        Real, Field(ge=0, description="Relative primal and dual residual at which ADMM stops early; 0 for never")
    ] = 0.0
    polish: Annotated[
        Whole, Field(ge=0, description="Maximum rounds of the exact solver afterwards, to tol; 0 for none")
    ] = 0

    def has_bias(self, *, zero_at_origin: bool) -> bool:
        return True


class ALFPGMConfig(SolverOptions):
    """Decomposition by many pairs at a time (Aregbesola and Griva 2022)."""

    rules = (
        ReadRule("alfpgm.mu", "subproblem fpg", "alfpgm.subproblem", partial(eq, "fpg")),
        ReadRule("alfpgm.break_ties", "votes of pairs", "multiclass", partial(eq, "pairs")),
    )

    method: Annotated[
        PairsMethod,
        Field(
            description="The paper's method with improvements, or as published: then tol, pairs, subproblem, shrinking "
            "and the limits of working sets have the paper's values if you do not set them"
        ),
    ] = "improved"
    pairs: Annotated[
        Whole, Field(ge=1, description="Pairs added to a working set, and the maximum kept from the last one")
    ] = 500
    subproblem: Annotated[
        Subproblem,
        Field(
            description="Subproblem solver: two-variable steps, or the paper's augmented Lagrangian with fast "
            "projected gradient"
        ),
    ] = "pairs"
    mu: Annotated[Real, Field(gt=0, description="Scaling parameter of the augmented Lagrangian")] = 0.1
    min_alpha_check: Annotated[
        Annotated[Whole, Field(ge=1)] | Literal["all"],
        BeforeValidator(lambda value: "all" if value is None else value),
        Field(description="Rows to search for a partner, or all"),
    ] = 2000
    min_alpha_opt: Annotated[
        Count, Field(description="Working sets after which a settled row is left out (default: never)")
    ] = None
    max_alpha_opt: Annotated[
        Count, Field(description="Working sets after which any row is left out (default: never)")
    ] = None
    delta_alpha: Annotated[Real, Field(ge=0, description="Change below which a row counts as settled")] = 1e-6
    shrinking: Annotated[bool, Field(description="Leave out rows that are sure to stay at a bound")] = True
    max_iter: Annotated[Count, Field(description="Maximum rounds of a problem (default: until tol)")] = None
    break_ties: Annotated[
        bool, Field(description="Break ties of votes by confidence, instead of for the first class")
    ] = False

    def has_bias(self, *, zero_at_origin: bool) -> bool:
        return True

    @property
    def candidates(self) -> int | None:
        """`min_alpha_check` as the solver takes it, None for all."""
        return None if isinstance(self.min_alpha_check, str) else self.min_alpha_check


# of the paper's section 5, where p is 50 to 100; tol is its epsilon
PUBLISHED: dict[str, Any] = {
    "tol": 1e-2,
    "alfpgm": {
        "pairs": 50,
        "subproblem": "fpg",
        "mu": 0.1,
        "min_alpha_check": "all",  # the paper gives no value, and few rows can take tens of times as many working sets
        "min_alpha_opt": 5,
        "max_alpha_opt": 20,
        "delta_alpha": 1e-6,
        "shrinking": False,
    },
}


def with_published(values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested values of a configuration; if they choose `alfpgm.method` paper, the paper's are added where none are
    given."""
    section = values.get("alfpgm")
    if not isinstance(section, Mapping) or section.get("method") != "paper":
        return dict(values)
    given = {name: value for name, value in section.items() if value is not None}
    return merged(("the paper", PUBLISHED), ("given", {**values, "alfpgm": given}))
