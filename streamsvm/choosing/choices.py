"""What is chosen from a sample before a fit: scaling, kernel, metric, gamma and C.

What was chosen can be repeated: on the same rows, from a configuration next to the model, or on other rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.choosing import against_rest
from streamsvm.choosing.metric_search import (
    REST,
    FittedTrial,
    MetricSearch,
    MetricState,
    Track,
    Trial,
    chosen,
    factor_width,
    facts,
)
from streamsvm.choosing.time_budget import Deadline, as_before, has_time_for_regions, in_time, rows_in_time, with_sample
from streamsvm.choosing.trials import (
    LEAST_ROWS,
    MOST_HELD,
    Sample,
    SampleTrials,
    TrialSettings,
    class_weights,
    draw_samples,
    region_samples,
)
from streamsvm.config import FitConfig, KernelConfig, SearchConfig, build_config, repeating
from streamsvm.data.metric import Metric
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, ignore
from streamsvm.fits.base import FitContext, FittedModel
from streamsvm.fits.exportable import takes_kernel
from streamsvm.fits.prepare import TrainingData, advice, first_rows, measured, require_range, scaled
from streamsvm.judging.expected import (
    ExpectedScore,
    SearchExpectation,
    gain_of_rows,
    is_surely_better,
    of_candidates,
    weighted_losses,
)
from streamsvm.judging.held_out import can_hold_out
from streamsvm.judging.log_loss import D2_LOG_LOSS
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.kernels.table import kernel_row
from streamsvm.options.search import LOG_LOSS
from streamsvm.problems.subproblems import DualData
from streamsvm.runs.checkpoints import EXECUTION, digest
from streamsvm.solvers.catalogue import fit_class, made_for, solver_row
from streamsvm.solvers.loop import run
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.paths import Place
from streamsvm.storage.text import percent
from streamsvm.tasks import is_searched, task_for
from streamsvm.tasks.base import Task

KERNELS = ("rbf", "matern", "laplacian", "linear")  # that are tried
FIRST_GAMMA, FIRST_C = 2.0, 10.0  # gamma over the one at which half of all values are above 1/e
TYPICAL_ROWS = 512
DENSE = 4  # times the sample: rows of a store that are so much closer to each other
REGIONS, REGION_ROWS = 8, 6000
MOST_GRADIENTS = 8_000  # entries of a row's, in all pairs of its class, with which a metric is learned
BEFORE_REGIONS = 7  # metrics of a track, if regions continue it
APART = 20  # one of so many rows is kept out of it all, where the sample has not all
SHOWN = 20  # columns in a report
LEAST_COMPARED = 100  # held-out rows, to compare the choice with a constant


def with_choices(prepared: TrainingData, context: FitContext) -> TrainingData:
    """The data and their configuration with the chosen options: those that predict held-out rows best. Raises
    ConfigError, DataError."""
    prepared = replace(with_sample(prepared, context.left()), requested=digest(prepared.config))
    config, store = prepared.config, prepared.store
    if config.metric.is_learned:
        require_metric(config, prepared.task, is_sparse=store.is_sparse)
    _require_searched(prepared)
    prepared = _holding_out(prepared)
    base, starts = starts_of(prepared)
    ways = against_rest.ways(prepared, context.left())
    sample = draw_samples(prepared, base, context.engine, folds="" in ways)
    if isinstance(sample, str):
        return _unchosen(prepared, sample, context)
    samples, held_out = sample
    learner = _learner(prepared, starts["given"], samples[0])
    is_dense = store.n >= DENSE * config.search.sample and not fit_class(config.solver).has_budget
    search = _search(config, base, starts, samples, ways)
    if is_dense:  # regions improve a metric more than further steps do here
        search = replace(search, iterations=min(search.iterations, BEFORE_REGIONS))
    elif config.search.time_budget is None and config.search.trials is None:
        search = replace(search, affordable=partial(rows_in_time, prepared))
    trials = SampleTrials(samples, learner, context.engine, config.memory_limit)
    state = _searched(search, trials, context, prepared)
    best, report = chosen(state), _facts(prepared, state, ways)
    _compare_with_constant(prepared, best.losses, [sample.held_out_data for sample in samples], context.events)
    if config.metric.is_learned and not search.tracks[0].learns:
        report["reason"] = "columns and classes are too many to learn a metric from"
    before = context.checkpoints.saved_choice()
    has_time = context.checkpoints.has_state_of("regions") if before else has_time_for_regions(state, prepared, context)
    if is_dense and best.learned and has_time:
        with context.phase("regions"):
            centres = samples[0].rows.take(slice(REGIONS))
            dense = _in_regions(replace(prepared, scaling=base), centres, learner, best, context)
        if dense is not None and dense.best is not None:
            best, report = chosen(dense), report | {"regions": facts(dense)}
    under = partial(_under, prepared, base=base, starts=starts, learner=learner, report=report)
    may_join = config.search.has_ensemble or config.search.time_budget is not None
    families = sorted(state.families, key=_rank) if may_join else ()
    others = [under(fitted).config for fitted in families if _may_join(fitted, best)]
    prepared = under(best)
    prepared = as_before(prepared, before) if before else in_time(prepared, facts(state), context)
    chosen_dcsvm = {"dcsvm": prepared.config.dcsvm}  # early or not, as there is time
    candidates = prepared.config, *(other.model_copy(update=chosen_dcsvm) for other in others)
    prepared = replace(prepared, candidates=candidates)
    expected = _expected(prepared, state, chosen(state), trials)
    expectation = SearchExpectation(held_out, [sample.held_out_data for sample in samples], expected)
    return _expecting(prepared, expectation)


def _require_searched(prepared: TrainingData) -> None:
    """Raises ConfigError for a task of which nothing is chosen, or not by this score."""
    config = prepared.config
    if config.search.scoring and not prepared.task.has_classes:
        raise ConfigError(
            f"search.scoring is {config.search.scoring!r}, which is for classes; found task {prepared.task.name!r}: "
            "leave it out"
        )
    if config.search.scoring == LOG_LOSS and prepared.task.in_sets:
        raise ConfigError(f"search.scoring is {LOG_LOSS}, which is for one label a row: leave it out, or give another")
    if not is_searched(prepared.task.name):
        raise ConfigError(
            f"search.options is {', '.join(config.search.chosen)}, and nothing is chosen for task "
            f"{prepared.task.name}: leave it out, and give values"
        )


def _compare_with_constant(
    prepared: TrainingData, losses: np.ndarray, samples: Sequence[DualData], events: Events
) -> None:
    """Warns if the best fit, with losses (h,) of the held-out rows of all samples, decides them no better than their
    most frequent label would, which an accuracy of 97 % does not show."""
    task, probability = prepared.task, prepared.config.probability
    has_one_label = task.has_classes and not task.in_sets
    decides_otherwise = probability.threshold is not None or probability.costs is not None
    is_plain = has_one_label and prepared.scoring == task.scoring and not decides_otherwise
    if not is_plain or len(losses) < LEAST_COMPARED:
        return
    codes = np.concatenate([data.task.truth(data.targets) for data in samples])
    rows = np.bincount(codes, np.concatenate([data.upper for data in samples]))
    most = int(rows.argmax())
    constant = np.concatenate([weighted_losses(np.full(len(data.upper), most), data) for data in samples])
    if not is_surely_better(-losses, -constant):
        events.advise(
            f"held-out rows are predicted no better, beyond chance, than by their most frequent label, "
            f"{prepared.classes[most]} ({percent(rows[most] / rows.sum())}). Perhaps nothing in the columns separates "
            "the labels. If rare labels count, choose by --scoring balanced_accuracy, or decide by "
            "--threshold f1 or --costs (in Python by scoring, threshold or costs)"
        )


def _rank(fitted: FittedTrial) -> tuple[int, float]:
    """Best first."""
    return -fitted.rows, -fitted.score


def _may_join(fitted: FittedTrial, best: FittedTrial) -> bool:
    """Whether an ensemble may have this member besides the chosen one. Linear ones are hardly ever taken."""
    return fitted.family != best.family and not kernel_row(fitted.trial.kernel).is_linear


def _expecting(prepared: TrainingData, expectation: SearchExpectation) -> TrainingData:
    """The data with what a search expects of the model, unless held-out rows give the score of new ones."""
    update: dict[str, Any] = {"expectation": expectation}
    if prepared.held_out is None:
        update["expected"] = expectation.expected
    return replace(prepared, **update, all_rows=prepared.all_rows and replace(prepared.all_rows, **update))


def _learner(prepared: TrainingData, given: ScalingCandidate, sample: Sample) -> TrialSettings:
    """What trials mean. Of rows as they were given, the kernel as given is the one that all rows have made."""
    config = prepared.config
    rank = config.metric.rank if config.metric.kind == "full" else None
    as_given = (Metric(given.factor), prepared.kernel) if given.scaling is prepared.scaling else None
    return TrialSettings(
        config.kernel,
        rank,
        sample.rows.take(slice(TYPICAL_ROWS)),
        config.dcsvm.is_squared,
        as_given,
        by_log_loss=prepared.scoring == D2_LOG_LOSS,
    )


def _holding_out(prepared: TrainingData) -> TrainingData:
    """The data without some rows that the search has not seen either, if it does not see all, and groups allow it."""
    rows = min(prepared.store.n // APART, MOST_HELD)
    sees_all = prepared.store.n <= prepared.config.search.sample
    if sees_all or prepared.held_out is not None or not can_hold_out(prepared.store, rows):
        return prepared
    return prepared.without(rows)


def _expected(prepared: TrainingData, state: MetricState, best: FittedTrial, trials: SampleTrials) -> ExpectedScore:
    steps, pool = [(row["rows"], row["score"]) for row in facts(state)], state.pool or (best.losses,)
    if prepared.held_out is None and state.n < trials.n:  # it ended on fewer rows: a fit on all of them says more
        [trial] = trials.tried(trials.n, best.factor, [best.trial], None)
        if not trial.has_failed:
            steps, pool = [*steps, (trials.n, trial.score)], (trial.losses,)
    gain = gain_of_rows(steps, trials.n, prepared.store.n)
    return of_candidates(prepared.scoring, pool, gain, prepared.config.seed)


def _unchosen(prepared: TrainingData, reason: str, context: FitContext) -> TrainingData:
    """The data under the options as they were given, and advice about these, as without a search."""
    config, store, kernel = prepared.config, prepared.store, prepared.kernel
    if isinstance(kernel, Stationary):
        first = store.read(0, min(store.n, LEAST_ROWS))
        require_range(prepared.scaling, kernel, first)
        if message := advice(kernel, prepared.scaling, first, store.shown_names):
            context.events.advise(message)
    if config.metric.is_learned:
        metric = config.metric.model_copy(update={"kind": "none"})
        prepared = replace(prepared, config=config.model_copy(update={"metric": metric}))
    return replace(prepared, choices={"kind": "none", "reason": reason})


def _search(
    config: FitConfig,
    base: Scaling,
    starts: Mapping[str, ScalingCandidate],
    samples: Sequence[Sample],
    ways: Sequence[str],
) -> MetricSearch:
    """Trials on samples: with a metric, if one is requested and rows are not too wide. ways: `against_rest.ways`."""
    along, count, first = config.search.chosen, len(samples), samples[0]
    learns = config.metric.is_learned and first.rows.d * first.dual_data.shape[1] <= MOST_GRADIENTS
    sq_norm = float(first.rows.take(slice(TYPICAL_ROWS)).sq_norms.mean())
    usual = [start for start in starts.values() if start.scaling is base] or [starts["given"]]
    tracks = []
    trials = _trials(config, sq_norm)
    is_wide = first.rows.d > MOST_GRADIENTS
    if REST in ways:
        trials = _with_rest(trials, ways, is_wide=is_wide)
    if is_wide:  # of texts a linear kernel is good, and a time budget may end after one
        trials.sort(key=lambda trial: not kernel_row(trial.kernel).is_linear)
    for trial in trials:
        is_linear = kernel_row(trial.kernel).is_linear  # which a metric would only scale
        has_metric = learns and not is_linear
        for start in usual if is_linear else starts.values():
            factor = np.stack([start.factor] * (count if has_metric else 1))
            tracks.append(Track(trial, factor, has_metric, start.scaling.kind))
    given_trial = Trial(config.kernel.name, math.nan, config.C, multiclass="" if "" in ways else REST)
    given = given_trial, starts["given"].factor[None]
    return MetricSearch(tuple(tracks), config.metric.iterations, "gamma" in along, "C" in along, given)


def _in_regions(
    prepared: TrainingData, centres: Any, learner: TrialSettings, best: FittedTrial, context: FitContext
) -> MetricState | None:
    """The search, continued in regions as dense as the partitions that are to decide; None if each is of one group."""
    engine, along = context.engine, prepared.config.search.chosen
    dense = region_samples(prepared, centres, Metric(best.factor[0]), REGION_ROWS, engine, context.events)
    if not dense:
        return None
    iterations = prepared.config.metric.iterations
    search = MetricSearch((Track(best.trial, best.factor),), iterations, "gamma" in along, "C" in along)
    return _searched(
        search, SampleTrials(dense, learner, engine, prepared.config.memory_limit), context, prepared, "regions"
    )


def require_metric(config: FitConfig, task: Task, *, is_sparse: bool) -> None:
    """Raises ConfigError if a metric cannot be learned of such rows, for this task."""
    kind = config.metric.kind
    if not task.has_metric:
        raise ConfigError(
            f"metric.kind is {kind!r}, which is learned for tasks classify, multilabel and regress; "
            f"found task {task.name!r}: leave it out"
        )
    if kind == "full" and is_sparse:
        raise ConfigError(
            "metric.kind is 'full', which would fill a sparse store; take diagonal, or ingest with --dense"
        )


def _searched(
    search: MetricSearch, problem: SampleTrials, context: FitContext, prepared: TrainingData, name: str = "search"
) -> MetricState:
    """The search's last state, resumed from a checkpoint if there is one; earlier if its time or trials are up."""
    states, total = context.checkpoints.inside(name), search.total(problem.n)
    saved = states.load()
    state = MetricState.from_arrays(saved) if saved else search.init(problem)
    trials, clock = prepared.config.search.trials, Deadline(context, prepared)
    has_ended = bool(saved) and bool(context.checkpoints.saved_choice())  # and a fit has begun

    def stop(state: MetricState) -> bool:
        if has_ended or search.is_solved(state):
            return True
        is_late = clock.is_late(state, search.next_cost(state))
        return is_late or len(state.records) >= (trials or math.inf)

    def on_step(now: MetricState) -> None:
        nonlocal state
        state = now
        clock.stepped()
        scores = {"score": round(facts(state)[-1]["score"], 5)} if state.records else {}
        context.events.progress(name, min(len(state.records), total - 1), total, **scores)
        states.offer(state.to_arrays, last=search.is_solved(state))

    try:
        with context.engine.serial_blas():
            state = run(search, problem, state, stop=stop, on_step=on_step)
    except KeyboardInterrupt:  # a step ends every second or so: the last one is worth keeping
        states.offer(state.to_arrays, last=True)
        raise
    context.events.progress(name, total, total)
    return state


def _trials(config: FitConfig, sq_norm: float) -> list[Trial]:
    """Starting points of tracks: a trial for each kernel to try. sq_norm: of rows, the unit of a linear one's C."""
    along = config.search.chosen
    names = [config.kernel.name]
    if "kernel" in along:
        kinds = [name for name in KERNELS if name != "laplacian" or config.metric.kind != "full"]
        names = [name for name in kinds if _goes_with(config, name)]
    trials = []
    for name in names:
        row = kernel_row(name)
        gamma = FIRST_GAMMA if "gamma" in along and "gamma" in row.parameters else math.nan
        C = FIRST_C / (sq_norm or 1.0) if row.is_linear else FIRST_C
        weights = ("", "balanced") if "class_weight" in along else ("",)
        trials += [Trial(name, gamma, C if "C" in along else config.C, weight) for weight in weights]
    return trials


def _with_rest(trials: Sequence[Trial], ways: Sequence[str], *, is_wide: bool) -> list[Trial]:
    """All trials against the rest if pairs are too many; else these by pairs, and linear ones against the rest, too.
    Other kernels are no better against the rest than by pairs, and wide rows of many classes need no other kernels."""
    rest = [replace(trial, multiclass=REST) for trial in trials]
    if "" not in ways:
        return rest
    linear = [trial for trial in trials if kernel_row(trial.kernel).is_linear]
    rest_of_linear = [replace(trial, multiclass=REST) for trial in linear]
    return [*rest_of_linear, *linear] if is_wide and linear else [*trials, *rest_of_linear]


def _goes_with(config: FitConfig, name: str) -> bool:
    try:
        config.solver_options.require(KernelConfig(name=name))
    except ValueError:
        return False
    return takes_kernel(config, name)


def _under(
    prepared: TrainingData,
    best: FittedTrial,
    base: Scaling,
    starts: Mapping[str, ScalingCandidate],
    learner: TrialSettings,
    report: dict[str, Any],
) -> TrainingData:
    """The data as the best fit had it, its configuration, and report entries on it."""
    config, C, along = prepared.config, best.trial.C, prepared.config.search.chosen
    if best.learned:
        metric = Metric(np.sqrt(np.mean(best.factor**2, axis=0)) if best.factor.ndim == 2 else best.factor[0])
        scaling = base
    else:
        metric = Metric(best.factor[0])
        start = next(start for start in starts.values() if np.array_equal(start.factor, best.factor[0]))
        scaling = start.scaling
    kernel = learner.kernel(best.trial, metric)
    kind = "none" if scaling.kind in FREE else scaling.kind
    options: dict[str, Any] = {"C": C, "scale": kind, "kernel": config.kernel.model_copy(update=kernel.to_attrs())}
    answers = prepared.target_source.times(np.full(len(prepared.class_rows), C / config.C))
    if best.trial.class_weight:
        options["class_weight"] = best.trial.class_weight
        answers = answers.times(class_weights(prepared).tried)
    multiclass, is_linear_of_columns = best.trial.multiclass, len(prepared.classes) == 2 or prepared.task.in_sets
    if "solver" in along and kernel.is_linear and (multiclass or is_linear_of_columns):
        options["solver"] = made_for(kernel.name, prepared.task.name) or config.solver
    if multiclass and "multiclass" in solver_row(options.get("solver", config.solver)).reads:
        options["multiclass"] = multiclass  # a solver that does not read it has each class against the rest anyway
    if "metric" in along or best.learned:
        factor = _tuples(metric.factor) if best.learned else None
        update = {"kind": config.metric.kind if best.learned else "none", "factor": factor}
        options["metric"] = config.metric.model_copy(update=update)
    trained, first = config.model_copy(update=options), first_rows(prepared.store)
    scaling, kernel = measured(trained, scaling, first, prepared.moments, None, ignore)
    chose = _chose(prepared, best, kernel, scaling)
    task = task_for(trained)
    return replace(
        prepared,
        config=trained,
        task=task,
        scaling=scaling,
        kernel=kernel,
        target_source=answers.by(task),
        choices=chose | report,
    )


def _tuples(factor: np.ndarray) -> tuple[Any, ...]:
    return tuple(factor.tolist()) if factor.ndim == 1 else tuple(tuple(row) for row in factor.tolist())


def _chose(prepared: TrainingData, best: FittedTrial, kernel: Kernel, scaling: Scaling) -> dict[str, Any]:
    report: dict[str, Any] = {"kind": prepared.config.metric.kind if best.learned else "none"}
    if prepared.config.metric.is_learned and not best.learned:
        report["reason"] = "held-out rows are predicted equally well without one"
    names, shares = prepared.store.shown_names or (), []
    if (importances := scaling.importances) is not None:
        order = np.argsort(-importances, kind="stable")[:SHOWN].tolist()
        shares = [(names[f] if f < len(names) else str(f), float(importances[f])) for f in order]
    report |= {"kernel": kernel.name, "C": best.trial.C, "gamma": kernel.to_attrs().get("gamma")}
    if "class_weight" in prepared.config.search.chosen:
        report["class_weight"] = best.trial.class_weight or "none"
    report |= {"scale": scaling.kind, "columns": factor_width(best.factor)}
    return report | {"importances": [share for share in shares if share[1] > 0]}


def _facts(prepared: TrainingData, state: MetricState, ways: Sequence[str]) -> dict[str, Any]:
    """Scores on held-out rows: as chosen, by the best without a metric, and as given; and each step. ways:
    `against_rest.ways`."""
    report: dict[str, Any] = {"score": chosen(state).score}
    if REST in ways:
        report["multiclass"] = chosen(state).trial.multiclass or "pairs"
    if state.plain:
        plain = [fitted.score for fitted in state.plain]
        compared = {"plain_score": max(plain), "given_score": plain[0]}
        report |= {name: score for name, score in compared.items() if math.isfinite(score)}
    report |= {"failed": state.failed} if state.failed else {}
    return {"scoring": prepared.scoring, **report, "rungs": facts(state)}


CONFIG_MARK = "# the options"  # a file of these begins with


def write_config(model: FittedModel, model_path: Place, events: Events) -> str | None:
    """What was chosen, next to the model: a configuration that repeats the fit. Another's file is not replaced."""
    path, mark = model_path.with_suffix(".fit.toml"), f"{CONFIG_MARK} of {model_path.name}:"
    if path.exists() and not path.read_bytes().startswith(mark.encode()):
        events.warn(f"{path} belongs to another model and is kept: what was chosen is only in {model_path.name}")
        return None
    values = {name: value for name, value in (model.header.config or {}).items() if name not in EXECUTION}
    text = f"{mark} `streamsvm fit --store STORE --config {path.name}` repeats it\n"
    with whole_file(path) as file:
        file.write((text + repeating(build_config((str(model_path), values)))).encode())
    return str(path)


def as_chosen(config: FitConfig) -> FitConfig:
    """The configuration for fits that repeat the chosen options on other rows."""
    update = {"holdout": 0, "interval": None, "rows": None, "search": SearchConfig(options=())}
    return config.model_copy(update=update)


FREE = ("none", "centre")  # kinds of scaling that leave room for others
UNEVEN = 3.0  # times that columns are weighted differently by two scalings, to be tried both
HEAVY = 20.0  # standard deviations from the mean to the farthest value, of a column with heavy tails
UNLIKE = 100.0  # times narrower that a column is by its quartiles than by its deviation


@dataclass(frozen=True)
class ScalingCandidate:
    """A scaling to begin with, and its factor (d,) over the one that the sample has."""

    scaling: Scaling
    factor: np.ndarray


def starts_of(prepared: TrainingData) -> tuple[Scaling, dict[str, ScalingCandidate]]:
    """The scaling of the sample, and those that tracks begin with, always including the given one. Of dense rows that
    nobody scaled, and a kernel of distances, the sample has columns of variance 1 about 0, whatever their units; a
    metric over it shows what columns count for. Raises DataError if all rows are the same."""
    given, config, moments = prepared.scaling, prepared.config, prepared.moments
    same = np.ones(given.width)
    asks = "scale" in config.search.chosen
    is_settled = given.kind not in FREE or given.metric is not None  # a given metric is one of the rows as they are
    if is_settled or not (asks or config.metric.is_learned):
        return given, {"given": ScalingCandidate(given, same)}
    assert moments is not None  # a search makes the pass
    of_kind = partial(scaled, prepared.store, config, moments=moments)
    if np.array_equal(moments.low, moments.high):
        raise DataError(f"{prepared.store.url or 'X'}: found the same values in every row, expected rows that differ")
    usual = given
    if not prepared.store.is_sparse:
        usual = of_kind("standard")
    if not isinstance(prepared.kernel, Stationary):  # the origin matters, too: the usual one, and no other
        return usual, {"given": ScalingCandidate(usual, same)}
    base = usual
    if prepared.store.is_sparse:
        others = ["maxabs"] if asks else []
    else:
        others = ["standard", *(["minmax"] if asks else [])]
        farthest = np.maximum(moments.high - moments.mean, moments.mean - moments.low) * base.scale
        if asks and farthest.max() > HEAVY:
            robust = of_kind("robust")
            others.append("robust")
            if _ratio(robust, base).max() > UNLIKE:  # outliers make up the deviations, and hide all else
                base = robust
    starts = {"given": ScalingCandidate(given, _ratio(given, base))}
    for name in others:
        scaling = base if name == base.kind else of_kind(name)
        factor = _ratio(scaling, base)
        if all(_differs(factor, start.factor) for start in starts.values()):
            starts[name] = ScalingCandidate(scaling, factor)
    return base, starts


def _ratio(scaling: Scaling, base: Scaling) -> np.ndarray:
    """What columns under `base` are multiplied with to be as under another scaling; 0 of constant ones."""
    return np.divide(scaling.scale, base.scale, out=np.zeros_like(base.scale), where=base.scale > 0)


def _differs(one: np.ndarray, other: np.ndarray) -> bool:
    both = (one > 0) & (other > 0)
    if not both.any():
        return False
    ratios = one[both] / other[both]
    return bool(ratios.max() > UNEVEN * ratios.min())
