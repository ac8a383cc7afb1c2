"""From a store and a configuration to what every solver is given: targets, scaling, the kernel, weights. Data alone.

All doors come in here: `train`, plans, folds, and the first batch of a `partial_fit`. It takes one pass over the rows
where the scaling or gamma is to be measured; else the first rows alone are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.finite import require_finite
from streamsvm.data.labels import label_texts
from streamsvm.data.moments import Moments, merge, moments_of, variance
from streamsvm.data.rows import Rows, concat
from streamsvm.data.scaling import Scaling, from_moments, require_zeros_kept
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.kernels.options import kernel_of, needs_variance
from streamsvm.models import Header
from streamsvm.models.calibration import Calibration
from streamsvm.parallel.engine import Engine
from streamsvm.runs.phases import Phases
from streamsvm.tasks import default_task, task_of
from streamsvm.tasks.base import Targets, Task
from streamsvm.training.advice import advice

FIRST_ROWS = 1000  # that tell of the features' ranges
MOST_VALUE = 1e30  # of a kernel: float32 ends at 3e38, and sums of values times coefficients must not


@dataclass(frozen=True)
class Prepared:
    """A store as solvers meet it. kernel: its gamma is a number. upper (n,): C times class and sample weights.

    learned: what a report says of a metric, where one was asked for.
    """

    store: Store
    config: FitConfig
    task: Task
    targets: Targets
    scaling: Scaling
    kernel: Kernel
    upper: np.ndarray
    learned: Mapping[str, Any] = field(default_factory=dict)

    def header(
        self, certificate: Mapping[str, Any] | None = None, calibration: Calibration | None = None
    ) -> Header:
        """What a model of this says of itself."""
        return Header(
            self.kernel,
            self.scaling,
            self.targets.classes,
            self.config.positive,
            self.config.model_dump(mode="json"),
            self.store.fingerprint(),
            dict(certificate or {}),
            calibration,
            self.store.feature_names,
        )


def prepare(
    store: Store,
    config: FitConfig,
    engine: Engine,
    events: Events = ignore,
    *,
    phase: Phases | None = None,
    targets: Targets | None = None,
) -> Prepared:
    """Targets, scaling, kernel and weights of a store, and advice to the events where they promise little.

    targets: of a caller who knows of classes that these rows may not have; else they are the task's. Raises
    ConfigError, DataError.
    """
    task = task_of(config.task or default_task(config.solver, has_queries=False))
    targets = targets or task.targets(store, config)
    with (phase or Phases())("scale"):
        scaling, kernel = _measured(store, config, engine, events)
    weights = row_weights(targets.codes, targets.classes, config.class_weight, store.sample_weight)
    return Prepared(store, config, task, targets, scaling, kernel, config.C * weights)


def _measured(store: Store, config: FitConfig, engine: Engine, events: Events) -> tuple[Scaling, Kernel]:
    """The scaling, and the kernel with its gamma as a number."""
    first, moments = _looked_at(store, config, engine, events)
    scaling = Scaling.none(store.d)
    if moments is not None and config.scale != "none":
        scaling = from_moments(config.scale, moments)
    total = None if moments is None else store.d * variance(moments, scaling.offset, scaling.scale)
    kernel = kernel_of(config.kernel, store.d, total)
    if isinstance(kernel, Stationary):
        scaling = _centred(scaling, kernel, first)
        if config.metric.kind == "none" and (message := advice(kernel, scaling, first, store.feature_names)):
            events.advise(message)
    else:
        _require_range(scaling, kernel, first)
    return scaling, kernel


def first_rows(store: Store) -> Rows:
    """Those that tell of the features' ranges."""
    return store.read(0, min(store.n, FIRST_ROWS))


def _looked_at(
    store: Store, config: FitConfig, engine: Engine, events: Events
) -> tuple[Rows, Moments | None]:
    """The first rows; and the moments of all of them, of the same pass, where scaling or gamma asks for them."""
    if config.scale == "none" and not needs_variance(config.kernel):
        first = first_rows(store)
        require_finite(store, first, 0)
        return first, None
    if store.is_sparse:
        require_zeros_kept(config.scale)
    shared = (engine.share(store),)
    firsts, moments = engine.map_reduce(
        _moments, merge, store.blocks(), shared=shared, phase="scale", events=events
    )
    return concat([rows for rows in firsts if rows is not None]), moments


def _moments(store: Store, block: tuple[int, int]) -> tuple[Rows | None, Moments]:
    """Of a block; and its rows that are among the first ones, copied, as a slice would keep the whole block."""
    rows = store.read(*block)
    require_finite(store, rows, block[0])
    own = min(len(rows), FIRST_ROWS - block[0])
    return (rows.take(np.arange(own)) if own > 0 else None), moments_of(rows)


def _centred(scaling: Scaling, kernel: Stationary, first: Rows) -> Scaling:
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
