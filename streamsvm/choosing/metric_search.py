"""A search for kernel, gamma and C, and for a metric from the gradients of the fits (Radhakrishnan et al. 2024).

A track starts with a kernel and a scaling. Each of its steps tries values of gamma and C next to the last ones. The
best trial on held-out rows stays, and its gradients make the metric of the track's next step. Tracks start on few
rows, the best continue with more, and the last one with all (`MetricSearch.schedule`). A metric has to beat the fit
without one (`chosen`). The search is a solver: its state goes into checkpoints, and an oracle does the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamsvm.errors import ConfigError
from streamsvm.options.search import FAILED
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.solvers.in_turn import prefixed, unprefixed
from streamsvm.storage.text import JsonObject

SavedFields = dict[str, Any]  # of a checkpoint: arrays and numbers by name
StepRecord = tuple[Any, ...]  # values of RECORD_FIELDS
LEAST_ROWS = 1000  # of a phase
RECORD_FIELDS = {  # of the record of a step's fit, and their types
    "rows": int,
    "trials": int,
    "kernel": str,
    "gamma": float,
    "C": float,
    "class_weight": str,
    "columns": int,
    "score": float,
    "support": int,
    "seconds": float,
    "scale": str,
    "multiclass": str,  # absent from older checkpoints
}
NUMBERS = ("n", "phase", "steps", "turn", "settled", "failed")  # fields of a state
MOST_TRACKS = 6  # that take more than one step
USUAL = 2  # steps after the first of a phase, of a track that learns no metric: soon it tries nothing new
NO_STEP = 0.0  # of gamma: neither a larger one nor a smaller one helps
REST = "rest"  # of `Trial.multiclass`
SETTLED = 3  # steps of the last phase that were no better, after which the search ends


@dataclass(frozen=True)
class Trial(SizedInBytes):
    """A kernel, gamma and C to try under a metric. gamma: in the oracle's unit; NaN: as the options say. class_weight:
    factors on top of the rows' own weights, "balanced" or none. multiclass: REST for each class against the rest, none
    for the task as it is."""

    kernel: str
    gamma: float
    C: float
    class_weight: str = ""
    multiclass: str = ""

    @classmethod
    def from_arrays(cls, arrays: SavedFields) -> Trial:
        weight, multiclass = str(arrays["class_weight"]), str(arrays.get("multiclass", ""))
        return cls(str(arrays["kernel"]), float(arrays["gamma"]), float(arrays["C"]), weight, multiclass)


class HeldOutLosses:
    """Losses (h,) of held-out rows, and the score, 1 less their mean. Those of a fit that failed are infinite."""

    losses: np.ndarray

    @property
    def score(self) -> float:
        return 1.0 - float(self.losses.mean())

    @property
    def has_failed(self) -> bool:
        return not np.isfinite(self.losses).all()


@dataclass(frozen=True)
class TrialResult(HeldOutLosses, SizedInBytes):
    """Losses (h,) of held-out rows, coefficients alpha (m, columns), and the seconds of the fit."""

    losses: np.ndarray
    alpha: np.ndarray
    seconds: float = 0.0

    @classmethod
    def of_all(cls, results: Sequence[TrialResult]) -> TrialResult:
        """The result of a trial on several samples, concatenated."""
        losses, alpha = (np.concatenate([getattr(result, name) for result in results]) for name in ("losses", "alpha"))
        return cls(losses, alpha, sum(result.seconds for result in results))


@dataclass(frozen=True)
class FittedTrial(HeldOutLosses):
    """A trial on some rows, under a factor, and its losses (h,). learned: whether gradients made the factor."""

    trial: Trial
    rows: int
    factor: np.ndarray
    losses: np.ndarray
    learned: bool = False

    @property
    def family(self) -> tuple[str, bool]:
        """What it shares with fits that err alike: the kernel, and whether there is a metric."""
        return self.trial.kernel, self.learned

    def beats(self, other: FittedTrial) -> bool:
        """Whether it is better by more than the standard error of the difference, on the same rows."""
        gains = other.losses - self.losses
        return float(gains.mean()) > float(gains.std()) / max(1, len(gains)) ** 0.5

    def to_arrays(self) -> SavedFields:
        fields = {name: getattr(self, name) for name in ("rows", "factor", "losses", "learned")}
        return asdict(self.trial) | fields

    @classmethod
    def from_arrays(cls, arrays: SavedFields) -> FittedTrial:
        return cls(
            Trial.from_arrays(arrays), int(arrays["rows"]), arrays["factor"], arrays["losses"], bool(arrays["learned"])
        )


@dataclass(frozen=True)
class Track:
    """The present trial of a track, its factor, coefficients alpha / C to start from, and its last fit. gamma_step: the
    factor on gamma to try next. If it does not help, its inverse follows under the next metric; NO_STEP if neither did.
    learns: whether its gradients make a metric. scale: the name of the first factor, for a report."""

    trial: Trial
    factor: np.ndarray
    learns: bool = True
    scale: str = ""
    start: np.ndarray | None = None
    gamma_step: float = 2.0
    last: FittedTrial | None = None

    @property
    def score(self) -> float:
        return self.last.score if self.last else -np.inf

    def gamma_step_after(self, trial: Trial) -> float:
        """The factor on gamma to try after the best trial of a step."""
        ratio = trial.gamma / self.trial.gamma
        if ratio > 1 or ratio < 1:
            return 2.0 if ratio > 1 else 0.5
        return 1 / self.gamma_step if self.learns else NO_STEP if trial == self.trial else 2.0

    def to_arrays(self) -> SavedFields:
        arrays = asdict(self.trial) | {name: getattr(self, name) for name in ("factor", "learns", "scale")}
        arrays["way"] = self.gamma_step
        arrays |= {} if self.start is None else {"start": self.start}
        return arrays | (prefixed("last_", self.last.to_arrays()) if self.last else {})

    @classmethod
    def from_arrays(cls, arrays: SavedFields) -> Track:
        last = unprefixed("last_", arrays)
        return cls(
            Trial.from_arrays(arrays),
            arrays["factor"],
            learns=bool(arrays["learns"]),
            scale=str(arrays["scale"]),
            start=arrays.get("start"),
            gamma_step=float(arrays["way"]),
            last=FittedTrial.from_arrays(last) if last else None,
        )


class Oracle(Protocol):
    """Samples of n rows to learn from, in random order, each with held-out rows. A factor (s, d) or (s, d, r): one of
    `data.metric.Metric` for each of s samples that share no rows to learn a metric from, or one for all."""

    @property
    def n(self) -> int: ...

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[TrialResult]:
        """The result of each trial on the first rows. start: coefficients alpha / C to start from, maybe of fewer."""

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray | None:
        """The factor from the gradients of a solution; None if they are beyond float32."""


@dataclass(frozen=True)
class MetricState:
    """The tracks that are left, the place in the schedule, and the fits so far.

    n: rows of the last phase. phase, steps, turn: the present phase, its finished steps, and the track whose turn is
    next. settled: steps of the last phase since its best. failed: fits dropped because values were beyond float32 or
    they did not converge. best: of the last phase. first: the best first fit of a track, before any metric. records: of
    each step's fit, see RECORD_FIELDS. plain: at the end, fits without a metric on n rows, the given options first.
    pool: losses (h,) of all trials on n rows, with a metric or without. families: the best fit on the most rows of each
    kernel, with a metric and without.
    """

    tracks: tuple[Track, ...]
    n: int
    phase: int = 0
    steps: int = 0
    turn: int = 0
    settled: int = 0
    failed: int = 0
    best: FittedTrial | None = None
    first: FittedTrial | None = None
    records: tuple[StepRecord, ...] = ()
    plain: tuple[FittedTrial, ...] = ()
    pool: tuple[np.ndarray, ...] = ()
    families: tuple[FittedTrial, ...] = ()
    ended: bool = False

    def with_families(self, fits: Iterable[FittedTrial]) -> MetricState:
        """With these fits, of which some may be the best of their family."""
        best = {fitted.family: fitted for fitted in self.families}
        for fitted in fits:
            best[fitted.family] = max(best.get(fitted.family, fitted), fitted, key=lambda one: (one.rows, one.score))
        return replace(self, families=tuple(best.values()))

    def to_arrays(self) -> SavedFields:
        """All fields as named arrays, for a checkpoint."""
        arrays: SavedFields = {name: getattr(self, name) for name in NUMBERS} | {"ended": self.ended}
        arrays |= {f"told{i}": np.array([str(value) for value in row]) for i, row in enumerate(self.records)}
        arrays |= {f"pool{i}": losses for i, losses in enumerate(self.pool)}
        for name in ("best", "first"):
            fitted = getattr(self, name)
            arrays |= prefixed(f"{name}_", fitted.to_arrays()) if fitted else {}
        groups: list[tuple[str, Sequence[Track | FittedTrial]]] = [
            ("track", self.tracks),
            ("plain", self.plain),
            ("family", self.families),
        ]
        for name, fits in groups:
            for i, item in enumerate(fits):
                arrays |= prefixed(f"{name}{i}_", item.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: SavedFields) -> MetricState:
        numbers = {name: int(arrays.get(name, 0)) for name in NUMBERS}  # 0.2 counted no failed fits
        best, first = (unprefixed(name, arrays) for name in ("best_", "first_"))
        tracks = tuple(Track.from_arrays(fields) for fields in _numbered("track", arrays))
        plain, families = (
            tuple(FittedTrial.from_arrays(fields) for fields in _numbered(name, arrays)) for name in ("plain", "family")
        )
        rows = (arrays[f"told{i}"].tolist() for i in range(sum(name.startswith("told") for name in arrays)))
        records = tuple(
            tuple(kind(value) for kind, value in zip(RECORD_FIELDS.values(), row, strict=False)) for row in rows
        )
        pool = sum(name.startswith("pool") for name in arrays)
        return cls(
            tracks,
            best=FittedTrial.from_arrays(best) if best else None,
            first=FittedTrial.from_arrays(first) if first else None,
            records=records,
            plain=plain,
            pool=tuple(arrays[f"pool{i}"] for i in range(pool)),
            families=families,
            ended=bool(arrays["ended"]),
            **numbers,
        )


def _numbered(name: str, arrays: SavedFields) -> list[SavedFields]:
    items: list[SavedFields] = []
    while fields := unprefixed(f"{name}{len(items)}_", arrays):
        items.append(fields)
    return items


class SearchPhase(NamedTuple):
    """The rows and steps of each track in a phase, and the number of tracks that continue after it."""

    rows: int
    steps: int
    keep: int


@dataclass(frozen=True)
class MetricSearch:
    """The search as a solver. tracks: to start with. iterations: steps of a track after its first one, at most.

    gamma, C: whether they are searched. given: the trial and factor of the given options, which are compared with the
    choice at the end; None: the tracks come from an earlier search, and continue with all rows. affordable: called at
    the end of a phase with the rows and trials of the phases to come; returns the number of rows for which there is
    time.
    """

    tracks: tuple[Track, ...]
    iterations: int
    gamma: bool
    C: bool
    given: tuple[Trial, np.ndarray] | None = None
    affordable: Callable[[MetricState, Sequence[tuple[int, int]]], int] | None = None

    def init(self, problem: Oracle) -> MetricState:
        return MetricState(self.tracks, problem.n)

    def schedule(self, n: int, least: int = LEAST_ROWS) -> tuple[SearchPhase, ...]:
        """The phases over n rows: one step more than metrics, of which the last phase, with all rows, has two or more.
        least: rows of a phase, at least."""
        steps = self.iterations + 1
        if self.given is None:
            return (SearchPhase(n, steps, 1),)
        early = min(6, steps - 2)
        shares = zip((8, 4, 2), (early + 2, early + 1, early), (3, 2, 1), strict=True)
        phases = [
            SearchPhase(min(n, max(least, n // part)), phase_steps // 3, keep) for part, phase_steps, keep in shares
        ]
        if len(self.tracks) > MOST_TRACKS and phases[0].steps > 1:  # a step each is enough to find the worst
            rows, phase_steps, keep = phases[0]
            phases[:1] = [SearchPhase(rows, 1, MOST_TRACKS), SearchPhase(rows, phase_steps - 1, keep)]
        return *(phase for phase in phases if phase.steps), SearchPhase(n, steps - early, 1)

    def _phases(self, state: MetricState) -> tuple[SearchPhase, ...]:
        """The schedule; after n has fallen, no phase has fewer rows than were tried already."""
        return self.schedule(state.n, max(LEAST_ROWS, max((record[0] for record in state.records), default=0)))

    def ahead(self, state: MetricState) -> list[tuple[int, int]]:
        """The rows and trials of each phase to come, at most."""
        first_step, tracks, costs = 1 + 2 * self.gamma + 2 * self.C, list(state.tracks), []
        for phase in self._phases(state)[state.phase :]:
            later_steps = [phase.steps - 1 if track.learns else min(phase.steps - 1, USUAL) for track in tracks]
            costs.append((phase.rows, sum(first_step + steps * (1 + self.gamma) for steps in later_steps)))
            tracks = tracks[: phase.keep]
        return [*costs, (state.n, 1 + first_step)]

    def next_cost(self, state: MetricState) -> float:
        """The cost of the next step in kernel values: the squared rows of all of its trials."""
        phases = self._phases(state)
        if state.phase == len(phases):
            return state.n**2 * (1.0 + len(self._near_first(state)))
        is_last, track = state.phase == len(phases) - 1, state.tracks[state.turn]
        return phases[state.phase].rows ** 2 * float(len(self._trials(track, state, is_last=is_last)))

    def total(self, n: int) -> int:
        """The number of steps, at most."""
        phases, alive, total = self.schedule(n), len(self.tracks), 0
        for phase in phases:
            total, alive = total + phase.steps * alive, min(alive, phase.keep)
        return total

    def step(self, problem: Oracle, state: MetricState) -> MetricState:
        phases = self._phases(state)
        if state.phase == len(phases):
            plain = self._without(problem, state)
            losses = [fitted.losses for fitted in plain if not fitted.has_failed]
            failed = state.failed + len(plain) - len(losses)
            state = state.with_families(fitted for fitted in plain if not fitted.has_failed)
            return replace(state, plain=plain, pool=(*state.pool, *losses), failed=failed, ended=True)
        phase, track = phases[state.phase], state.tracks[state.turn]
        trials = self._trials(track, state, is_last=state.phase == len(phases) - 1)
        earlier = None if track.learns else track.last
        if earlier is not None and earlier.rows == phase.rows:  # same rows and factor: the result would be the same
            trials = trials[1:]
            if not trials:
                return self._advanced(state, earlier, phases)
        results = problem.tried(phase.rows, track.factor, trials, track.start)
        state = replace(state, failed=state.failed + sum(each.has_failed for each in results))
        best = int(np.argmax([each.score for each in results]))
        if results[best].has_failed:
            return self._dropped(state, phases)
        is_first = track.last is None and self.given is not None
        learned = track.learns and not is_first
        fitted = FittedTrial(trials[best], phase.rows, track.factor, results[best].losses, learned)
        state = state.with_families([fitted])
        is_last = state.phase == len(phases) - 1 and state.steps == phase.steps - 1
        factor: np.ndarray | None = track.factor
        if track.learns and not is_last:
            factor = problem.refitted(phase.rows, track.factor, trials[best], results[best].alpha)
        if factor is None:
            factor, track = track.factor, replace(track, learns=False)
        if is_first and (state.first is None or fitted.score > state.first.score):
            state = replace(state, first=fitted)
        start, gamma_step = results[best].alpha / trials[best].C, track.gamma_step_after(trials[best])
        if earlier is None or earlier.rows < phase.rows or fitted.score > earlier.score:
            track = replace(track, trial=trials[best], factor=factor, start=start, gamma_step=gamma_step, last=fitted)
        else:
            track = replace(track, gamma_step=NO_STEP)
        tracks = (*state.tracks[: state.turn], track, *state.tracks[state.turn + 1 :])
        width = factor_width(fitted.factor)
        if phase.rows == state.n:
            losses = [each.losses for each in results if not each.has_failed]
            state = replace(state, pool=(*state.pool, *losses))
        support, seconds = int(np.count_nonzero(results[best].alpha.any(axis=1))), results[best].seconds
        *values, multiclass = astuple(fitted.trial)
        row = (phase.rows, len(trials), *values, width, fitted.score, support, seconds, track.scale, multiclass)
        records = (*state.records, row)
        assert track.last is not None  # this step's fit, or a better one on the same rows
        return self._advanced(replace(state, tracks=tracks, records=records), track.last, phases)

    def _advanced(self, state: MetricState, fitted: FittedTrial, phases: tuple[SearchPhase, ...]) -> MetricState:
        """The state after a fit: of the next turn, or of the next phase with the tracks that continue."""
        is_last = state.phase == len(phases) - 1
        if is_last:
            better = state.best is None or fitted.score > state.best.score
            best, settled = (fitted, 0) if better else (state.best, state.settled + 1)
            state = replace(state, best=best, settled=settled)
        return self._next_turn(replace(state, turn=state.turn + 1), phases)

    def _dropped(self, state: MetricState, phases: tuple[SearchPhase, ...]) -> MetricState:
        """The state without the track whose turn it is, of which all trials have failed."""
        tracks = state.tracks[: state.turn] + state.tracks[state.turn + 1 :]
        state = replace(state, tracks=tracks)
        if tracks:
            return self._next_turn(state, phases)
        return replace(state, phase=len(phases), ended=self.given is None or state.first is None)

    def _next_turn(self, state: MetricState, phases: tuple[SearchPhase, ...]) -> MetricState:
        """After the last track comes the first one again, or the next phase."""
        if state.turn < len(state.tracks):
            return state
        is_last = state.phase == len(phases) - 1
        has_settled = is_last and state.settled >= SETTLED * len(state.tracks)
        if state.steps + 1 < phases[state.phase].steps and not has_settled:
            return replace(state, turn=0, steps=state.steps + 1)
        best_first = sorted(state.tracks, key=lambda track: -track.score)
        tracks = tuple(best_first[: phases[state.phase].keep])
        ended = is_last and self.given is None
        state = replace(state, tracks=tracks, phase=state.phase + 1, steps=0, turn=0, ended=ended)
        if self.affordable is None or state.phase == len(phases):
            return state
        rows = max(phases[state.phase - 1].rows, self.affordable(state, self.ahead(state)))
        return replace(state, n=min(state.n, rows))

    def _trials(self, track: Track, state: MetricState, *, is_last: bool) -> list[Trial]:
        """The last trial and its neighbours: larger and smaller values first in a phase, one of them later."""
        last, is_first_step = track.trial, state.steps == 0
        is_first = is_first_step and state.phase == 0 and self.given is not None
        gammas = (
            ((2.0, 0.5, 4.0) if is_first else (2.0, 0.5) if is_first_step else (track.gamma_step,))
            if self.gamma and not np.isnan(last.gamma) and (is_first_step or track.gamma_step != NO_STEP)
            else ()
        )
        Cs = (3.0, 1 / 3)[: 1 if is_last and self.given is not None else 2] if self.C and is_first_step else ()
        near = [replace(last, gamma=last.gamma * factor) for factor in gammas]
        near += [replace(last, C=last.C * factor) for factor in Cs]
        if is_first and gammas and self.C:
            near.append(replace(last, gamma=4 * last.gamma, C=3 * last.C))
        return [last, *near]

    def _without(self, problem: Oracle, state: MetricState) -> tuple[FittedTrial, ...]:
        """The given fit, and the best first fit and its neighbours without a metric, on n rows."""
        assert self.given is not None  # else it has ended
        assert state.first is not None  # of the first step
        tried = [([self.given[0]], self.given[1]), (self._near_first(state), state.first.factor)]
        return tuple(
            FittedTrial(trial, state.n, factor, each.losses)
            for trials, factor in tried
            for trial, each in zip(trials, problem.tried(state.n, factor, trials, None), strict=True)
        )

    def _near_first(self, state: MetricState) -> list[Trial]:
        """The best first trial and its neighbours, without those that were tried on n rows already."""
        assert self.given is not None
        assert state.first is not None
        last = state.first.trial
        near = [last] if last != self.given[0] else []
        if state.best is not None and state.best.learned:  # else these were its steps
            gammas = (2.0, 0.5) if self.gamma and not np.isnan(last.gamma) else ()
            near += [replace(last, gamma=last.gamma * factor) for factor in gammas]
            near += [replace(last, C=last.C * factor) for factor in (3.0, 1 / 3) if self.C]
        return near

    @staticmethod
    def is_solved(state: MetricState) -> bool:
        return state.ended


def chosen(state: MetricState) -> FittedTrial:
    """The best fit. A fit under a metric must beat those without by more than the standard error. If the search ended
    before it had compared them: the best of those with the most rows. Raises ConfigError if all fits failed."""
    compared = [fitted for fitted in state.plain if not fitted.has_failed]
    if not compared:
        fits = [fit for fit in (state.best, *(track.last for track in state.tracks), state.first) if fit]
        if not fits:
            raise ConfigError(
                f"all {state.failed} fits of the search failed, as {FAILED}: scale the features, or take a smaller "
                "gamma, degree or C"
            )
        return max(fits, key=lambda fitted: (fitted.rows, fitted.score))
    plain = max(compared, key=lambda fitted: fitted.score)  # the given one of equals
    if state.best is None or not state.best.learned:
        return max(plain, state.best or plain, key=lambda fitted: fitted.score)
    return state.best if state.best.beats(plain) else plain


def factor_width(factor: np.ndarray) -> int:
    """The number of columns that a factor keeps."""
    return int(np.count_nonzero(factor.any(axis=0))) if factor.ndim == 2 else factor.shape[2]


def facts(state: MetricState) -> list[JsonObject]:
    """The record of each step, for a report."""
    return [{"multiclass": ""} | dict(zip(RECORD_FIELDS, row, strict=False)) for row in state.records]
