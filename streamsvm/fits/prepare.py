"""From a store and a configuration to the input of every solver: targets, weights, scaling, the kernel. Data only.

All entry points call it: `train`, plans, folds, and the first batch of a `partial_fit`. It makes one pass over the rows
if the scaling or gamma must be measured, and learns there what replaces missing values; else it reads only the first
rows. `with_task` has checked whether labels, costs and probabilities suit the task, and `advice` warns, by the first
rows, if a fit is likely to learn little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.config import FitConfig
from streamsvm.data.labels import Classes, id_like_labels, value_like_labels
from streamsvm.data.layout import Names
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import SamplesInStore
from streamsvm.data.scaling import Scaling, from_moments, from_quantiles, from_quartiles, require_zeros_kept
from streamsvm.data.sketch import FIRST_ROWS, Sketch
from streamsvm.data.statistics import Moments, merge, moments_of, variance
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, ignore
from streamsvm.fits.exportable import require_exportable
from streamsvm.fits.target_encoding import encoded
from streamsvm.fits.targets import TargetsInMemory, TargetSource, target_source_of
from streamsvm.judging.expected import ExpectedScore, SearchExpectation
from streamsvm.judging.held_out import HeldOutRows, by_chance, held_out_ids, held_out_rows
from streamsvm.judging.log_loss import D2_LOG_LOSS
from streamsvm.kernels.base import Kernel, Stationary, kernel_of, needs_variance
from streamsvm.metrics import D2
from streamsvm.models import Header
from streamsvm.models.calibration import Calibration
from streamsvm.options.probability import are_odds
from streamsvm.options.search import BALANCED, LOG_LOSS
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import evenly
from streamsvm.problems.subproblems import DualData
from streamsvm.runs.phases import Phases
from streamsvm.tasks import default_task, task_for, task_of
from streamsvm.tasks.base import Targets, Task

BY_QUANTILES, QUANTILE_ROWS = ("robust", "quantile"), 20_000  # scalings, and rows to compute them from
CENTRED = {"none": "centre", "maxabs": "maxabs"}  # kinds of scaling that leave rows where they are, and then


@dataclass(frozen=True)
class TrainingData(SizedInBytes):
    """A store as solvers see it: with targets, bounds, scaling, and a kernel whose gamma is a number.

    target_source: reads the targets and bounds of rows. class_rows (k,): rows of each class in the whole store, also if
    this is a sample. moments: of all rows as stored, if scaling, gamma or a search needed them. choices: report entries
    on what a search chose. held_out: rows that are not learned from. whole_store: the store, if this is a sample of its
    rows. expected: the score that a search expects on new rows, if it held none out. requested: the digest of the
    options before the search. expectation: what a search expects of the model, and the rows to compare it on. all_rows:
    the data of all rows, if time is left for the rows of this alone. candidates: options of the members that an
    ensemble may have, best first.
    """

    store: Store
    config: FitConfig
    task: Task
    target_source: TargetSource
    class_rows: np.ndarray
    scaling: Scaling
    kernel: Kernel
    moments: Moments | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    held_out: HeldOutRows | None = None
    whole_store: Store | None = None
    expected: ExpectedScore | None = None
    requested: str | None = None
    expectation: SearchExpectation | None = None
    all_rows: TrainingData | None = None
    candidates: tuple[FitConfig, ...] = ()

    @property
    def classes(self) -> np.ndarray:
        return self.target_source.classes

    @property
    def samples(self) -> SamplesInStore:
        """The scaled rows, read block by block."""
        return SamplesInStore(self.store, self.scaling)

    @cached_property
    def dual_data(self) -> DualData:
        """The targets and bounds of all rows, in memory, for solvers that need them there."""
        return self.target_source.all()

    @property
    def targets(self) -> Targets:
        """Those of all rows, in memory."""
        return self.dual_data.targets

    @property
    def no_targets(self) -> Targets:
        """Those of no row: what all rows have in common."""
        return self.target_source.take(np.empty(0, np.int64)).targets

    @property
    def upper(self) -> np.ndarray:
        """(n,) C times class and sample weights, in memory."""
        return self.dual_data.upper

    @property
    def scored_rows(self) -> Rows | None:
        """As stored, those that a score of the model is computed from: the held-out ones, then those of a search."""
        scored = [each.rows for each in (self.held_out, self.expectation) if each is not None]
        return concat(scored) if scored else None

    @property
    def scoring(self) -> str:
        """The score of held-out rows."""
        search = self.config.search
        if search.scoring == BALANCED:
            return BALANCED
        if search.scoring == LOG_LOSS and self.task.has_classes:
            return D2_LOG_LOSS
        if self.config.quantile is not None:
            return D2
        return (search.chosen and self.task.searched_by) or self.task.scoring

    def without(self, rows: int) -> TrainingData:
        """So many held-out rows, which the seed chooses. Raises ConfigError, DataError."""
        store = self.store
        ids = by_chance(store, rows, self.config.seed)
        if not self.task.reads_labels:
            raise ConfigError(f"holdout is {rows}, and task {self.task.name} has no labels to score by; leave it out")
        config = self.config.model_copy(update={"holdout": rows})
        held_out = held_out_rows(store, ids, self.task.truth(self.target_source.take(ids).targets))
        return replace(self, config=config, target_source=self.target_source.without(ids), held_out=held_out)

    def drawn(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        """Rising ids of so many random rows, without the held-out ones."""
        skipped = np.empty(0, np.int64) if self.held_out is None else self.held_out.ids
        ranks = np.sort(rng.choice(self.store.n - len(skipped), rows, replace=False))
        return ranks + np.searchsorted(skipped - np.arange(len(skipped)), ranks, side="right")

    @property
    def n_free(self) -> int:
        """Rows that are not held out."""
        return self.store.n - (0 if self.held_out is None else len(self.held_out.ids))

    def of_rows(self, rows: int) -> TrainingData:
        """So many random rows, which the seed chooses, without the held-out ones."""
        store, rng = self.store, np.random.default_rng([self.config.seed, 27])
        ids = self.drawn(min(rows, self.n_free), rng)
        return replace(
            self,
            store=store.subset(ids),
            whole_store=self.whole_store or store,
            config=self.config.model_copy(update={"rows": len(ids)}),
            target_source=TargetsInMemory(self.target_source.take(ids)),
            held_out=self.held_out and replace(self.held_out, ids=np.empty(0, np.int64)),  # none in this store
        )

    def original_ids(self, ids: np.ndarray) -> np.ndarray:
        """Ids in the whole store of rows (m,) of this one, if it is a sample."""
        return ids if self.whole_store is None else self.store.ids_in(self.whole_store, ids)

    def fingerprint(self) -> str:
        """Of the store, all labels of which are read for it, once."""
        return (self.whole_store or self.store).fingerprint()

    def header(self, certificate: Mapping[str, Any] | None = None, calibration: Calibration | None = None) -> Header:
        """The header of a model of this data."""
        return Header(
            self.kernel,
            self.scaling,
            self.classes,
            self.config.positive,
            self.config.model_dump(mode="json"),
            self.fingerprint(),
            dict(certificate or {}),
            calibration,
            self.store.feature_names,
            layout=(self.whole_store or self.store).layout,
        )


def prepare(
    store: Store,
    config: FitConfig,
    engine: Engine,
    events: Events = ignore,
    *,
    phase: Phases | None = None,
    targets: Targets | None = None,
) -> TrainingData:
    """Targets, scaling, kernel and weights of a store, with warnings as events if they promise little. targets: from a
    caller that knows classes which these rows may lack; default: those of the task. Raises ConfigError, DataError."""
    task = task_for(config)
    whole, held_out = None, None
    store = encoded(store, config, task, engine, events)
    if config.interval is not None:
        whole, (store, held_out) = store, _without_interval_rows(store, config, task)
    source, class_rows = target_source_of(store, config, task, targets)
    is_of_classes = task.has_classes and task.reads_labels and not task.compares_rows  # ranks may be many
    if is_of_classes and not (config.positive or task.in_sets):
        if ids := id_like_labels(Classes(source.classes, class_rows)):
            events.advise(f"the labels are {ids}: name the column of the labels, or predict numbers (task regress)")
    with (phase or Phases())("scale"):
        first, moments = _looked_at(store, config, engine, events)
        scaling = scaled(store, config, config.scale, moments)
        scaling, kernel = measured(config, scaling, first, moments, store.shown_names, events)
    data = TrainingData(
        store, config, task, source, class_rows, scaling, kernel, moments, held_out=held_out, whole_store=whole
    )
    if config.holdout and held_out is None:
        data = data.without(config.holdout)
    return data.of_rows(config.rows) if config.rows is not None and config.rows < store.n else data


def _without_interval_rows(store: Store, config: FitConfig, task: Task) -> tuple[Store, HeldOutRows]:
    """The rows that are learned from, and those for intervals: not even in the store of the fit, as nothing that a
    model is made of (scaling, units, gamma, partitions) knows them in split conformal prediction. Raises errors."""
    if not task.has_intervals:
        raise ConfigError(
            f"interval is {config.interval:g}, which needs task regress; found task {task.name}: leave it out"
        )
    ids = held_out_ids(store, config)
    held_out = held_out_rows(store, ids, np.zeros(len(ids), np.int32))
    rest = np.delete(np.arange(store.n), ids)
    return store.subset(rest), replace(held_out, ids=np.empty(0, np.int64))


def scaled(store: Store, config: FitConfig, kind: str, moments: Moments | None) -> Scaling:
    """The scaling of a kind. moments: of all rows, if the kind needs them. Raises ConfigError, DataError."""
    if moments is None:
        assert kind == "none"  # of another a pass was made for them
        return Scaling.none(store.d)
    if kind not in BY_QUANTILES:
        return from_moments(kind, moments)
    if isinstance(store, Sketch):
        some = store.typical
    else:
        rng = np.random.default_rng([config.seed, 24])
        some = store.take(np.sort(rng.choice(store.n, min(store.n, QUANTILE_ROWS), replace=False)))
    if kind == "quantile":
        return from_quantiles(some, moments)
    return from_quartiles(some, from_moments("standard", moments))


def measured(
    config: FitConfig, scaling: Scaling, first: Rows, moments: Moments | None, names: Names | None, events: Events
) -> tuple[Scaling, Kernel]:
    """What a configuration makes of a scaling of its kind: the scaling under its metric, moved to where float32 suits
    the kernel, and the kernel with its gamma as a number. All fits get both from here, with options that were given or
    chosen. Raises ConfigError."""
    factor = None if config.metric.kind == "none" else config.metric.factor
    scaling = replace(scaling, metric=None)
    total = None
    if moments is not None:
        transformed = moments if scaling.quantiles is None else scaling.quantiles.moments(moments.n)
        total = scaling.width * variance(transformed, scaling.offset, scaling.scale)
    if factor is not None:
        scaling, total = scaling.under(_given(factor, scaling.width, config)), None
    kernel = kernel_of(config.kernel, len(scaling.offset), total)
    scaling = _centred(scaling, kernel, first, moments, config)
    is_final = not config.search.chosen
    if is_final or not isinstance(kernel, Stationary):  # a search tries other scales
        require_range(scaling, kernel, first)
    if is_final:
        for message in (rounded_columns(first, names), advice(kernel, scaling, first, names)):
            if message:
                events.advise(message)
    return scaling, kernel


def _given(factor: Any, d: int, config: FitConfig) -> Metric:
    if len(factor) != d:
        raise ConfigError(f"metric.factor has {len(factor)} entries, found {d} columns: expected one for each")
    if config.kernel.gamma == "scale" and needs_variance(config.kernel):
        raise ConfigError("metric.factor needs a number as gamma; found 'scale'")
    return Metric(np.array(factor, np.float64))


def first_rows(store: Store) -> Rows:
    """Those that the features' ranges are taken from."""
    return store.first if isinstance(store, Sketch) else store.read(0, min(store.n, FIRST_ROWS))


def _looked_at(store: Store, config: FitConfig, engine: Engine, events: Events) -> tuple[Rows, Moments | None]:
    """The first rows, and the moments of all rows from the same pass, if something needs them."""
    if config.gaps is None:
        fills = store.has_gaps or config.mark_gaps
    else:
        fills = config.gaps != REFUSE
    if not (fills or config.scale != "none" or needs_variance(config.kernel) or config.search.chosen):
        first = first_rows(store)
        store.require_finite(first, 0)
        return first, None
    if store.is_sparse:
        require_zeros_kept(config.scale)
    if isinstance(store, Sketch):
        first, moments = store.first, store.moments
    else:
        shared = engine.share(store), fills
        some, moments = engine.map_reduce(_moments, merge, store.blocks(), shared=shared, phase="scale", events=events)
        first = concat([rows for rows in some if rows is not None])
    return first, _filled(moments, store, config, events) if fills else moments


def _moments(store: Store, gaps: bool, block: tuple[int, int]) -> tuple[Rows | None, Moments]:
    """Of a block; and its rows that are among the first ones, copied, as a slice would keep the whole block."""
    rows = store.read_finite(*block, gaps=gaps)
    first = min(len(rows), FIRST_ROWS - block[0])
    with np.errstate(over="ignore"):
        moments = moments_of(rows, store.weights(*block))
    if moments.n > 0:  # else no row of this block counts
        store.require_squares(moments.low, moments.high)
    return (rows.take(np.arange(first)) if first > 0 else None), moments


def _centred(scaling: Scaling, kernel: Kernel, first: Rows, moments: Moments | None, config: FitConfig) -> Scaling:
    """A shift of dense rows to the origin, if float32 values would cancel and the problem is the same everywhere."""
    if scaling.kind not in CENTRED or first.is_sparse or not _is_same_anywhere(kernel, config):
        return scaling
    rows = scaling.completed(first)
    if scaling.kind == "none":
        offset = origin(kernel, rows, moments)
    elif (offset := origin(kernel, Rows(rows.dense() * scaling.scale))) is not None:  # in its units
        offset = np.divide(offset, scaling.scale, out=np.zeros_like(offset), where=scaling.scale != 0)
    return scaling if offset is None else replace(scaling, kind=CENTRED[scaling.kind], offset=offset)


def _is_same_anywhere(kernel: Kernel, config: FitConfig) -> bool:
    """Whether rows that are all shifted have the same solution: differences are all that counts, or a constant of f
    that nothing penalises makes up for the shift of linear functions."""
    if isinstance(kernel, Stationary):
        return True
    task = task_for(config)
    has_bias = config.solver_options.has_bias(zero_at_origin=kernel.is_zero_at_origin) and not task.from_origin
    return kernel.is_linear and not kernel.row.whole and (has_bias or task.compares_rows)


def origin(kernel: Kernel, rows: Rows, moments: Moments | None = None) -> np.ndarray | None:
    """The point (d,) that dense rows are to be moved to for float32 values of the kernel; None if they may stay. The
    mean of the rows, or the median, where a few broken ones are so far away that they hide how far the others are, or
    the mean of all rows, where these first ones are unlike them. moments: of all rows, if they are known."""
    if kernel.is_coarse(float(rows.sq_norms.max()), 0.0):
        X = rows.dense().astype(np.float64)
        for centre, typical in ((X.mean(axis=0), np.max), (np.median(X, axis=0), np.median)):
            if _cancels(kernel, typical(Rows(X).sq_norms), typical(Rows(X - centre).sq_norms)):
                return np.asarray(centre)
    if moments is None:
        return None
    spread = float(np.sum(moments.m2 / moments.n))
    return moments.mean if _cancels(kernel, spread + float(moments.mean @ moments.mean), spread) else None


def _cancels(kernel: Kernel, before: float, after: float) -> bool:
    """Whether a shift spares rows with these squared norms before and after it a loss of digits."""
    return kernel.is_coarse(before, after) and after < before / 4


def require_range(scaling: Scaling, kernel: Kernel, first: Rows) -> None:
    """Kernel values must fit float32, as far as the first rows show. Raises ConfigError."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = kernel.largest(scaling.apply(first))
    if not largest < kernel.most:
        what, remedy = "values", "the features, or take a smaller gamma or degree"
        if isinstance(kernel, Stationary):
            what, remedy = "squared norms of rows", "the features (scale standard)"
        reached = f"{what} of the {kernel.name} kernel reach {largest:.0e}"
        raise ConfigError(f"{reached}, expected at most {kernel.most:.0e}: scale {remedy}")


SAMPLE_ROWS = 1 << 17  # random ones, for medians and most frequent values
REFUSE = "refuse"


def _filled(moments: Moments, store: Store, config: FitConfig, events: Events) -> Moments:
    """The moments of rows with missing values filled and marked as configured."""
    how = config.gaps or "mean"
    fill = moments.mean
    if how != "mean":
        rng = np.random.default_rng([config.seed, 29])
        ids = np.sort(rng.choice(store.n, min(store.n, SAMPLE_ROWS), replace=False))
        fill = _of_sample(store.take(ids), how, fill)
    if config.gaps is None and moments.gaps is not None:
        shares, names = moments.gaps / moments.n, store.shown_names
        worst, count = int(np.argmax(shares)), np.count_nonzero(shares)
        name = f"column {worst}" if names is None else repr(names[worst])
        columns = f"{count} columns have missing values, most" if count > 1 else "a column has missing values,"
        events.advise(
            f"{store.url or 'X'}: {columns} {name} in {shares[worst]:.1%} of the rows; the mean of the column replaces "
            f"them: {store.gaps_option()} chooses median, most_frequent or refuse"
        )
    filled_moments = moments.filled(fill)
    return filled_moments if moments.gaps is None or not config.mark_gaps else filled_moments.marked(moments.gaps)


def _of_sample(rows: Rows, how: str, mean: np.ndarray) -> np.ndarray:
    """(d,) the median, or the most frequent value, of each column; its mean if the sample has no value."""
    X = rows.X if isinstance(rows.X, np.ndarray) else sparse.csc_array(rows.X)
    fill, columns = mean.copy(), np.arange(rows.d)
    if not isinstance(X, np.ndarray):
        mostly_zero = 2 * np.diff(X.indptr) < len(rows)
        fill[mostly_zero], columns = 0.0, np.flatnonzero(~mostly_zero)
    for column in columns.tolist():
        values = X[:, column] if isinstance(X, np.ndarray) else X[:, [column]].toarray().ravel()
        values = values[~np.isnan(values)].astype(np.float64)
        if len(values):
            different, counts = np.unique(values, return_counts=True)
            fill[column] = np.median(values) if how == "median" else different[np.argmax(counts)]  # the lowest of them
    return fill


MOST_FRACTIONS = 20  # different numbers that are not whole, among labels of classes


def with_task(config: FitConfig, store: Store, events: Events = ignore) -> FitConfig:
    """The configuration with its task set: if it names none, the solver and query ids determine it, and a warning says
    so of labels that look like values."""
    name = config.task or default_task(config.solver, has_queries=store.has_qid)
    task, probability = task_of(name), config.probability
    if config.task is None and not config.positive and task.has_classes and store.has_y:
        _require_labels(store, task)
        is_of_labels = task.has_labels and task.reads_labels and not (task.in_sets or task.compares_rows)
        if is_of_labels and not id_like_labels(store.classes) and (found := value_like_labels(store.classes)):
            events.advise(
                f"{store.url or 'y'}: found {found}, and task {name} makes a class of each: --task regress predicts "
                f"values (in Python task 'regress' or a regressor); --task {name} says that these are classes"
            )
    if probability.is_requested or probability.costs is not None:
        from streamsvm.judging.probabilities import require_supported

        known = probability.threshold is None or config.positive or not store.has_y
        require_supported(probability, name, 2 if known else len(store.classes.values))
    if probability.costs is not None:
        if probability.method is None and not are_odds(getattr(config.solver_options, "loss", None)):
            raise ConfigError("costs weigh probabilities, and the fit makes none: give --probability sigmoid, too")
        if store.has_y:
            classes = np.array([0, 1]) if config.positive else task.classes_of(store.classes.values)
            task.costs(probability.costs, classes)
    if config.search.has_ensemble:
        _require_ensemble(config, task)
    require_exportable(config, task)
    return config.model_copy(update={"task": name})


def _require_ensemble(config: FitConfig, task: Task) -> None:
    """Raises ConfigError."""
    given = f"search.ensemble is {config.search.ensemble}"
    if not task.has_probabilities or task.in_sets:
        raise ConfigError(f"{given}, which combines probabilities of classes; found task {task.name}: leave it out")
    if config.holdout:
        raise ConfigError(f"{given}, whose folds say what to expect; found holdout {config.holdout}: leave one out")


def _require_labels(store: Store, task: Task) -> None:
    """Raises DataError if labels are many numbers that are not whole, as of a regression, or texts like ids."""
    different = store.classes.values
    k, where = len(different), store.url or "y"
    if task.in_sets:
        return
    if different.dtype.kind == "f" and k > MOST_FRACTIONS and np.any(different != np.round(different)):
        raise DataError(
            f"{where} holds {k:,} different numbers, as {different[0]:.6g}; expected labels of "
            "classes: give --task regress to predict numbers, or --task classify where they are labels"
        )
    if different.dtype.kind == "U" and (found := id_like_labels(store.classes)):
        raise DataError(
            f"{where} holds {found}; expected labels of classes, each of several rows: name their column "
            f"{'with --label, ' * (store.url is not None)}or give --task classify where they are labels"
        )


UNEVEN = 100  # range of the widest column, over that of a quarter of the columns: images reach 20
VANISHED = 1e-3  # largest K of a row with the others of a sample: below it, a fit learns the rows by heart
SAMPLE, FEWEST = 256, 20  # rows
COARSE = 0.01  # of a column's deviation: from such steps of float32 on, different rows may be stored as equal
WHOLE = 2.0**24  # float32 has all whole numbers up to this one
FAR = 1e4  # typical squared norm of rows, over that about their mean: from here on float32 loses accuracy


def unreached(violation: float, tol: float) -> str:
    """The advice for a fit that rounding ended above its tolerance, with products in float32 or float64."""
    return (
        f"rounding ended the fit at a violation of {violation:.2g}, tol is {tol:g}; give a larger tol or a smaller C, "
        "or scale the features"
    )


def advice(kernel: Kernel, scaling: Scaling, first: Rows, names: Names | None) -> str | None:
    """A warning about unscaled features, a kernel that is too narrow, or rows too far from the origin; None if all is
    well."""
    if not isinstance(kernel, Stationary):
        return far_from_origin(kernel, scaling, first)
    unscaled = scaling.kind in ("none", "centre") and uneven_columns(scaling.filled(first), names, kernel.name)
    return unscaled or vanishing_values(kernel, scaling.apply(first))


def uneven_columns(rows: Rows, names: Names | None = None, kernel: str = "rbf") -> str | None:
    """A warning if a few columns dominate all distances."""
    moments = moments_of(rows)
    ranges = moments.high - moments.low
    varied = np.flatnonzero(ranges)
    if len(varied) < 2:
        return None
    narrow = float(np.sort(ranges[varied])[len(varied) // 4])  # of two or three columns the narrowest
    widest = int(np.argmax(ranges))
    if ranges[widest] < UNEVEN * narrow:
        return None
    name = widest if names is None else repr(names[widest])
    return (
        f"column {name} has a range of {ranges[widest]:.3g}, a quarter of the columns one of {narrow:.2g} at most: "
        f"the {kernel} kernel sees only the wide ones. Scale the features (--scale standard; in Python "
        'scale="standard" or StandardScaler)'
    )


def vanishing_values(kernel: Stationary, rows: Rows) -> str | None:
    """A warning if hardly any row is near another one. rows: scaled."""
    if len(rows) < FEWEST:
        return None
    sample = rows.take(evenly(len(rows), SAMPLE))
    K = kernel.block(sample, sample)
    np.fill_diagonal(K, 0.0)
    nearest = float(np.quantile(K.max(axis=1), 0.9))
    if nearest >= VANISHED:
        return None
    return (
        f"nearly all values of the {kernel.name} kernel vanish at gamma {kernel.gamma:.3g} (nine in ten of "
        f"{len(sample)} rows have no other one with K above {nearest:.1g}): scale the features or take a smaller gamma"
    )


def rounded_columns(rows: Rows, names: Names | None = None) -> str | None:
    """A warning if the numbers of a column, as stored, are float32 and too far from zero for its spread."""
    if rows.is_sparse or rows.X.dtype != np.float32 or len(rows) < FEWEST:
        return None
    largest = np.fmax.reduce(np.abs(rows.X), axis=0)  # gaps are NaN
    steps, seen = np.zeros(rows.d), ~np.isnan(largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps[seen] = np.spacing(largest[seen]) / np.nanstd(rows.X[:, seen].astype(np.float64), axis=0)
    steps[~np.isfinite(steps)] = 0.0
    whole = largest <= WHOLE
    whole[whole] = np.all((rows.X == np.rint(rows.X))[:, whole] | np.isnan(rows.X[:, whole]), axis=0)
    steps[whole] = 0.0
    worst = int(np.argmax(steps))
    if steps[worst] < COARSE:
        return None
    name = worst if names is None else repr(names[worst])
    return (
        f"column {name} is stored as float32, whose steps at {largest[worst]:.3g} are {steps[worst]:.0%} of the "
        "column's standard deviation: smaller differences are lost. Store it as float64, or less a typical value"
    )


def far_from_origin(kernel: Kernel, scaling: Scaling, first: Rows) -> str | None:
    """A warning if rows are so far from the origin that inner products hardly differ."""
    if len(first) < FEWEST or kernel.row.whole:
        return None
    rows = scaling.apply(first).astype(np.float64)
    mean = np.asarray(rows.X.mean(axis=0)).ravel()
    # |x - m|^2, of sparse rows too
    about = rows.sq_norms - 2.0 * np.asarray(rows.X @ mean).ravel() + mean @ mean
    before, after = float(np.median(rows.sq_norms)), float(np.median(about))
    if after <= 0 or before < FAR * after:
        return None
    return (
        f"rows lie {(before / after) ** 0.5:.3g} times their spread from the origin, where values of the {kernel.name} "
        "kernel hardly differ: accuracy may be lost. Scale the features (--scale standard; in Python "
        'scale="standard" or StandardScaler)'
    )
