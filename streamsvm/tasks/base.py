"""The interface of a task, and what solvers get from it: targets of a store, and the binary duals of the task."""

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
from streamsvm.tasks.costs import Costs, cheapest, cost_matrix
from streamsvm.tasks.weights import of_labels

if TYPE_CHECKING:
    from streamsvm.data.store import Store
    from streamsvm.tasks.scores import DecisionRule, Scores

LABEL = "label"
LABELS = "label_accuracy"  # the mean accuracy of several labels a row: 1 less the Hamming loss
Loss = Literal["hinge", "logistic", "epsilon", "support"]


@dataclass(frozen=True)
class LabelScale:
    """Of numbers that are learned: t' where a label is offset + scale t'."""

    scale: float = 1.0
    offset: float = 0.0

    @classmethod
    def of(cls, labels: np.ndarray) -> LabelScale:
        """In which labels (n,) have mean 0 and standard deviation 1; equal ones 0."""
        offset = float(labels.mean())
        return cls(float(np.sqrt(np.mean((labels - offset) ** 2))) or 1.0, offset)

    def labels(self, learned: np.ndarray) -> np.ndarray:
        """In units of the labels."""
        return self.offset + self.scale * learned


@dataclass(frozen=True)
class Targets(SizedInBytes):
    """What the rows are learned by.

    classes (k,) labels and codes (n,) positions in them; without classes all codes are 0. linear (n, c): the linear
    terms of each row's variables; None: one variable a row, of -1. groups (n,): rows are compared in pairs within
    these; None if they are not. nu: share of the bounds that variables add up to, of duals that keep their sum.
    units: of what linear terms are made of, and decision values are learned in. sets (l, k) bool: where rows have any
    number of the classes, which of them each code stands for; None if it is one. factors (2, k): on the bounds of rows
    that lack each of the classes, and of those that have it; None: 1.
    """

    classes: np.ndarray
    codes: np.ndarray
    linear: np.ndarray | None = None
    groups: np.ndarray | None = None
    nu: float | None = None
    units: LabelScale = LabelScale()
    sets: np.ndarray | None = None
    factors: np.ndarray | None = None

    @property
    def weights(self) -> np.ndarray:
        """(n, k) factors of rows of sets, by class; (n, 1) of 1 of others."""
        has = np.ones((len(self.codes), 1), bool) if self.sets is None else self.sets[self.codes]
        return of_labels(has, self.factors)

    def take(self, ids: np.ndarray | slice) -> Targets:
        linear, groups = (None if a is None else a[ids] for a in (self.linear, self.groups))
        return replace(self, codes=self.codes[ids], linear=linear, groups=groups)

    def of(self, rows: Mapping[str, np.ndarray]) -> Targets:
        """Those of rows by the names of their arrays, with what all rows have in common."""
        return replace(self, codes=rows["codes"], linear=rows.get("linear"), groups=rows.get("groups"))


class Coder(Protocol):
    """Computes the targets of a row from its label alone.

    classes: of targets. counts: rows of each code, (k,) of classes, (1,) without.
    """

    @property
    def classes(self) -> np.ndarray: ...

    @property
    def counts(self) -> np.ndarray: ...

    def targets(self, labels: np.ndarray) -> Targets:
        """Of rows with these labels (m,)."""


@dataclass(frozen=True)
class LabelCoder(SizedInBytes):
    """How labels become codes: classes (k,), and of the different labels of a store, (l,), which of these each is."""

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
    """One dual of those that a task is made of: min over a of 1/2 a'Qa + linear'a, Q_ij = y_i y_j K(x_i, x_j).

    ids (m,): its rows, rising. y (c m,) -1 or +1, and linear, a number or (c m,): of its variables, c for each row: all
    rows' first ones, then all rows' second ones. columns (c m,): of their coefficients (n, columns). number: among all
    duals of the task. nu: the variables of each sign of y keep their sum, nu times that of the bounds of the rows over
    the number of signs; None: they do not. over_margin: f is reported over the margin r that it leaves. weight (m,):
    factors on the bounds of its rows; None: 1.
    """

    ids: np.ndarray
    y: np.ndarray
    columns: np.ndarray
    linear: np.ndarray | float = -1.0
    number: int = 0
    nu: float | None = None
    over_margin: bool = False
    weight: np.ndarray | None = None

    @property
    def copies(self) -> int:
        """Variables of a row."""
        return len(self.y) // len(self.ids)

    def variables(self, rows: np.ndarray) -> np.ndarray:
        """Which of its variables are of some of its rows."""
        return (np.arange(self.copies)[:, None] * len(self.ids) + rows).ravel()

    def take(self, rows: np.ndarray) -> Subproblem:
        """The dual of some of its rows alone: the others have variables of 0."""
        own = self.variables(rows)
        linear = self.linear[own] if isinstance(self.linear, np.ndarray) else self.linear
        weight = None if self.weight is None else self.weight[rows]
        some = self.ids[rows], self.y[own], self.columns[own]
        return Subproblem(*some, linear, self.number, self.nu, self.over_margin, weight)

    def bounds(self, upper: np.ndarray) -> np.ndarray:
        """(..., m) of its rows, of those (..., n) that all rows have in common."""
        own = upper[..., self.ids]
        return own if self.weight is None else own * self.weight

    def coefficients(self, alpha: np.ndarray) -> np.ndarray:
        """(m,) what its variables (c m,) make of each row in sum_i coef_i K(x_i, x)."""
        return (self.y * alpha).reshape(self.copies, -1).sum(axis=0)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Places of its variables among the coefficients (n, columns) of all rows."""
        return (self.ids if self.copies == 1 else np.tile(self.ids, self.copies)), self.columns


class Task(ABC):
    """What differs between tasks. It holds no state: its methods get all their data as arguments."""

    name: ClassVar[str]
    solvers: ClassVar[tuple[str, ...]] = ()  # that take it, besides those whose rows in the catalogue name it
    scoring: ClassVar[str]  # what `tune` compares where nobody says
    searched_by: ClassVar[str | None] = None  # what a search for a fit compares, if it is not that
    has_classes: ClassVar[bool] = True  # its targets are labels; so rows can be weighed by them, or grouped
    own_classes: ClassVar[tuple[int, ...]] = ()  # that it knows by itself
    reads_labels: ClassVar[bool] = True  # else it learns from rows alone, and labels are for `evaluate`
    has_probabilities: ClassVar[bool] = False
    has_intervals: ClassVar[bool] = False  # decision values are labels that are foretold
    is_stratified: ClassVar[bool] = False  # folds keep the shares of the labels
    has_metric: ClassVar[bool] = False  # one may be learned from its duals
    variables: ClassVar[int] = 1  # of a row in each of its duals
    has_bias: ClassVar[bool] = False  # its duals keep y'a = 0, whether a solver is asked for a bias or not
    from_origin: ClassVar[bool] = False  # it separates rows from the origin of the kernel's features
    has_choice_of_nu: ClassVar[bool] = (
        False  # its duals keep the sums of signs where nu is given, and only there
    )
    in_pairs: ClassVar[bool] = False  # subproblems are pairs of classes, and their decisions votes
    in_sets: ClassVar[bool] = False  # a row has any number of classes, each of them separated from the rest
    speaks_for_classes: ClassVar[bool] = False  # a decision value does
    compares_rows: ClassVar[bool] = False  # its targets have groups
    needs_queries: ClassVar[bool] = False  # rows have to have a qid
    loss: ClassVar[Loss] = "hinge"  # of a row, to learners on a budget: one of theirs
    answer: ClassVar[str] = LABEL  # what it predicts, as files of predictions name it
    libsvm_type: ClassVar[str] = "c_svc"
    libsvm_nu_type: ClassVar[str] = "nu_svc"  # of a fit that nu was given to

    def goes_with(self, solver: str) -> bool:
        return solver in self.solvers or solver in takers(self.name)

    def require(self, solver: str, named_in: Sequence[str] = ()) -> None:
        """Raises ConfigError for a solver that does not take it, and for options that name classes, of those given."""
        if not self.goes_with(solver):
            solvers = " or ".join(dict.fromkeys([*self.solvers, *takers(self.name)]))
            raise ConfigError(f"task is {self.name!r}, which only solver {solvers} supports")
        if named_in and not self.has_classes:
            raise ConfigError(f"task is {self.name!r}, which has no classes; found {' and '.join(named_in)}")

    def require_alone(self, config: Any) -> None:
        """Raises ConfigError if nu, which is given, is combined with options that it replaces, or with a choice by
        duals without it."""
        if not self.has_choice_of_nu:
            return
        others = {
            "C": self.in_pairs and config.C != 1.0,
            "dcsvm.loss": config.dcsvm.is_squared,
            "dcsvm.part_metric": config.dcsvm.part_metric > 0,
            "metric.kind": config.metric.kind != "none",
            "search": bool(config.search.chosen),
        }
        found = [name for name, is_given in others.items() if is_given]
        if found:
            raise ConfigError(f"nu is {config.nu:g}, which excludes {', '.join(found)}: leave one out")

    def by(self, multiclass: str) -> Task:
        """The same with several classes separated in this way, for a task that knows several."""
        return self

    @property
    def has_labels(self) -> bool:
        """Whether it predicts one of the labels; else decision values are the answer."""
        return self.answer == LABEL

    def nu(self, config: Any) -> float | None:
        """That of its targets."""
        return None

    def most_nu(self, weights: np.ndarray) -> float:
        """The largest nu that its duals allow, of classes whose rows have bounds that add up to weights (k,)."""
        return 1.0

    def margin_facts(self, margin: np.ndarray) -> dict[str, float]:
        """Report entries for the margins (subproblems,) of duals that keep the sum of each sign."""
        return {}

    @abstractmethod
    def targets(self, store: Store, config: Any) -> Targets:
        """What the rows of a store are learned by; config: a FitConfig, for its own options. Raises DataError."""

    def coder(self, store: Store, config: Any) -> Coder | None:
        """How to compute all of the `targets` of a row from its label alone, so that they need not be held; None if
        they depend on other things, too. Raises as `targets`."""
        return None

    def classes_of(self, labels: np.ndarray) -> np.ndarray:
        """The classes of a store that has these different labels."""
        return labels

    def columns(self, k: int) -> int:
        """Columns of decision values of k classes, where problems are not pairs."""
        return 1

    def n_subproblems(self, k: int) -> int:
        return 1

    def coefficients(self, k: int) -> int:
        """Columns of the coefficients of all subproblems of k classes."""
        return 1

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        """The duals that it is made of, for solvers of duals; single: also those whose rows are all of one class.

        A task that no such solver takes has none.
        """
        raise NotImplementedError(f"task {self.name} is not made of duals")

    def present(self, targets: Targets) -> np.ndarray:
        """(k,) bool the classes that rows have; or what else `one_sided` asks for."""
        return np.isin(np.arange(len(targets.classes)), targets.codes)

    def one_sided(self, present: np.ndarray) -> np.ndarray:
        """(partitions, subproblems) what partitions with such rows, see `present`, answer for subproblems all of whose
        rows are on one side: -1 or +1; else 0."""
        k = present.shape[1]
        if not self.has_classes:
            return np.zeros((len(present), self.n_subproblems(k)))
        kinds, which = np.unique(present, axis=0, return_inverse=True)
        said = np.zeros((len(kinds), self.n_subproblems(k)))
        for own, here in zip(said, kinds, strict=True):
            targets = Targets(np.arange(k), np.flatnonzero(here).astype(np.int32))
            for part in self.subproblems(targets, single=True):
                if len(part.y) and part.y.min() == part.y.max():
                    own[part.number] = part.y[0]
        return said[which.ravel()]

    def thresholds(self, f: np.ndarray, targets: Targets, weight: np.ndarray) -> np.ndarray:
        """(k - 1,) rising, of decision values f (n,) of rows of this weight (n,); empty where labels need none."""
        return np.empty(0)

    def codes(self, decision: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """(m,) positions in the classes, by decision values (m,) or (m, k); of sets (m, k) bool which are in."""
        return (decision > 0).astype(np.intp) if decision.ndim == 1 else np.argmax(decision, axis=1)

    def above(self, values: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
        """The `codes` of decision values beyond a threshold: of sets, one for each class."""
        return (values > threshold).astype(np.intp)

    def likeliest(self, proba: np.ndarray) -> np.ndarray:
        """The `codes` of probabilities (m, k)."""
        return np.argmax(proba, axis=1)

    def costs(self, costs: Costs, classes: np.ndarray) -> np.ndarray:
        """Those that are given for errors, of all errors, as `cheapest` takes them. Raises ConfigError."""
        return cost_matrix(costs, classes)

    def cheapest(self, proba: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The `codes` with the least expected cost, by probabilities (m, k)."""
        return cheapest(proba, costs)

    def encoded(self, labels: np.ndarray, classes: np.ndarray, positive: tuple[str, ...] = ()) -> np.ndarray:
        """The `codes` of labels; -1 for one that is none of the classes."""
        return encode(labels, classes, positive)

    def truth(self, targets: Targets) -> np.ndarray:
        """The correct values of `codes`."""
        return targets.codes

    def labels(self, classes: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """(m,) labels of `codes`."""
        return classes[codes]

    def cuts(self, thresholds: np.ndarray) -> np.ndarray:
        """The values of one column beyond each of which the code is one higher."""
        return np.zeros(1)

    def against_rest(
        self, coef: np.ndarray, intercept: np.ndarray, thresholds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (s, columns) and intercepts of sums of which the largest wins, as LIBSVM's classifiers need."""
        return coef, intercept

    @abstractmethod
    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> Scores:
        """Scores of decision values on a store's rows, gathered block by block. with_curves: what plots need, too."""

    def learnable(self, targets: Targets) -> np.ndarray:
        """(n, columns) what learners on a budget learn of each row: -1 or +1, or labels. Of a task that has such."""
        raise NotImplementedError(f"task {self.name} is not learned row by row")

    def facts(self, targets: Targets) -> dict[str, int]:
        """Report entries for the targets."""
        return {}
