"""The base of all models: a header, and what follows from it and the decision values of binary problems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamsvm.data.layout import Layout, Names
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.models.calibration import Calibration
from streamsvm.models.columns import NamedColumns
from streamsvm.models.intervals import Intervals
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.arrays import Arrays, Attrs, State
from streamsvm.tables.target_encoding import with_values_of_model
from streamsvm.tasks import task_names, task_of
from streamsvm.tasks.base import Task
from streamsvm.tasks.pairs import joined
from streamsvm.texts.documented import FactsRepr

if TYPE_CHECKING:
    from streamsvm.models.pooled import ExpertPool


@dataclass(frozen=True)
class Header(SizedInBytes):
    """The common part of all models: kernel, scaling, classes, origin, and what probabilities and intervals need."""

    kernel: Kernel
    scaling: Scaling
    classes: np.ndarray  # (k,) labels, sorted, or as a stream brought them
    positive: tuple[str, ...] = ()  # the labels that class 1 stands for, against the rest
    config: Attrs | None = None
    fingerprint: str = ""
    certificate: Attrs | None = None
    calibration: Calibration | None = None
    feature_names: Names | None = None  # (d,) of the columns of raw rows
    # decision values above it are of the second class, or, (k,), of rows that have a label; None: see `Model.codes_of`
    threshold: float | np.ndarray | None = None
    intervals: Intervals | None = None
    layout: Layout | None = None  # how the training rows came out of files, where they did
    costs: np.ndarray | None = None  # of errors, see `Task.costs`, by which probabilities decide

    @property
    def d(self) -> int:
        return self.scaling.d

    def to_state(self) -> State:
        attrs: Attrs = {
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
        if self.costs is not None:
            arrays["costs"] = self.costs
        if self.threshold is not None:
            attrs["threshold"] = np.asarray(self.threshold).tolist()
        if self.layout is not None:
            attrs["layout"] = self.layout.to_attrs()
        for part in (self.calibration, self.intervals):
            if part is not None:
                part_arrays, part_attrs = part.to_state()
                arrays, attrs = arrays | part_arrays, attrs | part_attrs
        return arrays, attrs

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> Header:
        names = tuple(arrays["feature_names"].tolist()) if "feature_names" in arrays else None
        threshold = attrs.get("threshold")
        header = cls(
            kernel=kernel_from(attrs["kernel"]),
            scaling=Scaling.from_arrays(attrs["scaling"], arrays),
            classes=np.asarray(arrays["classes"]),
            positive=tuple(attrs["positive"]),
            config=attrs["config"],
            fingerprint=attrs["fingerprint"],
            certificate=attrs["certificate"],
            calibration=Calibration.from_state(arrays, attrs),
            feature_names=names,
            threshold=np.array(threshold, np.float64) if isinstance(threshold, list) else threshold,
            intervals=Intervals.from_state(arrays, attrs),
            costs=np.asarray(arrays["costs"]) if "costs" in arrays else None,
        )
        if "layout" in attrs:
            header = replace(header, layout=Layout.from_attrs(header.d, attrs["layout"]))
        if header.costs is not None:
            k, in_sets = len(header.classes), task_of(known_task(attrs.get("task", "classify"))).in_sets
            shape = (2 if in_sets else k, k)
            is_whole = header.costs.shape == shape and header.costs.dtype == np.float64
            if not (is_whole and np.isfinite(header.costs).all() and header.calibration is not None):
                raise ValueError("the costs are incomplete")
        if isinstance(threshold, list) and len(threshold) != len(header.classes):
            raise ValueError(f"found {len(threshold)} thresholds, expected {len(header.classes)}")
        if names is not None and len(names) != header.d:
            raise ValueError(f"found {len(names)} feature names, expected {header.d}")
        return header


class Model(FactsRepr, NamedColumns, SizedInBytes, ABC):
    """A trained model: it predicts raw rows, arrays and data frames, and scales them itself. `streamsvm.load_model`
    reads one, `save` of an estimator writes one. The kinds are KernelModel, LocalModel, ExpansionModel, LinearModel,
    BudgetModel, LocalBudgetModel, ExpertsModel and EnsembleModel."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]
    header: Header
    task: str = "classify"
    thresholds: np.ndarray = np.empty(0)  # of tasks that need them to separate labels

    def facts(self) -> dict[str, str]:
        """A summary by name, in words, for a console or a notebook."""
        kernel = self.header.kernel.to_attrs()
        numbers = [f"{name}={value:.4g}" for name, value in kernel.items() if name != "name"]
        n_support, features = getattr(self, "n_support", None), f"{self.d} features"
        facts = {"task": self.task, "kernel": " ".join([kernel["name"], *numbers]), "input": features}
        facts |= {"classes": f"{len(self.classes)} classes"} if self.learned.has_labels else {}
        facts |= {"size": f"{n_support} support vectors"} if n_support is not None else {}
        facts |= {"partitions": f"{self.n_parts} partitions"} if self.n_parts > 1 else {}
        facts |= {"probabilities": "with probabilities"} if self.header.calibration is not None else {}
        return facts

    @property
    def is_pairwise(self) -> bool:
        """Whether problems are pairs of classes; else they are classes against the rest."""
        return False

    @property
    def learned(self) -> Task:
        """The task, which defines the meaning of decision values."""
        return task_of(self.task)

    @property
    def intervals(self) -> Intervals | None:
        """Intervals for labels, of a regression that held out rows for them."""
        return self.header.intervals

    @property
    def quantile(self) -> float | None:
        """The quantile of numbers that decision values predict, of a regression by the pinball loss."""
        return (self.header.config or {}).get("quantile")

    @property
    def costs(self) -> np.ndarray | None:
        """(k, k) the costs of predicting j if i is true, if the fit had costs; of several labels a row (2, k) the costs
        of predicting each falsely, and of missing it."""
        return self.header.costs

    @property
    def feature_names(self) -> Names | None:
        """(d,) names of the columns of raw rows, if the training rows had any."""
        return self.header.feature_names

    @property
    def takes_gaps(self) -> bool:
        return self.header.scaling.fill is not None

    @property
    def layout(self) -> Layout | None:
        return self.header.layout

    @property
    def d(self) -> int:
        return self.header.d

    @property
    def classes(self) -> np.ndarray:
        return self.header.classes

    def labels(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray:
        """The label of each row from the result of `answers`; the values themselves if the task has no classes."""
        if not self.learned.has_labels:
            return decision
        return self.learned.labels(self.classes, self.codes_of(decision, proba))

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray:
        """(m,) positions in `classes`, or those of `Task.codes`. They follow the threshold that was chosen, else, given
        probabilities, the least expected cost or the largest probability, else decision values; these, too, if classes
        had weights in the fit, see `Calibration`."""
        if self.header.threshold is not None:
            return self.learned.above(decision, self.header.threshold)
        if proba is not None and self.costs is not None:
            return self.learned.cheapest(proba, self.costs)
        calibration = self.header.calibration
        if proba is None or (calibration is not None and calibration.by_decisions):
            return self._decided(decision)
        return self.learned.likeliest(proba)

    @property
    def cuts(self) -> np.ndarray:
        """The values of one column beyond each of which the code is one higher."""
        threshold = self.header.threshold
        return self.learned.cuts(self.thresholds) if threshold is None else np.array([threshold])

    def _decided(self, decision: np.ndarray) -> np.ndarray:
        return self.learned.codes(decision, self.thresholds)

    def predict(self, X: Any) -> np.ndarray:
        """(m,) labels of raw rows: `Rows`, an array or a data frame whose column names are checked."""
        return self.labels(*self.answers(self._rows(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(m, k) probabilities of raw rows, of each label by itself if rows have several. Raises ModelError if it has
        none."""
        self.require_probabilities()
        rows = self._rows(X)
        return self._probabilities(self.binary_decisions(rows), rows)

    def require_probabilities(self) -> None:
        """Raises ModelError if the model is not calibrated."""
        if self.header.calibration is None:
            raise ModelError(
                "the model has no probabilities: `streamsvm calibrate --model M --store HELDOUT` adds them, "
                "`streamsvm fit --probability sigmoid` makes them"
            )

    def predict_interval(self, X: Any, level: float | None = None) -> np.ndarray:
        """(m, 2) lower and upper ends of intervals that contain the labels of raw rows with a probability of at least
        `level`, by default that of the fit, see `Intervals`. Raises ModelError if the model has none, or none so wide.
        """
        return self.require_intervals().around(self.decision_function(X), level)

    def require_intervals(self) -> Intervals:
        """Raises ModelError if it has none."""
        if self.intervals is None:
            raise ModelError("the model has no intervals: `streamsvm fit --task regress --interval 0.9` makes them")
        return self.intervals

    def at_level(self, level: float | None) -> Self:
        """The model with intervals of this level, else of the fit's. Raises ModelError as `predict_interval`."""
        if level is None:
            return self
        intervals = self.require_intervals()
        intervals.half_width(level)
        return replace(self, header=replace(self.header, intervals=replace(intervals, level=level)))

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]:
        """Decision values as `decision_function` gives them, and (m, k) probabilities if the model is calibrated."""
        return self.answers_from(self.binary_decisions(rows), rows)

    def answers_from(self, binary: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]:
        """`answers` of raw rows whose `binary_decisions` are known."""
        has_any = self.header.calibration is not None
        return self._scores(binary), self._probabilities(binary, rows) if has_any else None

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values of raw rows, (m,) for two classes (positive: the second one), else (m, k)."""
        return self._scores(self.binary_decisions(self._rows(X)))

    def _rows(self, X: Any) -> Rows:
        if isinstance(X, Rows):
            return X
        store = X if isinstance(X, Store) else Store.from_arrays(X, like=self.layout)
        store = with_values_of_model(store, self.layout)
        columns, _ = self.columns_in(store)
        rows = store.read(0, store.n)
        store.require_finite(rows, 0, gaps=self.takes_gaps)
        return rows.arranged(columns, self.d)

    @abstractmethod
    def to_state(self) -> State:
        """(arrays, attributes) that are saved, see `files`."""

    @classmethod
    @abstractmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> Self:
        """The model from what `to_state` returned."""

    @abstractmethod
    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, problems) decision values of raw rows, of each pair of classes, or of each class against the rest."""

    @abstractmethod
    def as_expansion(self) -> Expansion:
        """The sums of kernel values behind its decision values. Raises ModelError if there are none."""

    def as_routes(self) -> PartitionRouting | None:
        """The partitions of a model that each decide for their own rows. Raises ModelError if all decide."""
        return None

    def as_pooled(self) -> ExpertPool | None:
        """The experts of a model that pools their decisions; else None."""
        return None

    @property
    def n_parts(self) -> int:
        """Partitions that each decide for their own rows; 1 if the same function decides all rows."""
        return 1

    def parts_of(self, rows: Rows) -> np.ndarray:
        """(m,) the partition that each raw row falls into."""
        return np.zeros(len(rows), np.intp)

    def encode_labels(self, y: np.ndarray) -> np.ndarray:
        """(n,) class codes of labels, -1 for labels that are not among `classes`; of sets (n, k) bool."""
        return self.learned.encoded(y, self.classes, self.header.positive)

    def _scores(self, decisions: np.ndarray) -> np.ndarray:
        return joined(decisions, len(self.classes), pairwise=self.is_pairwise)

    def _probabilities(self, decisions: np.ndarray, rows: Rows) -> np.ndarray:
        calibration = self.header.calibration
        assert calibration is not None
        parts = None
        if calibration.by_part is not None:
            if len(calibration.by_part) != self.n_parts:
                raise ModelError(
                    f"the calibration has maps of {len(calibration.by_part)} partitions, the model has "
                    f"{self.n_parts}: damaged"
                )
            parts = self.parts_of(rows)
        if self.learned.in_sets:
            return calibration.of_problems(decisions, parts)
        return calibration.probabilities(decisions, len(self.classes), pairwise=self.is_pairwise, parts=parts)


def known_task(name: Any) -> str:
    """The task that a file names. Raises ValueError if there is none of that name."""
    if name not in task_names():
        raise ValueError(f"found task {name!r}, expected one of {', '.join(task_names())}")
    return str(name)
