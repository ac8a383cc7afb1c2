"""The interface of a task, and what solvers get from it: the targets of a store, and the binary duals of the task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from streamsvm.data.labels import Classes, encode
from streamsvm.errors import ConfigError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.solvers.catalogue import takers
from streamsvm.tasks.weights import ClassWeight, Costs, cheapest, cost_matrix, of_labels

if TYPE_CHECKING:
    from streamsvm.data.store import Store
    from streamsvm.tasks.scores import DecisionRule, Scores

LABEL = "label"
LABELS = "label_accuracy"  # the mean accuracy of several labels a row: 1 less the Hamming loss
Loss = Literal["hinge", "logistic", "epsilon", "support"]


@dataclass(frozen=True)
class LabelScale:
    """Units of learned numbers: a label is offset + scale t', t' the number that is learned."""

    scale: float = 1.0
    offset: float = 0.0

    @classmethod
    def of(cls, labels: np.ndarray) -> LabelScale:
        """The scale in which labels (n,) have mean 0 and standard deviation 1, or are 0 if all are equal."""
        offset = float(labels.mean())
        return cls(float(np.sqrt(np.mean((labels - offset) ** 2))) or 1.0, offset)

    def labels(self, learned: np.ndarray) -> np.ndarray:
        """Learned numbers in units of the labels."""
        return self.offset + self.scale * learned


@dataclass(frozen=True)
class Targets(SizedInBytes):
    """What the rows are learned by.

    classes (k,): labels, and codes (n,): positions in them; without classes all codes are 0. linear (n, c): linear
    terms of each row's variables; None: one variable a row, with -1. groups (n,): rows are compared in pairs within
    these; None if they are not compared. nu: the sum of the variables of a dual that keeps it, as a share of their
    bounds. units: the scale of linear terms and decision values. sets (l, k) bool: the classes that each code stands
    for, if rows have any number of them; None if a row has one class. factors (2, k): factors on the bounds of rows
    that lack each class, and of those that have it; None: 1. quantile: of the pinball loss of numbers."""

    classes: np.ndarray
    codes: np.ndarray
    linear: np.ndarray | None = None
    groups: np.ndarray | None = None
    nu: float | None = None
    units: LabelScale = LabelScale()
    sets: np.ndarray | None = None
    factors: np.ndarray | None = None
    quantile: float | None = None

    @property
    def weights(self) -> np.ndarray:
        """(n, k) factors by row and class for several labels a row, else (n, 1) of 1."""
        has = np.ones((len(self.codes), 1), bool) if self.sets is None else self.sets[self.codes]
        return of_labels(has, self.factors)

    def take(self, ids: np.ndarray | slice) -> Targets:
        linear, groups = (None if a is None else a[ids] for a in (self.linear, self.groups))
        return replace(self, codes=self.codes[ids], linear=linear, groups=groups)

    def of(self, rows: Mapping[str, np.ndarray]) -> Targets:
        """The targets of rows, given the arrays of these rows by name, with what all rows have in common."""
        return replace(self, codes=rows["codes"], linear=rows.get("linear"), groups=rows.get("groups"))


class TaskOptions(Protocol):
    """The options of a `FitConfig` that tasks read; tables of options are above tasks in the order of imports."""

    @property
    def C(self) -> float: ...
    @property
    def nu(self) -> float | None: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def quantile(self) -> float | None: ...
    @property
    def positive(self) -> tuple[str, ...]: ...
    @property
    def class_weight(self) -> ClassWeight: ...
    @property
    def scale_targets(self) -> bool: ...
    @property
    def dcsvm(self) -> Any: ...
    @property
    def metric(self) -> Any: ...
    @property
    def search(self) -> Any: ...


class Coder(Protocol):
    """Computes the targets of a row from its label alone. classes: those of the targets. counts: rows of each code,
    (k,) of classes, (1,) without."""

    @property
    def classes(self) -> np.ndarray: ...

    @property
    def counts(self) -> np.ndarray: ...

    def targets(self, labels: np.ndarray) -> Targets:
        """The targets of rows with these labels (m,)."""


@dataclass(frozen=True)
class LabelCoder(SizedInBytes):
    """Labels as codes: classes (k,), and for each of the different labels of a store, (l,), the class it belongs to."""

    classes: np.ndarray
    labels: Classes
    of_label: np.ndarray
    nu: float | None = None  # of the targets

    @property
    def counts(self) -> np.ndarray:
        """(k,) rows of each class."""
        counts = np.zeros(len(self.classes), np.int64)
        np.add.at(counts, self.of_label, self.labels.counts)
        return counts

    def targets(self, labels: np.ndarray) -> Targets:
        return Targets(self.classes, self.of_label[self.labels.codes(labels)], nu=self.nu)


@dataclass(frozen=True)
class Subproblem(SizedInBytes):
    """One dual of a task: min over a of 1/2 a'Qa + linear'a, 0 <= a <= upper, Q_ij = y_i y_j K(x_i, x_j).

    It has c variables a row: all rows' first ones, then all rows' second ones. ids (m,): its rows, rising. y (c m,): -1
    or +1, and linear, a number or (c m,). columns (c m,): of the variables among the coefficients (n, columns). number:
    its number among all duals of the task. nu: the variables of each sign of y keep their sum, nu times the sum of the
    bounds of the rows over the number of signs; None: they do not. over_margin: f is divided by the margin r that the
    dual leaves. weight (m,): factors on the bounds of its rows; None: 1. shares (c,): factors on the bounds of a row's
    variables; None: 1."""

    ids: np.ndarray
    y: np.ndarray
    columns: np.ndarray
    linear: np.ndarray | float = -1.0
    number: int = 0
    nu: float | None = None
    over_margin: bool = False
    weight: np.ndarray | None = None
    shares: tuple[float, ...] | None = None

    @property
    def copies(self) -> int:
        """The number of variables of a row."""
        return len(self.y) // len(self.ids)

    def variables(self, rows: np.ndarray) -> np.ndarray:
        """Positions of the variables of some of its rows."""
        return (np.arange(self.copies)[:, None] * len(self.ids) + rows).ravel()

    def take(self, rows: np.ndarray) -> Subproblem:
        """The dual of some of its rows; the variables of the others are 0."""
        variables = self.variables(rows)
        return replace(
            self,
            ids=self.ids[rows],
            y=self.y[variables],
            columns=self.columns[variables],
            linear=self.linear[variables] if isinstance(self.linear, np.ndarray) else self.linear,
            weight=None if self.weight is None else self.weight[rows],
        )

    def bounds(self, upper: np.ndarray) -> np.ndarray:
        """(..., m) bounds of its rows, from the bounds (..., n) of all rows."""
        row_bounds = upper[..., self.ids]
        return row_bounds if self.weight is None else row_bounds * self.weight

    def coefficients(self, alpha: np.ndarray) -> np.ndarray:
        """(m,) coefficients of its rows in f(x) = sum_i coef_i K(x_i, x), from its variables alpha (c m,)."""
        return (self.y * alpha).reshape(self.copies, -1).sum(axis=0)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions of its variables among the coefficients (n, columns) of all rows."""
        return (self.ids if self.copies == 1 else np.tile(self.ids, self.copies)), self.columns


class Task(ABC):
    """What differs between tasks. It holds no state: its methods get all their data as arguments."""

    name: ClassVar[str]
    solvers: ClassVar[tuple[str, ...]] = ()  # that take it, besides those whose rows in the catalogue name it
    scoring: ClassVar[str]  # the default score of `tune`
    searched_by: ClassVar[str | None] = None  # the score of the search of a fit; None: as scoring
    has_classes: ClassVar[bool] = True  # its targets are labels; so rows can be weighed by them, or grouped
    own_classes: ClassVar[tuple[int, ...]] = ()  # whatever the labels of the store
    reads_labels: ClassVar[bool] = True  # else it learns from rows alone, and labels are for `evaluate`
    has_probabilities: ClassVar[bool] = False
    has_intervals: ClassVar[bool] = False  # decision values predict labels, which are numbers
    is_stratified: ClassVar[bool] = False  # folds keep the shares of the labels
    has_metric: ClassVar[bool] = False  # a metric can be learned from its duals
    variables: ClassVar[int] = 1  # of a row in each of its duals
    has_bias: ClassVar[bool] = False  # its duals keep y'a = 0, whether the options name a bias or not
    from_origin: ClassVar[bool] = False  # it separates rows from the origin of the kernel's features
    has_choice_of_nu: ClassVar[bool] = False  # its duals keep the sums of signs only if nu is given
    in_pairs: ClassVar[bool] = False  # subproblems are pairs of classes, and their decisions votes
    in_sets: ClassVar[bool] = False  # a row has any number of classes, each of them separated from the rest
    speaks_for_classes: ClassVar[bool] = False  # a decision value is evidence for a class
    compares_rows: ClassVar[bool] = False  # its targets have groups
    needs_queries: ClassVar[bool] = False  # rows need a qid
    loss: ClassVar[Loss] = "hinge"  # for learners on a budget
    answer: ClassVar[str] = LABEL  # the name of its predictions in files
    libsvm_type: ClassVar[str] = "c_svc"
    libsvm_nu_type: ClassVar[str] = "nu_svc"  # of a fit with nu

    def goes_with(self, solver: str) -> bool:
        return solver in self.solvers or solver in takers(self.name)

    def require(self, solver: str, named_in: Sequence[str] = ()) -> None:
        """Raises ConfigError for a solver that does not take the task, or for options that name classes, if it has
        none."""
        if not self.goes_with(solver):
            solvers = " or ".join(dict.fromkeys([*self.solvers, *takers(self.name)]))
            raise ConfigError(f"task is {self.name!r}, which only solver {solvers} supports")
        if named_in and not self.has_classes:
            raise ConfigError(f"task is {self.name!r}, which has no classes; found {' and '.join(named_in)}")

    def require_alone(self, config: TaskOptions) -> None:
        """Raises ConfigError if nu, which is given, is combined with options that it replaces, or with a choice by
        duals without nu."""
        if not self.has_choice_of_nu:
            return
        others = {
            "C": self.in_pairs and config.C != 1.0,
            "dcsvm.loss": config.dcsvm.is_squared,
            "dcsvm.part_metric": config.dcsvm.part_metric > 0,
            "metric.kind": config.metric.kind != "none",
            "search": bool(config.search.chosen),
        }
        given = [name for name, is_given in others.items() if is_given]
        if given:
            raise ConfigError(f"nu is {config.nu:g}, which excludes {', '.join(given)}: leave one out")

    def by(self, multiclass: str) -> Task:
        """The task with several classes separated in this way, if it knows several."""
        return self

    @property
    def has_labels(self) -> bool:
        """Whether it predicts one of the labels; else decision values are the predictions."""
        return self.answer == LABEL

    def nu(self, config: TaskOptions) -> float | None:
        """The nu of its targets."""
        return None

    def most_nu(self, weights: np.ndarray) -> float:
        """The largest nu that its duals allow, for classes whose rows have bounds that add up to weights (k,)."""
        return 1.0

    def margin_facts(self, margin: np.ndarray) -> dict[str, float]:
        """Report entries for the margins (subproblems,) of duals that keep the sum of each sign."""
        return {}

    @abstractmethod
    def targets(self, store: Store, config: TaskOptions) -> Targets:
        """What the rows of a store are learned by; config: a FitConfig, for its own options. Raises DataError."""

    def coder(self, store: Store, config: TaskOptions) -> Coder | None:
        """Computes all of the `targets` of a row from its label alone, so that they need not be in memory; None if they
        depend on other data, too. Raises as `targets`."""
        return None

    def classes_of(self, labels: np.ndarray) -> np.ndarray:
        """The classes of a store with these different labels."""
        return labels

    def columns(self, k: int) -> int:
        """The number of columns of decision values for k classes, if problems are not pairs."""
        return 1

    def n_subproblems(self, k: int) -> int:
        return 1

    def coefficients(self, k: int) -> int:
        """The number of columns of the coefficients of all subproblems of k classes."""
        return 1

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        """The duals that the task is made of; single: also those whose rows are all of one class. A task that no solver
        of duals takes has none."""
        raise NotImplementedError(f"task {self.name} is not made of duals")

    def present(self, targets: Targets) -> np.ndarray:
        """(k,) bool the classes that rows have; or other facts that `one_sided` needs."""
        return np.isin(np.arange(len(targets.classes)), targets.codes)

    def one_sided(self, present: np.ndarray) -> np.ndarray:
        """(partitions, subproblems) the answer of partitions, with the classes `present` (partitions, k), to
        subproblems all of whose rows are on one side: -1 or +1; 0 for others."""
        k = present.shape[1]
        if not self.has_classes:
            return np.zeros((len(present), self.n_subproblems(k)))
        kinds, which = np.unique(present, axis=0, return_inverse=True)
        answers = np.zeros((len(kinds), self.n_subproblems(k)))
        for answer, has_class in zip(answers, kinds, strict=True):
            targets = Targets(np.arange(k), np.flatnonzero(has_class).astype(np.int32))
            for part in self.subproblems(targets, single=True):
                if len(part.y) and part.y.min() == part.y.max():
                    answer[part.number] = part.y[0]
        return answers[which.ravel()]

    def thresholds(self, f: np.ndarray, targets: Targets, weight: np.ndarray) -> np.ndarray:
        """(k - 1,) rising thresholds on decision values f (n,) of rows with this weight (n,); empty if labels need
        none."""
        return np.empty(0)

    def codes(self, decision: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """(m,) positions in the classes, by decision values (m,) or (m, k); for several labels a row (m, k) bool."""
        return (decision > 0).astype(np.intp) if decision.ndim == 1 else np.argmax(decision, axis=1)

    def above(self, values: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
        """The `codes` of decision values above a threshold, or for several labels a row, one threshold a class."""
        return (values > threshold).astype(np.intp)

    def likeliest(self, proba: np.ndarray) -> np.ndarray:
        """The `codes` of probabilities (m, k)."""
        return np.argmax(proba, axis=1)

    def costs(self, costs: Costs, classes: np.ndarray) -> np.ndarray:
        """The costs of all errors from those that are given, as `cheapest` takes them. Raises ConfigError."""
        return cost_matrix(costs, classes)

    def cheapest(self, proba: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The `codes` with the least expected cost, by probabilities (m, k)."""
        return cheapest(proba, costs)

    def encoded(self, labels: np.ndarray, classes: np.ndarray, positive: tuple[str, ...] = ()) -> np.ndarray:
        """The `codes` of labels; -1 for a label that is none of the classes."""
        return encode(labels, classes, positive)

    def truth(self, targets: Targets) -> np.ndarray:
        """The correct values of `codes`."""
        return targets.codes

    def labels(self, classes: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """(m,) labels of `codes`."""
        return classes[codes]

    def cuts(self, thresholds: np.ndarray) -> np.ndarray:
        """Values of a single column of decision values; beyond each of them the code is one higher."""
        return np.zeros(1)

    def against_rest(
        self, coef: np.ndarray, intercept: np.ndarray, thresholds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (s, columns) and intercepts of sums of which the largest wins, as LIBSVM's classifiers need."""
        return coef, intercept

    @abstractmethod
    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> Scores:
        """Scores of decision values on a store's rows, gathered block by block. with_curves: also the curves of
        plots."""

    def learnable(self, targets: Targets) -> np.ndarray:
        """(n, columns) what learners on a budget learn from each row: -1 or +1, or numbers. Only of tasks that they
        take."""
        raise NotImplementedError(f"task {self.name} is not learned row by row")

    def facts(self, targets: Targets) -> dict[str, int]:
        """Report entries for the targets."""
        return {}
