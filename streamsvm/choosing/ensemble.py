"""An ensemble: a few of the models that a search tries, combined by the probabilities that they give.

Models of another kernel, loss or scaling err on other rows. One fold of the rows shows which of them go together: the
chosen one first, then each that lowers the log loss of the mean probability most (Caruana et al. 2004, Ensemble
selection from libraries of models, without replacement). All folds decide how they are combined (Wolpert 1992, Stacked
generalization): each row's probabilities come from fits without its fold, and the members' weights w >= 0 and the
offsets b of the classes minimise

    sum_i v_i H(t_i, p_i) + 1/2 |w - 1/m|^2 + 1/2 |b|^2,    p_ic proportional to exp(b_c) prod_m p_imc^w_m,

the cross entropy H of rows with weights v and Platt's targets t, which are a little less than sure of their class, the
less the more rows it has. Then each member is fitted to all rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from streamsvm.choosing.solve import FAILURES
from streamsvm.choosing.time_budget import has_time_for_fits
from streamsvm.config import FitConfig, ensemble_fits, field_values, option_field
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.fits.base import Fit, FittedModel, Report, Solution
from streamsvm.judging.expected import losses_of, of_model
from streamsvm.judging.probabilities import decided_by_rows, decision_blocks, folds_of, weights_of
from streamsvm.judging.thresholds import DecidedRows
from streamsvm.models import EnsembleModel, Header
from streamsvm.models.calibration import Calibration, calibrate, own_problems
from streamsvm.models.ensemble import LEAST, combined, log_odds
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import allowed_bytes
from streamsvm.runs.checkpoints import Checkpoints
from streamsvm.runs.phases import SEARCH
from streamsvm.solvers.catalogue import section_of
from streamsvm.storage.paths import Place, remove_tree
from streamsvm.tasks.pairs import n_columns
from streamsvm.tasks.scores import codes_of_labels
from streamsvm.tasks.weights import class_factors

SQUARED = {"linear": "squared", "hinge": "squared_hinge"}  # losses, as solvers name them
COPIES = 8  # of decision values of all rows, while weights are fitted: in float64, their logarithms, a gradient
FOLDER = "ensemble"  # of the run directory, for the fits of its members
SLOWER = 2.0  # times that fits of other candidates may take as long as the first one, so that none is cut short
MEMBERS = 3  # of an ensemble that a time budget has room for
RANKS_ROWS, RANKS_TRIALS = 5000, 14  # of the search in columns that are scaled by their ranks
CONVERGED = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-6}  # of L-BFGS
MOST_SHARE = 0.25  # of the memory limit, for decision values of all folds
# A model of the rows, given its options, a folder for its files, and the number of fits to come with this one.
Learn = Callable[[FitConfig, Store, Place, int], FittedModel]
State = dict[str, Any]  # as in a checkpoint: fold and codes of rows; by candidate decisions, pairwise, folds done


class OutOfTime(Exception):  # noqa: N818  no fault: a single model is fitted instead
    """The fits of an ensemble would take longer than the time left."""


@dataclass(frozen=True)
class Ensemble:
    """The model, the out-of-fold decision values that it would have given to the rows it learned from, and a report
    entry for each member."""

    model: EnsembleModel
    rows: DecidedRows
    members: list[dict[str, Any]]
    converged: bool  # whether no fit of a fold was cut short

    def certified(self, fit: Fit) -> tuple[FittedModel, Report]:
        """The model with what is known of it, and the report. fit: of the chosen options, which was not solved: rows
        that its search held out are learned from here, so the folds alone say what to expect."""
        certificates = [member.header.certificate or {} for member in self.model.members]
        model, converged = self.model, [of_member.get("converged") for of_member in certificates]
        solution = Solution(
            model,
            certificates[0]["objective"],
            certificates[0]["gap"],
            model.n_support,
            exact=all(of_member.get("exact") for of_member in certificates),
            converged=None if self.converged and None in converged else self.converged and all(converged),
            advice="fits of the ensemble ended early, so it may score less than expected; give more time",
            facts={"ensemble": self.members},
        )
        probability, scoring = fit.config.probability.model_copy(update={"method": None}), fit.prepared.scoring
        decided = decided_by_rows(probability, self.rows, fit.config.seed)
        answers = decided.answers_by(model)
        assert answers is not None  # all problems of these rows are decided
        losses = losses_of(scoring, model, answers, self.rows.codes)
        expected = of_model(scoring, losses, folds=True)
        fit.prepared = replace(fit.prepared, held_out=None, expected=expected)
        return fit.certified(solution, decided)


@dataclass(frozen=True)
class OutOfFold:
    """A calibration of the decisions of rows by fits without their fold, and the probabilities (n, k) that it gives."""

    config: FitConfig
    calibration: Calibration
    p: np.ndarray


def combined_fits(
    store: Store,
    candidates: Sequence[FitConfig],
    learn: Learn,
    header: Callable[[], Header],
    engine: Engine,
    folder: Place,
    checkpoints: Checkpoints,
    events: Events,
    until: float | None = None,
) -> Ensemble:
    """The ensemble of as many candidates as the first one's options say; the first is a member. header: of the model
    without what is known of it. folder: for files of the fits, which the members of large models read until they are
    saved. until: time.time() at which it has to end, if it is wanted only then. Raises ConfigError, DataError,
    OutOfTime, and what `learn` raises for the first candidate; another that fails is left out, with a warning."""
    count = candidates[0].search.ensemble or MEMBERS
    folds = _Folds(store, candidates, count, learn, engine, folder, checkpoints, events, until)
    return _stacked(folds, folds.members(count), header())


def may_combine(fit: Fit, config: FitConfig) -> bool:
    """Whether a time budget may have room for an ensemble that the options leave open. fit: of what their search
    chose."""
    task, search = fit.task, config.search
    is_open = search.ensemble is None and {"solver", "kernel"} <= set(search.chosen) and not config.holdout
    is_open = is_open and config.must_export != "libsvm"  # which has sums alone
    if not is_open or not task.has_probabilities or task.in_sets or "score" not in fit.prepared.choices:
        return False
    if fit.checkpoints.resume and fit.checkpoints.has_state_of(FOLDER):  # an earlier run had the time, and used it
        return True
    searched_s = sum(fit.phase.seconds.get(name, 0.0) for name in SEARCH)
    ranks_s = searched_s * min(1.0, RANKS_ROWS / min(fit.store.n, fit.config.search.sample))
    return has_time_for_fits(fit.prepared, fit.context, ensemble_fits(MEMBERS, config.probability.folds), ranks_s)


def with_other_loss(config: FitConfig) -> FitConfig | None:
    """The options with the square of their loss, if the solver has it."""
    section, options = section_of(config.solver), config.solver_options
    squared = SQUARED.get(getattr(options, "loss", ""))
    if squared not in field_values(option_field(f"{section}.loss")):
        return None
    return config.model_copy(update={section: options.model_copy(update={"loss": squared})})


def in_ranks(config: FitConfig) -> FitConfig:
    """The options of a short search in columns that are scaled by their ranks."""
    options = tuple(name for name in config.search.chosen if name != "scale")
    rows = min(config.search.sample, RANKS_ROWS)
    search = config.search.model_copy(update={"options": options, "sample": rows, "trials": RANKS_TRIALS})
    return config.model_copy(update={"scale": "quantile", "search": search})


def best_with_and_without_metric(candidates: Sequence[FitConfig]) -> list[FitConfig]:
    """The first candidate, and the next one that has a metric where that has none, or none where that has one."""
    first, *others = candidates
    return [first, *[other for other in others if (other.metric.factor is None) != (first.metric.factor is None)][:1]]


class _Folds:
    """The decisions of candidates on rows that they were not trained on, fold by fold; saved as they come."""

    def __init__(
        self,
        store: Store,
        candidates: Sequence[FitConfig],
        count: int,
        learn: Learn,
        engine: Engine,
        folder: Place,
        checkpoints: Checkpoints,
        events: Events,
        until: float | None,
    ) -> None:
        self.store, self.candidates, self.engine, self.folder = store, candidates, engine, folder
        self._learn, self._checkpoints, self._events, self._until = learn, checkpoints, events, until
        saved = checkpoints.load()
        if saved is not None and len(saved.get("fold", ())) == store.n:  # a time budget may leave fewer rows now
            self._state: State = dict(saved)
        else:
            self._state = {"fold": folds_of(store, candidates[0])}
        self.fold, self.weight = self._state["fold"], weights_of(store)
        self.folds = int(self.fold.max()) + 1
        self._done, self._total = 0, len(candidates) + count * self.folds
        self.method = candidates[0].probability.method or "sigmoid"

    @property
    def codes(self) -> np.ndarray:
        """(n,) of all rows."""
        codes: np.ndarray = self._state["codes"]
        return codes

    def members(self, count: int) -> list[int]:
        """The candidates that go together, by the first fold, of those that could be fitted to all folds."""
        together = self._together(count)
        return [number for number in together if all(self._has_decided(number, fold) for fold in range(1, self.folds))]

    def _together(self, count: int) -> list[int]:
        numbers = [number for number in range(len(self.candidates)) if self._has_decided(number, 0)]
        inside = self.fold == 0
        codes, weight, k = self.codes[inside], self.weight[inside], self.k
        if len(np.unique(codes[weight > 0])) < k:  # a fold without one of the classes shows little
            return numbers[:count]
        ps = {number: self._calibrated(number, inside)[1] for number in numbers}
        chosen = numbers[:1]
        while len(chosen) < min(count, len(numbers)):
            rest = [number for number in numbers if number not in chosen]
            means = [np.mean([ps[number] for number in (*chosen, other)], axis=0) for other in rest]
            chosen.append(rest[int(np.argmin([_log_loss(p, codes, weight) for p in means]))])
        return chosen

    def out_of_fold(self, number: int) -> OutOfFold:
        return OutOfFold(self.candidates[number], *self._calibrated(number, np.ones(self.store.n, bool)))

    def fitted(self, number: int) -> FittedModel:
        """The member of all rows."""
        folder = self.folder / f"member-{number}"
        folder.mkdir(exist_ok=True)
        model = self._learn(self.candidates[number], self.store, folder, self._share())
        self._done += 1
        self._events.progress("ensemble", min(self._done, self._total), self._total)
        return model

    @property
    def k(self) -> int:
        return int(self.codes.max()) + 1

    def _has_decided(self, number: int, fold: int) -> bool:
        """Whether a candidate could be fitted, and has decided a fold. Raises what a fit of the first one raises."""
        key = f"{number}-{fold}"
        self._done += 1
        if f"done-{key}" not in self._state:
            began = time.perf_counter()
            try:
                self._decide(number, fold)
                self._state[f"done-{key}"] = True
            except FAILURES as error:
                if number == 0:
                    raise
                self._events.warn(f"a candidate of the ensemble could not be fitted, and is left out ({error})")
                self._state[f"done-{key}"] = False
            self._checkpoints.offer(self._state.copy, last=True)
            self._require_time(time.perf_counter() - began)
        self._events.progress("ensemble", min(self._done, self._total - 1), self._total)
        return bool(self._state[f"done-{key}"])

    def _share(self) -> int:
        """Of the time left, for the next fit: one of so many."""
        return max(1, int((self._total - self._done) / SLOWER))

    @property
    def converged(self) -> bool:
        """Whether no fit of a fold was cut short."""
        return "cut short" not in self._state

    def _require_time(self, seconds: float) -> None:
        """Raises OutOfTime if fits like the first one, which took so long, are too long."""
        if self._until is not None and self._done == 1:
            needed_s = SLOWER * seconds * (self._total - self._done)
            if not self.converged or needed_s > self._until - time.time():
                raise OutOfTime

    def _decide(self, number: int, fold: int) -> None:
        inside, folder = np.flatnonzero(self.fold == fold), self.folder / f"{number}-{fold}"
        folder.mkdir(exist_ok=True)
        rows = self.store.subset(np.flatnonzero(self.fold != fold))
        model: Any = self._learn(self.candidates[number], rows, folder, self._share())
        if (model.header.certificate or {}).get("converged") is False:
            self._state["cut short"] = True
        if "codes" not in self._state:
            self._state["codes"] = codes_of_labels(model, self.store)
        held_out = self.store.subset(inside)
        blocks = [decided for _, _, decided in decision_blocks(model, held_out, self.engine)]
        name = f"decisions-{number}"
        if name not in self._state:
            self._require_room(blocks[0].shape[1])
            self._state[name] = np.zeros((self.store.n, blocks[0].shape[1]), np.float32)
            self._state[f"pairwise-{number}"] = model.is_pairwise
        self._state[name][inside] = np.concatenate(blocks)
        remove_tree(folder)

    def _require_room(self, columns: int) -> None:
        """Raises ConfigError."""
        needed = 4 * columns * self.store.n * (len(self.candidates) + COPIES)
        if needed > MOST_SHARE * allowed_bytes(self.candidates[0].memory_limit):
            raise ConfigError(
                f"the folds of an ensemble have {columns:,} decision values of each of {self.store.n:,} rows, more "
                "than memory allows; leave it out, or give --memory-limit"
            )

    def _calibrated(self, number: int, inside: np.ndarray) -> tuple[Calibration, np.ndarray]:
        """The calibration of a candidate by these rows, and their probabilities."""
        decisions, pairwise = self._state[f"decisions-{number}"][inside], bool(self._state[f"pairwise-{number}"])
        codes, weight, k = self.codes[inside], self.weight[inside], self.k
        own = own_problems(decisions, codes, k, pairwise=pairwise)
        calibration = calibrate(own, codes, k, method=self.method, pairwise=pairwise, weight=weight)
        return calibration, calibration.probabilities(decisions, k, pairwise=pairwise)


def _stacked(folds: _Folds, members: Sequence[int], header: Header) -> Ensemble:
    """Combines members, without those that count for nothing."""
    codes, config, k = folds.codes, folds.candidates[0], folds.k
    out_of_fold, factors, weight = [folds.out_of_fold(number) for number in members], None, folds.weight
    if config.class_weight is not None:
        factors = class_factors(np.bincount(codes, weight, k), header.classes, config.class_weight)
        weight = weight * factors[codes]
    weights, offsets = fit_weights([member.p for member in out_of_fold], codes, weight)
    counting = np.flatnonzero(weights).tolist() or [0]  # of labels that no member predicts, none counts
    members, weights = [members[i] for i in counting], weights[counting]
    out_of_fold = [out_of_fold[i] for i in counting]
    models = []
    for number, member in zip(members, out_of_fold, strict=True):
        fitted: Any = folds.fitted(number)
        models.append(replace(fitted, header=replace(fitted.header, calibration=member.calibration)))
    of_model = replace(header, calibration=Calibration.logistic(n_columns(k), factors))
    model = EnsembleModel(of_model, tuple(models), weights, offsets)
    decisions = log_odds(combined([member.p for member in out_of_fold], weights, offsets))
    groups, has_weights = folds.store.connected_groups, factors is not None
    rows = DecidedRows(decisions, codes, folds.weight, k, False, groups, has_weights, binary=decisions)
    reports = [
        _report(member, fitted, share, codes, folds.weight)
        for member, fitted, share in zip(out_of_fold, models, weights.tolist(), strict=True)
    ]
    return Ensemble(model, rows, reports, folds.converged)


def _report(member: OutOfFold, model: Any, weight: float, codes: np.ndarray, v: np.ndarray) -> dict[str, Any]:
    config, p = member.config, member.p
    loss = getattr(config.solver_options, "loss", None)
    return {
        "solver": config.solver,
        "kernel": model.header.kernel.name,
        **({"loss": loss} if loss else {}),
        "scale": model.header.scaling.kind,
        "metric": config.metric.kind,
        "C": config.C,
        "gamma": model.header.kernel.to_attrs().get("gamma"),
        "weight": weight,
        "log_loss": _log_loss(p, codes, v),
        "accuracy": float(np.average(np.argmax(p, axis=1) == codes, weights=v)),
        "n_support": getattr(model, "n_support", None),
    }


def _log_loss(p: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> float:
    return float(-np.average(np.log(np.maximum(p[np.arange(len(codes)), codes], LEAST)), weights=weight))


def targets_of(codes: np.ndarray, weight: np.ndarray, k: int) -> np.ndarray:
    """(n, k) Platt's targets: (n_c + 1) / (n_c + 2) of a row's class c, whose rows have the summed weight n_c, and
    equal shares of the rest of the other classes."""
    rest = 1.0 / (np.bincount(codes, weight, k) + 2.0)
    targets = np.repeat((rest / (k - 1))[codes][:, None], k, axis=1)
    targets[np.arange(len(codes)), codes] = 1.0 - rest[codes]
    return targets


def fit_weights(
    probabilities: Sequence[np.ndarray], codes: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The weights (members,) and offsets (k,) that minimise the objective above, by L-BFGS. probabilities: (n, k) of
    each member; codes, weight: (n,)."""
    logs = np.stack([np.log(np.maximum(p, LEAST)) for p in probabilities])  # (members, n, k)
    members, n, k = logs.shape
    v, mean = weight / weight.mean(), 1.0 / members
    truth = targets_of(codes, v, k)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        w, b = x[:members], x[members:]
        u = np.tensordot(w, logs, 1) + b
        u -= u.max(axis=1, keepdims=True)
        total = np.exp(u).sum(axis=1)
        value = float(v @ (np.log(total) - np.einsum("ij,ij->i", truth, u)))
        error = v[:, None] * (np.exp(u) / total[:, None] - truth)
        gradient = np.concatenate([np.tensordot(logs, error, 2) + (w - mean), error.sum(axis=0) + b])
        return value + 0.5 * float(np.square(w - mean).sum() + b @ b), gradient

    start = np.concatenate([np.full(members, mean), np.zeros(k)])
    bounds = [(0.0, None)] * members + [(None, None)] * k
    x = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=CONVERGED).x
    return x[:members], x[members:]
