"""Trained models: arrays and a decision function. Rows go in raw; the model scales them itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamsvm.calibration import Calibration
from streamsvm.data.check import require_finite
from streamsvm.data.labels import encode
from streamsvm.data.names import Named, Names
from streamsvm.data.rows import Rows, rows_from_state, rows_state
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.kmeans import Partition, partition_from_state, partition_state
from streamsvm.products import times
from streamsvm.sizes import Weighed
from streamsvm.solvers.bsgd import BudgetLearner, BudgetOptions
from streamsvm.tasks import task_names, task_of
from streamsvm.tasks.base import Task
from streamsvm.tasks.pairs import n_pairs, pair_coefficients, vote


@dataclass(frozen=True)
class Header(Weighed):
    """What every model knows: kernel, scaling, classes, where it comes from, and what makes its probabilities."""

    kernel: Kernel
    scaling: Scaling
    classes: np.ndarray  # (k,) labels, sorted, or as a stream brought them
    positive: tuple[str, ...] = ()  # the labels that class 1 stands for, against the rest
    config: dict[str, Any] | None = None
    fingerprint: str = ""
    certificate: dict[str, Any] | None = None
    calibration: Calibration | None = None
    feature_names: Names | None = None  # (d,) of the columns of raw rows

    @property
    def d(self) -> int:
        return len(self.scaling.offset)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        attrs = {
            "kernel": self.kernel.to_attrs(),
            "scaling": self.scaling.kind,
            "positive": list(self.positive),
            "config": self.config or {},
            "fingerprint": self.fingerprint,
            "certificate": self.certificate or {},
        }
        arrays = {"classes": self.classes, **self.scaling.to_arrays()}
        if self.feature_names is not None:
            arrays["feature_names"] = np.array(self.feature_names)
        if self.calibration is None:
            return arrays, attrs
        maps, method = self.calibration.to_state()
        return arrays | maps, attrs | method

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> Header:
        names = tuple(arrays["feature_names"].tolist()) if "feature_names" in arrays else None
        header = cls(
            kernel=kernel_from(attrs["kernel"]),
            scaling=Scaling.from_arrays(attrs["scaling"], arrays),  # type: ignore[arg-type]
            classes=np.asarray(arrays["classes"]),
            positive=tuple(attrs["positive"]),
            config=attrs["config"],
            fingerprint=attrs["fingerprint"],
            certificate=attrs["certificate"],
            calibration=Calibration.from_state(arrays, attrs),
            feature_names=names,
        )
        if names is not None and len(names) != header.d:
            raise ValueError(f"found {len(names)} feature names, expected {header.d}")
        return header


class _Classifier(Named, Weighed, ABC):
    """What follows from a header and the decision values of binary problems."""

    header: Header
    task: str = "classify"
    thresholds: np.ndarray = np.empty(0)  # of tasks that need them to tell labels apart
    is_pairwise: ClassVar[bool] = (
        False  # a problem for each pair of classes, else for each class against the rest
    )

    @property
    def learned(self) -> Task:
        """The task, which knows what decision values mean."""
        return task_of(self.task)

    @property
    def feature_names(self) -> Names | None:
        """(d,) of the columns of raw rows, where the training rows had any."""
        return self.header.feature_names

    @property
    def d(self) -> int:
        return self.header.d

    @property
    def classes(self) -> np.ndarray:
        return self.header.classes

    def labels(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray:
        """The label of each row from what `answers` gives; the values themselves where the task has no classes."""
        return self.classes[self.codes_of(decision, proba)] if self.learned.has_labels else decision

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray:
        """(m,) positions in `classes`: of the largest probability where there are any, else by decision values."""
        return self._decided(decision) if proba is None else np.argmax(proba, axis=1)

    def _decided(self, decision: np.ndarray) -> np.ndarray:
        return self.learned.codes(decision, self.thresholds)

    def predict(self, X: Any) -> np.ndarray:
        """(m,) labels of raw rows: `Rows`, an array or a data frame, the names of whose columns are compared."""
        return self.labels(*self.answers(self._rows(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(m, k) probabilities of raw rows. Raises ModelError where the model has none."""
        self.require_probabilities()
        return self._probabilities(self.binary_decisions(self._rows(X)))

    def require_probabilities(self) -> None:
        """Raises ModelError where the model is not calibrated."""
        if self.header.calibration is None:
            raise ModelError(
                "the model has no probabilities: `streamsvm calibrate --model M --store HELDOUT` adds them, "
                "`streamsvm fit --probability sigmoid` makes them"
            )

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]:
        """Decision values as `decision_function` gives them, and (m, k) probabilities where the model is calibrated."""
        binary = self.binary_decisions(rows)
        return self._scores(binary), None if self.header.calibration is None else self._probabilities(binary)

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values of raw rows, (m,) for two classes (positive: the second one), else (m, k)."""
        return self._scores(self.binary_decisions(self._rows(X)))

    def _rows(self, X: Any) -> Rows:
        if isinstance(X, Rows):
            return X
        store = X if isinstance(X, Store) else Store.from_arrays(X)
        columns, _ = self.columns_in(store)
        rows = store.read(0, store.n)
        require_finite(store, rows, 0)
        return rows.arranged(columns, self.d)

    @abstractmethod
    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, problems) decision values of raw rows, of each pair of classes, or of each class against the rest."""

    def encode_labels(self, y: np.ndarray) -> np.ndarray:
        """(n,) class codes of labels; -1 for one the model does not know."""
        return encode(y, self.classes, self.header.positive)

    def _scores(self, decisions: np.ndarray) -> np.ndarray:
        """(m,) for one problem, else (m, k): votes where problems are pairs."""
        if decisions.shape[1] == 1:
            return decisions[:, 0]
        return vote(decisions, len(self.classes)) if self.is_pairwise else decisions

    def _probabilities(self, decisions: np.ndarray) -> np.ndarray:
        assert self.header.calibration is not None  # or there is nothing to ask for
        return self.header.calibration.probabilities(decisions, len(self.classes), pairwise=self.is_pairwise)


def _known_task(name: Any) -> str:
    """The task that a file names. Raises ValueError where there is none of that name."""
    if name not in task_names():
        raise ValueError(f"found task {name!r}, expected one of {', '.join(task_names())}")
    return str(name)


@dataclass(frozen=True)
class KernelModel(_Classifier):
    """f(x) = sum_i y_i alpha_i K(x_i, x) + b of each pair of classes, over support rows already scaled."""

    kind: ClassVar[str] = "kernel"
    is_pairwise: ClassVar[bool] = True
    header: Header
    support: Rows
    alpha: np.ndarray  # (s, k - 1) compact, see tasks.pairs
    codes: np.ndarray  # (s,) class codes of the support rows
    ids: np.ndarray  # (s,) int64 rows of the training store that they were
    intercept: np.ndarray  # (n_pairs,)
    break_ties: bool = True  # by confidence; else equal votes are the first class's, as in LIBSVM

    @property
    def n_support(self) -> int:
        return len(self.support)

    @cached_property
    def coefficients(self) -> np.ndarray:
        """(s, n_pairs) float32 y_i alpha_i of each pair."""
        return pair_coefficients(self.alpha, self.codes, len(self.classes))

    def _decided(self, decision: np.ndarray) -> np.ndarray:
        # votes are whole numbers, and confidence below 1/3 is added
        return super()._decided(decision if self.break_ties or decision.ndim == 1 else np.rint(decision))

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, n_pairs) decision values of each pair (i, j), positive for j; rows are raw."""
        rows = self.header.scaling.apply(rows)
        return self.header.kernel.apply(rows, self.support, self.coefficients) + self.intercept

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, attrs = self.header.to_state()
        return arrays | rows_state("support", self.support) | {
            "alpha": self.alpha,
            "codes": self.codes,
            "ids": self.ids,
            "intercept": self.intercept,
        }, attrs | {"break_ties": self.break_ties}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> KernelModel:
        header = Header.from_state(arrays, attrs)
        support = rows_from_state("support", arrays, header.d)
        alpha, codes, ids, intercept = (
            np.asarray(arrays[name]) for name in ("alpha", "codes", "ids", "intercept")
        )
        return cls(header, support, alpha, codes, ids, intercept, attrs["break_ties"])


@dataclass(frozen=True)
class LocalModel(_Classifier):
    """Early prediction: each part of the partition decides for the rows that fall into it.

    combine: "nearest" is equation (11) of Hsieh et al. 2014, "naive" equation (10), the sum over all parts, and
    "committee" the Bayesian committee machine (Tresp 2000), parts weighted by their certainty. With neighbours > 1
    "nearest" is the mean over a row's own part and those with the nearest centres.
    """

    kind: ClassVar[str] = "local"
    is_pairwise: ClassVar[bool] = True
    header: Header
    partition: Partition
    bounds: np.ndarray  # (parts + 1,) int64: part p holds support rows bounds[p]..bounds[p+1]
    present: np.ndarray  # (parts, k) bool: classes among the part's training rows
    arrays: Mapping[str, Any]  # support (or its CSR arrays), alpha, codes: in memory or read part by part
    combine: str = "nearest"
    neighbours: int = 1

    @property
    def n_support(self) -> int:
        return int(self.bounds[-1])

    def part(self, p: int) -> tuple[Rows, np.ndarray]:
        """Support rows of a part and their pair coefficients."""
        start, stop = int(self.bounds[p]), int(self.bounds[p + 1])
        codes = np.asarray(self.arrays["codes"][start:stop])
        coefficients = pair_coefficients(
            np.asarray(self.arrays["alpha"][start:stop]), codes, len(self.classes)
        )
        return rows_from_state("support", self.arrays, self.d, start, stop), coefficients

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, n_pairs) decision values of each pair (i, j), positive for j; rows are raw."""
        rows = self.header.scaling.apply(rows)
        combine = {"nearest": self._nearest, "naive": self._naive, "committee": self._committee}[self.combine]
        return combine(rows)

    def _nearest(self, rows: Rows) -> np.ndarray:
        decisions = np.zeros((len(rows), n_pairs(len(self.classes))))
        parts = self.partition.nearest(rows, self.neighbours)
        for p in np.unique(parts):
            here = np.flatnonzero((parts == p).any(axis=1))
            support, coefficients = self.part(int(p))
            decisions[here] += self.header.kernel.apply(rows.take(here), support, coefficients)
            decisions[here] += self.one_sided[p]
        return decisions / parts.shape[1]

    def _naive(self, rows: Rows) -> np.ndarray:
        return sum(self.header.kernel.apply(rows, *self.part(p)) for p in range(len(self.present)))  # type: ignore

    def _committee(self, rows: Rows) -> np.ndarray:
        total = np.zeros((len(rows), n_pairs(len(self.classes))))
        for p in range(len(self.present)):
            if self.bounds[p] < self.bounds[p + 1]:
                support, coefficients = self.part(p)
                precision = 1.0 / self._variance(p, support, rows)
                total += precision[:, None] * self.header.kernel.apply(rows, support, coefficients)
        return total

    def _variance(self, p: int, support: Rows, rows: Rows) -> np.ndarray:
        """(m,) Gaussian process variance of a part's prediction, from at most 512 of its support rows."""
        kernel = self.header.kernel
        basis = support.take(np.linspace(0, len(support) - 1, min(512, len(support))).astype(np.intp))
        noise = 1e-2 * float(kernel.diag(basis).mean())
        factor = np.linalg.cholesky(
            kernel.block(basis, basis).astype(np.float64) + noise * np.eye(len(basis))
        )
        half = np.linalg.solve(factor, kernel.block(basis, rows).astype(np.float64))
        return np.maximum(kernel.diag(rows) - np.einsum("ij,ij->j", half, half), 0.0) + noise

    @cached_property
    def one_sided(self) -> np.ndarray:
        """(parts, n_pairs): -1 or +1 where only one class of a pair was in the part, else 0."""
        first, second = np.triu_indices(len(self.classes), 1)
        return self.present[:, second].astype(np.float64) - self.present[:, first]

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state; support arrays that are read from disk stay there until they are written."""
        arrays, attrs = self.small_state()
        return arrays | dict(self.arrays), attrs

    def small_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All but the support arrays."""
        arrays, attrs = self.header.to_state()
        tree_arrays, tree_attrs = partition_state(self.partition)
        arrays |= {"bounds": self.bounds, "present": self.present} | tree_arrays
        return arrays, attrs | {
            "partition": tree_attrs,
            "combine": self.combine,
            "neighbours": self.neighbours,
        }

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> LocalModel:
        header = Header.from_state(arrays, attrs)
        names = ("support",) if "support" in arrays else ("support_indptr", "support_indices", "support_data")
        return cls(
            header,
            partition_from_state(arrays, attrs["partition"], header.d),
            np.asarray(arrays["bounds"]),
            np.asarray(arrays["present"]),
            {name: arrays[name] for name in (*names, "alpha", "codes")},
            attrs["combine"],
            attrs["neighbours"],
        )


@dataclass(frozen=True)
class BudgetModel(_Classifier):
    """f_c(x) = sum_j coef_jc K(x, s_j) + bias_c, one column for two classes, else one for each class against the rest.

    It carries the learner's whole state, so that learning can go on from a saved model.
    """

    kind: ClassVar[str] = "budget"
    header: Header
    support: Rows
    coef: np.ndarray  # (s, columns)
    bias: np.ndarray  # (columns,)
    options: BudgetOptions
    state: Mapping[str, Any]  # of the learner, see BudgetLearner.to_state
    stream: dict[str, Any] | None = None  # what an online learner adds: features, labels, calibration

    @classmethod
    def of(cls, header: Header, learner: BudgetLearner, stream: dict[str, Any] | None = None) -> BudgetModel:
        """What a learner knows now; it may go on learning."""
        state = {name: array.copy() for name, array in learner.to_state().items()}
        return cls(header, learner.supports(), *learner.coefficients(), learner.options, state, stream)

    @property
    def n_support(self) -> int:
        return len(self.support)

    @property
    def by_name(self) -> bool:  # type: ignore[override]
        return self.stream is not None

    @property
    def feature_names(self) -> Names | None:
        """Of a stream those it has met, in the order of their columns; there may be more columns, for those to come."""
        return self.header.feature_names if self.stream is None else tuple(map(str, self.stream["features"]))

    def learner(self) -> BudgetLearner:
        """A learner that goes on where the model was taken."""
        learner = BudgetLearner(self.header.kernel, self.d, len(self.bias), self.options)
        learner.restore(self.state)
        return learner

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        return self.header.kernel.apply(rows, self.support, self.coef) + self.bias

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, attrs = self.header.to_state()
        arrays |= {f"learner_{name}": np.asarray(array) for name, array in self.state.items()}
        attrs |= {"options": asdict(self.options), "stream": self.stream}
        return arrays | {"coef": self.coef, "bias": self.bias}, attrs

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> BudgetModel:
        header, options = Header.from_state(arrays, attrs), BudgetOptions(**attrs["options"])
        state = {name: arrays[f"learner_{name}"] for name in (*BudgetLearner.ARRAYS, "values")}
        support = Rows(np.asarray(state["X"]))
        coef, bias = np.asarray(arrays["coef"]), np.asarray(arrays["bias"])
        return cls(header, support, coef, bias, options, state, attrs["stream"])


@dataclass(frozen=True)
class ExpansionModel(_Classifier):
    """f_c(x) = sum_i coef_ic K(x_i, x) + b_c, one column for two classes, else one for each class against the rest.

    Of a task without labels: one column, and its value is the answer.
    """

    kind: ClassVar[str] = "expansion"
    header: Header
    support: Rows  # already scaled
    coef: np.ndarray  # (s, columns) y_i alpha_i
    intercept: np.ndarray  # (columns,)
    ids: np.ndarray  # (s,) int64 rows of the training store that they were
    task: str = "classify"

    @property
    def n_support(self) -> int:
        return len(self.support)

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        return self.header.kernel.apply(rows, self.support, self.coef) + self.intercept

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, attrs = self.header.to_state()
        arrays |= rows_state("support", self.support)
        arrays |= {"coef": self.coef, "intercept": self.intercept, "ids": self.ids}
        return arrays, attrs | {"task": self.task}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> ExpansionModel:
        header = Header.from_state(arrays, attrs)
        support = rows_from_state("support", arrays, header.d)
        coef, intercept, ids = (np.asarray(arrays[name]) for name in ("coef", "intercept", "ids"))
        return cls(header, support, coef, intercept, ids, _known_task(attrs["task"]))


@dataclass(frozen=True)
class LinearModel(_Classifier):
    """f_c(x) = w_c'x + b_c, one column for two classes, else one for each class against the rest.

    With landmarks z_j (Nystroem), f_c(x) = sum_j w_cj K(x, z_j) + b_c. Of a task with thresholds: one column, and the
    code of a row is the number of thresholds below it; of a task without labels: the score is the answer.
    """

    kind: ClassVar[str] = "linear"
    header: Header
    coef: np.ndarray  # (d or landmarks, columns)
    intercept: np.ndarray  # (columns,)
    task: str = "classify"
    thresholds: np.ndarray = field(
        default_factory=lambda: np.empty(0)
    )  # (k - 1,) rising, see Task.thresholds
    landmarks: Rows | None = None

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        if self.landmarks is None:
            return times(rows, self.coef) + self.intercept
        return self.header.kernel.apply(rows, self.landmarks, self.coef) + self.intercept

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, attrs = self.header.to_state()
        arrays |= {"coef": self.coef, "intercept": self.intercept, "thresholds": self.thresholds}
        if self.landmarks is not None:
            arrays |= rows_state("landmarks", self.landmarks)
        return arrays, attrs | {"task": self.task, "has_landmarks": self.landmarks is not None}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> LinearModel:
        header = Header.from_state(arrays, attrs)
        landmarks = rows_from_state("landmarks", arrays, header.d) if attrs["has_landmarks"] else None
        coef, intercept, thresholds = (np.asarray(arrays[n]) for n in ("coef", "intercept", "thresholds"))
        return cls(header, coef, intercept, _known_task(attrs["task"]), thresholds, landmarks)
