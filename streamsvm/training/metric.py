"""A metric learned from a sample before a fit, with kernel, gamma and C: what `solvers.metric` asks of data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.config import FitConfig, KernelConfig
from streamsvm.data.finite import first_nonfinite, require_finite
from streamsvm.data.gather import gather
from streamsvm.data.metric import Metric
from streamsvm.data.moments import moments_of
from streamsvm.data.samples import StoreSamples
from streamsvm.data.scaling import Scaling, from_moments
from streamsvm.errors import ConfigError
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.kernels.table import kernel_row
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.memory import free_bytes, process_bytes
from streamsvm.solvers.catalogue import fit_class
from streamsvm.solvers.loop import run
from streamsvm.solvers.metric import (
    Fitted,
    MetricSearch,
    MetricState,
    Track,
    Trial,
    chosen,
    factor_width,
    facts,
)
from streamsvm.tasks.base import Task
from streamsvm.training.base import Context
from streamsvm.training.prepare import Prepared
from streamsvm.training.regions import regions
from streamsvm.training.subproblems import Asked
from streamsvm.training.trials import HELD, Learner, Sample, SampleTrials

KERNELS = ("rbf", "matern", "laplacian")  # that are tried
LEAST_ROWS = 100
MOST_HELD = 10_000
FIRST_GAMMA, FIRST_C = 2.0, 10.0  # gamma over the one at which half of all values are above 1/e
TYPICAL_ROWS = 512
DENSE = 4  # times the sample: rows of a store that are so much closer to each other
REGIONS, REGION_ROWS = 8, 6000
BEFORE_REGIONS = 7  # metrics of a track, where regions go on
MOST_SHARE = 0.25  # of what memory is left that the sample and its copies may take
UNEVEN = 3.0  # standard deviations that are so many times others
SHOWN = 20  # columns in a report


def with_metric(prepared: Prepared, context: Context) -> Prepared:
    """The data under the metric that its options ask for, where that decides better on held-out rows.

    Kernel, gamma and C that were searched are the configuration's then. Raises ConfigError, DataError.
    """
    config, store = prepared.config, prepared.store
    require_metric(config, prepared.task, is_sparse=store.is_sparse)
    is_dense = store.n >= DENSE * config.metric.sample and not fit_class(config.solver).has_budget
    sample = drawn(prepared, context.engine)
    if isinstance(sample, str):
        return replace(prepared, learned={"kind": "none", "reason": sample})
    rank = config.metric.rank if config.metric.kind == "full" else None
    learner = Learner(config.kernel, rank, sample.rows.take(slice(TYPICAL_ROWS)))
    tracks = tuple(Track(trial, start) for trial in _trials(config) for start in _starts(prepared, sample))
    given = Trial(config.kernel.name, math.nan, config.C)
    search = _search(config, tracks, given)
    if is_dense:  # regions tell more than more steps here
        search = replace(search, iterations=min(search.iterations, BEFORE_REGIONS))
    state = _searched(search, SampleTrials((sample,), learner, context.engine), context)
    best, found = chosen(state), _facts(prepared, state)
    if is_dense and best.has_metric:
        with context.phase("regions"):
            dense = _in_regions(prepared, sample, learner, best, context)
        assert dense.best is not None  # it has steps
        best, found = dense.best, found | {"regions": facts(dense)}
    is_given = math.isnan(best.trial.gamma) and best.trial.kernel == config.kernel.name
    kernel = prepared.kernel  # whose gamma all rows have told
    if best.has_metric or not is_given:
        kernel = learner.kernel(best.trial, Metric(best.factor))
    scaling = _scaling(prepared, best, kernel, sample)
    chose = _chose(prepared, best, kernel, scaling)
    return replace(_under(prepared, best, kernel, scaling), learned=chose | found)


def _search(config: FitConfig, tracks: tuple[Track, ...], given: Trial | None = None) -> MetricSearch:
    along = config.metric.search or ()
    return MetricSearch(tracks, config.metric.iterations, "gamma" in along, "C" in along, given)


def _in_regions(
    prepared: Prepared, sample: Sample, learner: Learner, best: Fitted, context: Context
) -> MetricState:
    """The search, gone on with in some regions where rows are as dense as in the parts that are to decide."""
    centres, engine = sample.rows.take(slice(REGIONS)), context.engine
    dense = regions(prepared, centres, Metric(best.factor), REGION_ROWS, engine, context.events)
    search = _search(prepared.config, (Track(best.trial, best.factor),))
    return _searched(search, SampleTrials(dense, learner, engine), context, "regions")


def require_metric(config: FitConfig, task: Task, *, is_sparse: bool) -> None:
    """Raises ConfigError where a metric cannot be learned of such rows, for this task."""
    kind = config.metric.kind
    if not task.has_metric:
        raise ConfigError(
            f"metric.kind is {kind!r}, which is learned for tasks classify and regress; found task {task.name!r}: "
            "leave it out"
        )
    if kind == "full" and is_sparse:
        raise ConfigError(
            "metric.kind is 'full', which would fill a sparse store; take diagonal, or ingest with --dense"
        )


def _searched(
    search: MetricSearch, problem: SampleTrials, context: Context, name: str = "metric"
) -> MetricState:
    """The search's last state, from a checkpoint's on where there is one."""
    states, total = context.checkpoints.inside(name), search.total(problem.n)
    saved = states.load()
    state = MetricState.from_arrays(saved) if saved else search.init(problem)

    def on_step(state: MetricState) -> None:
        score = round(state.told[-1][-1], 5)
        context.events.progress(name, min(len(state.told), total - 1), total, score=score)
        states.offer(state.to_arrays, last=search.is_solved(state))

    with context.engine.serial_blas():
        state = run(search, problem, state, stop=search.is_solved, on_step=on_step)
    context.events.progress(name, total, total)
    return state


def _trials(config: FitConfig) -> list[Trial]:
    """What tracks begin with: a trial for each kernel that is tried."""
    along = config.metric.search or ()
    names = [config.kernel.name]
    if "kernel" in along:
        kinds = [name for name in KERNELS if name != "laplacian" or config.metric.kind == "diagonal"]
        names = [name for name in kinds if _goes_with(config, name)]
    has_gamma = "gamma" in along and "gamma" in kernel_row(config.kernel.name).parameters
    gamma, C = (FIRST_GAMMA if has_gamma else math.nan), (FIRST_C if "C" in along else config.C)
    return [Trial(name, gamma, C) for name in names]


def _goes_with(config: FitConfig, name: str) -> bool:
    """Whether the solver takes the kernel of this name."""
    try:
        config.own.require(KernelConfig(name=name))
    except ValueError:
        return False
    return True


def _starts(prepared: Prepared, sample: Sample) -> list[np.ndarray]:
    """Factors to begin with: all columns alike; of dense rows that nobody scaled, of variance 1 each, too."""
    same = np.ones(sample.rows.d)
    if prepared.scaling.kind not in ("none", "centre") or sample.rows.is_sparse:
        return [same]
    deviations = sample.rows.dense().std(axis=0, dtype=np.float64)
    least = np.finfo(np.float32).eps * np.abs(sample.rows.dense()).max(axis=0)
    roots = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > least)
    if roots.max() <= UNEVEN * roots.min(where=roots > 0, initial=np.inf):
        return [same]
    return [same, roots * (len(roots) / np.sum(roots**2)) ** 0.5]


def drawn(prepared: Prepared, engine: Engine) -> Sample | str:
    """The sample of a store, a fifth of it held out, and more where there are other rows; or why it has none.

    Raises DataError.
    """
    store, config = prepared.store, prepared.config
    most = _most_rows(prepared, engine)
    n = min(store.n, config.metric.sample, most)
    if n < LEAST_ROWS:
        return f"{n} rows are too few to learn a metric from, expected at least {LEAST_ROWS}"
    rng = np.random.default_rng([config.seed, 22])
    held = min(store.n - n + n // HELD, max(n // HELD, MOST_HELD), most)  # more where there are others
    n += held - n // HELD
    ids = np.sort(rng.choice(store.n, n, replace=False))
    rows_drawn = gather(StoreSamples(store, prepared.scaling), ids, engine).astype(np.float32)
    bad = first_nonfinite(rows_drawn)
    if bad is not None:
        at = int(ids[bad[0]])
        require_finite(store, store.read(at, at + 1), at)
    asked = Asked(
        prepared.task, prepared.targets, prepared.upper / config.C, np.zeros(store.n, np.int8)
    ).take(ids)
    sample = Sample.parted(rows_drawn, asked, rng.permutation(n), held)
    if not any(True for _ in asked.task.subproblems(sample.asked.targets)):
        return "the sample has rows of one class alone"
    return sample


def _most_rows(prepared: Prepared, engine: Engine) -> int:
    """Rows that memory allows: the sample, and each thread's copy of it under a metric."""
    samples = StoreSamples(prepared.store, prepared.scaling)
    row_bytes = samples.nbytes / samples.n * (4 if prepared.store.dtype == np.uint8 else 1) + 100
    left = (prepared.config.memory_limit or free_bytes()) - process_bytes()
    return int(MOST_SHARE * left / (row_bytes * (2 + 2 * engine.slots)))


def _under(prepared: Prepared, best: Fitted, kernel: Kernel, scaling: Scaling) -> Prepared:
    """The data as the best fit had it, and a configuration that says so."""
    config, C = prepared.config, best.trial.C
    options = config.kernel.model_copy(update=kernel.to_attrs())
    config = config.model_copy(update={"C": C, "kernel": options})
    upper = prepared.upper * (C / prepared.config.C)
    return replace(prepared, config=config, scaling=scaling, kernel=kernel, upper=upper)


def _scaling(prepared: Prepared, best: Fitted, kernel: Kernel, sample: Sample) -> Scaling:
    """The scaling under a metric. Of dense rows that nobody scaled it has means and deviations of the sample, so that
    rows are near the origin, and that the metric tells what columns count for in any unit."""
    before, factor = prepared.scaling, best.factor
    if not best.has_metric:
        return before
    is_raw = before.kind in ("none", "centre") and isinstance(sample.rows.X, np.ndarray)
    if not (is_raw and isinstance(kernel, Stationary)):
        return before.under(Metric(factor))
    own = from_moments("standard", moments_of(sample.rows))
    deviations = np.divide(1.0, own.scale, out=np.zeros_like(own.scale), where=own.scale > 0)
    metric = Metric(factor * (deviations if factor.ndim == 1 else deviations[:, None]))
    return Scaling("sample", before.offset + own.offset, own.scale, metric)


def _chose(prepared: Prepared, best: Fitted, kernel: Kernel, scaling: Scaling) -> dict[str, Any]:
    """What a report says of what was chosen."""
    found: dict[str, Any] = {"kind": prepared.config.metric.kind if best.has_metric else "none"}
    if not best.has_metric:
        found["reason"] = "held-out rows are decided as well without one"
    names, shares = prepared.store.feature_names or (), []
    if scaling.metric is not None:
        importances = scaling.metric.importances
        order = np.argsort(-importances, kind="stable")[:SHOWN].tolist()
        shares = [(names[f] if f < len(names) else str(f), float(importances[f])) for f in order]
    gamma = kernel.to_attrs().get("gamma")
    found |= {"kernel": kernel.name, "C": best.trial.C, "gamma": gamma, "columns": factor_width(best.factor)}
    return found | {"importances": [share for share in shares if share[1] > 0]}


def _facts(prepared: Prepared, state: MetricState) -> dict[str, Any]:
    """How well held-out rows are decided: as chosen, by the best without a metric, and as given; and each step."""
    scores = chosen(state).score, max(fitted.score for fitted in state.plain), state.plain[0].score
    found = dict(zip(("score", "plain_score", "given_score"), scores, strict=True))
    return {"scoring": prepared.task.scoring, **found, "rungs": facts(state)}
